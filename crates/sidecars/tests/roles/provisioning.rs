//! A claim's volume, made and deleted.

use std::time::Duration;

use orlop_model::{
    Claim, Key, Kind, Node, Secret, Volume, VolumePhase,
    well_known::{
        DELETION_SECRET_NAME, EXTERNAL_PROVISIONER, PROVISIONED_BY, PROVISIONING, SELECTED_NODE,
    },
};
use orlop_runtime::Patch;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    driver::{Mishap, NAME},
    fuse::Fuse,
    world::{World, data},
};

async fn world() -> World {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_a_volume_that_says_where_it_came_from() {
    let mut world = world().await;
    world.fake.state().slow = Duration::from_secs(1);
    let claim = world.add_claim("fast").await;
    world.until_settled().await;

    let volume = world.volume().await.expect("it was made");
    let name = format!("pvc-{}", claim.metadata.uid);
    assert_eq!(volume.metadata.name, name);
    assert_eq!(volume.metadata.annotation(PROVISIONED_BY), Some(NAME));
    assert_eq!(volume.metadata.annotation(DELETION_SECRET_NAME), Some(""));
    assert!(volume.metadata.has_finalizer(EXTERNAL_PROVISIONER));
    assert_eq!(volume.capacity_bytes(), 1 << 30);
    assert_eq!(volume.class(), "fast");
    let csi = volume.spec.csi.expect("it is the driver's");
    assert_eq!(csi.volume_handle, format!("vol-{name}"));
    assert_eq!(csi.volume_attributes["shelf"], "3");
    assert_eq!(world.fake.calls("CreateVolume"), 1);

    let events = world.events("data").await;
    let said = |reason: &str, text: &str| {
        let found = events.iter().any(|(r, t)| r == reason && t == text);
        assert!(found, "{reason} {text}: {events:#?}");
    };
    said(
        "Provisioning",
        "External provisioner is provisioning volume for claim \"default/data\"",
    );
    said(
        "ProvisioningSucceeded",
        &format!("Successfully provisioned volume {name}"),
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_claim_takes_its_volume_along() {
    let mut world = world().await;
    world.add_claim("fast").await;
    world.until_settled().await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    assert_eq!(world.fake.calls("DeleteVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_object_deleted_before_its_claim_leaves_nothing_behind() {
    let mut world = world().await;
    world.add_claim("fast").await;
    world.until_settled().await;
    let volume = world.volume().await.expect("it was made");
    world.delete::<Volume>(&volume.key()).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        world.fake.calls("DeleteVolume"),
        0,
        "the claim still has it"
    );
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn a_kept_volume_is_never_deleted() {
    let mut world = world().await;
    world
        .add_class("kept", json!({"reclaimPolicy": "Retain"}))
        .await;
    world.add_claim("kept").await;
    world.until_settled().await;
    world.delete::<Claim>(&data()).await;
    world
        .until(
            "the volume is released and not guarded",
            |cluster, _| async move {
                let volumes = cluster.list::<Volume>(None).await?;
                Ok(volumes.iter().all(|v| {
                    v.phase() == VolumePhase::Released
                        && !v.metadata.has_finalizer(EXTERNAL_PROVISIONER)
                }))
            },
        )
        .await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("DeleteVolume"), 0);
    assert!(world.volume().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_deleted_only_after_it_is_detached() {
    let mut world = world().await;
    world.add_claim("fast").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.delete::<Claim>(&data()).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("DeleteVolume"), 0, "it is attached");
    world
        .delete::<orlop_model::VolumeAttachment>(&Key::cluster("at-n1"))
        .await;
    let detached = Instant::now();
    world.until_nothing_is_left().await;
    assert!(
        detached.elapsed() < Duration::from_secs(1),
        "the detachment wakes the deletion: {:?}",
        detached.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_followed_by_the_same_call_and_one_volume() {
    let mut world = world().await;
    let lost = [
        Mishap::Do(Code::DeadlineExceeded),
        Mishap::Do(Code::Unavailable),
    ];
    world.fake.state().create.extend(lost);
    world.add_claim("fast").await;
    world.until_settled().await;
    assert_eq!(world.fake.calls("CreateVolume"), 3);
    assert_eq!(world.fake.calls("DeleteVolume"), 0, "no thrashing");
    assert_eq!(world.fake.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_deleted_while_the_answer_is_unknown_leaves_nothing_behind() {
    let mut world = world().await;
    world
        .fake
        .state()
        .create
        .extend([Mishap::Do(Code::DeadlineExceeded); 4]);
    world.add_claim("fast").await;
    world
        .until("the driver was asked", |_, fake| async move {
            Ok(fake.calls("CreateVolume") == 2)
        })
        .await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    assert_eq!(world.fake.calls("DeleteVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_final_failure_takes_the_intent_off_and_waits_longer_each_time() {
    let mut world = world().await;
    world
        .fake
        .state()
        .create
        .extend([Mishap::Refuse(Code::Internal); 100]);
    world.add_claim("fast").await;
    sleep(Duration::from_secs(100)).await;
    let tries = world.fake.calls("CreateVolume");
    assert!((6..=8).contains(&tries), "1+2+4+8+16+32+64 s: {tries}");
    let claim = world.claim().await.expect("it is there");
    assert!(!claim.metadata.has_finalizer(PROVISIONING));
    let events = world.events("data").await;
    assert!(
        events
            .iter()
            .any(|(reason, text)| reason == "ProvisioningFailed"
                && text.contains("failed to provision volume with StorageClass \"fast\"")
                && text.contains("Internal")),
        "{events:#?}"
    );
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn arguments_that_can_not_work_are_tried_rarely() {
    let mut world = world().await;
    world
        .fake
        .state()
        .create
        .extend([Mishap::Refuse(Code::InvalidArgument); 100]);
    world.add_claim("fast").await;
    sleep(Duration::from_secs(290)).await;
    assert_eq!(world.fake.calls("CreateVolume"), 1);
    world.fake.state().create.clear();
    world.until_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_too_small_is_deleted_again() {
    let mut world = world().await;
    world.fake.state().shortfall = 1;
    world.add_claim("fast").await;
    world
        .until("the volume was refused", |_, fake| async move {
            Ok(fake.calls("DeleteVolume") == 1)
        })
        .await;
    world.fake.state().shortfall = 0;
    world.until_settled().await;
    assert_eq!(world.fake.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_binding_claim_waits_for_its_node_and_goes_there() {
    let mut world = World::new().await;
    world.fake.state().topology = true;
    world.add_node("n2", "b").await;
    let late = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    world.add_class("late", late).await;
    world.start(Fuse::never());
    world.add_claim("late").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fake.calls("CreateVolume"), 0);

    select(&world, "n2").await;
    world.until_settled().await;
    let volume = world.volume().await.expect("it was made");
    let zone = |name: &str| [("zone".to_owned(), name.to_owned())].into();
    assert!(volume.reachable_from("n2", &zone("b")));
    assert!(!volume.reachable_from("n1", &zone("a")));
}

async fn select(world: &World, node: &str) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
    world
        .cluster
        .patch::<Claim>(&data(), &patch)
        .await
        .expect("the claim is there");
}

#[tokio::test(start_paused = true)]
async fn a_full_place_sends_the_claim_back_to_the_scheduler() {
    let mut world = World::new().await;
    world.fake.state().topology = true;
    let late = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    world.add_class("late", late).await;
    world.start(Fuse::never());
    world
        .fake
        .state()
        .create
        .push_back(Mishap::Refuse(Code::ResourceExhausted));
    world.add_claim("late").await;
    select(&world, "n1").await;
    world
        .until(
            "the node is taken off the claim",
            |cluster, fake| async move {
                let claim = cluster.get::<Claim>(&data()).await?;
                Ok(fake.calls("CreateVolume") == 1
                    && claim.is_some_and(|c| {
                        c.selected_node().is_none() && !c.metadata.has_finalizer(PROVISIONING)
                    }))
            },
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_with_the_same_place_after_its_node_is_gone() {
    let mut world = World::new().await;
    world.fake.state().topology = true;
    let late = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    world.add_class("late", late).await;
    world.config.spread = orlop_sidecars::provisioner::Spread::Strict;
    world.start(Fuse::never());
    world
        .fake
        .state()
        .create
        .push_back(Mishap::Do(Code::DeadlineExceeded));
    world.add_claim("late").await;
    select(&world, "n1").await;
    world
        .until("the driver was asked", |_, fake| async move {
            Ok(fake.calls("CreateVolume") == 1)
        })
        .await;
    // Not even memory is left of it.
    world.crash();
    world.delete::<Node>(&Key::cluster("n1")).await;
    world
        .delete::<orlop_model::CsiNode>(&Key::cluster("n1"))
        .await;
    world.delete::<Claim>(&data()).await;
    world.start(Fuse::never());
    // The driver answers other arguments with AlreadyExists, and then nothing would end.
    world.until_nothing_is_left().await;
}

/// The same of a claim that no node was chosen for: there the claim does not tell what was asked for.
#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_with_the_same_places_after_a_node_came() {
    let mut world = World::new().await;
    world.fake.state().topology = true;
    world.start(Fuse::never());
    let lost = Mishap::Do(Code::DeadlineExceeded);
    world.fake.state().create.push_back(lost);
    world.add_claim("fast").await;
    world
        .until("the driver was asked", |_, fake| async move {
            Ok(fake.calls("CreateVolume") == 1)
        })
        .await;
    world.add_node("n2", "b").await;
    // The driver answers other arguments with AlreadyExists, and then nothing would end.
    world.until_settled().await;
    assert_eq!(world.fake.calls("CreateVolume"), 2);
}

#[tokio::test(start_paused = true)]
async fn secrets_reach_the_driver_and_nobody_else() {
    let mut world = World::new().await;
    let parameters = json!({
        "csi.storage.k8s.io/provisioner-secret-name": "${pvc.name}-key",
        "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
    });
    world
        .add_class("keyed", json!({"parameters": parameters}))
        .await;
    world.start(Fuse::never());
    world.add_claim("keyed").await;
    let missing = world.events("data").await;
    assert!(
        missing
            .iter()
            .any(|(_, text)| text.contains("secret default/data-key does not exist")),
        "{missing:#?}"
    );
    world
        .create::<Secret>(json!({
            "metadata": {"name": "data-key", "namespace": "default"},
            "data": {"token": "Y2FuYXJ5LXZhbHVl"},
        }))
        .await;
    world.until_settled().await;
    let made = world.fake.state().volumes.values().next().cloned();
    let request = made.expect("it was made").request;
    assert_eq!(request.secrets["token"], "canary-value");
    assert!(request.parameters.is_empty(), "{:?}", request.parameters);
    let volume = world.volume().await.expect("it was made");
    assert!(!format!("{volume:?}").contains("canary-value"));
    assert_eq!(
        volume.metadata.annotation(DELETION_SECRET_NAME),
        Some("data-key")
    );
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_told_and_tried_again() {
    let mut world = world().await;
    world.add_claim("fast").await;
    world.until_settled().await;
    let name = world.volume().await.expect("it was made").metadata.name;
    world
        .fake
        .state()
        .delete
        .push_back(Mishap::Refuse(Code::FailedPrecondition));
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    let events = world.events(&name).await;
    assert!(
        events
            .iter()
            .any(|(reason, text)| reason == "VolumeFailedDelete"
                && text.contains("FailedPrecondition")),
        "{events:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_with_a_selector_is_refused_with_a_reason() {
    let world = world().await;
    let selector = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
    world.add_claim_with(selector).await;
    let events = world.events("data").await;
    assert!(
        events
            .iter()
            .any(|(_, text)| text.contains("claim Selector is not supported")),
        "{events:#?}"
    );
    assert_eq!(world.fake.calls("CreateVolume"), 0);
}
