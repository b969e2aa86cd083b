//! Claims are cut together, and each can be made anew from its part.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{at_once, copies::ready};
use crate::stage::{
    CLAIM, GROUP_CONTENT, GROUP_SNAPSHOT, GROUP_SNAPSHOTS, SNAPSHOT_CONTENT, SNAPSHOTS, Stage,
    VOLUME, VOLUME_SNAPSHOT, claim,
};

const MEMBERS: [&str; 2] = ["one", "two"];

pub(super) async fn cut_together(stage: &Stage) -> Result<()> {
    let class = at_once(stage);
    let mut volumes = Vec::new();
    for name in MEMBERS {
        let mut member = claim(name, &class, "64Mi");
        member["metadata"]["labels"] = json!({"together": "yes"});
        stage.apply_value(member).await?;
    }
    for name in MEMBERS {
        volumes.push(stage.bound(name).await?);
    }
    stage
        .apply_value(json!({
            "apiVersion": format!("{GROUP_SNAPSHOTS}/v1"), "kind": "VolumeGroupSnapshotClass",
            "metadata": {"name": class}, "driver": stage.driver_name(), "deletionPolicy": "Delete",
        }))
        .await?;
    stage
        .apply_value(json!({
            "apiVersion": format!("{GROUP_SNAPSHOTS}/v1"), "kind": "VolumeGroupSnapshot",
            "metadata": {"name": "both"},
            "spec": {
                "volumeGroupSnapshotClassName": class,
                "source": {"selector": {"matchLabels": {"together": "yes"}}},
            },
        }))
        .await?;
    let whole = |group: &Value| group["status"]["readyToUse"] == true;
    let group = stage.until(GROUP_SNAPSHOT, "both", "ready", whole).await?;
    let content = group["status"]["boundVolumeGroupSnapshotContentName"].as_str();
    let content = content.context("a ready group has no content")?;

    let parts = stage
        .bounded("all members say that they are the group's", async {
            loop {
                let parts = parts(stage).await?;
                if parts.len() >= MEMBERS.len() {
                    return Ok(parts);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await?;
    let sources: BTreeSet<&str> = parts.iter().map(|(source, _)| source.as_str()).collect();
    ensure!(
        sources == BTreeSet::from(MEMBERS) && parts.len() == MEMBERS.len(),
        "a group has other members than the claims that were to be cut: {parts:?}"
    );
    let mut contents = Vec::new();
    for (source, part) in &parts {
        contents.push(ready(stage, part).await?);
        let name = format!("{source}-anew");
        let mut anew = claim(&name, &class, "64Mi");
        anew["spec"]["dataSource"] =
            json!({"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": part});
        stage.apply_value(anew).await?;
    }
    for (source, _) in &parts {
        volumes.push(stage.bound(&format!("{source}-anew")).await?);
    }

    stage
        .remove(CLAIM, &["one-anew", "two-anew", "one", "two"])
        .await?;
    for volume in volumes {
        stage.gone(VOLUME, &volume).await?;
    }
    stage.remove(GROUP_SNAPSHOT, &["both"]).await?;
    stage.gone(GROUP_CONTENT, content).await?;
    for (_, part) in &parts {
        stage.gone(VOLUME_SNAPSHOT, part).await?;
    }
    for content in &contents {
        stage.gone(SNAPSHOT_CONTENT, content).await?;
    }
    Ok(())
}

/// The snapshots of the group, each with the claim that it is of.
async fn parts(stage: &Stage) -> Result<Vec<(String, String)>> {
    let mut parts = Vec::new();
    for snapshot in stage.list(VOLUME_SNAPSHOT).await? {
        if snapshot["status"]["volumeGroupSnapshotName"] == "both" {
            let text = |pointer: &str| snapshot.pointer(pointer).and_then(Value::as_str);
            let source = text("/spec/source/persistentVolumeClaimName");
            let name = text("/metadata/name").unwrap_or_default();
            parts.push((source.unwrap_or_default().to_owned(), name.to_owned()));
        }
    }
    Ok(parts)
}
