//! What the sidecars ask of the API server, request by request. Each is a cost to everybody
//! on it, so they are counted.

use orlop_model::{
    Claim, Key, VolumeAttachment, VolumeSnapshot, VolumeSnapshotContent, well_known::PVC_PROTECTION,
};

use crate::{
    driver::NAME,
    fuse::Fuse,
    snapshots::{self, until_gone},
    world::{World, data},
};

/// Requests since `before`, and whether any of them was answered 404.
fn since(world: &World, before: usize) -> (Vec<String>, bool) {
    let mut requests = world.requests().split_off(before);
    // Events are named by the time, which stands still here: the binder's may be the same.
    requests.retain(|(what, status)| !(what.ends_with("/events") && *status == 409));
    let missed = requests.iter().any(|(_, status)| *status == 404);
    (requests.into_iter().map(|(what, _)| what).collect(), missed)
}

async fn settled() -> World {
    let mut world = World::new().await;
    world.start(Fuse::never());
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_claim_costs_the_provisioner_two_requests_asked_or_not() {
    let mut world = settled().await;
    for asked in [true, false] {
        let before = world.requests().len();
        world.add_claim("fast").await;
        world.until_settled().await;
        world.events("data").await;
        let (requests, missed) = since(&world, before);
        // Intent on, volume. The binder takes the intent off along with its own mark, and of what
        // took no time no event is told.
        assert_eq!(requests.len(), 2, "{requests:#?}");
        assert!(!missed, "{requests:#?}");
        let claim = world.cluster.get::<Claim>(&data()).await;
        let claim = claim.unwrap().expect("it is there");
        // Of the second the binder left the asking to the provisioner, who knew of that.
        assert_eq!(claim.provisioner(), Some(NAME), "asked: {asked}");
        assert_eq!(
            claim.metadata.finalizers,
            [PVC_PROTECTION],
            "asked: {asked}"
        );
        world.delete::<Claim>(&data()).await;
        world.until_nothing_is_left().await;
    }
}

#[tokio::test(start_paused = true)]
async fn attaching_costs_three_requests_and_detaching_two_that_are_all_answered() {
    let mut world = settled().await;
    world.add_claim("fast").await;
    world.until_settled().await;
    for round in 1..=2 {
        world.events("data").await;
        let before = world.requests().len();
        world.attach("n1").await;
        world.until_attached("n1").await;
        world.events("data").await;
        let (requests, missed) = since(&world, before);
        // Volume kept (or seen to be), intent, status.
        assert_eq!(requests.len(), 3, "round {round}: {requests:#?}");
        assert!(!missed, "{requests:#?}");

        let before = world.requests().len();
        world
            .delete::<VolumeAttachment>(&Key::cluster("at-n1"))
            .await;
        until_gone::<VolumeAttachment>(&mut world).await;
        world.events("data").await;
        let (requests, missed) = since(&world, before);
        assert_eq!(requests.len(), 2, "round {round}: {requests:#?}");
        assert!(!missed, "{requests:#?}");
    }
}

/// All that is asked of the API server for a claim, but what its owner asks.
#[tokio::test(start_paused = true)]
async fn a_claim_costs_five_requests_and_its_deletion_seven_that_are_all_answered() {
    let mut world = settled().await;
    for round in 1..=2 {
        let (before, beside) = (world.requests().len(), world.requests_beside().len());
        world.add_claim("fast").await;
        world.until_settled().await;
        world.events("data").await;
        let (mut requests, _) = since(&world, before);
        let control = world.requests_beside().split_off(beside);
        requests.extend(control.into_iter().map(|(what, _)| what));
        // The first one tells both sides of each other.
        if round > 1 {
            assert_eq!(requests.len(), 5, "{requests:#?}");
        }

        let (before, beside) = (world.requests().len(), world.requests_beside().len());
        world.delete::<Claim>(&data()).await;
        world.until_nothing_is_left().await;
        world.events("data").await;
        let (mut requests, mut missed) = since(&world, before);
        let control = world.requests_beside().split_off(beside);
        missed |= control.iter().any(|(_, status)| *status >= 400);
        requests.extend(control.into_iter().map(|(what, _)| what));
        // Pods listed, claim let go, volume released; read once more, deleted, let go twice.
        assert_eq!(requests.len(), 7, "{requests:#?}");
        assert!(!missed, "{requests:#?}");
    }
}

/// Whose volume was attached once costs one more: nobody but the API server can say that it isn't any more.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_attached_costs_eight_requests_to_delete_that_are_all_answered() {
    let mut world = settled().await;
    world.add_claim("fast").await;
    world.until_settled().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    let key = Key::cluster("at-n1");
    world.delete::<VolumeAttachment>(&key).await;
    until_gone::<VolumeAttachment>(&mut world).await;
    world.events("data").await;

    let (before, beside) = (world.requests().len(), world.requests_beside().len());
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    world.events("data").await;
    let (mut requests, mut missed) = since(&world, before);
    let control = world.requests_beside().split_off(beside);
    missed |= control.iter().any(|(_, status)| *status >= 400);
    requests.extend(control.into_iter().map(|(what, _)| what));
    assert_eq!(requests.len(), 8, "{requests:#?}");
    assert!(!missed, "{requests:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshots_deletion_costs_five_requests_that_are_all_answered() {
    let mut world = snapshots::running().await;
    for round in 1..=2 {
        snapshots::take(&world).await;
        snapshots::until_ready(&mut world).await;
        world.events("cut").await;
        let before = world.requests().len();
        world.delete::<VolumeSnapshot>(&snapshots::cut()).await;
        until_gone::<VolumeSnapshot>(&mut world).await;
        until_gone::<VolumeSnapshotContent>(&mut world).await;
        world.events("cut").await;
        let (requests, missed) = since(&world, before);
        // Content marked, deleted; read before the driver is asked, let go; snapshot let go.
        assert_eq!(requests.len(), 5, "round {round}: {requests:#?}");
        assert!(!missed, "{requests:#?}");
    }
}

/// When many volumes come off at once, those who look at them share lists.
#[tokio::test(start_paused = true)]
async fn many_detachments_at_once_cost_less_than_two_requests_each() {
    const ALL: usize = 60;
    let mut world = settled().await;
    world.add_claim("fast").await;
    world.until_settled().await;
    let volume = world
        .volume()
        .await
        .expect("there is a volume")
        .metadata
        .name;
    for number in 0..ALL {
        let node = format!("many-{number}");
        world.add_node(&node, "a").await;
        let body = serde_json::json!({
            "metadata": {"name": format!("at-{node}")},
            "spec": {"attacher": NAME, "nodeName": node, "source": {"persistentVolumeName": volume}},
        });
        world.create::<VolumeAttachment>(body).await;
    }
    let attached = |cluster: orlop_runtime::Cluster, _| async move {
        let all = cluster.list::<VolumeAttachment>(None).await?;
        Ok(all.iter().all(|one| one.status.attached))
    };
    world.until("all are attached", attached).await;
    world.events("data").await;
    let before = world.requests().len();
    let gone = (0..ALL).map(|number| {
        let (world, key) = (&world, Key::cluster(format!("at-many-{number}")));
        async move { world.delete::<VolumeAttachment>(&key).await }
    });
    futures::future::join_all(gone).await;
    until_gone::<VolumeAttachment>(&mut world).await;
    world.events("data").await;
    let (requests, missed) = since(&world, before);
    let lists = requests
        .iter()
        .filter(|what| what.ends_with("/volumeattachments"));
    assert!(lists.count() > 0, "{requests:#?}");
    assert!(requests.len() < 2 * ALL, "{} requests", requests.len());
    assert!(!missed, "{requests:#?}");
    assert_eq!(world.fake.calls("ControllerUnpublishVolume"), ALL);
}
