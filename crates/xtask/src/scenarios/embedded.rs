//! The embedded API server with the Go sidecars as its clients, unmodified, and with our roles as
//! on a cluster.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;

use super::go_sidecars;
use crate::{kube::NODE, stage::Stage};

pub(super) async fn run(stage: &Stage) -> Result<()> {
    let kubeconfig = api_server(stage).await?;
    let stage = &stage.facing(&kubeconfig).await?;
    let root = stage.folder().join("node");
    stage.local_driver_for(&root).await?;
    stage.apply_value(go_sidecars::xfs(stage)).await?;
    ours(stage, "control", &kubeconfig, &[])?;
    ours(stage, "scheduler", &kubeconfig, &[])?;
    node(stage, &root, &kubeconfig).await?;
    go_sidecars::start(stage, &kubeconfig).await?;
    go_sidecars::life(stage).await?;
    stage.close().await
}

/// Starts the API server; answers with its administrator's kubeconfig.
pub(super) async fn api_server(stage: &Stage) -> Result<PathBuf> {
    let data = stage.folder().join("api");
    let kubeconfig = data.join("kubeconfig");
    let arguments = [
        "apiserver".as_ref(),
        "--listen=127.0.0.1:0".as_ref(),
        "--data-dir".as_ref(),
        data.as_os_str(),
    ];
    stage.start("apiserver", &stage.binary("orlop"), arguments)?;
    stage
        .bounded("the embedded API server listens", async {
            while !kubeconfig.exists() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        })
        .await?;
    Ok(kubeconfig)
}

pub(super) fn ours(stage: &Stage, role: &str, kubeconfig: &Path, more: &[&str]) -> Result<()> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments = ["--log=info", role, &kubeconfig];
    let arguments = arguments.iter().chain(more);
    stage.start(role, &stage.binary("orlop"), arguments)?;
    Ok(())
}

/// Starts our node, and makes the driver known to it.
pub(super) async fn node(stage: &Stage, root: &Path, kubeconfig: &Path) -> Result<()> {
    let registry = root.join("plugins_registry");
    std::fs::create_dir_all(&registry)?;
    let name = format!("--name={NODE}");
    let root = format!("--root={}", root.display());
    ours(stage, "node", kubeconfig, &[&name, &root])?;
    let socket = stage.driver_socket();
    stage.start(
        "registrar",
        &stage.binary("orlop"),
        [
            "node-registrar".to_owned(),
            format!("--csi-address={}", socket.display()),
            format!("--kubelet-registration-path={}", socket.display()),
            format!("--plugin-registration-path={}", registry.display()),
        ],
    )?;
    stage.registered().await
}
