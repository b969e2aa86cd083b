//! Our provisioner and attacher with csi-driver-host-path on the real control plane.

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;

use crate::{
    kube::NODE,
    stage::{ATTACHMENT, CLAIM, Program, Stage, VOLUME, claim},
};

pub(super) async fn run(stage: &Stage) -> Result<()> {
    start(stage, &["--enable-topology=false"]).await?;
    attached_life(stage).await
}

/// Starts the driver, with further arguments.
pub(super) async fn start(stage: &Stage, more: &[&str]) -> Result<Arc<Program>> {
    let endpoint = format!("--endpoint=unix://{}", stage.driver_socket().display());
    let name = format!("--drivername={}", stage.driver_name());
    let state = stage.folder().join("state");
    std::fs::create_dir_all(&state)?;
    let state = format!("--statedir={}", state.display());
    let node = format!("--nodeid={NODE}");
    let mut arguments: Vec<&str> = vec![&endpoint, &name, &state, &node, "--enable-attach"];
    arguments.extend(more);
    stage
        .driver(&stage.binary("hostpathplugin"), &arguments)
        .await
}

/// A claim is bound, its volume attached to the node and detached, and both go; with whatever
/// driver listens on the stage's socket.
pub(super) async fn attached_life(stage: &Stage) -> Result<()> {
    stage
        .class(true, &json!({"volumeBindingMode": "Immediate"}))
        .await?;
    stage.our_controller().await?;
    stage.our_registrar().await?;

    stage
        .apply_value(claim("data", stage.namespace(), "64Mi"))
        .await?;
    let volume = stage.bound("data").await?;
    stage
        .apply_value(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": stage.namespace()},
            "spec": {"attacher": stage.driver_name(), "nodeName": NODE, "source": {"persistentVolumeName": volume}},
        }))
        .await?;
    stage
        .until(ATTACHMENT, stage.namespace(), "attached", |attachment| {
            attachment["status"]["attached"] == true
        })
        .await?;
    stage.remove(ATTACHMENT, &[stage.namespace()]).await?;
    stage.remove(CLAIM, &["data"]).await?;
    stage.gone(VOLUME, &volume).await
}
