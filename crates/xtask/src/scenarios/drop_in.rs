//! Our sidecars under the Go ones' names and with their flags: a claim is made, written to, grown,
//! copied, cut and restored, with two drivers.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::{go_sidecars, host_path};
use crate::{
    kube::KUBELET_ROOT,
    stage::{
        CLAIM, POD, SNAPSHOT_CONTENT, SNAPSHOTS, Stage, VOLUME, VOLUME_SNAPSHOT, claim, reader,
        writer,
    },
};

/// Less than this xfs can't be, and nothing else can grow in use on every machine.
const SMALL: &str = "320Mi";
const LARGE: &str = "400Mi";

/// Whose volumes.
#[derive(Clone, Copy)]
pub(super) enum Driver {
    Local,
    HostPath,
}

/// Before a real API server, with the real kubelet.
pub(super) async fn real(stage: &Stage, driver: Driver) -> Result<()> {
    let class = start_driver(stage, driver, Path::new(KUBELET_ROOT)).await?;
    start_sidecars(stage, &stage.administrator()).await?;
    stage.our_registrar().await?;
    life(stage, &class).await
}

/// Starts the driver; answers with the name of a class that it makes growing volumes of.
async fn start_driver(stage: &Stage, driver: Driver, root: &Path) -> Result<String> {
    match driver {
        Driver::Local => {
            stage.local_driver_for(root).await?;
            stage.apply_value(go_sidecars::xfs(stage)).await?;
            Ok(go_sidecars::class(stage))
        }
        Driver::HostPath => {
            host_path::start(stage, &["--enable-topology=false"]).await?;
            stage.class(true, &json!({})).await?;
            Ok(stage.namespace().to_owned())
        }
    }
}

/// Starts all sidecars, each by its old name, with flags in the forms that manifests have them.
async fn start_sidecars(stage: &Stage, kubeconfig: &Path) -> Result<()> {
    stage.snapshot_kinds().await?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let address = format!("--csi-address={}", stage.driver_socket().display());
    let namespace = format!("--leader-election-namespace={}", stage.namespace());
    let all: [(&str, &[&str]); 5] = [
        (
            "csi-provisioner",
            &["--v=5", "--timeout=30s", "--extra-create-metadata=true"],
        ),
        (
            "csi-attacher",
            &[
                "-v=5",
                "-timeout",
                "30s",
                "-feature-gates=MutableCSINodeAllocatableCount=true",
            ],
        ),
        (
            "csi-resizer",
            &["-v=5", "-handle-volume-inuse-error=false", "-workers=5"],
        ),
        (
            "csi-snapshotter",
            &["-v=5", "--timeout=1m0s", "--snapshot-name-prefix=cut"],
        ),
        ("snapshot-controller", &["-v=5", "-worker-threads=3"]),
    ];
    for (name, own) in all {
        let mut words = vec![name, &kubeconfig, "--leader-election=true", &namespace];
        if name != "snapshot-controller" {
            words.push(&address);
        }
        words.extend(own);
        stage.start(name, &stage.binary("orlop"), words)?;
    }
    Ok(())
}

async fn life(stage: &Stage, class: &str) -> Result<()> {
    let cuts = json!({
        "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshotClass",
        "metadata": {"name": stage.namespace()}, "driver": stage.driver_name(), "deletionPolicy": "Delete",
    });
    stage.apply_value(cuts).await?;
    stage.apply_value(claim("data", class, SMALL)).await?;
    stage.apply_value(writer("writer", "data", "ahoy")).await?;
    let mut volumes = vec![stage.bound("data").await?];
    stage.succeeded("writer").await?;

    let wish = json!({"spec": {"resources": {"requests": {"storage": LARGE}}}});
    stage.merge(CLAIM, "data", &wish).await?;
    stage.apply_value(reader("reader", "data", "ahoy")).await?;
    stage.succeeded("reader").await?;

    let cut = json!({
        "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshot", "metadata": {"name": "cut"},
        "spec": {
            "volumeSnapshotClassName": stage.namespace(), "source": {"persistentVolumeClaimName": "data"},
        },
    });
    stage.apply_value(cut).await?;
    stage
        .until(CLAIM, "data", "grown", |claim| {
            claim["status"]["capacity"]["storage"] == LARGE
        })
        .await?;
    let ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == true;
    let cut = stage.until(VOLUME_SNAPSHOT, "cut", "ready", ready).await?;
    let content = cut["status"]["boundVolumeSnapshotContentName"].as_str();
    let content = content.unwrap_or_default().to_owned();

    for (name, source) in [
        (
            "copy",
            json!({"kind": "PersistentVolumeClaim", "name": "data"}),
        ),
        (
            "restored",
            json!({"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": "cut"}),
        ),
    ] {
        let mut wanted = claim(name, class, LARGE);
        wanted["spec"]["dataSource"] = source;
        stage.apply_value(wanted).await?;
        let pod = format!("{name}-reader");
        stage.apply_value(reader(&pod, name, "ahoy")).await?;
    }
    for name in ["copy", "restored"] {
        volumes.push(stage.bound(name).await?);
        stage.succeeded(&format!("{name}-reader")).await?;
    }

    let pods = ["writer", "reader", "copy-reader", "restored-reader"];
    stage.remove(POD, &pods).await?;
    stage.remove(VOLUME_SNAPSHOT, &["cut"]).await?;
    stage.gone(SNAPSHOT_CONTENT, &content).await?;
    stage.remove(CLAIM, &["data", "copy", "restored"]).await?;
    for volume in volumes {
        stage.gone(VOLUME, &volume).await?;
    }
    Ok(())
}
