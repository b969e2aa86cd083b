//! A claim that waits for its pod, and that no node has room for.

use std::time::Duration;

use orlop_model::{Claim, Volume, well_known::SELECTED_NODE};
use orlop_runtime::{Cluster, Patch};
use orlop_sidecars::capacity;
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tonic::Code;

use crate::{
    driver::Mishap,
    fuse::Fuse,
    world::{World, change, data},
};

/// A scheduler that chooses `n1` again two seconds after the claim was given back.
struct Scheduler(JoinHandle<()>);

impl Scheduler {
    fn stubborn(cluster: Cluster) -> Self {
        Self(tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(2)).await;
                let claim = cluster.get::<Claim>(&data()).await.expect("it answers");
                if claim.is_some_and(|claim| claim.selected_node().is_none()) {
                    let body = json!({"metadata": {"annotations": {SELECTED_NODE: "n1"}}});
                    let chosen = cluster.patch::<Claim>(&data(), &Patch::Merge(body)).await;
                    chosen.expect("it is chosen");
                }
            }
        }))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A cluster whose driver has been full for half an hour.
async fn full() -> (World, Scheduler) {
    let mut world = World::new().await;
    world.fake.state().topology = true;
    world.capacity = Some(capacity::Config {
        more_room: world.config.more_room.clone(),
        ..capacity::Config::default()
    });
    let late = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    world.add_class("late", late).await;
    let none = [Mishap::Refuse(Code::ResourceExhausted); 2000];
    world.fake.state().create.extend(none);
    world.fake.state().room.insert("a".into(), 1);
    world.start(Fuse::never());
    let scheduler = Scheduler::stubborn(world.cluster.clone());
    world.add_claim("late").await;
    sleep(Duration::from_secs(1800)).await;
    (world, scheduler)
}

/// How long it takes until the driver is asked once more.
async fn until_asked(world: &mut World) -> Duration {
    let (begun, calls) = (Instant::now(), world.fake.calls("CreateVolume"));
    world
        .until("the driver is asked", |_, fake| async move {
            Ok(fake.calls("CreateVolume") > calls)
        })
        .await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_no_node_has_room_for_asks_ever_more_rarely() {
    let (mut world, _scheduler) = full().await;
    let calls = world.fake.calls("CreateVolume");
    assert!((8..25).contains(&calls), "{calls} calls in half an hour");
    let events = world.events("data").await;
    assert!(
        events.iter().any(|(reason, text)| {
            reason == "ProvisioningFailed" && text.contains("node n1 was chosen again")
        }),
        "{events:#?}"
    );
    // It does not end, though.
    world.fake.state().create.clear();
    world.until_settled().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_may_mean_room_for_it_is_heeded_at_once() {
    let soon = Duration::from_secs(10);
    let (mut world, _scheduler) = full().await;
    until_asked(&mut world).await;
    sleep(soon).await;

    world.add_node("n2", "b").await;
    assert!(until_asked(&mut world).await < soon, "a new node");
    sleep(soon).await;

    change(&world, json!({"metadata": {"annotations": {"team": "a"}}})).await;
    assert!(until_asked(&mut world).await < soon, "another wish");
    sleep(soon).await;

    let volume = json!({
        "metadata": {"name": "other"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": crate::driver::NAME, "volumeHandle": "other"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    let volume = world.create::<Volume>(volume).await;
    sleep(soon).await;
    world
        .delete::<Volume>(&orlop_model::Kind::key(&volume))
        .await;
    assert!(until_asked(&mut world).await < soon, "a volume is gone");
    sleep(soon).await;

    // The driver is asked for its capacity once a minute.
    world.fake.state().room.insert("a".into(), 1 << 40);
    let poll = Duration::from_secs(60);
    assert!(until_asked(&mut world).await < poll + soon, "more capacity");
    sleep(soon).await;

    let key = orlop_model::Key::cluster("late");
    world.delete::<orlop_model::StorageClass>(&key).await;
    let late = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    world.add_class("late", late).await;
    assert!(until_asked(&mut world).await < soon, "a new class");
}
