//! Volumes that are made anew under an old name, and attachments that others made.

use std::time::Duration;

use orlop_control::attach_detach;
use orlop_model::{Claim, Key, Pod, Volume, VolumeAttachment};
use orlop_runtime::Patch;
use serde_json::json;

use crate::stage::{DRIVER, Stage, key};

/// A stage on which pod `p` uses `a` on n1 and is gone with its claim and the volume, whose name then
/// is of other storage.
async fn made_anew(stage: &Stage) {
    stage.node("n1").await;
    stage.node("n2").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    stage.uses("n1", &["a"]).await;
    stage.delete::<Pod>(&key("p")).await;
    // Nobody protects them here who would let them go.
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let (claim, volume) = (key("a"), Key::cluster("v-a"));
    stage.cluster.patch::<Claim>(&claim, &free).await.unwrap();
    stage.cluster.patch::<Volume>(&volume, &free).await.unwrap();
    stage.delete::<Claim>(&claim).await;
    stage.delete::<Volume>(&volume).await;
    let csi = json!({"driver": DRIVER, "volumeHandle": "h-other"});
    stage.bound("a", json!({"csi": csi})).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_made_anew_for_other_storage_waits_for_nothing_of_the_old() {
    let stage = Stage::set().await;
    made_anew(&stage).await;
    stage.pod("q", "a", "n2").await;
    let told = stage.until_told("n2", &["other"]);
    let told = tokio::time::timeout(Duration::from_secs(20), told).await;
    assert!(told.is_ok(), "{:?}", stage.attached());
    // The old one stays for as long as its node uses it.
    stage.an_hour_later().await;
    assert_eq!(stage.attached(), ["a@n1", "a@n2"]);
    stage.uses("n1", &[]).await;
    stage.until_attached(&["a@n2"]).await;
    stage.until_told("n1", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_volume_named_before_it_was_made_anew_is_given_back_also_after_a_restart() {
    let stage = Stage::set().await;
    made_anew(&stage).await;
    stage.crash();
    stage.start(attach_detach::Config::default());
    stage.pod("q", "a", "n1").await;
    stage.until_told("n1", &["a", "other"]).await;
    stage.uses("n1", &["other"]).await;
    stage.until_told("n1", &["other"]).await;
    stage.until_attached(&["a@n1"]).await;
}

#[tokio::test(start_paused = true)]
async fn storage_whose_old_name_went_to_other_storage_is_on_one_node_at_a_time() {
    let stage = Stage::set().await;
    made_anew(&stage).await;
    stage.crash();
    stage.start(attach_detach::Config::default());
    // The old storage, by a new name.
    let csi = json!({"driver": DRIVER, "volumeHandle": "h-a"});
    stage.bound("b", json!({"csi": csi})).await;
    stage.pod("q", "b", "n2").await;
    let part = "It is attached to n1; it comes off as soon as";
    stage.until_said("q", "FailedAttachVolume", part).await;
    stage.an_hour_later().await;
    assert_eq!(stage.attached(), ["a@n1"]);
    stage.uses("n1", &[]).await;
    stage.until_attached(&["b@n2"]).await;
}

async fn by_hand(stage: &Stage, node: &str) {
    let body = json!({
        "metadata": {"name": "by-hand"},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": "v-a"}},
    });
    stage.make::<VolumeAttachment>(body).await;
}

#[tokio::test(start_paused = true)]
async fn an_attachment_of_somebody_else_keeps_no_pod_of_its_own_node_waiting() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.claim("a").await;
    by_hand(&stage, "n1").await;
    stage.until_attached(&["a@n1"]).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    stage.until_attached(&["a@n1", "a@n1"]).await;
    stage.delete_pod("p").await;
    stage.until_attached(&["a@n1"]).await;
    stage.until_told("n1", &[]).await;
}

/// The driver would be told to detach what it was just told to attach.
#[tokio::test(start_paused = true)]
async fn no_attachment_is_made_beside_one_of_somebody_else_that_is_being_detached() {
    let stage = Stage::bare(Duration::ZERO).await;
    stage.start(attach_detach::Config::default());
    stage.node("n1").await;
    stage.claim("a").await;
    by_hand(&stage, "n1").await;
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["external-attacher/d"]}}));
    let foreign = Key::cluster("by-hand");
    let patched = stage.cluster.patch::<VolumeAttachment>(&foreign, &held);
    patched.await.unwrap();
    stage.delete::<VolumeAttachment>(&foreign).await;
    stage.pod("p", "a", "n1").await;
    stage.an_hour_later().await;
    stage.until_attached(&["a@n1"]).await;
    let attachments = stage.cache::<VolumeAttachment>();
    assert_eq!(attachments.all()[0].metadata.name, "by-hand");
    // It is detached.
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let patched = stage.cluster.patch::<VolumeAttachment>(&foreign, &free);
    patched.await.unwrap();
    stage.play_attacher();
    stage.until_told("n1", &["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_attachment_of_somebody_else_keeps_a_volume_for_one_node_off_others() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.node("n2").await;
    stage.claim("a").await;
    by_hand(&stage, "n1").await;
    stage.until_attached(&["a@n1"]).await;
    stage.pod("p", "a", "n2").await;
    let part = "It is attached to n1; it comes off as soon as";
    stage.until_said("p", "FailedAttachVolume", part).await;
    stage.until_attached(&["a@n1"]).await;
}
