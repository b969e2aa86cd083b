//! Brings VolumeSnapshots and their contents together, and group snapshots and theirs: binds
//! those that belong to each other, makes contents for those that ask for a cut, tells users how
//! far it is, and lets go of both in the right order.
//!
//! Owns: the finalizers and status of VolumeSnapshots and VolumeGroupSnapshots; the existence of
//! the contents that are made for them, and their `being-deleted` annotation; the members of a
//! group; the finalizer that keeps a claim while it is cut. The driver is the business of the
//! [`snapshotter`](crate::snapshotter).
//!
//! ```text
//!  VolumeSnapshot --finalizers--> claim held --> content made --> (the snapshotter cuts) --> ready
//!     deleted --> nobody restores --> content marked and deleted --> (the snapshotter) --> gone
//! ```
//!
//! Must never: make a content for a snapshot that a deletion could take away unseen; delete a
//! content while a volume is being made from it, or a group's member while its group is there;
//! touch a content that does not point back.

use std::{sync::Arc, time::Duration};

use orlop_model::{
    Claim, Key, Kind as _, Volume, VolumeGroupSnapshot, VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
};
use orlop_runtime::{Backoff, Change, Outcome, Process, Queue, work};
use tracing::info;

use crate::served::until_served;

mod bench;
mod contents;
mod decide;
mod depart;
mod group;
mod make;
mod members;
mod metrics;
mod parting;
mod shop;
mod single;
mod sources;
mod wish;

use bench::Bench;
pub use metrics::Metrics;
use shop::Shop;

/// Look again at once: what was decided on had changed.
const AGAIN: Outcome = Outcome::After(Duration::ZERO);

/// How a snapshot controller works.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether group snapshots are looked after, once the API server knows them.
    pub groups: bool,
    /// Whether a content records what its volume was, so that nobody reads a device as files.
    pub prevent_volume_mode_conversion: bool,
    /// Whether contents are labelled with the node whose snapshotter looks after them.
    pub distributed: bool,
    /// Objects of a kind that are worked on at once.
    pub workers: usize,
    /// Waits between tries; the longest is also that of what can't go well.
    pub retry: Backoff,
    /// Where work and waits are counted.
    pub metrics: Metrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            groups: true,
            prevent_volume_mode_conversion: true,
            distributed: false,
            workers: 10,
            retry: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(300),
            },
            metrics: Metrics::default(),
        }
    }
}

/// Starts the snapshot controller. It waits for the API server to know snapshots.
pub fn start(process: &Process, config: Config) {
    let on = process.clone();
    process.keep("snapshot-controller", move || {
        let (on, config) = (on.clone(), config.clone());
        async move {
            until_served::<VolumeSnapshot>(&on.cluster).await;
            until_served::<VolumeSnapshotContent>(&on.cluster).await;
            until_served::<VolumeSnapshotClass>(&on.cluster).await;
            info!("looking after snapshots");
            config.metrics.begin_anew();
            let shop = Arc::new(Shop::new(&on, config.clone()));
            let groups = async {
                if config.groups {
                    run_groups(&on, &shop).await;
                }
            };
            tokio::join!(run_single(&on, &shop), groups);
        }
    });
}

async fn run_single(process: &Process, shop: &Arc<Shop>) {
    let bench: Bench<VolumeSnapshot> = Bench::new(process, shop);
    let wishes = shop.singles.clone();
    let contents = queue(process, shop, "content");
    let sources = Queue::new(shop.config.retry);
    feed_snapshots(shop, &wishes, &contents, &sources);
    feed_by_claims(shop, &wishes, &sources);
    let wake = wishes.clone();
    let all = bench.wishes.clone();
    bench.classes.subscribe(move |change| {
        if let Change::Applied { .. } = change {
            let waiting = all.all().into_iter().filter(|one| !one.is_ready());
            waiting.for_each(|one| wake.add(one.key()));
        }
    });
    bench.synced().await;
    shop.claims.synced().await;
    shop.volumes.synced().await;
    let workers = shop.config.workers;
    tokio::join!(
        work(wishes, workers, |key| bench.turn(key)),
        work(contents, workers, |key| bench.content_turn(key)),
        work(sources, workers, |key| sources::turn(shop, key)),
    );
}

fn feed_snapshots(shop: &Shop, wishes: &Queue<Key>, contents: &Queue<Key>, sources: &Queue<Key>) {
    let (wake, held, own) = (wishes.clone(), sources.clone(), contents.clone());
    let metrics = shop.config.metrics.clone();
    shop.snapshots.subscribe(move |change| {
        let snapshot = change.object();
        if let Change::Deleted(old) = change {
            metrics.gone(&old.metadata.uid);
            own.add(Key::cluster(old.content_name()));
        }
        if let Some(claim) = &snapshot.spec.source.persistent_volume_claim_name {
            let (over, key) = match change {
                Change::Applied { new, .. } => (new.is_ready(), new.key()),
                Change::Deleted(old) => (true, old.key()),
            };
            if over {
                held.add(Key::namespaced(key.namespace, claim));
            }
        }
        if let Change::Applied { old, new } = change
            && old.is_none_or(|old| single::stirs(old, new))
        {
            wake.add(new.key());
        }
    });
    let (wake, own) = (wishes.clone(), contents.clone());
    shop.contents.subscribe(move |change| {
        wake.add(change.object().owner());
        if let Change::Applied { new, .. } = change {
            own.add(new.key());
        }
    });
}

/// Claims that come, are bound or go wake the snapshots of them, and those that they are made from.
fn feed_by_claims(shop: &Shop, wishes: &Queue<Key>, sources: &Queue<Key>) {
    let by_claim = shop.by_claim.clone();
    let (wake, held) = (wishes.clone(), sources.clone());
    shop.claims.subscribe(move |change| {
        let claim = change.object();
        let key = claim.key();
        if let Some(snapshot) = sources::made_from(claim) {
            wake.add(snapshot);
        }
        let waiting = by_claim.get(&key.to_string());
        let waiting = waiting.iter().filter(|one| !one.is_ready());
        waiting.for_each(|one| wake.add(one.key()));
        if sources::is_held(claim) {
            held.add(key);
        }
    });
}

async fn run_groups(process: &Process, shop: &Arc<Shop>) {
    until_served::<VolumeGroupSnapshot>(&process.cluster).await;
    until_served::<VolumeGroupSnapshotContent>(&process.cluster).await;
    until_served::<VolumeGroupSnapshotClass>(&process.cluster).await;
    info!("looking after group snapshots");
    let bench: Bench<VolumeGroupSnapshot> = Bench::new(process, shop);
    // Set once: this runs once.
    let _ = shop.group_contents.set(bench.contents.clone());
    let wishes = queue(process, shop, "group-snapshot");
    let contents = queue(process, shop, "group-content");
    let (wake, own, on) = (wishes.clone(), contents.clone(), shop.clone());
    bench.wishes.subscribe(move |change| match change {
        Change::Applied { old, new } => {
            if old.is_none_or(|old| group::stirs(old, new)) {
                wake.add(new.key());
            }
        }
        Change::Deleted(old) => {
            on.config.metrics.gone(&old.metadata.uid);
            own.add(Key::cluster(old.content_name()));
            // Its members waited for it.
            let all = on.snapshots.all();
            let members = all.iter().filter(|one| single::is_member_of(one, old));
            members.for_each(|one| on.singles.add(one.key()));
        }
    });
    let (wake, own) = (wishes.clone(), contents.clone());
    bench.contents.subscribe(move |change| {
        wake.add(change.object().owner());
        if let Change::Applied { new, .. } = change {
            own.add(new.key());
        }
    });
    let (wake, all) = (wishes.clone(), bench.wishes.clone());
    let unready = move || {
        let waiting = all.all().into_iter().filter(|one| !one.is_ready());
        waiting.for_each(|one| wake.add(one.key()));
    };
    let again = unready.clone();
    bench.classes.subscribe(move |change| {
        if let Change::Applied { .. } = change {
            again();
        }
    });
    shop.claims.subscribe(move |change| {
        if let Change::Applied { old, new } = change
            && old.is_none_or(|old| old.phase() != new.phase())
        {
            unready();
        }
    });
    bench.synced().await;
    shop.claims.synced().await;
    shop.volumes.synced().await;
    let workers = shop.config.workers;
    tokio::join!(
        work(wishes, workers, |key| bench.turn(key)),
        work(contents, workers, |key| bench.content_turn(key)),
    );
}

/// A queue by the original's name.
fn queue(process: &Process, shop: &Shop, of: &str) -> Queue<Key> {
    let name = format!("snapshot-controller-{of}");
    Queue::new(shop.config.retry).measured(&process.metrics, &name)
}

/// Caches of kinds that both of the controller's halves read.
type Claims = orlop_runtime::Cache<Claim>;
type Volumes = orlop_runtime::Cache<Volume>;
