//! Attaches volumes to nodes and takes them off again, as VolumeAttachments ask.
//!
//! Owns: the attacher's finalizer on VolumeAttachments and on PersistentVolumes, the
//! status of VolumeAttachments, and the calls ControllerPublishVolume and
//! ControllerUnpublishVolume.
//!
//! Must never: attach before finalizer and node id are on the VolumeAttachment; let a
//! VolumeAttachment go before the driver said that the volume is off the node; detach for
//! a VolumeAttachment that a live read doesn't show to be deleted, least of all because the
//! driver's list says something else than the VolumeAttachment.

use std::time::Duration;

use orlop_csi::{Driver, DriverInfo, client::ControllerCapability};
use orlop_model::{CsiNode, Volume, VolumeAttachment, well_known::attacher_finalizer};
use orlop_runtime::{Backoff, Change, Joint, Process, Queue, work};
use tokio::sync::Semaphore;
use tracing::info;

use crate::{
    homecoming::hurry_when_back,
    patience::{Patience, RetryMetrics},
    provisioner::introduce,
};

mod attachments;
mod decide;
mod lanes;
mod reconcile;
mod sight;
mod volumes;

use decide::Handling;
use lanes::{Lane, Lanes};

/// How an attacher works.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file system of volumes that name none.
    pub default_fs_type: String,
    /// Attachments, and as many detachments, that are worked on at once: how many requests that is, the
    /// API server's answers decide.
    pub workers: usize,
    /// For how many of each the driver is called at once.
    pub calls: usize,
    /// Waits between tries.
    pub retry: Backoff,
    /// How often the driver's list of volumes is compared with what is attached; zero for
    /// never.
    pub reconcile: Duration,
    /// Volumes per page of that list; 0 leaves it to the driver.
    pub max_entries: i32,
    /// Where retries are counted.
    pub metrics: RetryMetrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_fs_type: String::new(),
            workers: 100,
            calls: 10,
            retry: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(300),
            },
            reconcile: Duration::from_secs(60),
            max_entries: 0,
            metrics: RetryMetrics::default(),
        }
    }
}

/// Starts the attacher of a driver. It waits for the driver to be ready.
pub fn start(process: &Process, driver: Driver, config: Config) {
    let on = process.clone();
    process.keep("attacher", move || {
        let (on, driver, config) = (on.clone(), driver.clone(), config.clone());
        async move {
            let info = introduce(&driver, config.retry).await;
            info!(driver = info.name, version = info.version, "attaching");
            run(&on, driver, &info, config).await;
        }
    });
}

async fn run(process: &Process, driver: Driver, info: &DriverInfo, config: Config) {
    let lanes = Lanes::new(config.retry).measured(&process.metrics, "csi-attacher-va");
    let volume_queue = Queue::new(config.retry).measured(&process.metrics, "csi-attacher-pv");
    let finalizer = attacher_finalizer(&info.name);
    let workers = config.workers;
    let handling = if info.can(ControllerCapability::PublishUnpublishVolume) {
        Handling::ByTheDriver
    } else {
        Handling::InNameOnly
    };
    let astray = reconcile::Astray::default();
    let lists = [
        ControllerCapability::ListVolumes,
        ControllerCapability::ListVolumesPublishedNodes,
    ];
    let reconciler = reconcile::Reconciler {
        driver: driver.clone(),
        name: info.name.clone(),
        attachments: process.cache(),
        volumes: process.cache(),
        astray: astray.clone(),
        every: match handling == Handling::ByTheDriver && lists.iter().all(|c| info.can(*c)) {
            true => config.reconcile,
            false => Duration::ZERO,
        },
        max_entries: config.max_entries,
    };
    let patience = Patience::new(
        "attacher",
        config.retry,
        process.clock,
        config.metrics.clone(),
    );
    let retry = config.retry;
    let calls = [config.calls; 2].map(|most| Semaphore::new(most.max(1)));
    let [attaching, detaching] = calls;
    let attachments = attachments::Attachments {
        attaching,
        detaching,
        cluster: process.cluster.clone(),
        clock: process.clock,
        driver: driver.clone(),
        name: info.name.clone(),
        handling,
        finalizer: finalizer.clone(),
        attachments: process.cache(),
        sight: sight::Sight::new(&process.cluster, process.cache()),
        volumes: process.cache(),
        csi_nodes: process.cache(),
        astray,
        patience,
        config,
    };
    let volumes = volumes::Volumes {
        cluster: process.cluster.clone(),
        finalizer,
        volumes: process.cache(),
        attachments: crate::provisioner::attachments_by_volume(&process.cache()),
        attached: Joint::new(process.cluster.clone()),
    };
    feed(process, info, &lanes, &volume_queue);
    attachments.synced().await;
    tokio::join!(
        lanes.work(Lane::Attach, workers, |name| attachments.turn(name)),
        lanes.work(Lane::Detach, workers, |name| attachments.turn(name)),
        work(volume_queue, workers, |name| volumes.turn(name)),
        reconciler.run(&lanes),
        hurry_when_back(&driver, retry, || lanes.hurry()),
    );
}

/// Whether a change of an attachment can change what is decided. Errors and the node id are
/// what we write ourselves; they must not cut a backoff short.
fn stirs(old: &VolumeAttachment, new: &VolumeAttachment) -> bool {
    fn matters(a: &VolumeAttachment) -> impl PartialEq {
        (
            a.metadata.uid.clone(),
            a.metadata.is_deleting(),
            a.status.attached,
        )
    }
    matters(old) != matters(new)
}

fn feed(process: &Process, info: &DriverInfo, lanes: &Lanes, volume_queue: &Queue<String>) {
    let cache = process.cache::<VolumeAttachment>();
    let (name, wake, wake_volume) = (info.name.clone(), lanes.clone(), volume_queue.clone());
    cache.subscribe(move |change| {
        let attachment = change.object();
        if attachment.spec.attacher != name {
            return;
        }
        match change {
            Change::Applied { old, new } => {
                if old.is_none_or(|old| stirs(old, new)) {
                    wake.add(new);
                }
            }
            Change::Deleted(_) => wake_volume.add(attachment.volume_name().to_owned()),
        }
    });
    // An attachment that waits for its volume or its node is woken by them.
    let by_volume = crate::provisioner::attachments_by_volume(&cache);
    let finalizer = attacher_finalizer(&info.name);
    let (wake, wake_volume) = (lanes.clone(), volume_queue.clone());
    process.cache::<Volume>().subscribe(move |change| {
        if let Change::Applied { old, new } = change {
            if old.is_none() {
                by_volume
                    .get(&new.metadata.name)
                    .iter()
                    .for_each(|a| wake.add(a));
            }
            if new.metadata.is_deleting() && new.metadata.has_finalizer(&finalizer) {
                wake_volume.add(new.metadata.name.clone());
            }
        }
    });
    let by_node = cache.index("attacher.node", |a| vec![a.spec.node_name.clone()]);
    let (name, wake) = (info.name.clone(), lanes.clone());
    process.cache::<CsiNode>().subscribe(move |change| {
        if let Change::Applied { old, new } = change
            && old.is_none_or(|old| old.driver(&name) != new.driver(&name))
        {
            let waiting = by_node.get(&new.metadata.name);
            let waiting = waiting.iter().filter(|a| !a.status.attached);
            waiting.for_each(|a| wake.add(a));
        }
    });
}

#[cfg(test)]
mod tests;
