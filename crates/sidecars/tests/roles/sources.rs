//! Volumes that are filled from claims and snapshots.

use std::time::Duration;

use orlop_csi::proto::volume_content_source::Type;
use orlop_model::{
    Claim, ClaimPhase, Key, VolumeSnapshot,
    well_known::{CLONE_PROTECTION, PROVISIONING, SNAPSHOT_SOURCE_PROTECTION},
};
use orlop_runtime::{Cluster, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    driver::{Mishap, NAME},
    fuse::Fuse,
    world::{World, data},
};

fn copy() -> Key {
    Key::namespaced("default", "copy")
}

fn cut() -> Key {
    Key::namespaced("default", "cut")
}

/// The claim `copy`, filled from something.
async fn add_copy(world: &World, source: Value) {
    world
        .add_claim_with(json!({"metadata": {"name": "copy"}, "spec": {"dataSource": source}}))
        .await;
}

fn from_claim() -> Value {
    json!({"kind": "PersistentVolumeClaim", "name": "data"})
}

fn from_snapshot() -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "cut"})
}

async fn until_copied(world: &mut World) {
    let what = "the copy is bound and carries no intent";
    world
        .until(what, |cluster, _| async move {
            let claim = cluster.get::<Claim>(&copy()).await?;
            Ok(claim.is_some_and(|c| {
                c.phase() == ClaimPhase::Bound && !c.metadata.has_finalizer(PROVISIONING)
            }))
        })
        .await;
}

/// What the driver filled the copy's volume with.
fn content(world: &World) -> Option<Type> {
    let state = world.fake.state();
    let made = state.volumes.values();
    let mut contents = made.filter_map(|made| made.request.volume_content_source.clone());
    contents.next().and_then(|content| content.r#type)
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_filled_from_another_which_is_kept_meanwhile() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    let source = world.add_claim("fast").await;
    world.until_settled().await;
    world.fake.state().slow = Duration::from_secs(5);
    add_copy(&world, from_claim()).await;
    world
        .until("the source is kept", |cluster, _| async move {
            let source = cluster.get::<Claim>(&data()).await?;
            Ok(source.is_some_and(|c| c.metadata.has_finalizer(CLONE_PROTECTION)))
        })
        .await;
    assert_eq!(world.fake.calls("CreateVolume"), 1, "not before it is kept");
    // It goes only when the copy is made.
    world.delete::<Claim>(&data()).await;
    until_copied(&mut world).await;
    match content(&world) {
        Some(Type::Volume(volume)) => {
            let uid = source.metadata.uid;
            assert_eq!(volume.volume_id, format!("vol-pvc-{uid}"));
        }
        other => panic!("{other:?}"),
    }
    world
        .until("the source is gone", |cluster, _| async move {
            Ok(cluster.get::<Claim>(&data()).await?.is_none())
        })
        .await;
    world.delete::<Claim>(&copy()).await;
    world.until_nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_waits_for_its_source_and_is_woken_by_it() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    add_copy(&world, from_claim()).await;
    sleep(Duration::from_secs(200)).await;
    let events = world.events("copy").await;
    let told = |text: &str| events.iter().any(|(_, t)| t.contains(text));
    assert!(
        told("PersistentVolumeClaim default/data does not exist"),
        "{events:#?}"
    );
    assert!(told("next try in 30s"), "{events:#?}");
    let begun = Instant::now();
    world.add_claim("fast").await;
    until_copied(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "woken, not waited for"
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_filled_from_a_snapshot_which_is_let_go_afterwards() {
    let mut world = World::new().await;
    world.install_snapshots().await;
    world.add_snapshot("cut", NAME).await;
    world.start(Fuse::never());
    add_copy(&world, from_snapshot()).await;
    until_copied(&mut world).await;
    match content(&world) {
        Some(Type::Snapshot(snapshot)) => assert_eq!(snapshot.snapshot_id, "cut-cut"),
        other => panic!("{other:?}"),
    }
    world.delete::<VolumeSnapshot>(&cut()).await;
    until_snapshot_gone(&mut world).await;
    world.delete::<Claim>(&copy()).await;
    world.until_nothing_is_left().await;
}

async fn say_ready(world: &World, ready: bool) {
    let said = Patch::Merge(json!({"status": {"readyToUse": ready}}));
    let said = world.cluster.patch::<VolumeSnapshot>(&cut(), &said).await;
    said.expect("it is there");
}

#[tokio::test(start_paused = true)]
async fn a_restore_goes_on_as_soon_as_its_snapshot_is_ready() {
    let mut world = World::new().await;
    world.install_snapshots().await;
    world.add_snapshot("cut", NAME).await;
    say_ready(&world, false).await;
    world.start(Fuse::never());
    add_copy(&world, from_snapshot()).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("CreateVolume"), 0);
    // Just after a look, so that the next would come much later.
    let looks = |world: &World| {
        let requests = world.requests();
        let of_it = requests
            .iter()
            .filter(|(line, _)| line.ends_with("/volumesnapshots/cut"));
        of_it.count()
    };
    let before = looks(&world);
    for _ in 0..1000 {
        sleep(Duration::from_millis(100)).await;
        if looks(&world) > before {
            break;
        }
    }
    assert!(looks(&world) > before, "it isn't looked at any more");
    say_ready(&world, true).await;
    let begun = Instant::now();
    until_copied(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

async fn until_snapshot_gone(world: &mut World) {
    world
        .until("the snapshot is gone", |cluster, _| async move {
            Ok(cluster.get::<VolumeSnapshot>(&cut()).await?.is_none())
        })
        .await;
}

/// external-provisioner#1449: the answer is lost, then claim and snapshot are deleted.
#[tokio::test(start_paused = true)]
async fn a_restore_whose_answer_is_lost_is_undone_after_claim_and_snapshot_are_deleted() {
    for crash in [false, true] {
        let mut world = World::new().await;
        world.install_snapshots().await;
        world.add_snapshot("cut", NAME).await;
        world.start(Fuse::never());
        let lost = [Mishap::Do(Code::DeadlineExceeded); 3];
        world.fake.state().create.extend(lost);
        add_copy(&world, from_snapshot()).await;
        world
            .until("the driver was asked", |_, fake| async move {
                Ok(fake.calls("CreateVolume") >= 1)
            })
            .await;
        world.delete::<Claim>(&copy()).await;
        world.delete::<VolumeSnapshot>(&cut()).await;
        if crash {
            // Not even the snapshot object is left of it: somebody took our finalizer off.
            world.crash();
            let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let bared = world.cluster.patch::<VolumeSnapshot>(&cut(), &bare).await;
            bared.expect("it was kept");
            world.start(Fuse::never());
        }
        world.until_nothing_is_left().await;
        until_snapshot_gone(&mut world).await;
        assert_eq!(world.fake.calls("DeleteVolume"), 1);
    }
}

/// external-provisioner#1507: a provisioner died between its finalizer on the snapshot and the
/// rest.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_a_crash_left_on_a_snapshot_is_swept_away() {
    let mut world = World::new().await;
    world.install_snapshots().await;
    world.add_snapshot("cut", NAME).await;
    let finalizers = json!({"metadata": {"finalizers": [SNAPSHOT_SOURCE_PROTECTION]}});
    let left = Patch::Merge(finalizers);
    let left = world.cluster.patch::<VolumeSnapshot>(&cut(), &left).await;
    left.expect("it is there");
    world.delete::<VolumeSnapshot>(&cut()).await;
    world.start(Fuse::never());
    until_snapshot_gone(&mut world).await;
}

/// The finalizer by which a claim or a snapshot is kept as a source stands on it.
async fn until_kept(world: &mut World, source: &Key) {
    let key = source.clone();
    let kept = |cluster: Cluster, _| {
        let key = key.clone();
        async move {
            let claim = cluster.get::<Claim>(&key).await?;
            let snapshot = cluster.get::<VolumeSnapshot>(&key).await?;
            Ok(
                claim.is_some_and(|one| one.metadata.has_finalizer(CLONE_PROTECTION))
                    || snapshot
                        .is_some_and(|one| one.metadata.has_finalizer(SNAPSHOT_SOURCE_PROTECTION)),
            )
        }
    };
    world.until("the source is kept", kept).await;
}

/// A claim `data` and a snapshot `cut`, and a copy of one of them that the driver answers like this.
async fn copy_of(source: Value, answer: Mishap) -> World {
    let mut world = World::new().await;
    world.install_snapshots().await;
    world.add_snapshot("cut", NAME).await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.fake.state().create.extend([answer; 2000]);
    add_copy(&world, source).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_deleted_goes_though_a_claim_that_can_never_be_made_names_it() {
    let refused = Mishap::Refuse(Code::InvalidArgument);
    let mut world = copy_of(from_claim(), refused).await;
    until_kept(&mut world, &data()).await;
    sleep(Duration::from_secs(60)).await;
    world.delete::<Claim>(&data()).await;
    let begun = Instant::now();
    let gone =
        |cluster: Cluster, _| async move { Ok(cluster.get::<Claim>(&data()).await?.is_none()) };
    world.until("the source is gone", gone).await;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "by its own change"
    );

    let mut world = copy_of(from_snapshot(), refused).await;
    until_kept(&mut world, &cut()).await;
    sleep(Duration::from_secs(60)).await;
    world.delete::<VolumeSnapshot>(&cut()).await;
    until_snapshot_gone(&mut world).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_source_that_may_still_be_copied_says_for_whom_it_stays() {
    let unknown = Mishap::Refuse(Code::DeadlineExceeded);
    for (source, key) in [(from_claim(), data()), (from_snapshot(), cut())] {
        let mut world = copy_of(source, unknown).await;
        until_kept(&mut world, &key).await;
        sleep(Duration::from_secs(60)).await;
        if key == cut() {
            world.delete::<VolumeSnapshot>(&key).await;
        } else {
            world.delete::<Claim>(&key).await;
        }
        // Snapshots are not watched: the claim's next try finds it.
        sleep(Duration::from_secs(400)).await;
        let told = world.events(&key.name).await;
        let right = |(reason, text): &&(String, String)| {
            reason == "DeletionWaitsForCopy"
                && text.contains("when the volume of claim default/copy is made")
                && text.contains("delete that claim")
        };
        assert_eq!(told.iter().filter(right).count(), 1, "{told:#?}");
        // The way out that it tells of.
        world.fake.state().create.clear();
        world.delete::<Claim>(&copy()).await;
        let gone = |cluster: Cluster, _| {
            let key = key.clone();
            async move {
                Ok(cluster.get::<Claim>(&key).await?.is_none()
                    && (key == data() || cluster.get::<VolumeSnapshot>(&key).await?.is_none()))
            }
        };
        world.until("the source is gone", gone).await;
    }
}

/// CVE-2019-11255: what belongs to another driver, or to nobody, fills no volume.
#[tokio::test(start_paused = true)]
async fn a_snapshot_of_another_driver_is_refused_and_the_driver_not_asked() {
    let world = &mut World::new().await;
    world.install_snapshots().await;
    world.add_snapshot("cut", "another.example.com").await;
    world.start(Fuse::never());
    add_copy(world, from_snapshot()).await;
    let events = world.events("copy").await;
    let words = "snapshot cut belongs to driver another.example.com, not to";
    assert!(
        events.iter().any(|(_, text)| text.contains(words)),
        "{events:#?}"
    );
    assert_eq!(world.fake.calls("CreateVolume"), 0);
    let snapshot = world.cluster.get::<VolumeSnapshot>(&cut()).await;
    let snapshot = snapshot.expect("it answers").expect("it is there");
    assert!(snapshot.metadata.finalizers.is_empty(), "nor is it kept");
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_foreign_source_is_left_to_its_populator() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    add_copy(&world, Value::Null).await;
    world.delete::<Claim>(&copy()).await;
    world.until_nothing_is_left().await;
    let source = json!({"apiGroup": "example.com", "kind": "Image", "name": "debian"});
    world
        .add_claim_with(json!({"metadata": {"name": "copy"}, "spec": {"dataSourceRef": source}}))
        .await;
    let before = world.fake.calls("CreateVolume");
    let events = world.events("copy").await;
    let text = "Assuming an external populator will provision the volume";
    assert!(
        events
            .iter()
            .any(|(reason, t)| reason == "Provisioning" && t == text),
        "{events:#?}"
    );
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("CreateVolume"), before);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_not_filled_is_deleted_again() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.fake.state().fills = false;
    add_copy(&world, from_claim()).await;
    world
        .until("the volume was refused", |_, fake| async move {
            Ok(fake.calls("DeleteVolume") == 1)
        })
        .await;
    world.fake.state().fills = true;
    until_copied(&mut world).await;
}

#[tokio::test(start_paused = true)]
async fn clones_and_restores_leave_nothing_behind_wherever_they_are_interrupted() {
    crate::crashes::at_every_call(|fuse| async {
        let mut world = World::new().await;
        world.install_snapshots().await;
        world.add_snapshot("cut", NAME).await;
        let lost = Mishap::Do(Code::Unavailable);
        world.fake.state().create.push_back(lost);
        world.start(fuse);
        add_copy(&world, from_snapshot()).await;
        world
            .until("the driver was asked", |_, fake| async move {
                Ok(fake.calls("CreateVolume") >= 1)
            })
            .await;
        world.delete::<Claim>(&copy()).await;
        world.delete::<VolumeSnapshot>(&cut()).await;
        world.until_nothing_is_left().await;
        until_snapshot_gone(&mut world).await;
    })
    .await;
}
