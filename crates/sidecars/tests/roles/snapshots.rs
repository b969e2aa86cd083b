//! Snapshots from the user's wish to the driver and back, with the kinds as they are defined on
//! clusters.

use std::time::Duration;

use orlop_model::{
    Claim, Event, Key, Kind, Node, Secret, VolumeGroupSnapshotClass, VolumeSnapshot,
    VolumeSnapshotClass, VolumeSnapshotContent, well_known,
};
use orlop_runtime::Patch;
use orlop_sidecars::{snapshot_controller, snapshotter};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    cuts::Cut,
    driver::{Mishap, NAME},
    fuse::Fuse,
    world::{World, data},
};

pub(crate) fn cut() -> Key {
    Key::namespaced("default", "cut")
}

/// A cluster with the kinds of snapshots and a bound claim; snapshots are looked after from
/// [`World::start`] on.
pub(crate) async fn world() -> World {
    let mut world = World::new().await;
    world.define_snapshots().await;
    world.snapshots = Some((
        snapshotter::Config::default(),
        snapshot_controller::Config::default(),
    ));
    world
}

/// The same with sidecars, a claim that is bound, and classes.
pub(crate) async fn running() -> World {
    let mut world = world().await;
    world.start(Fuse::never());
    world
        .add_claim_with(json!({"metadata": {"labels": {"app": "db"}}}))
        .await;
    world.until_settled().await;
    add_classes(&world, "Delete", json!({"tier": "cold"})).await;
    world
}

pub(crate) async fn add_classes(world: &World, policy: &str, parameters: Value) {
    let class = json!({
        "metadata": {"name": "cuts"}, "driver": NAME, "deletionPolicy": policy,
        "parameters": parameters,
    });
    world.create::<VolumeSnapshotClass>(class.clone()).await;
    world.create::<VolumeGroupSnapshotClass>(class).await;
}

pub(crate) async fn add_snapshot(world: &World, source: Value) {
    let mut spec = json!({"source": source});
    if spec["source"]["class"].is_null() {
        spec["volumeSnapshotClassName"] = json!("cuts");
    } else {
        // By default.
        spec["source"]
            .as_object_mut()
            .expect("an object")
            .remove("class");
    }
    world
        .create::<VolumeSnapshot>(json!({
            "metadata": {"name": "cut", "namespace": "default"}, "spec": spec,
        }))
        .await;
}

/// A snapshot of the claim `data`.
pub(crate) async fn take(world: &World) {
    add_snapshot(world, json!({"persistentVolumeClaimName": "data"})).await;
}

pub(crate) async fn until_ready(world: &mut World) {
    let ready = |cluster: orlop_runtime::Cluster, _| async move {
        let snapshot = cluster.get::<VolumeSnapshot>(&cut()).await?;
        Ok(snapshot.is_some_and(|one| one.is_ready()))
    };
    world.until("the snapshot is ready", ready).await;
}

pub(crate) async fn until_gone<K: Kind>(world: &mut World) {
    let gone = |cluster: orlop_runtime::Cluster, _| async move {
        Ok(cluster.list::<K>(None).await?.is_empty())
    };
    world.until("all are gone", gone).await;
}

pub(crate) async fn snapshot(world: &World) -> VolumeSnapshot {
    let snapshot = world.cluster.get::<VolumeSnapshot>(&cut()).await;
    snapshot.expect("it answers").expect("it is there")
}

/// Waits until the snapshot's status tells of this.
pub(crate) async fn until_told(world: &mut World, text: &'static str) {
    let told = |cluster: orlop_runtime::Cluster, _| async move {
        let snapshot = cluster.get::<VolumeSnapshot>(&cut()).await?;
        Ok(snapshot.is_some_and(|one| one.error_message().is_some_and(|said| said.contains(text))))
    };
    world.until(text, told).await;
}

/// The events about an object, and how often each was told.
pub(crate) async fn told(world: &World, name: &str, reason: &str) -> Vec<(String, i32)> {
    sleep(Duration::from_secs(1)).await;
    let all = world.cluster.list::<Event>(None).await.expect("it answers");
    let about = all.into_iter();
    about
        .filter(|event| event.involved_object.name == name && event.reason == reason)
        .map(|event| (event.message, event.count))
        .collect()
}

async fn add_secret(world: &World, name: &str) {
    let secret = json!({
        "metadata": {"name": name, "namespace": "default"}, "data": {"token": "aHVudGVyMg=="},
    });
    world.create::<Secret>(secret).await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_asked_for_as_class_and_flags_say() {
    let mut world = world().await;
    world.snapshots = Some((
        snapshotter::Config {
            name_prefix: "nightly".into(),
            name_uid_length: Some(8),
            extra_create_metadata: true,
            ..Default::default()
        },
        snapshot_controller::Config::default(),
    ));
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    let parameters = json!({
        "tier": "cold",
        "csi.storage.k8s.io/snapshotter-secret-name": "${volumesnapshot.name}-key",
        "csi.storage.k8s.io/snapshotter-secret-namespace": "${volumesnapshot.namespace}",
    });
    add_classes(&world, "Delete", parameters).await;
    add_secret(&world, "cut-key").await;
    take(&world).await;
    until_ready(&mut world).await;

    let made = snapshot(&world).await;
    let uid = made.metadata.uid.replace('-', "");
    let content = made.bound_content().expect("it is bound").to_owned();
    let asked = world.fake.state().cuts.cut_requests.clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].name, format!("nightly-{}", &uid[..8]));
    assert_eq!(asked[0].secrets["token"], "hunter2");
    let told: Vec<(&str, &str)> = asked[0]
        .parameters
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("csi.storage.k8s.io/volumesnapshot/name", "cut"),
            ("csi.storage.k8s.io/volumesnapshot/namespace", "default"),
            ("csi.storage.k8s.io/volumesnapshotcontent/name", &content),
            ("tier", "cold"),
        ]
    );
    let restore_size = made.status.expect("it has one").restore_size;
    assert_eq!(restore_size.expect("it is told").value(), 1 << 30);
    let content = world.cluster.get(&Key::cluster(content)).await;
    let content: VolumeSnapshotContent = content.expect("it answers").expect("it is there");
    let mode = content.spec.source_volume_mode;
    assert_eq!(mode, Some(orlop_model::VolumeMode::Filesystem));

    // The class is not needed for the end.
    let class = Key::cluster("cuts");
    world.delete::<VolumeSnapshotClass>(&class).await;
    world.delete::<VolumeSnapshot>(&cut()).await;
    until_gone::<VolumeSnapshot>(&mut world).await;
    until_gone::<VolumeSnapshotContent>(&mut world).await;
    let state = world.fake.state();
    assert!(state.cuts.single.is_empty());
    assert_eq!(state.cuts.delete_requests[0].secrets["token"], "hunter2");
}

/// A content for a snapshot that the driver has already.
async fn add_found(world: &World, policy: &str) {
    let found = Cut {
        id: "old".into(),
        volume: "gone".into(),
    };
    world.fake.state().cuts.single.insert("old".into(), found);
    world
        .create::<VolumeSnapshotContent>(json!({
            "metadata": {"name": "found"},
            "spec": {
                "driver": NAME, "deletionPolicy": policy, "source": {"snapshotHandle": "old"},
                "volumeSnapshotRef": {"name": "cut", "namespace": "default"},
            },
        }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_there_before_is_asked_after_bound_and_deleted() {
    let mut world = world().await;
    world.start(Fuse::never());
    let parameters = json!({
        "csi.storage.k8s.io/snapshotter-list-secret-name": "${volumesnapshotcontent.name}-key",
        "csi.storage.k8s.io/snapshotter-list-secret-namespace": "default",
    });
    add_classes(&world, "Delete", parameters).await;
    add_secret(&world, "found-key").await;
    world.fake.state().cuts.unready = 3;
    add_found(&world, "Delete").await;
    add_snapshot(&world, json!({"volumeSnapshotContentName": "found"})).await;
    let begun = Instant::now();
    until_ready(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    let asked = world.fake.state().cuts.list_requests.clone();
    assert!(asked.iter().all(|asked| asked.snapshot_id == "old"));
    let last = asked.last().expect("it was asked");
    assert_eq!(
        last.secrets["token"], "hunter2",
        "by the class that it was given"
    );
    assert_eq!(world.fake.calls("CreateSnapshot"), 0);
    world.delete::<VolumeSnapshot>(&cut()).await;
    until_gone::<VolumeSnapshot>(&mut world).await;
    until_gone::<VolumeSnapshotContent>(&mut world).await;
    assert!(world.fake.state().cuts.single.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kept_snapshot_stays_when_its_wish_goes() {
    let mut world = world().await;
    world.start(Fuse::never());
    add_classes(&world, "Retain", json!({})).await;
    add_found(&world, "Retain").await;
    add_snapshot(&world, json!({"volumeSnapshotContentName": "found"})).await;
    until_ready(&mut world).await;
    world.delete::<VolumeSnapshot>(&cut()).await;
    until_gone::<VolumeSnapshot>(&mut world).await;
    sleep(Duration::from_secs(60)).await;
    let kept = world.cluster.list::<VolumeSnapshotContent>(None).await;
    assert_eq!(kept.expect("it answers").len(), 1);
    assert_eq!(world.fake.calls("DeleteSnapshot"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_one_default_class_of_the_driver_is_taken_and_a_change_of_classes_is_heard() {
    let mut world = running().await;
    let by_default = json!({"persistentVolumeClaimName": "data", "class": "default"});
    add_snapshot(&world, by_default).await;
    until_told(&mut world, "cannot find default snapshot class").await;
    let class = |name: &str, driver: &str| {
        json!({
            "metadata": {
                "name": name, "annotations": {well_known::IS_DEFAULT_SNAPSHOT_CLASS: "true"},
            },
            "driver": driver, "deletionPolicy": "Delete",
        })
    };
    for (name, driver) in [("first", NAME), ("second", NAME), ("other", "other.driver")] {
        // Both are there before it is looked at again.
        if name == "first" {
            world.crash();
        }
        world
            .create::<VolumeSnapshotClass>(class(name, driver))
            .await;
    }
    world.start(Fuse::never());
    until_told(&mut world, "2 default snapshot classes were found").await;
    // Long enough for the next try to be far away.
    sleep(Duration::from_secs(1000)).await;
    let begun = Instant::now();
    let undo = json!({"metadata": {"annotations": {well_known::IS_DEFAULT_SNAPSHOT_CLASS: null}}});
    let (key, undo) = (Key::cluster("first"), Patch::Merge(undo));
    let changed = world
        .cluster
        .patch::<VolumeSnapshotClass>(&key, &undo)
        .await;
    changed.expect("it is there");
    until_ready(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let taken = snapshot(&world).await;
    assert_eq!(
        taken.spec.volume_snapshot_class_name.as_deref(),
        Some("second")
    );
    assert_eq!(taken.error_message(), None);
    let events = told(&world, "cut", "SetDefaultSnapshotClassFailed").await;
    assert_eq!(
        events.len(),
        2,
        "one for each thing that was wrong: {events:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn each_node_looks_after_its_own_snapshots() {
    let mut world = world().await;
    world.fake.state().topology = true;
    world.add_node("n2", "b").await;
    let central = snapshot_controller::Config {
        distributed: true,
        ..Default::default()
    };
    let on = |node: &str| snapshotter::Config {
        node: Some(node.to_owned()),
        ..Default::default()
    };
    world.snapshots = Some((on("n2"), central.clone()));
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    add_classes(&world, "Delete", json!({})).await;
    // The driver puts volumes where it was asked to, and that is zone a.
    let volume = world.volume().await.expect("there is one");
    let node: Node = {
        let nodes = world.cluster.list::<Node>(None).await.expect("it answers");
        let mut nodes = nodes.into_iter();
        let reaches =
            |node: &Node| volume.reachable_from(&node.metadata.name, &node.metadata.labels);
        nodes.find(reaches).expect("one reaches it")
    };
    let (own, foreign) = match node.metadata.name.as_str() {
        "n1" => ("n1", "n2"),
        _ => ("n2", "n1"),
    };
    world.crash();
    world.snapshots = Some((on(foreign), central.clone()));
    world.start(Fuse::never());
    take(&world).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fake.calls("CreateSnapshot"), 0);
    let contents = world.cluster.list::<VolumeSnapshotContent>(None).await;
    let contents = contents.expect("it answers");
    let managed = contents[0]
        .metadata
        .labels
        .get(well_known::SNAPSHOT_MANAGED_BY);
    assert_eq!(managed.map(String::as_str), Some(own));
    world.crash();
    world.snapshots = Some((on(own), central));
    world.start(Fuse::never());
    until_ready(&mut world).await;
}

#[tokio::test(start_paused = true)]
async fn what_can_not_go_well_is_tried_rarely_and_told_once() {
    let mut world = running().await;
    let refused = [Mishap::Refuse(Code::InvalidArgument); 100];
    world.fake.state().cuts.cut.extend(refused);
    let before = world.requests().len();
    take(&world).await;
    sleep(Duration::from_secs(3600)).await;
    let tries = world.fake.calls("CreateSnapshot");
    assert!((12..=14).contains(&tries), "every five minutes: {tries}");
    let content = snapshot(&world).await.content_name();
    let events = told(&world, &content, "SnapshotCreationFailed").await;
    let more = told(&world, &content, "SnapshotContentCheckandUpdateFailed").await;
    assert!(events.len() + more.len() <= 2, "{events:#?}{more:#?}");
    assert!(
        more[0].0.ends_with("; next try in 5m0s"),
        "it says when: {more:#?}"
    );
    assert!(more[0].1 > 10, "it counts: {more:#?}");
    let spent = world.requests().len() - before;
    assert!(spent < 120, "{spent} requests in an hour");

    // Who changes the class need not wait.
    world.fake.state().cuts.cut.clear();
    let better = json!({"parameters": {"tier": "warm"}});
    let (key, better) = (Key::cluster("cuts"), Patch::Merge(better));
    let changed = world
        .cluster
        .patch::<VolumeSnapshotClass>(&key, &better)
        .await;
    changed.expect("it is there");
    let begun = Instant::now();
    until_ready(&mut world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let asked = world.fake.state().cuts.cut_requests.last().cloned();
    assert_eq!(asked.expect("it was asked").parameters["tier"], "warm");
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_driver_wait_longer_each_time() {
    let mut world = running().await;
    let failed = [Mishap::Refuse(Code::Internal); 6];
    world.fake.state().cuts.cut.extend(failed);
    take(&world).await;
    let begun = Instant::now();
    until_ready(&mut world).await;
    let took = begun.elapsed().as_secs();
    assert!(
        (63..70).contains(&took),
        "1 + 2 + 4 + 8 + 16 + 32 s: {took}"
    );
    assert_eq!(world.fake.calls("CreateSnapshot"), 7);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_missing_is_told_and_waited_for() {
    let mut world = world().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    let parameters = json!({
        "csi.storage.k8s.io/snapshotter-secret-name": "key",
        "csi.storage.k8s.io/snapshotter-secret-namespace": "default",
    });
    add_classes(&world, "Delete", parameters).await;
    take(&world).await;
    until_told(&mut world, "secret default/key does not exist").await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("CreateSnapshot"), 0);
    let content = snapshot(&world).await.content_name();
    let events = told(&world, &content, "SnapshotContentCheckandUpdateFailed").await;
    assert_eq!(events.len(), 1, "{events:#?}");
    add_secret(&world, "key").await;
    let begun = Instant::now();
    until_ready(&mut world).await;
    assert!(
        begun.elapsed() <= Duration::from_secs(31),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn wrong_classes_are_told_on_the_snapshot_and_cost_little() {
    for (parameters, driver, text) in [
        (
            json!({"csi.storage.k8s.io/snapshoter-secret-name": "s"}),
            NAME,
            "csi.storage.k8s.io/snapshoter-secret-name",
        ),
        (
            json!({"csi.storage.k8s.io/snapshotter-secret-name": "s"}),
            NAME,
            "csi.storage.k8s.io/snapshotter-secret-namespace",
        ),
        (json!({}), "other.driver", "mismatch"),
    ] {
        let mut world = world().await;
        world.start(Fuse::never());
        world.add_claim("fast").await;
        world.until_settled().await;
        world
            .create::<VolumeSnapshotClass>(json!({
                "metadata": {"name": "cuts"}, "driver": driver, "deletionPolicy": "Delete",
                "parameters": parameters,
            }))
            .await;
        take(&world).await;
        until_told(&mut world, text).await;
        sleep(Duration::from_secs(10)).await;
        let before = world.requests().len();
        sleep(Duration::from_secs(3600)).await;
        let spent = world.requests().len() - before;
        assert!(spent < 100, "{text}: {spent} requests in an hour");
        assert_eq!(world.fake.calls("CreateSnapshot"), 0);
        // Nothing of it stands in the way of going.
        world.delete::<VolumeSnapshot>(&cut()).await;
        world.delete::<Claim>(&data()).await;
        until_gone::<VolumeSnapshot>(&mut world).await;
        until_gone::<VolumeSnapshotContent>(&mut world).await;
        world.until_nothing_is_left().await;
    }
}
