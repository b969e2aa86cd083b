//! A volume is cut and copied; what is made from the cut, and from a snapshot that an administrator
//! made known, has what there was at the cut, and the copy has what there is.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::late;
use crate::stage::{
    CLAIM, POD, SNAPSHOT_CONTENT, SNAPSHOTS, Stage, VOLUME, VOLUME_SNAPSHOT, claim, reader, writer,
};

const SIZE: &str = "64Mi";

pub(super) async fn cut_and_copied(stage: &Stage) -> Result<()> {
    let class = late(stage);
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshotClass",
            "metadata": {"name": class}, "driver": stage.driver_name(), "deletionPolicy": "Delete",
        }))
        .await?;
    stage.apply_value(claim("data", &class, SIZE)).await?;
    stage.apply_value(writer("before", "data", "ahoy")).await?;
    let mut volumes = vec![stage.bound("data").await?];
    stage.succeeded("before").await?;
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshot", "metadata": {"name": "cut"},
            "spec": {"volumeSnapshotClassName": class, "source": {"persistentVolumeClaimName": "data"}},
        }))
        .await?;
    let content = ready(stage, "cut").await?;
    stage.apply_value(writer("after", "data", "later")).await?;
    let known = make_known(stage, &content).await?;
    stage.succeeded("after").await?;
    ensure!(ready(stage, "known").await? == known, "bound to another");

    let snapshot = |name| json!({"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": name});
    let sources = [
        (
            "copy",
            json!({"kind": "PersistentVolumeClaim", "name": "data"}),
            "later",
        ),
        ("restored", snapshot("cut"), "ahoy"),
        ("again", snapshot("known"), "ahoy"),
    ];
    for (name, source, word) in &sources {
        let mut wanted = claim(name, &class, SIZE);
        wanted["spec"]["dataSource"] = source.clone();
        stage.apply_value(wanted).await?;
        let pod = reader(&format!("{name}-reader"), name, word);
        stage.apply_value(pod).await?;
    }
    for (name, ..) in &sources {
        volumes.push(stage.bound(name).await?);
        stage.succeeded(&format!("{name}-reader")).await?;
    }

    let pods = [
        "before",
        "after",
        "copy-reader",
        "restored-reader",
        "again-reader",
    ];
    stage.remove(POD, &pods).await?;
    forget(stage, &known).await?;
    stage.remove(VOLUME_SNAPSHOT, &["cut"]).await?;
    stage.gone(SNAPSHOT_CONTENT, &content).await?;
    stage
        .remove(CLAIM, &["data", "copy", "restored", "again"])
        .await?;
    for volume in volumes {
        stage.gone(VOLUME, &volume).await?;
    }
    Ok(())
}

/// Waits until a snapshot is ready; answers with its content's name.
pub(super) async fn ready(stage: &Stage, name: &str) -> Result<String> {
    let ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == true;
    let snapshot = stage.until(VOLUME_SNAPSHOT, name, "ready", ready).await?;
    let content = snapshot["status"]["boundVolumeSnapshotContentName"].as_str();
    Ok(content
        .context("a ready snapshot has no content")?
        .to_owned())
}

/// Makes the snapshot of a content known a second time, as an administrator does with one that the
/// cluster did not make.
async fn make_known(stage: &Stage, content: &str) -> Result<String> {
    let content = stage.get(SNAPSHOT_CONTENT, content).await?;
    let content = content.context("the content is gone")?;
    let handle = &content["status"]["snapshotHandle"];
    let name = format!("{}-known", stage.namespace());
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshotContent", "metadata": {"name": name},
            "spec": {
                "driver": stage.driver_name(), "deletionPolicy": "Retain",
                "source": {"snapshotHandle": handle},
                "volumeSnapshotRef": {"name": "known", "namespace": stage.namespace()},
            },
        }))
        .await?;
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshot", "metadata": {"name": "known"},
            "spec": {"source": {"volumeSnapshotContentName": name}},
        }))
        .await?;
    Ok(name)
}

/// A snapshot goes, its content stays since it says so, and goes when it is asked to; the driver's
/// snapshot stays in both cases.
async fn forget(stage: &Stage, content: &str) -> Result<()> {
    stage.remove(VOLUME_SNAPSHOT, &["known"]).await?;
    let kept = stage.get(SNAPSHOT_CONTENT, content).await?;
    ensure!(kept.is_some(), "a content to be retained is gone");
    stage.remove(SNAPSHOT_CONTENT, &[content]).await
}
