//! What is refused changes nothing that depends on it.

use std::{convert::Infallible, sync::PoisonError, time::Duration};

use http::{Method, Request, Response};
use http_body_util::{Either, Full};
use kube::client::Body;
use orlop_control::attach_detach;
use serde_json::json;
use tower::Service as _;

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

/// As a newer API server may have some.
#[tokio::test(start_paused = true)]
async fn an_attachment_that_can_not_be_read_keeps_no_other_from_being_made() {
    let stage = Stage::bare(Duration::ZERO).await;
    stage.play_attacher();
    let slow = stage.slow.clone();
    let lists_odd_ones = tower::service_fn(move |request: Request<Body>| {
        let mut slow = slow.clone();
        async move {
            let (uri, verb) = (request.uri(), request.method());
            let query = uri.query().unwrap_or_default();
            let lists = uri.path().ends_with("/volumeattachments") && *verb == Method::GET;
            if !lists || query.contains("watch=") {
                let answer = slow.call(request).await?;
                return Ok(answer.map(Either::Left));
            }
            let odd = json!({"metadata": {"name": "odd"}, "spec": "to come"});
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": [odd]});
            let list = Either::Right(Full::from(list.to_string()));
            Ok::<_, Infallible>(Response::new(list))
        }
    });
    let client = kube::Client::new(lists_odd_ones, "default");
    stage.start_by(client, attach_detach::Config::default());
    stage.node("n1").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_attached(&["a@n1"]).await;
}
