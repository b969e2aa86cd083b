//! Whole lives, with the sidecars killed at every single call in turn.

use std::time::Duration;

use orlop_model::{Claim, Key, VolumeAttachment};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    driver::Mishap,
    fuse::{Fuse, Half},
    world::{World, data},
};

/// More calls than any life here makes.
const ENOUGH: usize = 200;

/// Lives `life` once per call and half, killed there, until a life ends unharmed.
pub(crate) async fn at_every_call<F>(life: impl Fn(Fuse) -> F)
where
    F: Future<Output = ()>,
{
    for half in [Half::Before, Half::After] {
        let mut killed = 0;
        for at in 1..ENOUGH {
            let fuse = Fuse::at(at, half);
            life(fuse.clone()).await;
            if !fuse.is_blown() {
                break;
            }
            killed = at;
        }
        assert!(
            (10..ENOUGH - 1).contains(&killed),
            "{half:?}: {killed} calls"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_life_leaves_nothing_behind_wherever_it_is_interrupted() {
    at_every_call(|fuse| async {
        let mut world = World::new().await;
        world.start(fuse);
        world.add_claim("fast").await;
        world.until_settled().await;
        world.attach("n1").await;
        world.until_attached("n1").await;
        world
            .delete::<VolumeAttachment>(&Key::cluster("at-n1"))
            .await;
        world.delete::<Claim>(&data()).await;
        world.until_nothing_is_left().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_taken_unasked_leaves_nothing_behind_wherever_it_is_interrupted() {
    at_every_call(|fuse| async {
        let mut world = World::new().await;
        world.start(fuse);
        // The first teaches the provisioner that the binder gives way.
        for _ in 0..2 {
            world.add_claim("fast").await;
            world.until_settled().await;
            world.delete::<Claim>(&data()).await;
            world.until_nothing_is_left().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_grows_gets_there_wherever_it_is_interrupted() {
    at_every_call(|fuse| async {
        let mut world = World::new().await;
        {
            let mut state = world.fake.state();
            state.node_part = false;
            state.expand.extend([Mishap::Do(Code::Unavailable)]);
        }
        world
            .add_class("growing", serde_json::json!({"allowVolumeExpansion": true}))
            .await;
        world.start(fuse);
        world.add_claim("growing").await;
        world.until_settled().await;
        crate::resizing::ask(&world, "2Gi").await;
        world
            .until("it has grown", |cluster, _| async move {
                let claim = cluster.get::<Claim>(&data()).await?.expect("it is there");
                Ok(claim.capacity_bytes() == 2 << 30 && claim.resize_status().is_none())
            })
            .await;
        let volume = world.volume().await.expect("it is there");
        assert_eq!(volume.capacity_bytes(), 2 << 30);
        world.delete::<Claim>(&data()).await;
        world.until_nothing_is_left().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn attributes_change_wherever_that_is_interrupted() {
    use crate::resizing::{add_attributes, choose, until_modified};
    at_every_call(|fuse| async {
        let mut world = World::new().await;
        let lost = Mishap::Do(Code::Unavailable);
        world.fake.state().modify.push_back(lost);
        add_attributes(&world, "gold", crate::driver::NAME).await;
        world.start(fuse);
        world.add_claim("fast").await;
        world.until_settled().await;
        choose(&world, Some("gold")).await;
        until_modified(&mut world, "gold").await;
        let volume = world.volume().await.expect("it is there");
        let class = volume.spec.volume_attributes_class_name;
        assert_eq!(class.as_deref(), Some("gold"));
        assert_eq!(world.fake.state().modified.len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_deleted_while_the_provisioner_is_down_leaves_nothing_behind() {
    at_every_call(|fuse| async {
        let mut world = World::new().await;
        world.start(fuse);
        world.add_claim("fast").await;
        if world.until_dead().await {
            world.crash();
            world.delete::<Claim>(&data()).await;
            sleep(Duration::from_secs(60)).await;
            world.start(Fuse::never());
        } else {
            world.until_settled().await;
            world.delete::<Claim>(&data()).await;
        }
        world.until_nothing_is_left().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answers_are_lost_leaves_nothing_behind() {
    at_every_call(|fuse| async {
        let mut world = World::new().await;
        world
            .fake
            .state()
            .create
            .extend([Mishap::Do(Code::DeadlineExceeded); 3]);
        world
            .fake
            .state()
            .delete
            .extend([Mishap::Do(Code::Unavailable); 2]);
        world.start(fuse);
        world.add_claim("fast").await;
        world
            .until("the driver was asked", |_, fake| async move {
                Ok(fake.calls("CreateVolume") >= 1)
            })
            .await;
        world.delete::<Claim>(&data()).await;
        world.until_nothing_is_left().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_attachment_whose_answers_are_lost_leaves_nothing_behind() {
    at_every_call(|fuse| async {
        let mut world = World::new().await;
        world
            .fake
            .state()
            .publish
            .extend([Mishap::Do(Code::Unavailable); 2]);
        world
            .fake
            .state()
            .unpublish
            .extend([Mishap::Do(Code::Aborted); 2]);
        world.start(fuse);
        world.add_claim("fast").await;
        world.until_settled().await;
        world.attach("n1").await;
        world
            .until("the driver was asked", |_, fake| async move {
                Ok(fake.calls("ControllerPublishVolume") >= 1)
            })
            .await;
        world
            .delete::<VolumeAttachment>(&Key::cluster("at-n1"))
            .await;
        world.delete::<Claim>(&data()).await;
        world.until_nothing_is_left().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn two_leaders_at_once_make_one_volume_and_leave_nothing_behind() {
    let mut world = World::new().await;
    world
        .fake
        .state()
        .create
        .push_back(Mishap::Do(Code::Unavailable));
    world.start(Fuse::never());
    let other = world.start_another();
    world.add_claim("fast").await;
    world.until_settled().await;
    assert_eq!(world.fake.state().volumes.len(), 1);
    world.attach("n1").await;
    world.until_attached("n1").await;
    world
        .delete::<VolumeAttachment>(&Key::cluster("at-n1"))
        .await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    other.kill();
}
