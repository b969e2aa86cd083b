//! What a driver was called for is known after a crash, wherever that comes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use orlop_model::Node;
use orlop_trials::{Fault, Reach, Strikes, at_every_call};
use serde_json::json;

use crate::{
    flex::{A, disk},
    flex_drivers::{Drivers, Mood},
    stage::Stage,
};

async fn set() -> (Stage, Arc<Drivers>) {
    let stage = Stage::bare(Duration::ZERO).await;
    stage.node("n1").await;
    stage.node("n2").await;
    stage.bound("a", disk()).await;
    (stage, Drivers::new())
}

async fn until_called(stage: &Stage, drivers: &Drivers, last: &str) {
    let calls = || drivers.calls();
    stage
        .until(
            || calls().last().is_some_and(|call| call == last),
            || format!("{:?}", calls()),
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_flex_volume_is_told_after_a_crash_between_call_and_record() {
    let (stage, drivers) = set().await;
    drivers.is("attach", Mood::FallsSilent);
    stage.start(drivers.config());
    stage.pod("p", "a", "n1").await;
    until_called(&stage, &drivers, "attach v-a@n1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.crash();
    assert_eq!(drivers.attached(), ["v-a@n1"]);
    drivers.is("attach", Mood::Well);
    stage.start(drivers.config());
    stage.until_told("n1", &[A]).await;
}

#[tokio::test(start_paused = true)]
async fn a_flex_volume_is_detached_after_a_crash_between_call_and_record() {
    let (stage, drivers) = set().await;
    drivers.is("attach", Mood::FallsSilent);
    stage.start(drivers.config());
    stage.pod("p", "a", "n1").await;
    until_called(&stage, &drivers, "attach v-a@n1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.crash();
    stage.delete_pod("p").await;
    stage.pod("q", "a", "n2").await;
    drivers.is("attach", Mood::Well);
    stage.start(drivers.config());
    stage.until_told("n2", &[A]).await;
    assert_eq!(drivers.attached(), ["v-a@n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_flex_volume_that_nobody_wants_any_more_is_detached_though_pod_and_volume_are_gone() {
    let (stage, drivers) = set().await;
    drivers.is("detach", Mood::FallsSilent);
    stage.start(drivers.config());
    stage.pod_with("p", disk(), "n1").await;
    let own = "example.org/disk/v";
    stage.until_told("n1", &[own]).await;
    stage.delete_pod("p").await;
    until_called(&stage, &drivers, "detach v@n1").await;
    stage.crash();
    drivers.is("detach", Mood::Well);
    stage.start(drivers.config());
    stage.until_none_attached().await;
    assert_eq!(drivers.attached(), [""; 0]);
    assert_eq!(drivers.calls().last().unwrap(), "detach v@n1");
}

/// Tells a story of a role that is struck at one of its calls, and comes back if it dies of it.
async fn under(
    strikes: &Strikes,
    start: impl Fn(),
    stage: &Stage,
    story: impl Future<Output = ()>,
) {
    start();
    let fate = async {
        strikes.end().await;
        stage.crash();
        tokio::time::sleep(Duration::from_secs(1)).await;
        start();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = story => {}
        () = fate => {}
    }
}

/// One volume's way to a node, to a second one, and off.
async fn life(strikes: Arc<Strikes>) {
    let (stage, drivers) = set().await;
    let start = || stage.start_by(strikes.client(stage.server.service()), drivers.config());
    let story = async {
        stage.pod("p", "a", "n1").await;
        stage.until_told("n1", &[A]).await;
        moves_and_ends(&stage, &drivers).await;
    };
    under(&strikes, start, &stage, story).await;
}

/// The same of a volume that another controller has attached. Its node must never be told that it is gone
/// while it uses it, nor of another device.
async fn taken_over(strikes: Arc<Strikes>) {
    let (stage, drivers) = set().await;
    drivers.had("v-a", "n1");
    let list = json!([{"name": A, "devicePath": "/dev/old"}]);
    stage
        .patch_node("n1", json!({"volumesAttached": list, "volumesInUse": [A]}))
        .await;
    stage.pod("p", "a", "n1").await;
    let broken: Arc<Mutex<Vec<Node>>> = Arc::default();
    let (seen, nodes) = (broken.clone(), stage.cache::<Node>());
    nodes.synced().await;
    nodes.subscribe(move |change| {
        let node = change.object();
        let status = &node.status;
        let has = status
            .volumes_attached
            .iter()
            .any(|told| told.device_path == "/dev/old");
        if !status.volumes_in_use.is_empty() && node.metadata.name == "n1" && !has {
            seen.lock().unwrap().push(Node::clone(node));
        }
    });
    let start = || stage.start_by(strikes.client(stage.server.service()), drivers.config());
    let story = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        moves_and_ends(&stage, &drivers).await;
        let broken = broken.lock().unwrap();
        assert!(broken.is_empty(), "{broken:?}");
    };
    under(&strikes, start, &stage, story).await;
}

/// From n1, where `p` uses it, to n2, and off.
async fn moves_and_ends(stage: &Stage, drivers: &Drivers) {
    stage.uses("n1", &[A]).await;
    assert_eq!(drivers.attached(), ["v-a@n1"]);
    stage.pod("q", "a", "n2").await;
    stage.delete_pod("p").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(drivers.attached(), ["v-a@n1"], "{:?}", drivers.calls());
    stage.uses("n1", &[]).await;
    stage.until_told("n2", &[A]).await;
    assert_eq!(drivers.attached(), ["v-a@n2"]);
    assert_eq!(stage.told("n1"), [""; 0]);
    stage.delete_pod("q").await;
    stage.until_none_attached().await;
    assert_eq!(drivers.attached(), [""; 0], "{:?}", drivers.calls());
    let nodes = stage.cache::<Node>().all();
    assert!(nodes.iter().all(|n| n.status.volumes_attached.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn wherever_the_role_dies_a_flex_volume_is_where_it_is_wanted_and_nowhere_else() {
    at_every_call(Fault::Die, Reach::Calls, life).await;
}

#[tokio::test(start_paused = true)]
async fn whichever_answer_is_lost_a_flex_volume_is_where_it_is_wanted_and_nowhere_else() {
    at_every_call(Fault::LoseAnswer, Reach::Calls, life).await;
}

#[tokio::test(start_paused = true)]
async fn wherever_the_role_dies_what_it_takes_over_stays_with_its_node_and_comes_off() {
    at_every_call(Fault::Die, Reach::Calls, taken_over).await;
}

#[tokio::test(start_paused = true)]
async fn whichever_answer_is_lost_what_is_taken_over_stays_with_its_node_and_comes_off() {
    at_every_call(Fault::LoseAnswer, Reach::Calls, taken_over).await;
}
