//! What is refused changes nothing that depends on it.

use std::{sync::PoisonError, time::Duration};

use http::Method;

use crate::stage::Stage;

fn refuse(stage: &Stage, what: Option<(Method, &'static str)>) {
    *stage
        .slow
        .refused
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = what;
}

/// Kubernetes' Test_Run_Negative_OneDesiredVolumeAttachThenDetachWithUnmountedVolumeUpdateStatusFail and
/// Test_Run_UpdateNodeStatusFailBeforeOneVolumeDetachNodeWithReadWriteOnce.
#[tokio::test(start_paused = true)]
async fn nothing_is_detached_before_its_node_was_told() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.node("n2").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    refuse(&stage, Some((Method::PATCH, "/nodes/n1/status")));
    stage.delete_pod("p").await;
    stage.pod("q", "a", "n2").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    stage.until_attached(&["a@n1"]).await;
    refuse(&stage, None);
    stage.until_attached(&["a@n2"]).await;
    stage.until_told("n2", &["a"]).await;
}

/// TestNodeStatusUpdater_UpdateNodeStatuses_FailureInFirstUpdate.
#[tokio::test(start_paused = true)]
async fn a_node_that_can_not_be_told_keeps_no_other_from_being_told() {
    let stage = Stage::set().await;
    refuse(&stage, Some((Method::PATCH, "/nodes/n1/status")));
    for (node, claim, pod) in [("n1", "a", "p"), ("n2", "b", "q")] {
        stage.node(node).await;
        stage.claim(claim).await;
        stage.pod(pod, claim, node).await;
    }
    stage.until_told("n2", &["b"]).await;
    stage.until_told("n1", &[]).await;
    refuse(&stage, None);
    stage.until_told("n1", &["a"]).await;
}

/// Test_Run_OneVolumeDetachFailNodeWithReadWriteOnce: what can't be given back goes nowhere else.
#[tokio::test(start_paused = true)]
async fn a_volume_that_can_not_be_given_back_stays_where_it_is() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.node("n2").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    refuse(&stage, Some((Method::DELETE, "volumeattachments")));
    stage.delete_pod("p").await;
    stage.pod("q", "a", "n2").await;
    let part = "It is attached to n1; it comes off as soon as";
    stage.until_said("q", "FailedAttachVolume", part).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    stage.until_attached(&["a@n1"]).await;
    refuse(&stage, None);
    stage.until_attached(&["a@n2"]).await;
}
