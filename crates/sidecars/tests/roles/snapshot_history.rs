//! What went wrong in the history of snapshots, each as a case that must never be again.

use std::time::Duration;

use orlop_model::{
    Claim, Key, Kind, Volume, VolumeGroupSnapshot, VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
    well_known::{self, PROVISIONED_BY, SNAPSHOT_BEING_CREATED, SNAPSHOT_CONTENT_BOUND},
};
use orlop_runtime::{Cluster, Patch, Preconditions};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    driver::{Mishap, NAME},
    fuse::Fuse,
    snapshots::{
        add_classes, add_snapshot, cut, running, snapshot, take, told, until_gone, until_ready,
        until_told, world,
    },
    world::{World, data},
};

fn all() -> Key {
    Key::namespaced("default", "all")
}

async fn group(world: &World, class: Option<&str>) {
    let mut spec = json!({"source": {"selector": {"matchLabels": {"app": "db"}}}});
    if let Some(class) = class {
        spec["volumeGroupSnapshotClassName"] = json!(class);
    }
    world
        .create::<VolumeGroupSnapshot>(json!({
            "metadata": {"name": "all", "namespace": "default"}, "spec": spec,
        }))
        .await;
}

async fn until_group_ready(world: &mut World) {
    let ready = |cluster: Cluster, _| async move {
        let group = cluster.get::<VolumeGroupSnapshot>(&all()).await?;
        let members = cluster.list::<VolumeSnapshot>(None).await?;
        Ok(group.is_some_and(|one| one.is_ready()) && members.iter().all(VolumeSnapshot::is_ready))
    };
    world.until("the group is ready", ready).await;
}

async fn until_group_told(world: &mut World, text: &'static str) {
    let told = |cluster: Cluster, _| async move {
        let group = cluster.get::<VolumeGroupSnapshot>(&all()).await?;
        Ok(group.is_some_and(|one| one.error_message().is_some_and(|said| said.contains(text))))
    };
    world.until(text, told).await;
}

async fn until_no_group(world: &mut World) {
    until_gone::<VolumeGroupSnapshot>(world).await;
    until_gone::<VolumeGroupSnapshotContent>(world).await;
    until_gone::<VolumeSnapshot>(world).await;
    until_gone::<VolumeSnapshotContent>(world).await;
}

/// R40 (CVE-2020-8569): the error stands on the object, and nobody crashes or spins.
#[tokio::test(start_paused = true)]
async fn a_snapshot_of_nothing_without_a_class_is_told_and_rests() {
    let mut world = world().await;
    world.start(Fuse::never());
    let nothing = json!({"persistentVolumeClaimName": "data", "class": "default"});
    add_snapshot(&world, nothing).await;
    until_told(&mut world, "the PVC data does not exist").await;
    let before = world.requests().len();
    sleep(Duration::from_secs(3600)).await;
    let spent = world.requests().len() - before;
    assert!(spent < 60, "{spent} requests in an hour");
    let events = told(&world, "cut", "SetDefaultSnapshotClassFailed").await;
    assert_eq!(events.len(), 1, "{events:#?}");
    // The controller lives: others are served.
    add_classes(&world, "Delete", json!({})).await;
    world.delete::<VolumeSnapshot>(&cut()).await;
    world.add_claim("fast").await;
    world.until_settled().await;
    take(&world).await;
    until_ready(&mut world).await;
}

/// R41: a deletion that fails leaves the content, held, until the driver has let go.
#[tokio::test(start_paused = true)]
async fn a_content_stays_until_its_snapshot_is_deleted_at_the_driver() {
    let mut world = running().await;
    take(&world).await;
    until_ready(&mut world).await;
    let failures = [
        Mishap::Refuse(Code::Internal),
        Mishap::Do(Code::DeadlineExceeded),
        Mishap::Refuse(Code::FailedPrecondition),
    ];
    world.fake.state().cuts.uncut.extend(failures);
    let content = snapshot(&world).await.content_name();
    world.delete::<VolumeSnapshot>(&cut()).await;
    for tries in 1..=3 {
        let tried = move |_, fake: crate::driver::Fake| async move {
            Ok(fake.calls("DeleteSnapshot") == tries)
        };
        world.until("it was tried", tried).await;
        let held: Option<VolumeSnapshotContent> = {
            let key = Key::cluster(&content);
            world.cluster.get(&key).await.expect("it answers")
        };
        let held = held.expect("it is there");
        assert!(held.metadata.has_finalizer(SNAPSHOT_CONTENT_BOUND));
        assert!(snapshot(&world).await.metadata.is_deleting());
    }
    let events = told(&world, &content, "SnapshotDeleteError").await;
    assert!(
        events.iter().any(|(text, _)| text.contains("Internal")),
        "{events:#?}"
    );
    until_gone::<VolumeSnapshot>(&mut world).await;
    until_gone::<VolumeSnapshotContent>(&mut world).await;
    assert_eq!(world.fake.calls("DeleteSnapshot"), 4);
}

/// R41, R42: a pool that is full holds nobody back who gives up.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_had_no_room_goes_at_once() {
    let mut world = running().await;
    let full = [Mishap::Refuse(Code::ResourceExhausted); 50];
    world.fake.state().cuts.cut.extend(full);
    take(&world).await;
    until_told(&mut world, "ResourceExhausted").await;
    sleep(Duration::from_secs(600)).await;
    let begun = Instant::now();
    world.delete::<VolumeSnapshot>(&cut()).await;
    until_gone::<VolumeSnapshot>(&mut world).await;
    until_gone::<VolumeSnapshotContent>(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

/// R42: whoever is deleted first, all go away, and nothing stays at the driver.
#[tokio::test(start_paused = true)]
async fn claim_snapshot_content_and_class_may_go_in_any_order() {
    let orders = [
        ["claim", "snapshot", "content", "class"],
        ["class", "content", "claim", "snapshot"],
        ["content", "class", "snapshot", "claim"],
        ["content", "claim", "class", "snapshot"],
        ["snapshot", "content", "class", "claim"],
        ["class", "claim", "snapshot", "content"],
    ];
    for order in orders {
        let mut world = running().await;
        take(&world).await;
        until_ready(&mut world).await;
        let content = Key::cluster(snapshot(&world).await.content_name());
        for what in order {
            let only_if = Preconditions::default();
            let cluster = &world.cluster;
            let deleted = match what {
                "claim" => cluster.delete::<Claim>(&data(), &only_if).await,
                "snapshot" => cluster.delete::<VolumeSnapshot>(&cut(), &only_if).await,
                "content" => {
                    cluster
                        .delete::<VolumeSnapshotContent>(&content, &only_if)
                        .await
                }
                _ => {
                    let class = Key::cluster("cuts");
                    cluster
                        .delete::<VolumeSnapshotClass>(&class, &only_if)
                        .await
                }
            };
            match deleted {
                Err(error) if !error.is_not_found() => panic!("{what}: {}", error.chain()),
                _ => sleep(Duration::from_secs(2)).await,
            }
        }
        let begun = Instant::now();
        until_gone::<VolumeSnapshot>(&mut world).await;
        until_gone::<VolumeSnapshotContent>(&mut world).await;
        world.until_nothing_is_left().await;
        assert!(world.fake.state().cuts.single.is_empty(), "{order:?}");
        // R43: nobody overwrote another's annotation, so nobody waited for a next try.
        assert!(begun.elapsed() < Duration::from_secs(10), "{order:?}");
    }
}

/// R45: what is to be kept is kept, members too.
#[tokio::test(start_paused = true)]
async fn a_kept_groups_members_stay_at_the_driver_with_their_contents() {
    let mut world = world().await;
    world.start(Fuse::never());
    world
        .add_claim_with(json!({"metadata": {"labels": {"app": "db"}}}))
        .await;
    world.until_settled().await;
    add_classes(&world, "Retain", json!({})).await;
    group(&world, Some("cuts")).await;
    until_group_ready(&mut world).await;
    world.delete::<VolumeGroupSnapshot>(&all()).await;
    until_gone::<VolumeGroupSnapshot>(&mut world).await;
    sleep(Duration::from_secs(60)).await;
    let groups = world.cluster.list::<VolumeGroupSnapshotContent>(None).await;
    assert_eq!(groups.expect("it answers").len(), 1);
    let members = world.cluster.list::<VolumeSnapshotContent>(None).await;
    assert_eq!(members.expect("it answers").len(), 1);
    assert_eq!(world.fake.state().cuts.groups.len(), 1);
    assert_eq!(world.fake.calls("Delete"), 0);
}

/// R46: what can't be cut, and a class that isn't there, are told.
#[tokio::test(start_paused = true)]
async fn a_group_that_can_not_be_cut_is_told_and_rests() {
    let mut world = running().await;
    group(&world, Some("missing")).await;
    until_group_told(&mut world, "class \"missing\" not found").await;
    world.delete::<VolumeGroupSnapshot>(&all()).await;
    until_gone::<VolumeGroupSnapshot>(&mut world).await;
    group(&world, None).await;
    until_group_told(&mut world, "cannot find default group snapshot class").await;
    world.delete::<VolumeGroupSnapshot>(&all()).await;
    until_gone::<VolumeGroupSnapshot>(&mut world).await;

    // A volume that is no driver's.
    world
        .create::<Volume>(json!({
            "metadata": {"name": "shelf", "annotations": {PROVISIONED_BY: "hand"}},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "hand", "hostPath": {"path": "/srv"},
            },
        }))
        .await;
    world
        .add_claim_with(json!({
            "metadata": {"name": "other", "labels": {"app": "db"}},
            "spec": {"storageClassName": "hand"},
        }))
        .await;
    group(&world, Some("cuts")).await;
    until_group_told(&mut world, "snapshotting non-CSI volumes is not supported").await;
    let before = world.requests().len();
    sleep(Duration::from_secs(3600)).await;
    let spent = world.requests().len() - before;
    assert!(spent < 60, "{spent} requests in an hour");
    assert_eq!(world.fake.calls("CreateVolumeGroupSnapshot"), 0);
}

/// A group goes within seconds, its members with it: they don't wait for their next try.
#[tokio::test(start_paused = true)]
async fn a_group_and_its_members_go_at_once() {
    let mut world = running().await;
    world
        .add_claim_with(json!({"metadata": {"name": "logs", "labels": {"app": "db"}}}))
        .await;
    sleep(Duration::from_secs(5)).await;
    group(&world, Some("cuts")).await;
    until_group_ready(&mut world).await;
    // One who deletes a member first is told why it stays.
    let members = world.cluster.list::<VolumeSnapshot>(None).await;
    let members = members.expect("it answers");
    assert_eq!(members.len(), 2);
    let member = members[0].metadata.key();
    world.delete::<VolumeSnapshot>(&member).await;
    sleep(Duration::from_secs(1000)).await;
    let events = told(&world, &member.name, "SnapshotDeletePending").await;
    assert_eq!(events.len(), 1, "{events:#?}");
    let begun = Instant::now();
    world.delete::<VolumeGroupSnapshot>(&all()).await;
    until_no_group(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(world.fake.state().cuts.groups.is_empty());
}

/// A group that is deleted while the driver finds out that it can't be cut.
#[tokio::test(start_paused = true)]
async fn a_group_whose_sources_are_gone_goes_as_soon_as_the_driver_says_so() {
    let mut world = running().await;
    // Many tries have failed by then, so that the next one is far away.
    let gone = [Mishap::Refuse(Code::NotFound); 50];
    world.fake.state().cuts.cut.extend(gone);
    group(&world, Some("cuts")).await;
    sleep(Duration::from_secs(1000)).await;
    world.fake.state().cuts.slow = Duration::from_secs(20);
    let calls = world.fake.calls("CreateVolumeGroupSnapshot");
    let asked = |cluster: Cluster, _| async move {
        let contents = cluster.list::<VolumeGroupSnapshotContent>(None).await?;
        let name = orlop_model::well_known::GROUP_SNAPSHOT_BEING_CREATED;
        Ok(contents
            .iter()
            .any(|one| one.metadata.annotation(name).is_some()))
    };
    world.until("the driver is asked again", asked).await;
    world.delete::<VolumeGroupSnapshot>(&all()).await;
    let begun = Instant::now();
    until_no_group(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(world.fake.calls("CreateVolumeGroupSnapshot"), calls + 1);
    let class = Key::cluster("cuts");
    world.delete::<VolumeGroupSnapshotClass>(&class).await;
}

/// Takes an object away, finalizers and all, as people do who lose patience.
async fn force_away<K: Kind>(world: &World, key: &Key) {
    world.delete::<K>(key).await;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match world.cluster.patch::<K>(key, &bare).await {
        Err(error) if !error.is_not_found() => panic!("{}", error.chain()),
        _ => {}
    }
}

async fn until_being_cut(world: &mut World) -> Key {
    let begun = |cluster: Cluster, _| async move {
        let contents = cluster.list::<VolumeSnapshotContent>(None).await?;
        Ok(contents
            .iter()
            .any(|one| one.metadata.annotation(SNAPSHOT_BEING_CREATED).is_some()))
    };
    world.until("the driver is asked", begun).await;
    let contents = world.cluster.list::<VolumeSnapshotContent>(None).await;
    contents
        .expect("it answers")
        .first()
        .expect("there is one")
        .key()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_content_is_forced_away_while_it_is_cut_does_not_leak() {
    let lost = Mishap::Do(Code::DeadlineExceeded);
    for answers in [vec![], vec![lost; 3]] {
        let mut world = running().await;
        world.fake.state().cuts.slow = Duration::from_secs(5);
        world.fake.state().cuts.cut.extend(answers);
        take(&world).await;
        let content = until_being_cut(&mut world).await;
        force_away::<VolumeSnapshot>(&world, &cut()).await;
        force_away::<VolumeSnapshotContent>(&world, &content).await;
        world
            .until("it was cut, and deleted", |_, fake| async move {
                Ok(fake.calls("CreateSnapshot") > 0 && fake.state().cuts.single.is_empty())
            })
            .await;
        assert_eq!(world.fake.calls("DeleteSnapshot"), 1);
        sleep(Duration::from_secs(900)).await;
        assert!(world.fake.state().cuts.single.is_empty(), "and stays so");
    }
}

#[tokio::test(start_paused = true)]
async fn a_content_that_is_made_anew_finds_what_was_cut_for_its_forerunner() {
    let mut world = running().await;
    world.fake.state().cuts.slow = Duration::from_secs(5);
    take(&world).await;
    let content = until_being_cut(&mut world).await;
    force_away::<VolumeSnapshotContent>(&world, &content).await;
    until_ready(&mut world).await;
    sleep(Duration::from_secs(900)).await;
    assert_eq!(world.fake.state().cuts.single.len(), 1);
    assert!(snapshot(&world).await.is_ready());
}

/// A snapshot that was cut, and its content.
async fn cut_by(policy: &str) -> (World, Key) {
    let mut world = running().await;
    if policy != "Delete" {
        world
            .delete::<VolumeSnapshotClass>(&Key::cluster("cuts"))
            .await;
        world
            .create::<VolumeSnapshotClass>(json!({
                "metadata": {"name": "cuts"}, "driver": NAME, "deletionPolicy": policy,
            }))
            .await;
    }
    take(&world).await;
    until_ready(&mut world).await;
    let content = Key::cluster(snapshot(&world).await.content_name());
    (world, content)
}

#[tokio::test(start_paused = true)]
async fn a_content_that_is_deleted_alone_says_what_it_waits_for() {
    for forced_first in [true, false] {
        let (mut world, content) = cut_by("Delete").await;
        if forced_first {
            world.crash();
            force_away::<VolumeSnapshot>(&world, &cut()).await;
            world.start(Fuse::never());
            sleep(Duration::from_secs(60)).await;
        }
        world.delete::<VolumeSnapshotContent>(&content).await;
        sleep(Duration::from_secs(60)).await;
        if !forced_first {
            let events = told(&world, &content.name, "DeletionWaits").await;
            assert_eq!(events.len(), 1, "{events:#?}");
            let text = "it is deleted together with VolumeSnapshot default/cut";
            assert!(events[0].0.starts_with(text), "{events:#?}");
            // Too quickly for anybody to say that its content may go.
            world.refuse(Some(|what| what.contains("/volumesnapshotcontents/")));
            force_away::<VolumeSnapshot>(&world, &cut()).await;
            world.refuse(None);
            sleep(Duration::from_secs(60)).await;
        }
        let events = told(&world, &content.name, "DeletionWaits").await;
        let way_out = format!(
            "kubectl annotate volumesnapshotcontents.snapshot.storage.k8s.io {} {}=yes",
            content.name,
            well_known::SNAPSHOT_BEING_DELETED
        );
        assert!(
            events.iter().any(|(text, _)| text.contains(&way_out)),
            "{events:#?}"
        );
        let before = world.requests().len();
        sleep(Duration::from_secs(3600)).await;
        let spent = world.requests().len() - before;
        assert!(spent < 60, "{spent} requests in an hour");
        assert_eq!(world.fake.calls("DeleteSnapshot"), 0, "nobody said so");
        let mark =
            json!({"metadata": {"annotations": {well_known::SNAPSHOT_BEING_DELETED: "yes"}}});
        let marked = world
            .cluster
            .patch::<VolumeSnapshotContent>(&content, &Patch::Merge(mark))
            .await;
        marked.expect("it is there");
        until_gone::<VolumeSnapshotContent>(&mut world).await;
        assert!(world.fake.state().cuts.single.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_content_whose_snapshot_was_forced_away_goes_when_it_is_deleted() {
    let (mut world, content) = cut_by("Retain").await;
    world.crash();
    force_away::<VolumeSnapshot>(&world, &cut()).await;
    world.start(Fuse::never());
    sleep(Duration::from_secs(60)).await;
    world.delete::<VolumeSnapshotContent>(&content).await;
    until_gone::<VolumeSnapshotContent>(&mut world).await;
    assert_eq!(
        world.fake.state().cuts.single.len(),
        1,
        "what it told of stays"
    );
}
