//! Our snapshotter and snapshot controller in the place of the Go ones, with the same flags: the
//! same life is led with theirs and with ours, and at every stop the API server must hold the same.

mod life;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::likeness;
use crate::stage::{
    CLAIM, GROUP_CONTENT, GROUP_SNAPSHOT, GROUP_SNAPSHOTS, Program, SNAPSHOT_CONTENT, SNAPSHOTS,
    Stage, VOLUME, VOLUME_SNAPSHOT, claim,
};

/// Whose programs.
#[derive(Clone, Copy, Debug)]
enum Maker {
    Theirs,
    Ours,
}

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.snapshot_kinds().await?;
    stage.local_driver().await?;
    let kubeconfig = stage.role("controller").await?;
    stage.start(
        "controller",
        &stage.binary("orlop"),
        [
            "controller".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--csi-address={}", stage.driver_socket().display()),
            "--controllers=provisioner".to_owned(),
        ],
    )?;
    stage.our_registrar().await?;
    make_classes(stage).await?;

    let programs = start(stage, Maker::Theirs)?;
    let theirs = lead(stage, None).await?;
    for program in programs {
        program.end().await?;
    }
    start(stage, Maker::Ours)?;
    lead(stage, Some(&theirs)).await?;
    Ok(())
}

fn start(stage: &Stage, maker: Maker) -> Result<Vec<Arc<Program>>> {
    let kubeconfig = format!("--kubeconfig={}", stage.administrator().display());
    let address = format!("--csi-address={}", stage.driver_socket().display());
    let gates = "--feature-gates=CSIVolumeGroupSnapshot=true";
    let flags = [
        ("snapshot-controller", vec![kubeconfig.as_str(), gates]),
        ("csi-snapshotter", vec![&kubeconfig, gates, &address]),
    ];
    let start = |(name, mut words): (&'static str, Vec<&str>)| {
        let program = match maker {
            Maker::Theirs => stage.binary(name),
            Maker::Ours => {
                words.insert(0, name);
                stage.binary("orlop")
            }
        };
        stage.start(&format!("{name}-{maker:?}"), &program, words)
    };
    flags.into_iter().map(start).collect()
}

/// The class whose volumes are made at once, and by whose name snapshots are cut.
fn class(stage: &Stage) -> String {
    format!("{}-now", stage.namespace())
}

async fn make_classes(stage: &Stage) -> Result<()> {
    let (name, driver) = (class(stage), stage.driver_name());
    let metadata = json!({"name": name});
    stage
        .apply_value(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
            "provisioner": driver, "volumeBindingMode": "Immediate",
        }))
        .await?;
    for (group, kind) in [
        (SNAPSHOTS, "VolumeSnapshotClass"),
        (GROUP_SNAPSHOTS, "VolumeGroupSnapshotClass"),
    ] {
        stage
            .apply_value(json!({
                "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": metadata,
                "driver": driver, "deletionPolicy": "Delete",
            }))
            .await?;
    }
    Ok(())
}

/// Leads a life; answers with what the API server held at each stop. With an earlier one's
/// answer, each stop must come to hold the same.
async fn lead(stage: &Stage, like: Option<&[Value]>) -> Result<Vec<Value>> {
    let mut stops = Vec::new();
    let mut volumes = Vec::new();
    for name in ["one", "two"] {
        let mut member = claim(name, &class(stage), "64Mi");
        member["metadata"]["labels"] = json!({"together": "yes"});
        stage.apply_value(member).await?;
    }
    for name in ["one", "two"] {
        volumes.push(stage.bound(name).await?);
    }
    let by_class = json!(class(stage));
    let of = |claim: &str| json!({"persistentVolumeClaimName": claim});
    snapshot(stage, "cut", &by_class, of("one")).await?;
    snapshot(stage, "lost", &by_class, of("nowhere")).await?;
    snapshot(stage, "unclassed", &Value::Null, of("one")).await?;
    let cut = ready(stage, VOLUME_SNAPSHOT, "cut").await?;
    let known = make_known(stage, &cut).await?;
    ready(stage, VOLUME_SNAPSHOT, "known").await?;
    for name in ["lost", "unclassed"] {
        let told = |snapshot: &Value| snapshot["status"]["error"]["message"].is_string();
        stage
            .until(VOLUME_SNAPSHOT, name, "told its error", told)
            .await?;
    }
    stop(stage, "snapshots are cut", &mut stops, like).await?;

    stage
        .remove(VOLUME_SNAPSHOT, &["known", "lost", "unclassed"])
        .await?;
    stage
        .apply_value(json!({
            "apiVersion": format!("{GROUP_SNAPSHOTS}/v1"), "kind": "VolumeGroupSnapshot",
            "metadata": {"name": "both"},
            "spec": {
                "volumeGroupSnapshotClassName": by_class,
                "source": {"selector": {"matchLabels": {"together": "yes"}}},
            },
        }))
        .await?;
    let both = ready(stage, GROUP_SNAPSHOT, "both").await?;
    stop(stage, "a group is cut", &mut stops, like).await?;

    stage.remove(GROUP_SNAPSHOT, &["both"]).await?;
    stage.gone(GROUP_CONTENT, &both).await?;
    stage.remove(SNAPSHOT_CONTENT, &[&known]).await?;
    stage.remove(VOLUME_SNAPSHOT, &["cut"]).await?;
    stage.gone(SNAPSHOT_CONTENT, &cut).await?;
    stop(stage, "all snapshots are gone", &mut stops, like).await?;
    stage.remove(CLAIM, &["one", "two"]).await?;
    for volume in volumes {
        stage.gone(VOLUME, &volume).await?;
    }
    Ok(stops)
}

async fn stop(
    stage: &Stage,
    name: &str,
    stops: &mut Vec<Value>,
    like: Option<&[Value]>,
) -> Result<()> {
    let what = format!("with our snapshotter it is as with the originals: {name}");
    likeness::stop(stage, &what, stops, like, || life::likeness(stage)).await
}

async fn snapshot(stage: &Stage, name: &str, class: &Value, source: Value) -> Result<()> {
    let mut spec = json!({"source": source});
    if !class.is_null() {
        spec["volumeSnapshotClassName"] = class.clone();
    }
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshot",
            "metadata": {"name": name}, "spec": spec,
        }))
        .await
}

/// Waits until a snapshot or a group is ready; answers with its content's name.
async fn ready(stage: &Stage, kind: crate::stage::Kind, name: &str) -> Result<String> {
    let ready = |object: &Value| object["status"]["readyToUse"] == true;
    let object = stage.until(kind, name, "ready", ready).await?;
    let status = &object["status"];
    let content = status["boundVolumeSnapshotContentName"].as_str();
    let content = content.or(status["boundVolumeGroupSnapshotContentName"].as_str());
    Ok(content.context("what is ready has no content")?.to_owned())
}

/// Makes the snapshot of a content known a second time, as an administrator does with one that the
/// cluster did not make.
async fn make_known(stage: &Stage, content: &str) -> Result<String> {
    let content = stage.get(SNAPSHOT_CONTENT, content).await?;
    let content = content.context("the content is gone")?;
    let name = format!("{}-known", stage.namespace());
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshotContent",
            "metadata": {"name": name},
            "spec": {
                "driver": stage.driver_name(), "deletionPolicy": "Retain",
                "source": {"snapshotHandle": content["status"]["snapshotHandle"]},
                "volumeSnapshotRef": {"name": "known", "namespace": stage.namespace()},
            },
        }))
        .await?;
    let source = json!({"volumeSnapshotContentName": name});
    snapshot(stage, "known", &Value::Null, source).await?;
    Ok(name)
}
