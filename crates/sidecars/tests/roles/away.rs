//! A driver that goes and comes back, and one that comes back as another.

use std::time::Duration;

use orlop_model::{Claim, VolumeAttachment};
use orlop_runtime::Preconditions;
use tokio::time::{Instant, sleep};

use crate::{
    driver::NAME,
    fuse::Fuse,
    world::{World, data},
};

/// Long enough for waits of many minutes.
const OUTAGE: Duration = Duration::from_secs(3600);

/// Short enough that no wait has ended by itself.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn waits_end_when_the_driver_is_back() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.fake.go_away().await;
    world.attach("n1").await;
    world
        .add_claim_with(serde_json::json!({"metadata": {"name": "more"}}))
        .await;
    sleep(OUTAGE).await;
    world.fake.come_back();
    let back = Instant::now();
    world.until_attached("n1").await;
    world
        .until("the second claim has its volume", |_, fake| async move {
            Ok(fake.state().volumes.len() == 2)
        })
        .await;
    assert!(back.elapsed() < SOON, "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn another_driver_at_the_same_socket_is_asked_for_nothing() {
    let mut world = World::new().await;
    world.start(Fuse::never());
    world.add_claim("fast").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.fake.go_away().await;
    world.fake.state().name = "another.example.com".to_owned();
    world.fake.state().calls.clear();
    world.fake.come_back();
    // It is to detach and delete for the driver that it isn't, and to make a volume.
    let key = orlop_model::Key::cluster("at-n1");
    let only_if = Preconditions::default();
    let deleted = world.cluster.delete::<VolumeAttachment>(&key, &only_if);
    deleted.await.expect("it is deleted");
    world.delete::<Claim>(&data()).await;
    world
        .add_claim_with(serde_json::json!({"metadata": {"name": "more"}}))
        .await;
    sleep(OUTAGE / 12).await;
    assert_eq!(world.fake.state().calls, Vec::<String>::new());
    let events = world.events("more").await;
    let failed = events
        .iter()
        .find(|(reason, _)| reason == "ProvisioningFailed");
    let (_, text) = failed.expect("it is told");
    for word in ["another.example.com", NAME, "restart this process"] {
        assert!(text.contains(word), "{text}");
    }
    // The right one is back, and all is caught up with.
    world.fake.go_away().await;
    world.fake.state().name = NAME.to_owned();
    world.fake.come_back();
    world
        .until("one volume is gone, one made", |_, fake| async move {
            let (deleted, made) = (fake.calls("DeleteVolume"), fake.calls("CreateVolume"));
            Ok((deleted, made) == (1, 1) && fake.state().published.is_empty())
        })
        .await;
}
