//! Crowds of FlexVolumes, drivers that take too long or say too much, and nodes that make things up.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use crate::{
    flex_drivers::{DRIVER, Drivers, Mood},
    stage::Stage,
};

async fn stage() -> (Stage, Arc<Drivers>) {
    let stage = Stage::bare(Duration::ZERO).await;
    let drivers = Drivers::new();
    stage.node("n1").await;
    stage.start(drivers.config());
    (stage, drivers)
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_driver_wait_for_a_place() {
    let (stage, drivers) = stage().await;
    let disk = json!({"flexVolume": {"driver": DRIVER}});
    for at in 0..40 {
        let name = format!("a{at}");
        stage.bound(&name, disk.clone()).await;
        stage.pod(&name, &name, "n1").await;
    }
    let all = || drivers.attached().len() == 40;
    stage
        .until(all, || format!("{:?}", drivers.attached()))
        .await;
    let most = drivers.most_running();
    assert!((2..=32).contains(&most), "{most} at once");
}

#[tokio::test(start_paused = true)]
async fn volumes_whose_calls_hang_keep_no_others_waiting_and_their_pods_are_told() {
    let (stage, drivers) = stage().await;
    let disk = json!({"flexVolume": {"driver": DRIVER}});
    stage.bound("off", disk.clone()).await;
    stage.pod("off", "off", "n1").await;
    stage.until_told("n1", &["example.org/disk/v-off"]).await;
    drivers.is("attach", Mood::Hangs);
    for at in 0..40 {
        let name = format!("a{at}");
        stage.bound(&name, disk.clone()).await;
        stage.pod(&name, &name, "n1").await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    drivers.is("attach", Mood::Well);
    stage.bound("on", disk).await;
    stage.pod("on", "on", "n1").await;
    stage.delete_pod("off").await;
    let called = |call: &'static str, within: u64| {
        let (calls, drivers) = (drivers.clone(), drivers.clone());
        let called = move || calls.calls().iter().any(|made| made == call);
        let state = move || format!("{:?}", drivers.calls());
        let called = async { stage.until(called, state).await };
        tokio::time::timeout(Duration::from_secs(within), called)
    };
    called("detach v-off@n1", 2).await.unwrap();
    called("attach v-on@n1", 15).await.unwrap();
    for at in 0..32 {
        let pod = format!("a{at}");
        let words = "driver is still at attach";
        stage.until_said(&pod, "FailedAttachVolume", words).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_whose_turn_does_not_come_are_told_as_well() {
    let (stage, drivers) = stage().await;
    drivers.is("attach", Mood::Hangs);
    let disk = json!({"flexVolume": {"driver": DRIVER}});
    for at in 0..33 {
        let name = format!("a{at}");
        stage.bound(&name, disk.clone()).await;
        stage.pod(&name, &name, "n1").await;
    }
    let all = async {
        for at in 0..33 {
            let (pod, words) = (format!("a{at}"), "driver is still at attach");
            stage.until_said(&pod, "FailedAttachVolume", words).await;
        }
    };
    let all = tokio::time::timeout(Duration::from_secs(15), all).await;
    assert!(all.is_ok(), "{:?}", drivers.calls());
}

#[tokio::test(start_paused = true)]
async fn what_comes_onto_a_nodes_list_behind_our_back_is_not_taken_for_attached() {
    let (stage, drivers) = stage().await;
    // So that the driver is known, and the node was seen.
    stage
        .bound("a", json!({"flexVolume": {"driver": DRIVER}}))
        .await;
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["example.org/disk/v-a"]).await;
    let made_up = (0..100).map(|at| json!({"name": format!("{DRIVER}/x{at}"), "devicePath": ""}));
    let list: Vec<_> = made_up.collect();
    stage
        .patch_node("n1", json!({"volumesAttached": list}))
        .await;
    stage.an_hour_later().await;
    assert_eq!(drivers.calls(), ["attach v-a@n1"]);
    stage.until_attached(&["a@n1"]).await;
}

/// Anybody who makes pods can make names up.
#[tokio::test(start_paused = true)]
async fn drivers_that_nobody_names_any_more_are_forgotten() {
    let (stage, drivers) = stage().await;
    drivers.is("init", Mood::Missing);
    for at in 0..10 {
        let pod = format!("p{at}");
        let made_up = json!({"flexVolume": {"driver": format!("example.org/x{at}")}});
        stage.pod_with(&pod, made_up, "n1").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(drivers.asked(), at + 1);
        stage.delete_pod(&pod).await;
    }
    stage.an_hour_later().await;
    assert_eq!(drivers.asked(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_at_attach_is_told_after_ten_seconds() {
    let (stage, drivers) = stage().await;
    drivers.is("attach", Mood::Hangs);
    stage
        .bound("a", json!({"flexVolume": {"driver": DRIVER}}))
        .await;
    stage.pod("p", "a", "n1").await;
    let said = stage.until_said("p", "FailedAttachVolume", "driver is still at attach");
    let said = tokio::time::timeout(Duration::from_secs(15), said).await;
    assert!(said.is_ok(), "{:?}", drivers.calls());
}

#[tokio::test(start_paused = true)]
async fn a_device_that_the_api_server_would_not_take_is_told() {
    let (stage, drivers) = stage().await;
    drivers.is("attach", Mood::Raves);
    stage
        .bound("a", json!({"flexVolume": {"driver": DRIVER}}))
        .await;
    stage.pod("p", "a", "n1").await;
    let words = "device is no path: it has 900000 bytes";
    stage.until_said("p", "FailedAttachVolume", words).await;
    drivers.is("attach", Mood::Well);
    stage.until_told("n1", &["example.org/disk/v-a"]).await;
}
