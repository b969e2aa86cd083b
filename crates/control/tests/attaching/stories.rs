//! Who gets what, when, and who is told.

use std::time::Duration;

use orlop_control::attach_detach::{self, FORCE_DETACH_AFTER};
use orlop_model::{CsiDriver, CsiNode, Key, Node, Pod, Volume, VolumeAttachment};
use orlop_runtime::Patch;
use serde_json::json;

use crate::stage::{DRIVER, Stage, key, unique};

#[tokio::test(start_paused = true)]
async fn a_volume_is_attached_told_and_announced_and_comes_off_with_its_pod() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_attached(&["a@n1"]).await;
    stage.until_told("n1", &["a"]).await;
    let said = "AttachVolume.Attach succeeded for volume \"v-a\" ";
    stage.until_said("p", "SuccessfulAttachVolume", said).await;
    let metrics = stage.metrics();
    for line in [
        "storage_count_attachable_volumes_in_use{node=\"n1\",volume_plugin=\"kubernetes.io/csi:d\"} 1",
        "attachdetach_controller_total_volumes{plugin_name=\"kubernetes.io/csi:d\",state=\"desired_state_of_world\"} 1",
        "attachdetach_controller_total_volumes{plugin_name=\"kubernetes.io/csi:d\",state=\"actual_state_of_world\"} 1",
        "orlop_attach_detach_pending{operation=\"attach\"} 0",
        "workqueue_adds_total{name=\"attach_detach_attach\"}",
        "workqueue_adds_total{name=\"attach_detach_detach\"}",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    stage.delete_pod("p").await;
    stage.until_attached(&[]).await;
    stage.until_told("n1", &[]).await;
}

/// Kubernetes' TestPodDelete and IsPodTerminated: a pod whose containers have ended wants nothing
/// any more, though it is still there.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_lets_go_once_its_containers_have_ended() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    // Somebody else holds the object.
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    stage.cluster.patch::<Pod>(&key("p"), &held).await.unwrap();
    stage.delete_pod("p").await;
    stage.an_hour_later().await;
    stage.until_attached(&["a@n1"]).await;
    let ended = json!({"status": {"containerStatuses": [{"name": "c", "image": "i", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]}});
    let ended = Patch::Merge(ended);
    let patched = stage.cluster.patch_status::<Pod>(&key("p"), &ended).await;
    patched.unwrap();
    stage.until_attached(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_attaches_itself_is_left_alone() {
    let stage = Stage::set().await;
    stage
        .make::<Node>(json!({"metadata": {"name": "n1"}}))
        .await;
    stage.csi_node("n1", None).await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.an_hour_later().await;
    stage.until_attached(&[]).await;
    // It leaves attaching to us from now on.
    let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    let patch = Patch::Merge(json!({"metadata": {"annotations": managed}}));
    let n1 = Key::cluster("n1");
    stage.cluster.patch::<Node>(&n1, &patch).await.unwrap();
    stage.until_attached(&["a@n1"]).await;
}

/// Two objects of one disk: the original knows volumes by their storage, and so do we.
#[tokio::test(start_paused = true)]
async fn two_objects_of_one_disk_do_not_bring_it_to_two_nodes() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.node("n2").await;
    let same = json!({"csi": {"driver": DRIVER, "volumeHandle": "h-same"}});
    stage.bound("a", same.clone()).await;
    stage.bound("b", same).await;
    stage.pod("p", "a", "n1").await;
    stage.pod("q", "b", "n2").await;
    stage
        .until(
            || stage.attached().len() == 1,
            || format!("{:?}", stage.attached()),
        )
        .await;
    stage.an_hour_later().await;
    assert_eq!(stage.attached().len(), 1, "{:?}", stage.attached());
    let (first, second) = match stage.attached()[0].as_str() {
        "a@n1" => ("p", "b@n2"),
        _ => ("q", "a@n1"),
    };
    stage.delete_pod(first).await;
    stage.until_attached(&[second]).await;
}

#[tokio::test(start_paused = true)]
async fn no_more_is_attached_than_a_node_can_bear_and_the_rest_follows() {
    let stage = Stage::bare(Duration::from_millis(50)).await;
    stage.play_attacher();
    let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    stage
        .make::<Node>(json!({"metadata": {"name": "n1", "annotations": managed}}))
        .await;
    let claims: Vec<String> = (0..10).map(|i| format!("c{i}")).collect();
    for claim in &claims {
        stage.claim(claim).await;
        stage.pod(&format!("p-{claim}"), claim, "n1").await;
    }
    stage.start(attach_detach::Config::default());
    // The driver hasn't registered yet: nobody knows how many the node can bear.
    stage.an_hour_later().await;
    assert_eq!(stage.attached().len(), 0);
    stage
        .until_said("p-c0", "FailedAttachVolume", "not registered on node n1")
        .await;
    stage.csi_node("n1", Some(3)).await;
    let three = || stage.attached().len() == 3;
    stage
        .until(three, || format!("{:?}", stage.attached()))
        .await;
    stage.an_hour_later().await;
    assert_eq!(stage.attached().len(), 3, "those on their way count, too");
    let waiting = claims
        .iter()
        .find(|c| !stage.attached().contains(&format!("{c}@n1")));
    let waiting = format!("p-{}", waiting.unwrap());
    let part = "has as many volumes of this driver as it can bear (3,";
    stage.until_said(&waiting, "FailedAttachVolume", part).await;
    // One goes, the next comes.
    let gone = stage.attached()[0].replace("@n1", "");
    stage.delete_pod(&format!("p-{gone}")).await;
    let next = || three() && !stage.attached().contains(&format!("{gone}@n1"));
    stage
        .until(next, || format!("{:?}", stage.attached()))
        .await;
    // And all, when the limit goes.
    let n1 = Key::cluster("n1");
    stage.delete::<CsiNode>(&n1).await;
    stage.csi_node("n1", None).await;
    stage
        .until(
            || stage.attached().len() == 9,
            || format!("{:?}", stage.attached()),
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_wants_nothing_attached_any_more_gets_its_volumes_back() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    stage.delete::<CsiDriver>(&Key::cluster(DRIVER)).await;
    let other = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    stage.make::<CsiDriver>(other).await;
    stage.until_attached(&[]).await;
    stage.until_told("n1", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_own_volumes_of_plugins_are_attached_by_the_driver_in_their_place() {
    let stage = Stage::set().await;
    for node in ["n1", "n2"] {
        stage.node(node).await;
        stage.delete::<CsiNode>(&Key::cluster(node)).await;
        let drivers = json!([{"name": "ebs.csi.aws.com", "nodeID": node}]);
        let body = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
        stage.make::<CsiNode>(body).await;
    }
    let disk = json!({"awsElasticBlockStore": {"volumeID": "aws://us-west-2a/vol-1"}});
    stage.pod_with("p", disk.clone(), "n1").await;
    let attachments = stage.cache::<VolumeAttachment>();
    stage.until(|| !attachments.is_empty(), String::new).await;
    let made = attachments.all()[0].clone();
    let spec = made.spec.source.inline_volume_spec.as_ref().unwrap();
    assert_eq!(spec.csi.as_ref().unwrap().volume_handle, "vol-1");
    assert_eq!(made.spec.attacher, "ebs.csi.aws.com");
    assert_eq!(made.spec.source.persistent_volume_name, None);
    let name = "kubernetes.io/csi/ebs.csi.aws.com^vol-1";
    stage.until_told("n1", &[name]).await;
    let said = "AttachVolume.Attach succeeded for volume \"ebs.csi.aws.com-vol-1\" ";
    stage.until_said("p", "SuccessfulAttachVolume", said).await;
    // A PersistentVolume of the same disk is the same disk.
    stage.bound("a", disk).await;
    stage.pod("q", "a", "n2").await;
    let part = "Volume is already used by pod(s) p. It is attached to n1";
    stage.until_said("q", "FailedAttachVolume", part).await;
    stage.delete_pod("p").await;
    stage.until_told("n2", &[name]).await;
    stage.until_told("n1", &[]).await;
    assert_eq!(attachments.len(), 1);
    let moved = attachments.all()[0].clone();
    assert_eq!(moved.volume_name(), "v-a");
    // Both are the plugin's, for whoever looks at how long that took.
    let took = "storage_operation_duration_seconds_count{\
                volume_plugin=\"kubernetes.io/csi:ebs.csi.aws.com\",\
                operation_name=\"volume_attach\",status=\"success\",migrated=\"true\"} 2";
    let metrics = stage.metrics();
    assert!(metrics.contains(took), "{took} is not in\n{metrics}");
}

/// kubernetes#106710, #120328: a healthy node that can't unmount, and one that is only out of
/// reach, keep what they use.
#[tokio::test(start_paused = true)]
async fn nothing_is_detached_by_force_unless_that_was_asked_for() {
    for ready in ["True", "Unknown"] {
        let stage = Stage::set().await;
        stage.node("n1").await;
        stage.node("n2").await;
        stage.claim("a").await;
        stage.pod("p", "a", "n1").await;
        stage.until_told("n1", &["a"]).await;
        stage.uses("n1", &["a"]).await;
        stage.ready("n1", ready).await;
        stage.delete_pod("p").await;
        stage.pod("q", "a", "n2").await;
        stage.an_hour_later().await;
        stage.until_attached(&["a@n1"]).await;
        stage.until_told("n1", &["a"]).await;
        let part = "It is attached to n1; it comes off as soon as that node has unmounted it";
        stage.until_said("q", "FailedAttachVolume", part).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_is_waited_for_as_long_as_was_asked_for() {
    for (ready, moves) in [("Unknown", true), ("True", false)] {
        let stage = Stage::bare(Duration::ZERO).await;
        stage.play_attacher();
        stage.start(attach_detach::Config {
            force_detach_after: Some(FORCE_DETACH_AFTER),
            ..attach_detach::Config::default()
        });
        stage.node("n1").await;
        stage.node("n2").await;
        stage.claim("a").await;
        stage.pod("p", "a", "n1").await;
        stage.until_told("n1", &["a"]).await;
        stage.uses("n1", &["a"]).await;
        stage.ready("n1", ready).await;
        stage.delete_pod("p").await;
        stage.pod("q", "a", "n2").await;
        tokio::time::sleep(FORCE_DETACH_AFTER - Duration::from_secs(5)).await;
        stage.until_attached(&["a@n1"]).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let forced = "attachdetach_controller_forced_detaches{reason=\"timeout\"} 1";
        assert_eq!(stage.metrics().contains(forced), moves);
        let end = if moves { "a@n2" } else { "a@n1" };
        stage.until_attached(&[end]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_or_gone_gives_everything_back_at_once() {
    for gone in [true, false] {
        let stage = Stage::set().await;
        stage.node("n1").await;
        stage.node("n2").await;
        stage.claim("a").await;
        stage.pod("p", "a", "n1").await;
        stage.until_told("n1", &["a"]).await;
        stage.uses("n1", &["a"]).await;
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
        stage.until_attached(&["a@n1"]).await;
        let before = tokio::time::Instant::now();
        stage.delete_pod("p").await;
        stage.until_attached(&["a@n2"]).await;
        assert!(before.elapsed() < Duration::from_secs(5), "at once");
        let forced = "attachdetach_controller_forced_detaches{reason=\"out-of-service\"} 1";
        assert_eq!(stage.metrics().contains(forced), !gone);
    }
}

/// The handshake: what a node says to use is read from the answer to what it is told.
#[tokio::test(start_paused = true)]
async fn a_volume_that_its_node_takes_into_use_at_the_last_moment_stays() {
    let request = Duration::from_secs(1);
    let stage = Stage::bare(request).await;
    stage.play_attacher();
    stage.start(attach_detach::Config::default());
    stage.node("n1").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    tokio::time::sleep(10 * request).await;
    stage.delete_pod("p").await;
    // The request is on its way.
    tokio::time::sleep(request / 2).await;
    stage.uses("n1", &["a"]).await;
    stage.until_told("n1", &[]).await;
    stage.until_told("n1", &["a"]).await;
    stage.an_hour_later().await;
    stage.until_attached(&["a@n1"]).await;
    stage.uses("n1", &[]).await;
    stage.until_attached(&[]).await;
}

/// Test_ADC_VolumeAttachmentRecovery: what a role finds when it comes back.
#[tokio::test(start_paused = true)]
async fn a_restart_finds_what_dangles_and_keeps_what_is_wanted() {
    for attached in [true, false] {
        let stage = Stage::set().await;
        stage.node("n1").await;
        stage.claim("kept").await;
        stage.claim("dangling").await;
        stage.pod("p", "kept", "n1").await;
        stage.pod("q", "dangling", "n1").await;
        stage.until_told("n1", &["dangling", "kept"]).await;
        stage.crash();
        stage.delete_pod("q").await;
        if !attached {
            // Nobody knows whether it is.
            for a in stage.cache::<VolumeAttachment>().all() {
                let unsure = Patch::Merge(json!({"status": {"attached": false}}));
                let key = Key::cluster(&a.metadata.name);
                let patched = stage
                    .cluster
                    .patch_status::<VolumeAttachment>(&key, &unsure)
                    .await;
                patched.unwrap();
            }
        }
        stage.start(attach_detach::Config::default());
        stage.until_attached(&["kept@n1"]).await;
        stage.until_told("n1", &["kept"]).await;
    }
}

/// Its volume's object is gone by force, and its node's report is all that tells of it.
#[tokio::test(start_paused = true)]
async fn an_attachment_without_a_volume_goes_when_its_node_has_let_go() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.claim("a").await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    stage.uses("n1", &["a"]).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let v = Key::cluster("v-a");
    stage.cluster.patch::<Volume>(&v, &free).await.unwrap();
    stage.delete::<Volume>(&v).await;
    stage.delete_pod("p").await;
    stage.an_hour_later().await;
    stage.until_attached(&["a@n1"]).await;
    stage.uses("n1", &[]).await;
    stage.until_attached(&[]).await;
    assert_eq!(unique("a"), "kubernetes.io/csi/d^h-a");
}
