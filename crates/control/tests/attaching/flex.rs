//! FlexVolumes: attach-detach is their attacher, and calls a driver that is played.

use std::{sync::Arc, time::Duration};

use orlop_model::{Event, Key, Node, VolumeAttachment, well_known};
use orlop_runtime::Patch;
use serde_json::{Value, json};

use crate::{
    flex_drivers::{DRIVER, Drivers, Mood},
    stage::{Stage, unique},
};

/// The claim `a`'s volume, by the kubelet's name.
pub(crate) const A: &str = "example.org/disk/v-a";
const B: &str = "example.org/disk/v-b";
const OWN: &str = "example.org/disk/v";

pub(crate) fn disk() -> Value {
    json!({"flexVolume": {"driver": DRIVER, "fsType": "ext4", "options": {"size": "1G"}}})
}

async fn stage() -> (Stage, Arc<Drivers>) {
    let stage = Stage::bare(Duration::ZERO).await;
    stage.play_attacher();
    let drivers = Drivers::new();
    stage.start(drivers.config());
    stage.node("n1").await;
    stage.node("n2").await;
    (stage, drivers)
}

async fn until(stage: &Stage, drivers: &Drivers, attached: &[&str]) {
    let now = || drivers.attached();
    stage
        .until(|| now() == attached, || format!("{:?}", now()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_flex_volume_is_attached_told_with_its_device_and_detached_once_it_is_unmounted() {
    let (stage, drivers) = stage().await;
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[A]).await;
    let node = stage.cache::<Node>().named("n1").unwrap();
    assert_eq!(node.status.volumes_attached[0].device_path, "/dev/v-a");
    assert_eq!(drivers.attached(), ["v-a@n1"]);
    let said = "AttachVolume.Attach succeeded for volume \"v-a\" ";
    stage.until_said("p", "SuccessfulAttachVolume", said).await;
    let record = stage.cache::<VolumeAttachment>().all().remove(0);
    assert!(record.metadata.has_finalizer(well_known::FLEX_ATTACHED));
    let text = serde_json::to_string(&record).unwrap();
    assert!(!text.contains("1G"), "no options are on record: {text}");
    let metrics = stage.metrics();
    for line in [
        "storage_count_attachable_volumes_in_use{node=\"n1\",volume_plugin=\"example.org/disk\"} 1",
        "attachdetach_controller_total_volumes{plugin_name=\"example.org/disk\",state=\"actual_state_of_world\"} 1",
        "volume_plugin=\"example.org/disk\",operation_name=\"volume_attach\",status=\"success\"",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }

    stage.uses("n1", &[A]).await;
    stage.delete_pod("p").await;
    stage.an_hour_later().await;
    stage.until_told("n1", &[A]).await;
    assert_eq!(drivers.calls(), ["attach v-a@n1"]);
    stage.uses("n1", &[]).await;
    until(&stage, &drivers, &[]).await;
    stage.until_told("n1", &[]).await;
    stage.until_none_attached().await;
    assert_eq!(drivers.calls(), ["attach v-a@n1", "detach v-a@n1"]);
}

#[tokio::test(start_paused = true)]
async fn pods_own_flex_volumes_are_attached_wherever_they_are_named() {
    let (stage, drivers) = stage().await;
    stage.pod_with("p", disk(), "n1").await;
    stage.pod_with("q", disk(), "n2").await;
    stage.until_told("n1", &[OWN]).await;
    stage.until_told("n2", &[OWN]).await;
    stage.delete_pod("p").await;
    stage.until_told("n1", &[]).await;
    until(&stage, &drivers, &["v@n2"]).await;
    stage.delete_pod("q").await;
    stage.until_none_attached().await;
    assert_eq!(drivers.attached(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_later_is_noticed_and_missed_only_where_a_kubelet_waits_for_it() {
    let (stage, drivers) = stage().await;
    drivers.is("init", Mood::Missing);
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    stage.an_hour_later().await;
    let events = stage.cache::<Event>();
    events.synced().await;
    assert!(events.is_empty(), "it may be one that doesn't attach");
    stage.uses("n1", &[A]).await;
    let words = "AttachVolume.Attach failed for volume \"v-a\" : the driver is not installed";
    stage.until_said("p", "FailedAttachVolume", words).await;
    stage.until_none_attached().await;
    drivers.is("init", Mood::Well);
    stage.until_told("n1", &[A]).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_without_a_word_is_found_after_minutes() {
    let (stage, drivers) = stage().await;
    drivers.is("init", Mood::Missing);
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    stage.an_hour_later().await;
    drivers.is_unheard("init", Mood::Well);
    tokio::time::sleep(Duration::from_secs(300)).await;
    stage.until_told("n1", &[A]).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_attach_is_left_to_the_nodes() {
    let (stage, drivers) = stage().await;
    drivers.is("init", Mood::LeavesIt);
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    stage.an_hour_later().await;
    stage.until_told("n1", &[]).await;
    stage.until_none_attached().await;
    assert_eq!(drivers.calls(), [""; 0]);
    // Until another one takes its place.
    drivers.is("init", Mood::Well);
    stage.until_told("n1", &[A]).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_goes_takes_nothing_along() {
    let (stage, drivers) = stage().await;
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[A]).await;
    drivers.is("init", Mood::Missing);
    stage.an_hour_later().await;
    assert_eq!(stage.told("n1"), [A]);
    assert_eq!(drivers.calls(), ["attach v-a@n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_attach_is_told_and_tried_again() {
    let (stage, drivers) = stage().await;
    drivers.is("attach", Mood::Fails);
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    let words = "AttachVolume.Attach failed for volume \"v-a\" : no such disk";
    stage.until_said("p", "FailedAttachVolume", words).await;
    stage.an_hour_later().await;
    let tries = drivers.calls().len();
    assert!((30..60).contains(&tries), "{tries} tries, ever more rarely");
    assert_eq!(stage.told("n1"), [""; 0]);
    drivers.is("attach", Mood::Well);
    stage.until_told("n1", &[A]).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_attach_failed_is_detached_before_it_goes_elsewhere() {
    let (stage, drivers) = stage().await;
    drivers.is("attach", Mood::Fails);
    drivers.is("detach", Mood::Fails);
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    stage
        .until_said("p", "FailedAttachVolume", "no such disk")
        .await;
    stage.delete_pod("p").await;
    stage.pod("q", "a", "n2").await;
    drivers.is("attach", Mood::Well);
    let words = "It is attached to n1; the last try to detach it failed: no such disk";
    stage.until_said("q", "FailedAttachVolume", words).await;
    stage.an_hour_later().await;
    assert_eq!(drivers.attached(), [""; 0]);
    drivers.is("detach", Mood::Well);
    stage.until_told("n2", &[A]).await;
    assert_eq!(drivers.attached(), ["v-a@n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_wanted_again_is_attached_at_once() {
    let (stage, drivers) = stage().await;
    drivers.is("attach", Mood::Fails);
    stage.bound("a", disk()).await;
    stage.pod("p", "a", "n1").await;
    stage
        .until_said("p", "FailedAttachVolume", "no such disk")
        .await;
    // It stays on record, since the node says that it uses it.
    stage.uses("n1", &[A]).await;
    stage.delete_pod("p").await;
    stage.an_hour_later().await;
    drivers.is("attach", Mood::Well);
    stage.an_hour_later().await;
    assert_eq!(drivers.attached(), [""; 0], "nobody wants it");
    stage.pod("q", "a", "n1").await;
    let told = tokio::time::timeout(Duration::from_secs(20), stage.until_told("n1", &[A]));
    assert!(told.await.is_ok(), "{:?}", drivers.calls());
}

#[tokio::test(start_paused = true)]
async fn a_flex_volume_for_one_node_is_never_on_two() {
    let (stage, drivers) = stage().await;
    stage.bound("a", disk()).await;
    // Kubelets say that they use a volume as soon as they wait for it.
    stage.uses("n1", &[A]).await;
    stage.uses("n2", &[A]).await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &[A]).await;
    stage.pod("q", "a", "n2").await;
    let words = "Volume is already used by pod(s) p. It is attached to n1";
    stage.until_said("q", "FailedAttachVolume", words).await;
    stage.delete_pod("p").await;
    stage.an_hour_later().await;
    assert_eq!(drivers.attached(), ["v-a@n1"]);
    assert_eq!(stage.told("n2"), [""; 0]);
    stage.uses("n1", &[]).await;
    stage.until_told("n2", &[A]).await;
    assert_eq!(drivers.calls()[1..], ["detach v-a@n1", "attach v-a@n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_holds_up_its_volume_and_nothing_else() {
    let (stage, drivers) = stage().await;
    drivers.is_for("v-a", Mood::Hangs);
    stage.bound("a", disk()).await;
    stage.bound("b", disk()).await;
    stage.claim("c").await;
    stage.pod("p", "a", "n1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.pod("q", "b", "n1").await;
    stage.pod("r", "c", "n1").await;
    let told = tokio::time::timeout(Duration::from_secs(20), stage.until_told("n1", &[B, "c"]));
    assert!(told.await.is_ok(), "{:?}", stage.told("n1"));
    // One that is given up meanwhile is detached when the call has ended.
    stage.delete_pod("p").await;
    drivers.is_for("v-a", Mood::Well);
    stage.an_hour_later().await;
    let calls = drivers.calls();
    let of_a = calls.iter().filter(|call| call.contains("v-a"));
    assert_eq!(of_a.collect::<Vec<_>>(), ["attach v-a@n1", "detach v-a@n1"]);
    stage.until_told("n1", &[B, "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_at_the_start_holds_up_no_other() {
    let (stage, drivers) = stage().await;
    drivers.is("init", Mood::Hangs);
    stage.bound("a", disk()).await;
    stage.claim("c").await;
    stage.pod("p", "a", "n1").await;
    stage.pod("r", "c", "n1").await;
    let told = tokio::time::timeout(Duration::from_secs(20), stage.until_told("n1", &["c"]));
    assert!(told.await.is_ok(), "{:?}", stage.told("n1"));
    drivers.is("init", Mood::Well);
    stage.an_hour_later().await;
    stage.until_told("n1", &[A, "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_flex_volume_comes_off_a_node_that_is_off_or_gone_also_if_nobody_saw_it_go() {
    for (gone, seen) in [(true, true), (true, false), (false, true), (false, false)] {
        let (stage, drivers) = stage().await;
        stage.bound("a", disk()).await;
        stage.pod("p", "a", "n1").await;
        stage.until_told("n1", &[A]).await;
        stage.uses("n1", &[A]).await;
        if !seen {
            stage.crash();
        }
        let n1 = Key::cluster("n1");
        if gone {
            stage.delete::<Node>(&n1).await;
        } else {
            let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
            let off = Patch::Merge(json!({"spec": {"taints": [taint]}}));
            stage.cluster.patch::<Node>(&n1, &off).await.unwrap();
        }
        stage.pod("q", "a", "n2").await;
        if !seen {
            stage.start(drivers.config());
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        // A pod that isn't being deleted may still run, whatever became of its node.
        assert_eq!(drivers.attached(), ["v-a@n1"], "{gone} {seen}");
        stage.delete_pod("p").await;
        stage.until_told("n2", &[A]).await;
        assert_eq!(drivers.attached(), ["v-a@n2"], "{gone} {seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_has_attached_is_taken_over() {
    let stage = Stage::bare(Duration::ZERO).await;
    let drivers = Drivers::new();
    stage.node("n1").await;
    stage.node("n2").await;
    stage.bound("a", disk()).await;
    stage.bound("b", disk()).await;
    let list = [A, B].map(|name| json!({"name": name, "devicePath": "/dev/old"}));
    stage
        .patch_node("n1", json!({"volumesAttached": list}))
        .await;
    stage.uses("n1", &[A, B]).await;
    stage.pod("p", "a", "n1").await;
    stage.pod("q", "b", "n2").await;
    stage.start(drivers.config());
    stage.cache::<Node>().synced().await;
    stage.an_hour_later().await;
    assert_eq!(stage.told("n1"), [A, B]);
    assert_eq!(stage.told("n2"), [""; 0]);
    assert_eq!(drivers.calls(), [""; 0], "all is as it should be");
    stage.uses("n1", &[A]).await;
    stage.until_told("n2", &[B]).await;
    assert_eq!(stage.told("n1"), [A]);
    assert_eq!(drivers.calls(), ["detach v-b@n1", "attach v-b@n2"]);
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_has_attached_and_nobody_wants_is_detached() {
    let stage = Stage::bare(Duration::from_millis(50)).await;
    let drivers = Drivers::new();
    stage.node("n1").await;
    drivers.had("v-a", "n1");
    let list = json!([{"name": A, "devicePath": "/dev/old"}]);
    stage
        .patch_node("n1", json!({"volumesAttached": list}))
        .await;
    stage.start(drivers.config());
    until(&stage, &drivers, &[]).await;
    stage.until_none_attached().await;
    assert_eq!(drivers.calls(), ["detach v-a@n1"]);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_attach_flex_volumes_themselves_are_left_alone() {
    let (stage, drivers) = stage().await;
    stage.attaches_flex("n1").await;
    stage.bound("a", disk()).await;
    stage.claim("c").await;
    stage.pod("p", "a", "n1").await;
    stage.pod("q", "c", "n1").await;
    stage.until_told("n1", &["c"]).await;
    stage.an_hour_later().await;
    assert_eq!(stage.told("n1"), [unique("c")]);
    assert_eq!(drivers.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_driver_is_called_to_attach_to_a_node_that_is_gone_or_attaches_by_itself_by_now() {
    for gone in [true, false] {
        let (stage, drivers) = stage().await;
        drivers.is("attach", Mood::Fails);
        stage.bound("a", disk()).await;
        stage.pod("p", "a", "n1").await;
        let failed = stage.until_said("p", "FailedAttachVolume", "no such disk");
        failed.await;
        match gone {
            true => stage.delete::<Node>(&Key::cluster("n1")).await,
            false => stage.attaches_flex("n1").await,
        }
        stage.an_hour_later().await;
        let calls = drivers.calls().len();
        stage.an_hour_later().await;
        assert_eq!(drivers.calls().len(), calls, "{:?}", drivers.calls());
        // It was called, and may have attached.
        stage.delete_pod("p").await;
        stage.until_none_attached().await;
        assert_eq!(drivers.calls().last().unwrap(), "detach v-a@n1");
    }
}

#[tokio::test(start_paused = true)]
async fn without_drivers_flex_volumes_are_nobodys() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    let list = json!([{"name": B, "devicePath": "/dev/b"}]);
    stage
        .patch_node("n1", json!({"volumesAttached": list}))
        .await;
    stage.bound("a", disk()).await;
    stage.claim("c").await;
    stage.pod("p", "a", "n1").await;
    stage.pod("q", "c", "n1").await;
    stage.until_told("n1", &[B, "c"]).await;
    stage.an_hour_later().await;
    assert_eq!(stage.told("n1"), [B.to_owned(), unique("c")]);
}
