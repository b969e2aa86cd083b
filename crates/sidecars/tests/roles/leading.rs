//! Leader election on the embedded API server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use orlop_model::{Key, Lease};
use orlop_runtime::{Clock, Cluster, Election, Patch, Renewal};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    fuse::{Fuse, Fused},
    world::World,
};

fn lease() -> Key {
    Key::namespaced("default", "leader")
}

/// A way to the API server that counts requests.
fn counted(world: &World) -> (Cluster, Fuse) {
    let fuse = Fuse::never();
    let service = Fused {
        inner: world.service(),
        fuse: fuse.clone(),
    };
    let client = kube::Client::new(service, "default");
    (Cluster::new(client), fuse)
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_with_one_request_and_sees_at_once_who_took_over() {
    let world = World::new().await;
    let clock = Clock::system();
    let (cluster, fuse) = counted(&world);
    let election = Election::new(lease(), "first".into());
    election.win(&cluster, &clock).await;
    let renewals: Arc<Mutex<Vec<Renewal>>> = Arc::default();
    let told = renewals.clone();
    let tell = move |renewal| told.lock().expect("nobody panics").push(renewal);
    let holding = tokio::spawn({
        let (election, cluster) = (election.clone(), cluster.clone());
        async move { election.hold_telling(&cluster, &clock, tell).await }
    });
    // The first renewal looks.
    sleep(Duration::from_secs(6)).await;
    let before = fuse.requests().len();
    sleep(Duration::from_secs(50)).await;
    assert_eq!(fuse.requests().len() - before, 10, "{:?}", fuse.requests());

    // Somebody touches it: that is seen, and it is kept.
    let label = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    let touched = world.cluster.patch::<Lease>(&lease(), &label).await;
    touched.expect("it is there");
    sleep(Duration::from_secs(6)).await;
    let so_far = renewals.lock().expect("nobody panics").clone();
    assert_eq!(so_far.last(), Some(&Renewal::AfterALook));
    assert!(
        so_far[..so_far.len() - 1]
            .iter()
            .all(|one| *one == Renewal::AtOnce)
    );
    assert!(!holding.is_finished());

    // Somebody takes it.
    let taken = Patch::Merge(json!({"spec": {"holderIdentity": "second"}}));
    let taken = world.cluster.patch::<Lease>(&lease(), &taken).await;
    taken.expect("it is there");
    let lost = timeout(Duration::from_secs(6), holding).await;
    assert_eq!(lost.expect("at the next try").expect("no panic").0, lease());
    let now = world.cluster.get::<Lease>(&lease()).await;
    let holder = now
        .expect("it answers")
        .expect("it is there")
        .spec
        .holder_identity;
    assert_eq!(holder.as_deref(), Some("second"), "nothing was taken back");
}
