//! A driver that lies, omits or rants: it is told on the right object, the driver is not asked without
//! end, and what it made goes all the same.

use std::{collections::BTreeMap, time::Duration};

use orlop_csi::proto::{Topology, Volume};
use orlop_model::{
    Claim, Key, VolumeAttachment, VolumeGroupSnapshot, VolumeGroupSnapshotContent, VolumeSnapshot,
    VolumeSnapshotContent, attachment::VolumeError,
};
use orlop_runtime::Cluster;
use serde_json::json;
use tokio::time::sleep;
use tonic::Code;

use crate::{
    cuts::Cut,
    driver::{Mishap, NAME},
    fuse::Fuse,
    snapshots::{running, told},
    world::{World, data},
};

fn at_n1() -> Key {
    Key::cluster("at-n1")
}

async fn with_volume() -> World {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world
}

/// Waits until the attachment tells of what went wrong.
async fn until_told(
    world: &mut World,
    which: fn(VolumeAttachment) -> Option<VolumeError>,
) -> String {
    let told = |cluster: Cluster, _| async move {
        let attachment = cluster.get::<VolumeAttachment>(&at_n1()).await?;
        Ok(attachment.and_then(which).is_some())
    };
    world.until("the attachment tells of it", told).await;
    let attachment = world.cluster.get::<VolumeAttachment>(&at_n1()).await;
    let error = attachment.expect("it answers").and_then(which);
    error.expect("it is told").message
}

#[tokio::test(start_paused = true)]
async fn an_attachment_tells_of_an_error_however_long_it_is() {
    let mut world = with_volume().await;
    world
        .fake
        .state()
        .publish
        .extend([Mishap::Rant(Code::Internal); 3]);
    world.attach("n1").await;
    let message = until_told(&mut world, |a| a.status.attach_error).await;
    assert!(message.len() <= 1024, "{} bytes", message.len());
    assert!(
        message.contains("ControllerPublishVolume failed with"),
        "{message}"
    );
    assert!(
        message.ends_with("s") && message.contains("; next try in "),
        "{message}"
    );
    world.until_attached("n1").await;
    world
        .fake
        .state()
        .unpublish
        .push_back(Mishap::Rant(Code::Internal));
    world.delete::<VolumeAttachment>(&at_n1()).await;
    let message = until_told(&mut world, |a| a.status.detach_error).await;
    assert!(
        message.len() <= 1024 && message.contains("; next try in "),
        "{message}"
    );
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn more_than_an_attachment_can_hold_is_told_on_it_and_comes_off_with_it() {
    let mut world = with_volume().await;
    let context = BTreeMap::from([("novel".to_owned(), "x".repeat(300 << 10))]);
    world.fake.state().context = context;
    world.attach("n1").await;
    let message = until_told(&mut world, |a| a.status.attach_error).await;
    assert!(message.contains("can not be written down"), "{message}");
    assert!(message.contains("attachmentMetadata"), "{message}");
    sleep(Duration::from_secs(3600)).await;
    let calls = world.fake.calls("ControllerPublishVolume");
    assert!(calls <= 20, "{calls} calls in an hour");
    world.delete::<VolumeAttachment>(&at_n1()).await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
}

type Lie = fn(&mut Volume);

/// What a driver says of a volume, and what the event on the claim says of that.
const LIES: [(Lie, &str); 5] = [
    (
        |told| told.capacity_bytes = -5,
        "the driver made a volume of -5 bytes where 1073741824 were asked for; this is an error of \
         the driver",
    ),
    (
        |told| {
            let segments = BTreeMap::from([("not a key".to_owned(), "a".to_owned())]);
            told.accessible_topology = vec![Topology { segments }];
        },
        "spec.nodeAffinity",
    ),
    (
        |told| {
            let novel = ("novel".to_owned(), "x".repeat(2 << 20));
            told.volume_context.extend([novel]);
        },
        "could not save it",
    ),
    (|told| told.volume_id.clear(), "without a volume id"),
    (|told| *told = Volume::default(), "without a volume id"),
];

#[tokio::test(start_paused = true)]
async fn a_volume_that_can_not_be_is_told_on_its_claim_and_goes_with_it() {
    for (lie, text) in LIES {
        let mut world = World::new().await;
        world.fake.state().lie = Some(lie);
        world.start(Fuse::never());
        world.add_claim("fast").await;
        sleep(Duration::from_secs(3600)).await;
        let told = world.events("data").await;
        let right = told.iter().filter(|(_, said)| said.contains(text));
        assert_eq!(right.count(), 1, "{text}: {told:#?}");
        let calls = world.fake.calls("CreateVolume");
        assert!(
            (2..=25).contains(&calls),
            "{text}: {calls} calls in an hour"
        );
        assert!(world.volume().await.is_none(), "{text}");
        world.delete::<Claim>(&data()).await;
        sleep(Duration::from_secs(600)).await;
        let deleted = world.fake.state().calls.clone();
        let deleted = deleted.iter().any(|call| call == "DeleteVolume ");
        assert!(!deleted, "{text}: nobody asks to delete what has no name");
        world.fake.state().lie = None;
        world.until_nothing_is_left().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_end_is_given_up_and_nothing_is_attached_again_for_it() {
    let mut world = with_volume().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.fake.state().endless = true;
    // What a list that breaks off does not show is not known to be gone.
    world.fake.state().volumes.clear();
    sleep(Duration::from_secs(3600)).await;
    let calls = world.fake.calls("ListVolumes");
    assert!(calls <= 60 * 4, "{calls} calls in an hour");
    assert_eq!(world.fake.calls("ControllerPublishVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_not_taken_for_another_that_the_driver_lists_in_its_place() {
    let mut world = running().await;
    let (name, cut) = (
        "somebody-elses",
        Cut {
            id: "theirs".into(),
            volume: "v".into(),
        },
    );
    world.fake.state().cuts.single.insert(name.into(), cut);
    world.fake.state().cuts.heedless = true;
    world
        .create::<VolumeSnapshotContent>(json!({
            "metadata": {"name": "found"},
            "spec": {
                "driver": NAME, "deletionPolicy": "Delete", "source": {"snapshotHandle": "ours"},
                "volumeSnapshotClassName": "cuts",
                "volumeSnapshotRef": {"name": "cut", "namespace": "default"},
            },
        }))
        .await;
    world
        .create::<VolumeSnapshot>(json!({
            "metadata": {"name": "cut", "namespace": "default"},
            "spec": {"source": {"volumeSnapshotContentName": "found"}},
        }))
        .await;
    sleep(Duration::from_secs(3600)).await;
    let said = told(&world, "found", "SnapshotContentCheckandUpdateFailed").await;
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].0.contains("tells of another snapshot"), "{said:#?}");
    let asked = world.fake.state().cuts.list_requests.len();
    assert!(asked <= 25, "{asked} calls in an hour");
    world
        .delete::<VolumeSnapshot>(&Key::namespaced("default", "cut"))
        .await;
    world
        .until("all are gone", |cluster, _| async move {
            Ok(cluster
                .list::<VolumeSnapshotContent>(None)
                .await?
                .is_empty())
        })
        .await;
    assert!(
        world.fake.state().cuts.single.contains_key(name),
        "not ours to delete"
    );
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_members_are_of_other_volumes_is_not_taken_for_whole() {
    let mut world = running().await;
    world
        .add_claim_with(json!({"metadata": {"name": "logs", "labels": {"app": "db"}}}))
        .await;
    sleep(Duration::from_secs(5)).await;
    world.fake.state().cuts.muddled = true;
    world
        .create::<VolumeGroupSnapshot>(json!({
            "metadata": {"name": "all", "namespace": "default"},
            "spec": {
                "volumeGroupSnapshotClassName": "cuts",
                "source": {"selector": {"matchLabels": {"app": "db"}}},
            },
        }))
        .await;
    sleep(Duration::from_secs(3600)).await;
    let contents = world.cluster.list::<VolumeGroupSnapshotContent>(None).await;
    let contents = contents.expect("it answers");
    let [content] = &contents[..] else {
        panic!("{contents:#?}");
    };
    assert!(!content.is_ready());
    let name = &content.metadata.name;
    let said = told(&world, name, "GroupSnapshotCreationFailed").await;
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].0.contains("one member for every volume"),
        "{said:#?}"
    );
    let calls = world.fake.calls("CreateVolumeGroupSnapshot");
    assert!(calls <= 25, "{calls} calls in an hour");
    world.fake.state().cuts.muddled = false;
    world
        .delete::<VolumeGroupSnapshot>(&Key::namespaced("default", "all"))
        .await;
    world
        .until("the group is gone", |cluster, fake| async move {
            let contents = cluster.list::<VolumeGroupSnapshotContent>(None).await?;
            Ok(contents.is_empty() && fake.state().cuts.groups.is_empty())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_from_before_there_was_time_was_cut_now() {
    let mut world = running().await;
    // Go's word for no time.
    world.fake.state().cuts.seconds = Some(-62_135_596_800);
    crate::snapshots::take(&world).await;
    crate::snapshots::until_ready(&mut world).await;
    let contents = world.cluster.list::<VolumeSnapshotContent>(None).await;
    let content = contents.expect("it answers").remove(0);
    let cut = content.status.and_then(|status| status.creation_time);
    let year = cut.expect("it is told") / 1_000_000_000 / 31_556_952 + 1970;
    assert_eq!(year, 2026);
}
