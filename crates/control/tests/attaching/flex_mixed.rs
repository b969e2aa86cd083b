//! FlexVolumes in clusters where some nodes attach them by themselves, and where another controller was.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use crate::{
    flex::{A, disk},
    flex_drivers::Drivers,
    stage::Stage,
};

/// Two nodes, and a volume for one of them at a time.
async fn stage() -> (Stage, Arc<Drivers>) {
    let stage = Stage::bare(Duration::ZERO).await;
    let drivers = Drivers::new();
    stage.node("n1").await;
    stage.node("n2").await;
    stage.bound("a", disk()).await;
    (stage, drivers)
}

async fn has(stage: &Stage, node: &str, device: &str) {
    let list = json!([{"name": A, "devicePath": device}]);
    let status = json!({"volumesAttached": list});
    stage.patch_node(node, status).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_a_node_attaches_by_itself_for_its_pod_is_attached_to_no_other() {
    let (stage, drivers) = stage().await;
    stage.start(drivers.config());
    stage.attaches_flex("n1").await;
    stage.pod("p", "a", "n1").await;
    stage.pod("q", "a", "n2").await;
    let words = "Volume is already exclusively attached to one node";
    stage.until_said("q", "FailedAttachVolume", words).await;
    stage.an_hour_later().await;
    assert_eq!(drivers.calls(), [""; 0]);
    stage.delete_pod("p").await;
    stage.until_told("n2", &[A]).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_told_to_a_node_that_attaches_by_itself_by_now_keeps_nobody_waiting() {
    let (stage, drivers) = stage().await;
    has(&stage, "n1", "/dev/old").await;
    stage.attaches_flex("n1").await;
    stage.start(drivers.config());
    stage.pod("q", "a", "n2").await;
    stage.until_told("n2", &[A]).await;
}

/// Such a device can't be put on record, so that it isn't taken over.
#[tokio::test(start_paused = true)]
async fn what_leaves_a_list_without_having_been_taken_over_is_noticed() {
    let (stage, drivers) = stage().await;
    has(&stage, "n1", &"/x".repeat(3000)).await;
    stage.start(drivers.config());
    stage.pod("q", "a", "n2").await;
    let words = "It is attached to n1; it comes off as soon as";
    stage.until_said("q", "FailedAttachVolume", words).await;
    stage.an_hour_later().await;
    assert_eq!(drivers.calls(), [""; 0]);
    let none = json!({"volumesAttached": []});
    stage.patch_node("n1", none).await;
    stage.until_told("n2", &[A]).await;
}
