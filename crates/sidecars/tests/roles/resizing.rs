//! A claim that grows, and one whose attributes change.

use std::time::Duration;

use orlop_csi::proto::controller_service_capability::rpc::Type;
use orlop_model::{
    Claim, Key, Kind, Pod, ResizeStatus, Secret, Volume, VolumeAttributesClass,
    well_known::PRE_RESIZE_CAPACITY,
};
use orlop_runtime::{Patch, Preconditions};
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    driver::{Mishap, NAME},
    fuse::Fuse,
    world::{World, data},
};

const GI: i64 = 1 << 30;

async fn world_with_claim() -> World {
    claim_on(World::new().await).await
}

async fn claim_on(mut world: World) -> World {
    world.start(Fuse::never());
    let more = json!({"allowVolumeExpansion": true, "parameters": {
        "csi.storage.k8s.io/controller-expand-secret-name": "credentials",
        "csi.storage.k8s.io/controller-expand-secret-namespace": "default",
    }});
    world.add_class("growing", more).await;
    world
        .create::<Secret>(json!({
            "metadata": {"name": "credentials", "namespace": "default"},
            "data": {"password": "aHVudGVyMg=="},
        }))
        .await;
    world.add_claim("growing").await;
    world.until_settled().await;
    world
}

async fn patch(world: &World, body: Value) {
    let patched = world
        .cluster
        .patch::<Claim>(&data(), &Patch::Merge(body))
        .await;
    patched.unwrap_or_else(|e| panic!("{}", e.chain()));
}

pub(crate) async fn ask(world: &World, size: &str) {
    patch(
        world,
        json!({"spec": {"resources": {"requests": {"storage": size}}}}),
    )
    .await;
}

async fn until_status(world: &mut World, status: Option<ResizeStatus>, capacity: i64) {
    let what = format!("the claim is {status:?} with {capacity} bytes");
    world
        .until(&what, |cluster, _| async move {
            let claim = cluster.get::<Claim>(&data()).await?.expect("it is there");
            Ok(claim.resize_status() == status && claim.capacity_bytes() == capacity)
        })
        .await;
}

/// The claim as the API server has it, with the fields that our projection leaves out.
async fn conditions(world: &World) -> Vec<String> {
    let claim = world.whole::<Claim>(&data()).await;
    let all = claim["status"]["conditions"].as_array().cloned();
    let types = all.unwrap_or_default().into_iter();
    let mut types: Vec<String> = types
        .map(|c| c["type"].as_str().unwrap_or_default().to_owned())
        .collect();
    types.sort();
    types
}

async fn reasons(world: &World) -> Vec<String> {
    let events = world.events("data").await;
    events.into_iter().map(|(reason, _)| reason).collect()
}

/// As the node does when its part is done.
async fn finish_on_node(world: &World, size: &str) {
    let body = json!({"status": {
        "capacity": {"storage": size},
        "allocatedResourceStatuses": {"storage": null},
    }});
    let patched = world
        .cluster
        .patch_status::<Claim>(&data(), &Patch::Merge(body))
        .await;
    patched.unwrap_or_else(|e| panic!("{}", e.chain()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_grows_at_the_backend_and_waits_for_its_node() {
    let mut world = world_with_claim().await;
    ask(&world, "2Gi").await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    let volume = world.volume().await.expect("it is there");
    assert_eq!(volume.capacity_bytes(), 2 * GI);
    assert_eq!(volume.metadata.annotation(PRE_RESIZE_CAPACITY), Some("1Gi"));
    assert_eq!(
        conditions(&world).await,
        ["FileSystemResizePending", "Resizing"]
    );
    {
        let state = world.fake.state();
        let [request] = &state.expand_requests[..] else {
            panic!("{:?}", state.calls)
        };
        assert_eq!(
            request.capacity_range.expect("a range").required_bytes,
            2 * GI
        );
        assert_eq!(request.secrets["password"], "hunter2");
        assert!(request.volume_capability.is_some());
    }
    finish_on_node(&world, "2Gi").await;
    world
        .until("the mark is gone", |cluster, _| async move {
            let volumes = cluster.list::<Volume>(None).await?;
            let mut annotations = volumes.iter().map(|v| &v.metadata.annotations);
            Ok(annotations.all(|a| !a.contains_key(PRE_RESIZE_CAPACITY)))
        })
        .await;
    let reasons = reasons(&world).await;
    assert!(reasons.contains(&"Resizing".into()), "{reasons:?}");
    assert!(
        reasons.contains(&"FileSystemResizeRequired".into()),
        "{reasons:?}"
    );
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_nodes_part_it_is_over_at_once() {
    let mut world = world_with_claim().await;
    world.fake.state().node_part = false;
    ask(&world, "2Gi").await;
    until_status(&mut world, None, 2 * GI).await;
    assert_eq!(conditions(&world).await, [""; 0]);
    let claim = world.claim().await.expect("it is there");
    let key = "volume.kubernetes.io/node-expansion-not-required";
    assert_eq!(claim.metadata.annotation(key), Some("true"));
    let reasons = reasons(&world).await;
    assert!(
        reasons.contains(&"VolumeResizeSuccessful".into()),
        "{reasons:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_never_taken_for_success() {
    let mut world = world_with_claim().await;
    let lost = [Mishap::Refuse(Code::DeadlineExceeded); 3];
    world.fake.state().expand.extend(lost);
    ask(&world, "2Gi").await;
    world
        .until("it was asked", |_, fake| async move {
            Ok(fake.calls("ControllerExpandVolume") >= 2)
        })
        .await;
    // The outcome is unknown, so the user's second thought must wait.
    ask(&world, "4Gi").await;
    let claim = world.claim().await.expect("it is there");
    assert_eq!(claim.capacity_bytes(), GI);
    assert_eq!(claim.allocated_bytes(), Some(2 * GI));
    let reasons = reasons(&world).await;
    assert!(
        reasons.contains(&"VolumeResizeFailed".into()),
        "{reasons:?}"
    );
    assert!(
        !reasons.contains(&"VolumeResizeSuccessful".into()),
        "{reasons:?}"
    );
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    finish_on_node(&world, "2Gi").await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), 2 * GI).await;
    let volume = world.volume().await.expect("it is there");
    assert_eq!(volume.capacity_bytes(), 4 * GI);
}

#[tokio::test(start_paused = true)]
async fn an_impossible_size_is_told_rests_and_can_be_taken_back() {
    let mut world = world_with_claim().await;
    world.fake.state().most = 5 * GI;
    ask(&world, "9Gi").await;
    until_status(
        &mut world,
        Some(ResizeStatus::ControllerResizeInfeasible),
        GI,
    )
    .await;
    assert_eq!(
        conditions(&world).await,
        ["ControllerResizeError", "Resizing"]
    );
    sleep(Duration::from_secs(200)).await;
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 1, "it rests");
    ask(&world, "3Gi").await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    let claim = world.claim().await.expect("it is there");
    assert_eq!(claim.allocated_bytes(), Some(3 * GI), "what quota counts");
    assert_eq!(
        conditions(&world).await,
        ["FileSystemResizePending", "Resizing"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_can_be_taken_back_too() {
    let mut world = world_with_claim().await;
    let refusals = [Mishap::Refuse(Code::Internal); 3];
    world.fake.state().expand.extend(refusals);
    ask(&world, "9Gi").await;
    world
        .until("it was refused", |_, fake| async move {
            Ok(fake.calls("ControllerExpandVolume") >= 1)
        })
        .await;
    ask(&world, "3Gi").await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    let sizes: Vec<i64> = {
        let state = world.fake.state();
        let ranges = state.expand_requests.iter().map(|r| r.capacity_range);
        ranges
            .map(|r| r.expect("a range").required_bytes / GI)
            .collect()
    };
    assert!(sizes.contains(&9) && sizes.ends_with(&[3]), "{sizes:?}");
    assert_eq!(
        conditions(&world).await,
        ["FileSystemResizePending", "Resizing"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_says_less_than_asked_is_not_believed() {
    let mut world = world_with_claim().await;
    world.fake.state().shortfall = 1;
    ask(&world, "2Gi").await;
    until_status(
        &mut world,
        Some(ResizeStatus::ControllerResizeInfeasible),
        GI,
    )
    .await;
    let volume = world.volume().await.expect("it is there");
    assert_eq!(volume.capacity_bytes(), GI);
    let events = world.events("data").await;
    let told = |(_, message): &(String, String)| message.contains("an error of the driver");
    assert!(events.iter().any(told), "{events:?}");
}

fn user() -> Key {
    Key::namespaced("default", "user")
}

async fn add_user(world: &World) {
    world
        .create::<Pod>(json!({
            "metadata": {"name": "user", "namespace": "default"},
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "c", "image": "none"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_says_so_is_not_asked_while_a_pod_uses_the_volume() {
    let world = World::new().await;
    world.fake.state().offline = true;
    let mut world = claim_on(world).await;
    add_user(&world).await;
    ask(&world, "2Gi").await;
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 0);
    let at_once = Preconditions {
        grace_period_seconds: Some(0),
        ..Preconditions::default()
    };
    let deleted = world.cluster.delete::<Pod>(&user(), &at_once).await;
    deleted.unwrap_or_else(|e| panic!("{}", e.chain()));
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_refuses_used_volumes_waits_for_the_pod_to_end() {
    let mut world = world_with_claim().await;
    add_user(&world).await;
    let refusal = Mishap::Refuse(Code::FailedPrecondition);
    world.fake.state().expand.push_back(refusal);
    ask(&world, "2Gi").await;
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 1);
    let events = world.events("data").await;
    let told = |(_, message): &(String, String)| message.contains("only supports offline");
    assert!(events.iter().any(told), "{events:?}");
    // A pod that has ended uses nothing, though it is still there.
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let patched = world.cluster.patch_status::<Pod>(&user(), &ended).await;
    patched.unwrap_or_else(|e| panic!("{}", e.chain()));
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_can_not_is_told_to_try_again_once_and_then_slowly() {
    let mut world = world_with_claim().await;
    ask(&world, "2Gi").await;
    let pending = Some(ResizeStatus::NodeResizePending);
    until_status(&mut world, pending, GI).await;
    let infeasible = json!({"status": {
        "allocatedResourceStatuses": {"storage": ResizeStatus::NodeResizeInfeasible},
    }});
    let infeasible = Patch::Merge(infeasible);
    for expected in [2, 3] {
        let begun = tokio::time::Instant::now();
        let said = world
            .cluster
            .patch_status::<Claim>(&data(), &infeasible)
            .await;
        said.unwrap_or_else(|e| panic!("{}", e.chain()));
        until_status(&mut world, pending, GI).await;
        assert_eq!(world.fake.calls("ControllerExpandVolume"), expected);
        let slowly = begun.elapsed() > Duration::from_secs(200);
        assert_eq!(slowly, expected == 3, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn two_leaders_at_once_grow_a_volume_to_one_size() {
    let mut world = world_with_claim().await;
    let lost = [Mishap::Do(Code::Unavailable); 2];
    world.fake.state().expand.extend(lost);
    let other = world.start_another();
    ask(&world, "2Gi").await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    finish_on_node(&world, "2Gi").await;
    sleep(Duration::from_secs(600)).await;
    until_status(&mut world, None, 2 * GI).await;
    assert_eq!(
        world.volume().await.expect("it is there").capacity_bytes(),
        2 * GI
    );
    other.kill();
}

#[tokio::test(start_paused = true)]
async fn a_driver_whose_nodes_do_all_is_not_asked() {
    let mut world = World::new().await;
    {
        let mut state = world.fake.state();
        state.capabilities.retain(|c| *c != Type::ExpandVolume);
        state.node_expands = true;
    }
    world.start(Fuse::never());
    world
        .add_class("growing", json!({"allowVolumeExpansion": true}))
        .await;
    world.add_claim("growing").await;
    world.until_settled().await;
    ask(&world, "2Gi").await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    assert_eq!(
        world.volume().await.expect("it is there").capacity_bytes(),
        2 * GI
    );
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_failing_claims_are_all_told_and_all_recover() {
    let mut world = world_with_claim().await;
    let refusals = [Mishap::Refuse(Code::Internal); 150];
    world.fake.state().expand.extend(refusals);
    for n in 0..100 {
        let name = format!("c{n}");
        world
            .add_claim_with(json!({
                "metadata": {"name": name}, "spec": {"storageClassName": "growing"},
            }))
            .await;
    }
    let bound = |claims: &[Claim]| {
        claims
            .iter()
            .all(|c| c.phase() == orlop_model::ClaimPhase::Bound)
    };
    world
        .until("all are bound", |cluster, _| async move {
            Ok(bound(&cluster.list::<Claim>(None).await?))
        })
        .await;
    let body = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    for claim in world.cluster.list::<Claim>(None).await.expect("claims") {
        let patched = world
            .cluster
            .patch::<Claim>(&claim.key(), &Patch::Merge(body.clone()))
            .await;
        patched.unwrap_or_else(|e| panic!("{}", e.chain()));
    }
    world
        .until("all have grown", |cluster, _| async move {
            let pending = Some(ResizeStatus::NodeResizePending);
            let claims = cluster.list::<Claim>(None).await?;
            Ok(claims.iter().all(|c| c.resize_status() == pending))
        })
        .await;
    assert_eq!(world.panics(), [""; 0]);
}

/// external-resizer#471: a volume without a driver is nobody's business here, and no reason to
/// stumble.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_volume_without_a_driver_is_left_alone_and_others_grow() {
    let mut world = world_with_claim().await;
    let class = world
        .claim()
        .await
        .and_then(|claim| claim.spec.storage_class_name);
    world
        .create::<Volume>(json!({
            "metadata": {"name": "plain"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "hostPath": {"path": "/nowhere"},
                "claimRef": {"name": "plain", "namespace": "default"},
            },
        }))
        .await;
    let plain = Key::namespaced("default", "plain");
    world
        .create::<Claim>(json!({
            "metadata": {"name": "plain", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "volumeName": "plain",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
        .await;
    let key = plain.clone();
    world
        .until("it is bound", |cluster, _| {
            let key = key.clone();
            async move {
                let claim = cluster.get::<Claim>(&key).await?.expect("it is there");
                Ok(claim.is_fully_bound())
            }
        })
        .await;
    let body = json!({"spec": {
        "resources": {"requests": {"storage": "2Gi"}},
        "volumeAttributesClassName": "gold",
    }});
    add_attributes(&world, "gold", NAME).await;
    let patched = world
        .cluster
        .patch::<Claim>(&plain, &Patch::Merge(body))
        .await;
    patched.unwrap_or_else(|e| panic!("{}", e.chain()));
    ask(&world, "2Gi").await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    sleep(Duration::from_secs(600)).await;
    let claim = world.cluster.get::<Claim>(&plain).await;
    let claim = claim.expect("it answers").expect("it is there");
    assert_eq!(claim.resize_status(), None);
    assert_eq!(claim.status.modify_volume_status, None);
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 1);
    assert_eq!(world.panics(), [""; 0]);
}

pub(crate) async fn add_attributes(world: &World, name: &str, driver: &str) {
    world
        .create::<VolumeAttributesClass>(json!({
            "metadata": {"name": name}, "driverName": driver, "parameters": {"iops": name},
        }))
        .await;
}

pub(crate) async fn until_modified(world: &mut World, class: &'static str) {
    world
        .until("the claim has the class", |cluster, _| async move {
            let claim = cluster.get::<Claim>(&data()).await?.expect("it is there");
            let current = claim.status.current_volume_attributes_class_name;
            Ok(current.as_deref() == Some(class) && claim.status.modify_volume_status.is_none())
        })
        .await;
}

async fn until_modify_status(world: &mut World, status: orlop_model::ModifyStatus) {
    world
        .until("the claim says so", |cluster, _| async move {
            let claim = cluster.get::<Claim>(&data()).await?.expect("it is there");
            let modify = claim.status.modify_volume_status;
            Ok(modify.is_some_and(|m| m.status == status))
        })
        .await;
}

pub(crate) async fn choose(world: &World, class: Option<&str>) {
    patch(world, json!({"spec": {"volumeAttributesClassName": class}})).await;
}

#[tokio::test(start_paused = true)]
async fn a_volumes_attributes_follow_its_claims_class() {
    use orlop_model::ModifyStatus;
    let mut world = world_with_claim().await;
    choose(&world, Some("gold")).await;
    until_modify_status(&mut world, ModifyStatus::Pending).await;
    add_attributes(&world, "gold", NAME).await;
    until_modified(&mut world, "gold").await;
    assert_eq!(conditions(&world).await, [""; 0]);
    let volume = world.volume().await.expect("it is there");
    let has = volume.spec.volume_attributes_class_name;
    assert_eq!(has.as_deref(), Some("gold"));
    assert_eq!(
        world.fake.state().modified.values().next().unwrap()["iops"],
        "gold"
    );

    // The driver can't; the user takes it back.
    let refusals = [Mishap::Refuse(Code::InvalidArgument); 3];
    world.fake.state().modify.extend(refusals);
    add_attributes(&world, "lead", NAME).await;
    choose(&world, Some("lead")).await;
    until_modify_status(&mut world, ModifyStatus::Infeasible).await;
    let calls = world.fake.calls("ControllerModifyVolume");
    sleep(Duration::from_secs(200)).await;
    assert_eq!(
        world.fake.calls("ControllerModifyVolume"),
        calls,
        "it rests"
    );
    choose(&world, Some("gold")).await;
    until_modified(&mut world, "gold").await;
    let reasons = reasons(&world).await;
    for reason in [
        "VolumeModify",
        "VolumeModifySuccessful",
        "VolumeModifyFailed",
        "VolumeModifyCanceled",
    ] {
        assert!(reasons.contains(&reason.into()), "{reason}: {reasons:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_grows_and_changes_at_once_asks_the_driver_once_for_each() {
    // Whichever of the two comes to its end first.
    for slow in [Duration::ZERO, Duration::from_millis(200)] {
        let mut world = world_with_claim().await;
        add_attributes(&world, "gold", NAME).await;
        world.fake.state().slow = slow;
        let wish = json!({"spec": {
            "resources": {"requests": {"storage": "2Gi"}},
            "volumeAttributesClassName": "gold",
        }});
        patch(&world, wish).await;
        until_modified(&mut world, "gold").await;
        until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.fake.calls("ControllerExpandVolume"), 1, "{slow:?}");
        assert_eq!(world.fake.calls("ControllerModifyVolume"), 1, "{slow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_that_is_put_on_meanwhile_brings_no_second_call() {
    let mut world = world_with_claim().await;
    world.fake.state().slow = Duration::from_secs(2);
    ask(&world, "2Gi").await;
    sleep(Duration::from_secs(1)).await;
    patch(&world, json!({"metadata": {"labels": {"team": "a"}}})).await;
    until_status(&mut world, Some(ResizeStatus::NodeResizePending), GI).await;
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_attributes_whose_answer_is_lost_is_finished_first() {
    let mut world = world_with_claim().await;
    add_attributes(&world, "gold", NAME).await;
    add_attributes(&world, "silver", NAME).await;
    let lost = [Mishap::Do(Code::Unavailable); 2];
    world.fake.state().modify.extend(lost);
    choose(&world, Some("gold")).await;
    world
        .until("it was asked", |_, fake| async move {
            Ok(fake.calls("ControllerModifyVolume") >= 1)
        })
        .await;
    choose(&world, Some("silver")).await;
    until_modified(&mut world, "silver").await;
    assert_eq!(
        world.fake.state().modified.values().next().unwrap()["iops"],
        "silver"
    );
}

#[tokio::test(start_paused = true)]
async fn another_drivers_attributes_are_refused() {
    let mut world = world_with_claim().await;
    add_attributes(&world, "foreign", "other.example").await;
    choose(&world, Some("foreign")).await;
    until_modify_status(&mut world, orlop_model::ModifyStatus::Infeasible).await;
    assert_eq!(world.fake.calls("ControllerModifyVolume"), 0);
}
