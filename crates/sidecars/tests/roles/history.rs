//! What went wrong in the originals' history, each as a case that must never be again.

use std::time::Duration;

use orlop_model::{
    Claim, Key, Kind, Secret, StorageClass, Volume, VolumeAttachment,
    well_known::{PROVISIONED_BY, SELECTED_NODE, attacher_finalizer},
};
use orlop_runtime::Patch;
use serde_json::json;
use tokio::time::sleep;
use tonic::Code;

use crate::{
    driver::{Mishap, NAME},
    fuse::Fuse,
    log::Log,
    world::{World, data},
};

/// external-provisioner#1469: another volume is on record under the name meanwhile, as a stale
/// view brings about.
#[tokio::test(start_paused = true)]
async fn a_volume_that_was_made_beside_the_one_on_record_is_deleted() {
    let mut world = World::new().await;
    world.fake.state().slow = Duration::from_secs(5);
    world.start(Fuse::never());
    let claim = world.add_claim("fast").await;
    sleep(Duration::from_secs(2)).await;
    let recorded = json!({
        "metadata": {
            "name": format!("pvc-{}", claim.metadata.uid),
            "annotations": {PROVISIONED_BY: "somebody else"},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "claimRef": claim.reference(),
            "csi": {"driver": NAME, "volumeHandle": "made earlier"},
        },
    });
    world.create::<Volume>(recorded).await;
    world.until_settled().await;
    world
        .until("what nobody knows of is deleted", |_, fake| async move {
            Ok(fake.calls("CreateVolume") == 1 && fake.state().volumes.is_empty())
        })
        .await;
    let volume = world.volume().await.expect("it is on record");
    let handle = volume.spec.csi.expect("it is the driver's").volume_handle;
    assert_eq!(handle, "made earlier");
}

/// external-provisioner#94: a slow driver is not undone and asked anew.
#[tokio::test(start_paused = true)]
async fn a_driver_that_takes_minutes_makes_one_volume() {
    let mut world = World::new().await;
    let late = [Mishap::Do(Code::DeadlineExceeded); 9];
    world.fake.state().create.extend(late);
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    assert_eq!(world.fake.calls("CreateVolume"), 10);
    assert_eq!(world.fake.calls("DeleteVolume"), 0);
    assert_eq!(world.fake.state().volumes.len(), 1);
}

fn signed(name: &str) -> orlop_sidecars::provisioner::Identity {
    orlop_sidecars::provisioner::Identity::of_driver(name, None)
}

/// external-provisioner#47: who deletes goes by the driver, not by the process that made it.
#[tokio::test(start_paused = true)]
async fn a_provisioner_with_another_identity_deletes_what_its_forerunner_made() {
    let mut world = World::new().await;
    world.config.identity = |_, _| signed("first");
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.crash();
    world.config.identity = |_, _| signed("second");
    world.start(Fuse::never());
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
}

/// external-provisioner PR 796: a volume that belongs to no claim breaks nothing.
#[tokio::test(start_paused = true)]
async fn a_volume_without_a_claim_is_left_alone_and_others_are_served() {
    let mut world = World::new().await;
    for policy in ["Delete", "Retain"] {
        world
            .create::<Volume>(json!({
                "metadata": {"name": policy.to_lowercase(), "annotations": {PROVISIONED_BY: NAME}},
                "spec": {
                    "capacity": {"storage": "9Gi"},
                    "accessModes": ["ReadOnlyMany"],
                    "persistentVolumeReclaimPolicy": policy,
                    "csi": {"driver": NAME, "volumeHandle": "by hand"},
                },
            }))
            .await;
    }
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("DeleteVolume"), 0);
    let all = world.cluster.list::<Volume>(None).await;
    assert_eq!(all.expect("it answers").len(), 3);
    assert_eq!(world.panics(), [""; 0]);
}

/// external-provisioner PR 604 and #330: a secret reaches the driver, also after the class that
/// named it is gone, and no log at any level.
#[tokio::test(start_paused = true)]
async fn secrets_are_found_without_their_class_and_logged_nowhere() {
    let log = Log::begin();
    let mut world = World::new().await;
    let purposes = ["provisioner", "controller-publish"];
    let parameters: serde_json::Map<_, _> = purposes
        .iter()
        .flat_map(|purpose| {
            let key = |end: &str| format!("csi.storage.k8s.io/{purpose}-secret-{end}");
            [
                (key("name"), json!("key")),
                (key("namespace"), json!("default")),
            ]
        })
        .collect();
    let keyed = json!({"parameters": parameters});
    world.add_class("keyed", keyed).await;
    let secret = json!({
        "metadata": {"name": "key", "namespace": "default"},
        "data": {"token": "Y2FuYXJ5LXZhbHVl"},
    });
    world.create::<Secret>(secret).await;
    let lost = Mishap::Do(Code::DeadlineExceeded);
    world.fake.state().create.push_back(lost);
    world.fake.state().publish.push_back(lost);
    world.fake.state().delete.push_back(lost);
    world.start(Fuse::never());
    world.add_claim("keyed").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.delete::<StorageClass>(&Key::cluster("keyed")).await;
    let attachment = Key::cluster("at-n1");
    world.delete::<VolumeAttachment>(&attachment).await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    let told = world.fake.state().delete_secrets.clone();
    assert_eq!(told.len(), 2);
    assert!(
        told.iter()
            .all(|secrets| secrets["token"] == "canary-value")
    );
    let logged = log.text();
    assert!(logged.contains("CreateVolume"), "something is logged");
    assert!(!logged.contains("canary-value"));
    assert!(!logged.contains("Y2FuYXJ5LXZhbHVl"));
}

/// external-provisioner PR 564: a change of the claim while a try is awaited takes nothing off
/// the agenda.
#[tokio::test(start_paused = true)]
async fn a_claim_that_changes_between_two_tries_is_provisioned_all_the_same() {
    let mut world = World::new().await;
    let lost = [Mishap::Do(Code::DeadlineExceeded); 3];
    world.fake.state().create.extend(lost);
    world.start(Fuse::never());
    world.add_claim("fast").await;
    for number in 1..=6 {
        sleep(Duration::from_millis(700)).await;
        let label = json!({"metadata": {"labels": {"touched": number.to_string()}}});
        let (key, label) = (data(), Patch::Merge(label));
        let touched = world.cluster.patch::<Claim>(&key, &label).await;
        touched.expect("it is there");
    }
    world.until_settled().await;
    assert_eq!(
        world.fake.calls("CreateVolume"),
        4,
        "nor is a wait cut short"
    );
    assert_eq!(world.fake.state().volumes.len(), 1);
}

/// The same, by a change that makes for a look before the wait is over.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_looked_at_between_two_tries_is_not_forgotten() {
    let mut world = World::new().await;
    let lost = [Mishap::Do(Code::DeadlineExceeded); 3];
    world.fake.state().create.extend(lost);
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world
        .until("a try failed", |_, fake| async move {
            Ok(fake.calls("CreateVolume") == 1)
        })
        .await;
    sleep(Duration::from_millis(300)).await;
    let placed = json!({"metadata": {"annotations": {SELECTED_NODE: "n1"}}});
    let (key, placed) = (data(), Patch::Merge(placed));
    let touched = world.cluster.patch::<Claim>(&key, &placed).await;
    touched.expect("it is there");
    world.until_settled().await;
    assert_eq!(world.fake.state().volumes.len(), 1);
}

/// kubernetes#124749: an attachment that went before the intent was on it is not attached.
#[tokio::test(start_paused = true)]
async fn an_attachment_that_was_made_anew_is_judged_anew() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    for _ in 0..20 {
        world.attach("n1").await;
        world
            .delete::<VolumeAttachment>(&Key::cluster("at-n1"))
            .await;
        world
            .until("it is gone", |cluster, _| async move {
                let key = Key::cluster("at-n1");
                Ok(cluster.get::<VolumeAttachment>(&key).await?.is_none())
            })
            .await;
    }
    sleep(Duration::from_secs(60)).await;
    assert!(world.fake.state().published.is_empty());
}

/// external-attacher#165: a driver that could not detach is asked again, and until it could the
/// attachment stays.
#[tokio::test(start_paused = true)]
async fn a_detachment_that_failed_is_not_taken_for_done() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    let refusals = [Code::Internal, Code::NotFound].map(Mishap::Refuse);
    world.fake.state().unpublish.extend(refusals);
    let key = Key::cluster("at-n1");
    world.delete::<VolumeAttachment>(&key).await;
    world
        .until("it is gone", |cluster, fake| async move {
            let key = Key::cluster("at-n1");
            let there = cluster.get::<VolumeAttachment>(&key).await?;
            let attached = !fake.state().published.is_empty();
            assert!(there.is_some() || !attached, "its object went first");
            Ok(there.is_none())
        })
        .await;
    assert_eq!(world.fake.calls("ControllerUnpublishVolume"), 3);
}

/// external-attacher#587: the attacher dies after the volume is off and before that is written
/// down.
#[tokio::test(start_paused = true)]
async fn a_detachment_that_was_not_written_down_is_repeated_once() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    let lost = Mishap::Do(Code::Unavailable);
    world.fake.state().unpublish.push_back(lost);
    world
        .delete::<VolumeAttachment>(&Key::cluster("at-n1"))
        .await;
    world
        .until("the driver was asked", |_, fake| async move {
            Ok(fake.calls("ControllerUnpublishVolume") == 1)
        })
        .await;
    world.crash();
    world.start(Fuse::never());
    world
        .until("it is gone", |cluster, _| async move {
            let key = Key::cluster("at-n1");
            Ok(cluster.get::<VolumeAttachment>(&key).await?.is_none())
        })
        .await;
    assert_eq!(world.fake.calls("ControllerUnpublishVolume"), 2);
}

/// kubernetes#116663: an attachment that lost our finalizer is detached all the same.
#[tokio::test(start_paused = true)]
async fn an_attachment_without_our_finalizer_is_detached_before_it_goes() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    let key = Key::cluster("at-n1");
    // Somebody else's finalizer keeps it long enough to be seen.
    let others = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/other"]}}));
    let bared = world.cluster.patch::<VolumeAttachment>(&key, &others).await;
    let bared = bared.expect("it is there");
    assert!(!bared.metadata.has_finalizer(&attacher_finalizer(NAME)));
    world.delete::<VolumeAttachment>(&key).await;
    world
        .until("it is off the node", |_, fake| async move {
            Ok(fake.state().published.is_empty())
        })
        .await;
}
