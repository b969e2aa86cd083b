//! Whatever is set wrong, or told wrong by a driver: one clear event on the right object, few
//! requests for as long as it stays so, and nothing lost.

use std::time::Duration;

use futures::{FutureExt as _, future::BoxFuture};
use orlop_model::{
    Claim, ClaimPhase, Event, Key, Secret, StorageClass, Volume, VolumeAttachment,
    VolumeAttributesClass, VolumeSnapshotContent, well_known::CLAIM_AS_SNAPSHOT_SOURCE,
};
use orlop_runtime::Cluster;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    driver::{NAME, State},
    fuse::{Fuse, Which},
    world::{World, change, data},
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

#[tokio::test(start_paused = true)]
async fn a_claim_is_tried_again_at_once_when_its_missing_annotation_or_another_class_comes() {
    let key = |name: &str| format!("csi.storage.k8s.io/{name}");
    let secret = json!({
        key("provisioner-secret-name"): "${pvc.annotations['team/secret']}",
        key("provisioner-secret-namespace"): "default",
    });
    for (claim, mend) in [
        (
            json!({"spec": {"storageClassName": "odd"}}),
            json!({"metadata": {"annotations": {"team/secret": "s"}}}),
        ),
        (
            json!({"spec": {"volumeAttributesClassName": "foreign"}}),
            json!({"spec": {"volumeAttributesClassName": "own"}}),
        ),
    ] {
        let mut world = World::new().await;
        world.add_class("odd", json!({"parameters": secret})).await;
        let meta = json!({"name": "s", "namespace": "default"});
        world.create::<Secret>(json!({"metadata": meta})).await;
        for (name, driver) in [("foreign", "other.io"), ("own", NAME)] {
            let class =
                json!({"metadata": {"name": name}, "driverName": driver, "parameters": {"a": "b"}});
            world.create::<VolumeAttributesClass>(class).await;
        }
        world.start(Fuse::never());
        world.add_claim_with(claim.clone()).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(warnings(&world, "data").await.len(), 1, "{claim}");
        let begun = Instant::now();
        change(&world, mend).await;
        world.until_settled().await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{claim}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_can_not_be_is_told_what_stands_in_its_way_and_costs_little() {
    for (node, volume, text) in [
        ("n1", "nobody", "PersistentVolume nobody does not exist"),
        (
            "gone",
            "",
            "driver fake.csi.orlop.dev is not registered on node gone",
        ),
        (
            "n1",
            "foreign",
            "PersistentVolume foreign is not one of driver fake.csi.orlop.dev",
        ),
    ] {
        let mut world = World::new().await;
        world.start(Fuse::never());
        world.add_claim("fast").await;
        world.until_settled().await;
        let foreign = json!({
            "metadata": {"name": "foreign"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "other.io", "volumeHandle": "h"},
            },
        });
        let own = world.volume().await.expect("it is there").metadata.name;
        world.create::<Volume>(foreign).await;
        let volume = if volume.is_empty() {
            own
        } else {
            volume.to_owned()
        };
        world
            .create::<VolumeAttachment>(json!({
                "metadata": {"name": "odd"},
                "spec": {
                    "attacher": NAME, "nodeName": node, "source": {"persistentVolumeName": volume},
                },
            }))
            .await;
        sleep(Duration::from_secs(30)).await;
        let before = world.requests().len();
        sleep(Duration::from_secs(3600)).await;
        let spent = world.requests().len() - before;
        assert!(spent <= FEW, "{text}: {spent} requests in an hour");
        let key = Key::cluster("odd");
        let odd = world.cluster.get::<VolumeAttachment>(&key).await;
        let error = odd
            .expect("it answers")
            .and_then(|odd| odd.status.attach_error);
        let message = error.expect("it is told").message;
        assert!(message.starts_with(text), "{message}");
        assert_eq!(world.fake.calls("ControllerPublishVolume"), 0);
        world.delete::<VolumeAttachment>(&key).await;
        sleep(Duration::from_secs(5)).await;
        let odd = world.cluster.get::<VolumeAttachment>(&key).await;
        assert_eq!(odd.expect("it answers"), None, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_let_the_snapshot_controller_write_is_told_on_the_snapshot() {
    let cases: [(Which, &str); 3] = [
        (
            |what| what.starts_with("PATCH") && what.ends_with("/volumesnapshots/cut"),
            "SnapshotFinalizerError",
        ),
        (
            |what| what.starts_with("PATCH") && what.ends_with("/volumesnapshots/cut/status"),
            "SnapshotStatusUpdateFailed",
        ),
        (
            // Held it may be, but not let go.
            |what| what.starts_with("P") && what.ends_with("/persistentvolumeclaims/data"),
            "ErrorPVCFinalizer",
        ),
    ];
    for (refused, reason) in cases {
        let mut world = crate::snapshots::running().await;
        if reason == "ErrorPVCFinalizer" {
            world.fake.state().cuts.unready = 3;
            crate::snapshots::take(&world).await;
            let held = |cluster: Cluster, _| async move {
                let claim = cluster.get::<Claim>(&data()).await?;
                let held = CLAIM_AS_SNAPSHOT_SOURCE;
                Ok(claim.is_some_and(|claim| claim.metadata.has_finalizer(held)))
            };
            world.until("the claim is held", held).await;
            world.refuse(Some(refused));
        } else {
            world.refuse(Some(refused));
            crate::snapshots::take(&world).await;
        }
        sleep(Duration::from_secs(30)).await;
        let before = world.requests().len();
        sleep(Duration::from_secs(3600)).await;
        let spent = world.requests().len() - before;
        assert!(spent <= FEW, "{reason}: {spent} requests in an hour");
        let told = world.events("cut").await;
        let right = told.iter().filter(|(said, _)| said == reason);
        assert_eq!(right.count(), 1, "{reason}: {told:#?}");
        // Nothing is lost: it goes on as soon as it may.
        world.refuse(None);
        crate::snapshots::until_ready(&mut world).await;
    }
}

async fn gone(world: &World) {
    world.delete::<Claim>(&data()).await;
}

/// A request that is refused, and where that is told.
struct Said {
    object: &'static str,
    reason: &'static str,
    refused: Which,
    begin: fn(&World) -> BoxFuture<'_, ()>,
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_the_sidecars_is_told_on_the_object() {
    let cases = [
        Said {
            object: "data",
            reason: "VolumeResizeFailed",
            refused: |what| what.ends_with("/persistentvolumeclaims/data/status"),
            begin: |world| crate::resizing::ask(world, "2Gi").boxed(),
        },
        Said {
            object: "data",
            reason: "VolumeModifyFailed",
            refused: |what| what.ends_with("/persistentvolumeclaims/data/status"),
            begin: |world| {
                let body = json!({"spec": {"volumeAttributesClassName": "gold"}});
                change(world, body).boxed()
            },
        },
        Said {
            object: "",
            reason: "VolumeFailedDelete",
            refused: |what| what.starts_with("DELETE /api/v1/persistentvolumes/"),
            begin: |world| gone(world).boxed(),
        },
    ];
    for case in cases {
        let mut world = World::new().await;
        let growing = json!({"allowVolumeExpansion": true});
        world.add_class("growing", growing).await;
        let gold =
            json!({"metadata": {"name": "gold"}, "driverName": NAME, "parameters": {"a": "b"}});
        world.create::<VolumeAttributesClass>(gold).await;
        world.start(Fuse::never());
        world.add_claim("growing").await;
        world.until_settled().await;
        let volume = world.volume().await.expect("it is there").metadata.name;
        world.refuse(Some(case.refused));
        (case.begin)(&world).await;
        sleep(Duration::from_secs(30)).await;
        let before = world.requests().len();
        sleep(Duration::from_secs(3600)).await;
        let spent = world.requests().len() - before;
        assert!(spent <= FEW, "{}: {spent} requests in an hour", case.reason);
        let object = match case.object {
            "" => volume.as_str(),
            object => object,
        };
        let told = warnings(&world, object).await;
        let right = told.iter().filter(|event| {
            event.reason == case.reason
                && event.message.contains("the API server refuses it")
                && event.message.contains("next try in")
        });
        assert_eq!(right.count(), 1, "{}: {told:#?}", case.reason);
        world.refuse(None);
        if world
            .claim()
            .await
            .is_some_and(|claim| !claim.metadata.is_deleting())
        {
            gone(&world).await;
        }
        world.until_nothing_is_left().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_annotations_leave_no_room_for_ours_says_so() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    // The API server takes 256 KiB of them: there is room for the binder's, and no more.
    let full = "x".repeat((256 << 10) - 200);
    world
        .add_claim_with(json!({
            "metadata": {"name": "copy", "annotations": {"team/notes": full}},
            "spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "data"}},
        }))
        .await;
    sleep(Duration::from_secs(30)).await;
    let before = world.requests().len();
    sleep(Duration::from_secs(3600)).await;
    let spent = world.requests().len() - before;
    assert!(spent <= FEW, "{spent} requests in an hour");
    let told = warnings(&world, "copy").await;
    let [event] = told.as_slice() else {
        panic!("{told:#?}")
    };
    assert_eq!(event.reason, "ProvisioningFailed");
    for words in ["the API server refuses it", "annotations", "next try in"] {
        assert!(event.message.contains(words), "{}", event.message);
    }
    assert_eq!(world.fake.calls("CreateVolume"), 1, "that of the first");
    let less =
        orlop_runtime::Patch::Merge(json!({"metadata": {"annotations": {"team/notes": null}}}));
    let key = Key::namespaced("default", "copy");
    let changed = world.cluster.patch::<Claim>(&key, &less).await;
    changed.expect("it is there");
    let begun = Instant::now();
    let bound = |cluster: Cluster, _| {
        let key = key.clone();
        async move {
            let claim = cluster.get::<Claim>(&key).await?;
            Ok(claim.is_some_and(|claim| claim.phase() == ClaimPhase::Bound))
        }
    };
    world.until("the copy is bound", bound).await;
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_the_attacher_is_told_on_the_attachment() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.refuse(Some(|what| {
        what.starts_with("PATCH") && what.ends_with("/volumeattachments/at-n1")
    }));
    world.attach("n1").await;
    sleep(Duration::from_secs(30)).await;
    let before = world.requests().len();
    sleep(Duration::from_secs(3600)).await;
    let spent = world.requests().len() - before;
    assert!(spent <= FEW, "{spent} requests in an hour");
    let key = Key::cluster("at-n1");
    let attachment = world.cluster.get::<VolumeAttachment>(&key).await;
    let attachment = attachment.expect("it answers").expect("it is there");
    let message = attachment.status.attach_error.expect("it is told").message;
    assert!(message.contains("the API server refuses it"), "{message}");
    assert_eq!(world.fake.calls("ControllerPublishVolume"), 0);
    world.refuse(None);
    world.until_attached("n1").await;
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_let_anybody_write_on_a_content_is_told_there() {
    let mut world = crate::snapshots::running().await;
    world.refuse(Some(|what| {
        what.starts_with("PATCH") && what.contains("/volumesnapshotcontents/")
    }));
    crate::snapshots::take(&world).await;
    let owner = json!({"name": "other", "namespace": "default", "uid": "u"});
    world
        .create::<VolumeSnapshotContent>(json!({
            "metadata": {"name": "found"},
            "spec": {
                "driver": NAME, "deletionPolicy": "Retain", "source": {"snapshotHandle": "old"},
                "volumeSnapshotRef": owner,
            },
        }))
        .await;
    sleep(Duration::from_secs(30)).await;
    let before = world.requests().len();
    sleep(Duration::from_secs(3600)).await;
    let spent = world.requests().len() - before;
    assert!(spent <= 2 * FEW, "{spent} requests in an hour");
    // Who cuts can't begin, who binds can't hold what was there before.
    let content = crate::snapshots::snapshot(&world).await.content_name();
    for (content, reason) in [
        (content.as_str(), "SnapshotCreationFailed"),
        ("found", "UpdateFailed"),
    ] {
        let told = warnings(&world, content).await;
        let right = told.iter().filter(|event| {
            event.reason == reason
                && event.message.contains("the API server refuses it")
                && event.message.contains("next try in")
        });
        assert_eq!(right.count(), 1, "{content}: {told:#?}");
    }
    assert_eq!(world.fake.calls("CreateSnapshot"), 0);
    world.refuse(None);
    crate::snapshots::until_ready(&mut world).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_a_class_of_attributes_is_woken_when_it_comes() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world
        .add_claim_with(json!({"spec": {"volumeAttributesClassName": "gold"}}))
        .await;
    sleep(Duration::from_secs(200)).await;
    let told = warnings(&world, "data").await;
    let missing = "VolumeAttributesClass gold does not exist";
    assert!(
        told.iter().any(|event| event.message.contains(missing)),
        "{told:#?}"
    );
    let begun = Instant::now();
    let gold = json!({"metadata": {"name": "gold"}, "driverName": NAME, "parameters": {"a": "b"}});
    world.create::<VolumeAttributesClass>(gold).await;
    world.until_settled().await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "woken, not waited for"
    );
}
