//! A volume, attached and detached.

use std::time::Duration;

use orlop_csi::proto::controller_service_capability::rpc::Type;
use orlop_model::{
    CsiNode, Key, VolumeAttachment,
    well_known::{ATTACHMENT_NODE_ID, attacher_finalizer},
};
use orlop_runtime::Patch;
use serde_json::json;
use tokio::time::sleep;
use tonic::Code;

use crate::{
    driver::{Mishap, NAME},
    fuse::Fuse,
    world::World,
};

async fn world_with_volume() -> World {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world
}

fn at_n1() -> Key {
    Key::cluster("at-n1")
}

async fn attachment(world: &World) -> Option<VolumeAttachment> {
    world.cluster.get(&at_n1()).await.expect("it answers")
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_attached_with_its_intent_on_record() {
    let mut world = world_with_volume().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    let attachment = attachment(&world).await.expect("it is there");
    assert_eq!(attachment.status.attachment_metadata["device"], "/dev/x");
    assert_eq!(
        attachment.metadata.annotation(ATTACHMENT_NODE_ID),
        Some("id-n1")
    );
    let finalizer = attacher_finalizer(NAME);
    assert!(attachment.metadata.has_finalizer(&finalizer));
    let volume = world.volume().await.expect("it is there");
    assert!(volume.metadata.has_finalizer(&finalizer));
    let state = world.fake.state();
    let request = &state.publish_requests[0];
    assert_eq!(request.node_id, "id-n1");
    assert_eq!(request.volume_context["shelf"], "3");
    assert!(!request.readonly);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_detached_before_its_attachment_goes() {
    let mut world = world_with_volume().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world
        .fake
        .state()
        .unpublish
        .push_back(Mishap::Refuse(Code::Internal));
    world.delete::<VolumeAttachment>(&at_n1()).await;
    world
        .until("the failure is told", |cluster, _| async move {
            let attachment = cluster.get::<VolumeAttachment>(&at_n1()).await?;
            Ok(attachment.is_some_and(|a| {
                a.status.attached
                    && a.status
                        .detach_error
                        .is_some_and(|e| e.error_code == Some(13) && e.message.contains("Internal"))
            }))
        })
        .await;
    assert_eq!(world.fake.state().published.len(), 1);
    world
        .until("it is gone", |cluster, fake| async move {
            let attachment = cluster.get::<VolumeAttachment>(&at_n1()).await?;
            Ok(attachment.is_none() && fake.state().published.is_empty())
        })
        .await;
    assert_eq!(world.fake.calls("ControllerUnpublishVolume"), 2);
}

#[tokio::test(start_paused = true)]
async fn failures_to_attach_are_told_and_wait_longer_each_time() {
    let mut world = world_with_volume().await;
    world
        .fake
        .state()
        .publish
        .extend([Mishap::Refuse(Code::ResourceExhausted); 100]);
    world.attach("n1").await;
    sleep(Duration::from_secs(100)).await;
    let tries = world.fake.calls("ControllerPublishVolume");
    assert!(
        (6..=8).contains(&tries),
        "our own writes wake nobody: {tries}"
    );
    let error = attachment(&world).await.and_then(|a| a.status.attach_error);
    let error = error.expect("it is told");
    assert_eq!(error.error_code, Some(8));
    world.fake.state().publish.clear();
    world.until_attached("n1").await;
    let attachment = attachment(&world).await.expect("it is there");
    assert_eq!(attachment.status.attach_error, None);
}

#[tokio::test(start_paused = true)]
async fn an_attachment_deleted_while_the_answer_is_unknown_is_detached() {
    let mut world = world_with_volume().await;
    world
        .fake
        .state()
        .publish
        .extend([Mishap::Do(Code::DeadlineExceeded); 100]);
    world.attach("n1").await;
    world
        .until("the driver was asked", |_, fake| async move {
            Ok(fake.calls("ControllerPublishVolume") == 1)
        })
        .await;
    world.delete::<VolumeAttachment>(&at_n1()).await;
    world
        .until("it is gone", |cluster, fake| async move {
            let attachment = cluster.get::<VolumeAttachment>(&at_n1()).await?;
            Ok(attachment.is_none() && fake.state().published.is_empty())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_comes_off_a_node_that_is_gone() {
    let mut world = world_with_volume().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.delete::<CsiNode>(&Key::cluster("n1")).await;
    world.delete::<VolumeAttachment>(&at_n1()).await;
    world
        .until("it is gone", |cluster, fake| async move {
            let attachment = cluster.get::<VolumeAttachment>(&at_n1()).await?;
            Ok(attachment.is_none() && fake.state().published.is_empty())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_attachment_waits_for_its_node_to_register() {
    let mut world = world_with_volume().await;
    world.attach("n9").await;
    sleep(Duration::from_secs(100)).await;
    let key = Key::cluster("at-n9");
    let waiting = world.cluster.get::<VolumeAttachment>(&key).await;
    let error = waiting
        .expect("it answers")
        .and_then(|a| a.status.attach_error);
    let text = error.expect("it is told").message;
    assert!(text.contains("not registered"), "{text}");
    world.add_node("n9", "a").await;
    let begun = tokio::time::Instant::now();
    world.until_attached("n9").await;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "woken, not waited for"
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_attach_is_not_asked() {
    let mut world = World::new().await;
    world.fake.state().capabilities = vec![Type::CreateDeleteVolume];
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.delete::<VolumeAttachment>(&at_n1()).await;
    world
        .until("it is gone", |cluster, _| async move {
            Ok(cluster.get::<VolumeAttachment>(&at_n1()).await?.is_none())
        })
        .await;
    assert_eq!(world.fake.calls("Controller"), 0);
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_finalizer_sees_that_it_is_detached() {
    let mut world = world_with_volume().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    let attached = attachment(&world).await.expect("it is there");
    let mut finalizers = attached.metadata.finalizers.clone();
    finalizers.push("example.com/other".into());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let patched = world
        .cluster
        .patch::<VolumeAttachment>(&at_n1(), &patch)
        .await;
    patched.expect("it is there");
    world.delete::<VolumeAttachment>(&at_n1()).await;
    world
        .until("it says that it is detached", |cluster, fake| async move {
            let attachment = cluster.get::<VolumeAttachment>(&at_n1()).await?;
            Ok(fake.state().published.is_empty()
                && attachment.is_some_and(|a| {
                    !a.status.attached
                        && a.status.attachment_metadata.is_empty()
                        && a.metadata.finalizers == ["example.com/other"]
                }))
        })
        .await;
    assert_eq!(world.fake.calls("ControllerUnpublishVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_detached_at_the_backend_is_attached_again() {
    let mut world = world_with_volume().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.fake.state().published.clear();
    world
        .until("it is attached again", |_, fake| async move {
            Ok(fake.state().published.len() == 1)
        })
        .await;
    assert_eq!(world.fake.calls("ControllerPublishVolume"), 2);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("ControllerPublishVolume"), 2, "once");
    assert_eq!(world.fake.calls("ControllerUnpublishVolume"), 0);
}

/// external-attacher#697: the list is no reason to detach, whatever it shows.
#[tokio::test(start_paused = true)]
async fn what_the_backend_has_attached_without_our_doing_is_left_alone() {
    let mut world = world_with_volume().await;
    let id = world.volume().await.expect("it is there").spec.csi;
    let id = id.expect("it is the driver's").volume_handle;
    world
        .fake
        .state()
        .published
        .insert((id.clone(), "id-n1".into()));
    world
        .fake
        .state()
        .published
        .insert((id, "id-elsewhere".into()));
    world.attach("n1").await;
    world.until_attached("n1").await;
    sleep(Duration::from_secs(600)).await;
    assert!(
        world.fake.calls("ListVolumes") > 5,
        "the lists were compared"
    );
    assert_eq!(world.fake.calls("ControllerUnpublishVolume"), 0);
    assert_eq!(world.fake.calls("ControllerPublishVolume"), 1);
}
