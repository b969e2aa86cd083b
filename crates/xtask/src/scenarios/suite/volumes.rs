//! Claims are bound at once or when a pod comes, volumes are attached and detached, go or stay
//! after their claims, and the room for more is told.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{at_once as class_at_once, keeping, late as late_class, told_rooms};
use crate::stage::{ATTACHMENT, CLAIM, CLASS, EVENT, POD, Stage, VOLUME, claim, pod};

/// A claim is bound without any pod, and its volume goes with it.
pub(super) async fn at_once(stage: &Stage) -> Result<()> {
    let wanted = claim("now", &class_at_once(stage), "64Mi");
    stage.apply_value(wanted).await?;
    let volume = stage.bound("now").await?;
    stage.remove(CLAIM, &["now"]).await?;
    stage.gone(VOLUME, &volume).await
}

/// A volume whose class says so stays when its claim goes, until somebody decides otherwise.
pub(super) async fn kept(stage: &Stage) -> Result<()> {
    let wanted = claim("kept", &keeping(stage), "64Mi");
    stage.apply_value(wanted).await?;
    let volume = stage.bound("kept").await?;
    stage.remove(CLAIM, &["kept"]).await?;
    let released = |volume: &Value| volume["status"]["phase"] == "Released";
    let kept = stage.until(VOLUME, &volume, "released", released).await?;
    ensure!(
        kept["metadata"]["deletionTimestamp"].is_null(),
        "a volume to be retained is being deleted: {kept:#}"
    );
    let decision = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    stage.merge(VOLUME, &volume, &decision).await?;
    stage.gone(VOLUME, &volume).await
}

/// A claim waits for its pod; then its volume is made, attached and mounted, and all of it is undone
/// when the pod and the claim go.
pub(super) async fn late(stage: &Stage) -> Result<()> {
    stage
        .apply_value(claim("late", &late_class(stage), "64Mi"))
        .await?;
    told(stage, "late", "WaitForFirstConsumer").await?;
    let waiting = stage.get(CLAIM, "late").await?.unwrap_or_default();
    ensure!(
        waiting["status"]["phase"] == "Pending",
        "the claim did not wait for a pod: {waiting:#}"
    );
    let stays = "trap exit TERM; touch /data/here; while true; do sleep 0.2; done";
    stage.apply_value(pod("stayer", "late", stays)).await?;
    let volume = stage.bound("late").await?;
    let running = |pod: &Value| pod["status"]["phase"] == "Running";
    stage.until(POD, "stayer", "running", running).await?;
    let attachments = stage.list(ATTACHMENT).await?;
    let of_volume = |one: &&Value| one["spec"]["source"]["persistentVolumeName"] == *volume;
    let attached = attachments.iter().find(of_volume).cloned();
    let attached = attached.unwrap_or_default();
    ensure!(
        attached["status"]["attached"] == true,
        "a pod runs on a volume that is not attached: {attached:#}"
    );
    stage.remove(POD, &["stayer"]).await?;
    let name = attached["metadata"]["name"].as_str().unwrap_or_default();
    stage.gone(ATTACHMENT, name).await?;
    stage.remove(CLAIM, &["late"]).await?;
    stage.gone(VOLUME, &volume).await
}

/// Room for volumes is told for a class as long as it is there.
pub(super) async fn room(stage: &Stage) -> Result<()> {
    let name = format!("{}-room", stage.namespace());
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": stage.driver_name(), "volumeBindingMode": "WaitForFirstConsumer",
    });
    stage.apply_value(class).await?;
    let rooms = |there: bool| {
        let name = &name;
        async move {
            loop {
                let found = told_rooms(stage, |class| class == name).await?;
                if found.is_empty() != there {
                    return Ok(found);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    };
    let told = stage.bounded("capacity is told", rooms(true)).await?;
    for one in told {
        ensure!(
            one["capacity"].as_str().is_some_and(|room| room != "0")
                && one["nodeTopology"].is_object(),
            "no room is told: {one:#}"
        );
    }
    stage.remove(CLASS, &[&name]).await?;
    stage
        .bounded("capacity is not told any more", rooms(false))
        .await?;
    Ok(())
}

/// Waits for an event about an object.
async fn told(stage: &Stage, about: &str, reason: &str) -> Result<()> {
    stage
        .bounded(&format!("{about} is told {reason}"), async {
            loop {
                let events = stage.list(EVENT).await?;
                if events.iter().any(|event| {
                    event["reason"] == reason && event["involvedObject"]["name"] == about
                }) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
        .await
}
