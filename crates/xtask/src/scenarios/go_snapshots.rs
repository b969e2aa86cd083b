//! The Go snapshotter and snapshot controller with our `local` driver.

use anyhow::Result;
use serde_json::{Value, json};

use super::go_sidecars;
use crate::stage::{
    CLAIM, POD, SNAPSHOT_CONTENT, SNAPSHOTS, Stage, VOLUME, VOLUME_SNAPSHOT, claim, reader, writer,
};

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.local_driver().await?;
    stage.snapshot_kinds().await?;
    let administrator = stage.administrator();
    go_sidecars::start(stage, &administrator).await?;
    go_sidecars::sidecar(stage, "csi-snapshotter", &administrator, &[])?;
    let kubeconfig = format!("--kubeconfig={}", administrator.display());
    let controller = stage.binary("snapshot-controller");
    stage.start("snapshot-controller", &controller, [kubeconfig])?;
    go_sidecars::register(stage).await?;
    life(stage).await
}

/// What is written before the cut is in a volume made from the snapshot; what is written after it
/// isn't.
async fn life(stage: &Stage) -> Result<()> {
    let class = stage.namespace();
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshotClass",
            "metadata": {"name": class}, "driver": stage.driver_name(), "deletionPolicy": "Delete",
        }))
        .await?;
    stage.apply_value(claim("data", class, "64Mi")).await?;
    stage.apply_value(writer("before", "data", "ahoy")).await?;
    let volume = stage.bound("data").await?;
    stage.succeeded("before").await?;
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshot", "metadata": {"name": "cut"},
            "spec": {"volumeSnapshotClassName": class, "source": {"persistentVolumeClaimName": "data"}},
        }))
        .await?;
    let ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == true;
    let cut = stage.until(VOLUME_SNAPSHOT, "cut", "ready", ready).await?;
    let content = cut["status"]["boundVolumeSnapshotContentName"].as_str();
    let content = content.unwrap_or_default().to_owned();
    stage.apply_value(writer("after", "data", "later")).await?;
    stage.succeeded("after").await?;

    let mut copy = claim("copy", class, "64Mi");
    copy["spec"]["dataSource"] =
        json!({"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": "cut"});
    stage.apply_value(copy).await?;
    stage.apply_value(reader("reader", "copy", "ahoy")).await?;
    let copied = stage.bound("copy").await?;
    stage.succeeded("reader").await?;

    stage.remove(POD, &["before", "after", "reader"]).await?;
    stage.remove(VOLUME_SNAPSHOT, &["cut"]).await?;
    stage.gone(SNAPSHOT_CONTENT, &content).await?;
    stage.remove(CLAIM, &["data", "copy"]).await?;
    stage.gone(VOLUME, &volume).await?;
    stage.gone(VOLUME, &copied).await
}
