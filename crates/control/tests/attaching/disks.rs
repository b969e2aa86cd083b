//! Disks over iSCSI and Fibre Channel: nobody attaches them, and nodes are told all the same.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use http_body_util::{Either, Full};
use kube::client::Body;
use orlop_control::attach_detach;
use orlop_model::{Key, Node, VolumeAttachment};
use orlop_runtime::Patch;
use serde_json::{Value, json};
use tower::Service as _;

use crate::stage::Stage;

const ISCSI: &str = "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2001-04.com.example:a:1";
const FC: &str = "kubernetes.io/fc/[500a 500b]:2";

fn iscsi() -> Value {
    json!({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:a", "lun": 1}})
}

fn fc() -> Value {
    json!({"fc": {"targetWWNs": ["500a", "500b"], "lun": 2}})
}

async fn stage() -> Stage {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.node("n2").await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_disk_for_one_node_is_told_to_one_and_to_the_next_when_that_has_let_go() {
    let stage = stage().await;
    stage.bound("a", iscsi()).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[ISCSI]).await;
    let said = "AttachVolume.Attach succeeded for volume \"v-a\" ";
    stage.until_said("p", "SuccessfulAttachVolume", said).await;
    stage.uses("n1", &[ISCSI]).await;
    stage.pod("q", "a", "n2").await;
    let part = "Volume is already used by pod(s) p. It is attached to n1";
    stage.until_said("q", "FailedAttachVolume", part).await;
    stage.delete_pod("p").await;
    stage.an_hour_later().await;
    // The node still has it mounted.
    stage.until_told("n1", &[ISCSI]).await;
    stage.until_told("n2", &[]).await;
    stage.uses("n1", &[]).await;
    stage.until_told("n2", &[ISCSI]).await;
    stage.until_told("n1", &[]).await;
    assert!(stage.cache::<VolumeAttachment>().is_empty());
    let metrics = stage.metrics();
    for line in [
        "storage_count_attachable_volumes_in_use{node=\"n2\",volume_plugin=\"kubernetes.io/iscsi\"} 1",
        "attachdetach_controller_total_volumes{plugin_name=\"kubernetes.io/iscsi\",state=\"desired_state_of_world\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_waits_for_a_disk_does_not_have_it_yet() {
    let stage = stage().await;
    stage.bound("a", iscsi()).await;
    // Kubelets say that they use a volume as soon as they wait for it.
    stage.uses("n1", &[ISCSI]).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[ISCSI]).await;
    stage.pod("q", "a", "n2").await;
    stage.uses("n2", &[ISCSI]).await;
    stage.an_hour_later().await;
    assert!(stage.told("n2").is_empty(), "{:?}", stage.told("n2"));
    stage.delete_pod("p").await;
    stage.uses("n1", &[]).await;
    stage.until_told("n2", &[ISCSI]).await;
    stage.until_told("n1", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn two_pods_that_want_one_disk_at_once_do_not_both_get_it() {
    let stage = Stage::bare(Duration::from_millis(50)).await;
    stage.node("n1").await;
    stage.node("n2").await;
    stage.bound("a", iscsi()).await;
    stage.start(attach_detach::Config::default());
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.pod("p", "a", "n1").await;
    // Its node is being told.
    tokio::time::sleep(Duration::from_millis(20)).await;
    stage.delete_pod("p").await;
    stage.pod("q", "a", "n2").await;
    stage.pod("p", "a", "n1").await;
    stage.an_hour_later().await;
    stage
        .until(
            || stage.told("n1").len() + stage.told("n2").len() == 1,
            || format!("{:?} {:?}", stage.told("n1"), stage.told("n2")),
        )
        .await;
    stage.delete_pod("q").await;
    stage.until_told("n1", &[ISCSI]).await;
    stage.until_told("n2", &[]).await;
}

/// The pod is made anew on its node while that is told that the disk is gone: its kubelet has read the list
/// before, and mounts. Who waits elsewhere has waited longer, and must wait on.
#[tokio::test(start_paused = true)]
async fn a_disk_that_its_node_takes_into_use_at_the_last_moment_goes_nowhere_else() {
    let request = Duration::from_secs(1);
    let stage = Stage::bare(request).await;
    stage.start(attach_detach::Config::default());
    stage.node("n1").await;
    stage.node("n2").await;
    stage.bound("a", iscsi()).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[ISCSI]).await;
    tokio::time::sleep(10 * request).await;
    stage.pod("q", "a", "n2").await;
    tokio::time::sleep(10 * request).await;
    stage.delete_pod("p").await;
    // The request is on its way.
    tokio::time::sleep(request / 2).await;
    stage.pod("p", "a", "n1").await;
    stage.uses("n1", &[ISCSI]).await;
    stage.until_told("n1", &[]).await;
    stage.until_told("n1", &[ISCSI]).await;
    stage.an_hour_later().await;
    assert!(stage.told("n2").is_empty(), "{:?}", stage.told("n2"));
    stage.delete_pod("p").await;
    stage.uses("n1", &[]).await;
    stage.until_told("n2", &[ISCSI]).await;
    stage.until_told("n1", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_give_a_disk_to_a_second_node() {
    let stage = stage().await;
    stage.bound("a", iscsi()).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[ISCSI]).await;
    stage.uses("n1", &[ISCSI]).await;
    stage.crash();
    stage.delete_pod("p").await;
    stage.pod("q", "a", "n2").await;
    stage.start(attach_detach::Config::default());
    stage.an_hour_later().await;
    assert!(stage.told("n2").is_empty(), "{:?}", stage.told("n2"));
    stage.uses("n1", &[]).await;
    stage.until_told("n2", &[ISCSI]).await;
    stage.until_told("n1", &[]).await;
}

/// The role's own writes of its last life are news to the server that it lists from, and its watch is late.
#[tokio::test(start_paused = true)]
async fn caches_that_begin_in_the_past_do_not_give_a_disk_to_a_second_node() {
    let stage = Stage::bare(Duration::ZERO).await;
    stage.node("n1").await;
    stage.node("n2").await;
    stage.bound("a", iscsi()).await;
    stage.pod("q", "a", "n2").await;
    let nodes = stage.slow.list("/api/v1/nodes").await;
    let had = json!({
        "volumesAttached": [{"name": ISCSI, "devicePath": ""}], "volumesInUse": [ISCSI],
    });
    stage.patch_node("n1", had).await;
    let (slow, past) = (stage.slow.clone(), Arc::new(Mutex::new(Some(nodes))));
    let begins_in_the_past = tower::service_fn(move |request: Request<Body>| {
        let (mut slow, past) = (slow.clone(), past.clone());
        async move {
            if request.uri().path() == "/api/v1/nodes" {
                if let Some(past) = past.lock().unwrap().take() {
                    return Ok(Response::new(Either::Right(Full::from(past))));
                }
                if request.uri().query().unwrap_or_default().contains("watch=") {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            }
            let answer = slow.call(request).await?;
            Ok::<_, Infallible>(answer.map(Either::Left))
        }
    });
    let client = kube::Client::new(begins_in_the_past, "default");
    stage.start_by(client, attach_detach::Config::default());
    stage.an_hour_later().await;
    stage.until_told("n1", &[ISCSI]).await;
    stage.until_told("n2", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_own_disks_are_told_wherever_they_are_named() {
    let stage = stage().await;
    stage.pod_with("p", fc(), "n1").await;
    stage.pod_with("q", fc(), "n2").await;
    stage.until_told("n1", &[FC]).await;
    stage.until_told("n2", &[FC]).await;
    stage.delete_pod("p").await;
    stage.until_told("n1", &[]).await;
    stage.until_told("n2", &[FC]).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_takes_back_what_nobody_wants_and_leaves_other_plugins_alone() {
    let stage = stage().await;
    stage.bound("a", iscsi()).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[ISCSI]).await;
    stage.crash();
    let other = "kubernetes.io/other/x";
    let list = [FC, ISCSI, other].map(|name| json!({"name": name, "devicePath": ""}));
    stage
        .patch_node("n1", json!({"volumesAttached": list}))
        .await;
    stage.start(attach_detach::Config::default());
    stage.until_told("n1", &[ISCSI, other]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_or_gone_does_not_keep_a_disk() {
    for gone in [true, false] {
        let stage = stage().await;
        stage.bound("a", iscsi()).await;
        stage.pod("p", "a", "n1").await;
        stage.until_told("n1", &[ISCSI]).await;
        stage.uses("n1", &[ISCSI]).await;
        let n1 = Key::cluster("n1");
        if gone {
            stage.delete::<Node>(&n1).await;
        } else {
            let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
            let off = Patch::Merge(json!({"spec": {"taints": [taint]}}));
            stage.cluster.patch::<Node>(&n1, &off).await.unwrap();
        }
        stage.pod("q", "a", "n2").await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        // A pod that isn't being deleted may still run, whatever became of its node.
        stage.until_told("n2", &[]).await;
        stage.delete_pod("p").await;
        stage.until_told("n2", &[ISCSI]).await;
    }
}
