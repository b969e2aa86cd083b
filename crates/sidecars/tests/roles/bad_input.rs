//! Whatever is set wrong, or told wrong by a driver: one clear event on the right object, few
//! requests for as long as it stays so, and nothing lost.

use std::time::Duration;

use orlop_model::{Claim, Event, Key, StorageClass, VolumeAttachment};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    driver::{NAME, State},
    fuse::Fuse,
    world::{World, data},
};

/// More requests in an hour than this are too many for an object that can't be helped.
const FEW: usize = 200;

struct Case {
    /// Of the class.
    parameters: Value,
    /// Of the claim.
    claim: Value,
    driver: fn(&mut State),
    /// What the event says.
    text: &'static str,
    /// How often the driver may be asked in an hour.
    calls: usize,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            parameters: json!({}),
            claim: json!({}),
            driver: |_| (),
            text: "",
            calls: 0,
        }
    }
}

fn cases() -> Vec<Case> {
    let key = |name: &str| format!("csi.storage.k8s.io/{name}");
    vec![
        Case {
            parameters: json!({key("fstpye"): "xfs"}),
            text: "found unknown parameter key \"csi.storage.k8s.io/fstpye\"",
            ..Case::default()
        },
        Case {
            parameters: json!({key("provisioner-secret-name"): "s"}),
            text: "a secret needs both",
            ..Case::default()
        },
        Case {
            parameters: json!({
                key("provisioner-secret-name"): "${pvc.nmae}",
                key("provisioner-secret-namespace"): "default",
            }),
            text: "unknown or unclosed token in \"${pvc.nmae}\"",
            ..Case::default()
        },
        Case {
            parameters: json!({
                key("provisioner-secret-name"): "missing",
                key("provisioner-secret-namespace"): "default",
            }),
            text: "secret default/missing does not exist",
            ..Case::default()
        },
        Case {
            claim: json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
            text: "claim Selector is not supported",
            ..Case::default()
        },
        Case {
            claim: json!({"spec": {"dataSource": {
                "kind": "PersistentVolumeClaim", "name": "nobody",
            }}}),
            text: "PersistentVolumeClaim default/nobody does not exist",
            ..Case::default()
        },
        Case {
            claim: json!({"spec": {"volumeAttributesClassName": "missing"}}),
            text: "missing",
            ..Case::default()
        },
        Case {
            driver: |state| state.shortfall = 1,
            text: "the driver made a volume of 1073741823 bytes where 1073741824 were asked for",
            calls: 20,
            ..Case::default()
        },
        Case {
            driver: |state| state.nameless = true,
            text: "the driver answered CreateVolume without a volume id",
            calls: 20,
            ..Case::default()
        },
    ]
}

/// The warnings about an object.
async fn warnings(world: &World, name: &str) -> Vec<Event> {
    let all = world.cluster.list::<Event>(None).await.expect("it answers");
    let warns = |event: &Event| event.involved_object.name == name && event.type_ == "Warning";
    all.into_iter().filter(warns).collect()
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_can_not_be_served_is_told_once_and_costs_little() {
    for case in cases() {
        let mut world = World::new().await;
        (case.driver)(&mut world.fake.state());
        world
            .add_class("odd", json!({"parameters": case.parameters}))
            .await;
        world.start(Fuse::never());
        let mut claim = case.claim.clone();
        claim["spec"]["storageClassName"] = json!("odd");
        world.add_claim_with(claim).await;
        sleep(Duration::from_secs(30)).await;
        let before = world.requests().len();
        sleep(Duration::from_secs(3600)).await;
        let spent = world.requests().len() - before;
        assert!(spent <= FEW, "{}: {spent} requests in an hour", case.text);
        let calls = world.fake.calls("CreateVolume");
        assert!(calls <= case.calls, "{}: {calls} calls", case.text);
        let told = warnings(&world, "data").await;
        let right = told
            .iter()
            .filter(|event| event.message.contains(case.text));
        assert_eq!(right.count(), 1, "{}: {told:#?}", case.text);
        assert!(told.len() <= 2, "{}: {told:#?}", case.text);
        // A driver that has come to its senses is asked what it made.
        world.fake.state().nameless = false;
        world.delete::<Claim>(&data()).await;
        world.until_nothing_is_left().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_for_attaching_that_is_missing_is_told_on_the_attachment() {
    let mut world = World::new().await;
    let parameters = json!({
        "csi.storage.k8s.io/controller-publish-secret-name": "missing",
        "csi.storage.k8s.io/controller-publish-secret-namespace": "default",
    });
    world
        .add_class("odd", json!({"parameters": parameters}))
        .await;
    world.start(Fuse::never());
    world.add_claim("odd").await;
    world.until_settled().await;
    world.attach("n1").await;
    let key = Key::cluster("at-n1");
    let told = |cluster: orlop_runtime::Cluster, _| async move {
        let attachment = cluster
            .get::<VolumeAttachment>(&Key::cluster("at-n1"))
            .await?;
        let error = attachment.and_then(|one| one.status.attach_error);
        Ok(error.is_some_and(|error| error.message.contains("secret default/missing")))
    };
    world
        .until("the attachment tells of the secret", told)
        .await;
    let before = world.requests().len();
    sleep(Duration::from_secs(3600)).await;
    let spent = world.requests().len() - before;
    // No event tells of secrets, so it is looked for twice a minute.
    assert!(spent <= 400, "{spent} requests in an hour");
    assert_eq!(world.fake.calls("ControllerPublish"), 0);
    world.delete::<VolumeAttachment>(&key).await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_mended_serves_its_claims_at_once() {
    let mut world = World::new().await;
    world
        .add_class(
            "odd",
            json!({"parameters": {"csi.storage.k8s.io/fstpye": "xfs"}}),
        )
        .await;
    world.start(Fuse::never());
    world.add_claim("odd").await;
    sleep(Duration::from_secs(1000)).await;
    // Parameters of a class stay: it is made anew.
    world.delete::<StorageClass>(&Key::cluster("odd")).await;
    let begun = Instant::now();
    world.add_class("odd", json!({"provisioner": NAME})).await;
    world.until_settled().await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}
