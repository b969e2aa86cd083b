//! How much room there is, told to the scheduler.

use std::{collections::BTreeMap, time::Duration};

use orlop_model::{
    Claim, CsiNode, CsiStorageCapacity, Key, Node, Quantity, StorageClass,
    well_known::{CAPACITY_DRIVER, CAPACITY_MANAGER},
};
use orlop_sidecars::{capacity::Config, provisioner::Deployment};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    driver::{Mishap, NAME},
    fuse::Fuse,
    world::{World, data},
};

/// A cluster of two zones, with a late-binding class beside the immediate one.
async fn world() -> World {
    let mut world = World::new().await;
    world.fake.state().topology = true;
    world.add_node("n2", "b").await;
    let late = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    world.add_class("late", late).await;
    world.capacity = Some(Config::default());
    world
}

/// Free bytes by class and zone.
async fn told(cluster: &orlop_runtime::Cluster) -> Vec<(String, String, i64)> {
    let all = cluster.list::<CsiStorageCapacity>(None).await;
    let mut told: Vec<_> = all
        .expect("it answers")
        .into_iter()
        .map(|object| {
            let labels = object.node_topology.unwrap_or_default().match_labels;
            let zone = labels.get("zone").cloned().unwrap_or_default();
            let free = object.capacity.as_ref().map_or(0, Quantity::value);
            (object.storage_class_name, zone, free)
        })
        .collect();
    told.sort();
    told
}

async fn until_told(world: &mut World, expected: &'static [(&str, &str, i64)]) {
    world
        .until("the room is told", |cluster, _| async move {
            let told = told(&cluster).await;
            let told = told.iter().map(|(c, z, f)| (c.as_str(), z.as_str(), *f));
            Ok(told.eq(expected.iter().copied()))
        })
        .await;
}

const TIB: i64 = 1 << 40;

#[tokio::test(start_paused = true)]
async fn room_is_told_per_class_and_place_and_follows_both() {
    let mut world = world().await;
    world.fake.state().room = BTreeMap::from([("b".to_owned(), 7)]);
    world.start(Fuse::never());
    until_told(&mut world, &[("late", "a", TIB), ("late", "b", 7)]).await;
    let objects = world.cluster.list::<CsiStorageCapacity>(None).await;
    for object in objects.expect("it answers") {
        let meta = object.metadata;
        assert!(meta.name.starts_with("csisc-"), "{}", meta.name);
        assert_eq!(meta.labels[CAPACITY_DRIVER], NAME);
        assert_eq!(meta.labels[CAPACITY_MANAGER], "external-provisioner");
    }

    world.add_node("n3", "c").await;
    let three = &[("late", "a", TIB), ("late", "b", 7), ("late", "c", TIB)];
    until_told(&mut world, three).await;
    world.delete::<Node>(&Key::cluster("n2")).await;
    world.delete::<CsiNode>(&Key::cluster("n2")).await;
    until_told(&mut world, &[("late", "a", TIB), ("late", "c", TIB)]).await;
    world.delete::<StorageClass>(&Key::cluster("late")).await;
    until_told(&mut world, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn room_is_told_anew_after_a_volume_was_made_and_by_and_by() {
    let mut world = world().await;
    world.capacity = Some(Config {
        immediate: true,
        ..Config::default()
    });
    world.delete::<StorageClass>(&Key::cluster("late")).await;
    world.start(Fuse::never());
    until_told(&mut world, &[("fast", "a", TIB), ("fast", "b", TIB)]).await;
    sleep(Duration::from_secs(5)).await;
    world.fake.state().room = BTreeMap::from([("a".to_owned(), 9)]);
    let begun = Instant::now();
    world.add_claim("fast").await;
    until_told(&mut world, &[("fast", "a", 9), ("fast", "b", TIB)]).await;
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(3),
        "the volume wakes it: {took:?}"
    );
    // Nobody tells of this; the poll finds it.
    world.fake.state().room = BTreeMap::from([("a".to_owned(), 3)]);
    until_told(&mut world, &[("fast", "a", 3), ("fast", "b", TIB)]).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(70), "within a poll: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_told_already_is_not_written_again() {
    let mut world = world().await;
    world.start(Fuse::never());
    until_told(&mut world, &[("late", "a", TIB), ("late", "b", TIB)]).await;
    let writes = |world: &World| {
        let requests = world.requests();
        let writes = requests
            .iter()
            .filter(|(what, _)| what.contains("csistoragecapacities") && !what.starts_with("GET"));
        writes.count()
    };
    let before = writes(&world);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(writes(&world), before);
    let asked = world.fake.calls("GetCapacity");
    assert!(
        (120..=126).contains(&asked),
        "once a minute per spot: {asked}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_tells_its_own_room_and_leaves_others_alone() {
    let mut world = world().await;
    world.start(Fuse::never());
    until_told(&mut world, &[("late", "a", TIB), ("late", "b", TIB)]).await;
    world.crash();
    world.capacity = Some(Config {
        deployment: Deployment::node("n1"),
        ..Config::default()
    });
    world.start(Fuse::never());
    let also_its_own = &[("late", "a", TIB), ("late", "a", TIB), ("late", "b", TIB)];
    until_told(&mut world, also_its_own).await;
}

#[tokio::test(start_paused = true)]
async fn room_is_told_once_wherever_the_teller_is_interrupted() {
    crate::crashes::at_every_call(|fuse| async {
        let mut world = world().await;
        world.start(fuse);
        world.add_node("n3", "c").await;
        let three = &[("late", "a", TIB), ("late", "b", TIB), ("late", "c", TIB)];
        until_told(&mut world, three).await;
        world.delete::<CsiNode>(&Key::cluster("n3")).await;
        until_told(&mut world, &[("late", "a", TIB), ("late", "b", TIB)]).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_of_many_nodes_takes_a_claim_that_binds_immediately() {
    let mut world = world().await;
    world.capacity = None;
    world.config.deployment = Deployment::node("n1");
    world
        .fake
        .state()
        .create
        .push_back(Mishap::Refuse(Code::ResourceExhausted));
    world.start(Fuse::never());
    world.add_node("n4", "a").await;
    world.config.deployment = Deployment::node("n4");
    let other = world.start_another();
    world.add_claim("fast").await;
    world.until_settled().await;
    let claim = world.claim().await.expect("it is there");
    assert!(claim.selected_node().is_some());
    assert_eq!(world.fake.state().volumes.len(), 1);
    assert_eq!(world.fake.calls("CreateVolume"), 2, "the first had no room");
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    other.kill();
}

#[tokio::test(start_paused = true)]
async fn a_node_without_room_takes_no_claim() {
    let mut world = world().await;
    world.capacity = None;
    world.config.deployment = Deployment::node("n1");
    world.fake.state().room = BTreeMap::from([("a".to_owned(), 5)]);
    world.start(Fuse::never());
    world.add_claim("fast").await;
    sleep(Duration::from_secs(300)).await;
    let claim = world.claim().await.expect("it is there");
    assert_eq!(claim.selected_node(), None);
    assert_eq!(world.fake.calls("CreateVolume"), 0);
    world.fake.state().room.clear();
    world.until_settled().await;
}

#[tokio::test(start_paused = true)]
async fn what_tells_room_belongs_to_who_runs_the_driver() {
    use orlop_model::{Pod, ReplicaSet};
    use orlop_sidecars::capacity::{Above, OwnerError};
    let world = World::new().await;
    let set = json!({
        "metadata": {"name": "set", "namespace": "default", "ownerReferences": [{
            "apiVersion": "example.com/v1", "kind": "Driver", "name": "driver", "uid": "u-deploy",
            "controller": true, "blockOwnerDeletion": true,
        }]},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    let set = world.create::<ReplicaSet>(set).await;
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": set.metadata.uid,
        "controller": true,
    }]);
    world
        .create::<Pod>(json!({
            "metadata": {"name": "pod", "namespace": "default", "ownerReferences": owners},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
        .await;
    let find = async |level| {
        let pod = Key::namespaced("default", "pod");
        Above { pod, level }.find(&world.cluster).await
    };
    for (level, kind, name) in [
        (0, "Pod", "pod"),
        (1, "ReplicaSet", "set"),
        (2, "Driver", "driver"),
    ] {
        let owner = find(level).await.expect("it is there");
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), (kind, name));
        assert_eq!(owner.block_owner_deletion, None);
    }
    assert!(matches!(find(3).await, Err(OwnerError::Unknown(_))));
}

#[tokio::test(start_paused = true)]
async fn a_driver_with_less_than_no_room_has_none_and_others_are_told() {
    let mut world = world().await;
    world.fake.state().room = BTreeMap::from([("a".into(), -7), ("b".into(), 5)]);
    world.start(Fuse::never());
    until_told(&mut world, &[("late", "a", 0), ("late", "b", 5)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_can_not_be_told_keeps_no_other_from_being_told() {
    let mut world = world().await;
    let n1 = Key::cluster("n1");
    world.delete::<CsiNode>(&n1).await;
    world.delete::<Node>(&n1).await;
    let quota = json!({
        "metadata": {"name": "one"},
        "spec": {"hard": {"count/csistoragecapacities.storage.k8s.io": "1"}},
    });
    let path = "/api/v1/namespaces/default/resourcequotas";
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(quota.to_string().into_bytes())
        .expect("a request");
    let client = kube::Client::new(world.service(), "default");
    let made: serde_json::Value = client.request(request).await.expect("it is made");
    assert_eq!(made["kind"], "ResourceQuota");
    world.start(Fuse::never());
    until_told(&mut world, &[("late", "b", TIB)]).await;
    // There is no room for an object that tells of this place, which comes first in every pass.
    world.add_node("n1", "a").await;
    world.fake.state().room = BTreeMap::from([("b".into(), 5)]);
    until_told(&mut world, &[("late", "b", 5)]).await;
}

#[tokio::test(start_paused = true)]
async fn who_wants_few_requests_for_room_gets_few() {
    let mut world = world().await;
    for class in ["x", "y", "z"] {
        let late = json!({"volumeBindingMode": "WaitForFirstConsumer"});
        world.add_class(class, late).await;
    }
    world.capacity = Some(Config {
        cap: Some(orlop_runtime::Cap {
            per_second: 0.1,
            burst: 2,
        }),
        ..Config::default()
    });
    world.start(Fuse::never());
    let written = |world: &World| {
        let requests = world.requests();
        let posts = |(what, _): &&(String, u16)| {
            what.starts_with("POST") && what.ends_with("csistoragecapacities")
        };
        requests.iter().filter(posts).count()
    };
    sleep(Duration::from_secs(35)).await;
    assert!((1..=4).contains(&written(&world)), "{}", written(&world));
    sleep(Duration::from_secs(200)).await;
    assert_eq!(written(&world), 8);
}
