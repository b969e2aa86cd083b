//! containerd and its images.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use super::{Component, configure};
use crate::kube::{folder::Folder, images};

pub(crate) fn socket(folder: &Folder) -> String {
    folder.join("containerd.sock").display().to_string()
}

pub(in crate::kube) fn containerd(folder: &Folder) -> Result<Component> {
    // Most pods are on the host's network. Others have an address of their own, from which they
    // reach the host's, and that the host reaches.
    configure(
        folder,
        "cni.conflist",
        r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.78.0.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}]
        }}]}"#,
    )?;
    let config = configure(
        folder,
        "containerd.toml",
        &format!(
            r#"version = 2
root = "{root}"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Root may lack the right to lower it, as in many CI machines.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{conf}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#,
            root = folder.join("containerd").display(),
            socket = socket(folder),
            pause = images::PAUSE,
            conf = folder.join("config").display(),
        ),
    )?;
    Ok(Component {
        name: "containerd",
        program: PathBuf::from("containerd"),
        arguments: vec![format!("--config={config}")],
    })
}

/// Gives the images to containerd, as soon as it listens.
pub(in crate::kube) async fn import(folder: &Folder) -> Result<()> {
    let archive = folder.join("images.tar");
    images::write(&archive)?;
    give(folder, &archive).await
}

/// Gives the images of our binary to containerd.
pub(crate) async fn import_ours(folder: &Folder) -> Result<()> {
    let archive = folder.join("ours.tar");
    let (within, orlop) = (archive.clone(), folder.binary("orlop"));
    tokio::task::spawn_blocking(move || crate::image::write(&within, &orlop, images::OURS))
        .await??;
    let given = give(folder, &archive).await;
    std::fs::remove_file(&archive)?;
    given
}

async fn give(folder: &Folder, archive: &Path) -> Result<()> {
    let socket = socket(folder);
    let mut said = String::new();
    for _ in 0..100 {
        let imported = Command::new("ctr")
            .args([
                "--address",
                &socket,
                "--namespace",
                "k8s.io",
                "images",
                "import",
            ])
            .arg(archive)
            .output()
            .await
            .context("could not run ctr; run scripts/setup-kube")?;
        if imported.status.success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&imported.stderr).into_owned();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("containerd does not take the images: {said}")
}
