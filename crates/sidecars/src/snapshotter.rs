//! Lets a driver cut and delete snapshots, single ones and groups, and tells how they are.
//!
//! Owns: the status of VolumeSnapshotContents and VolumeGroupSnapshotContents, their
//! `being-created` annotation, the end of their finalizer, and the calls CreateSnapshot,
//! DeleteSnapshot, GetSnapshot, ListSnapshots and those of groups. Which contents there are, and
//! which may go, is the [`snapshot_controller`](crate::snapshot_controller)'s business.
//!
//! ```text
//!  a volume's content --being-created--> CreateSnapshot --+-- its id on record -- ready -- over
//!     ^                                                   |
//!     +--- uncertain: asked again, also while it goes ----+-- final: nothing is there, told
//!
//!  it goes, and may: DeleteSnapshot (policy Delete, not in a group) -- finalizer off -- gone
//! ```
//!
//! Must never: ask for a snapshot that no content records; let a content go while the outcome of
//! a call is unknown; delete a group's member by itself.

use std::{sync::Arc, time::Duration};

use orlop_csi::{
    Driver, DriverInfo,
    client::{ControllerCapability, GroupCapability},
};
use orlop_model::{Key, Kind as _, VolumeGroupSnapshotContent, VolumeSnapshotContent};
use orlop_runtime::{Backoff, Change, Outcome, Process, Queue, Recorder, work};
use tracing::info;

use crate::{
    homecoming::hurry_when_back,
    patience::{Patience, RetryMetrics},
    provisioner::introduce,
    served::until_served,
};

mod content;
mod decide;
mod desk;
mod group;
mod orphans;
mod single;

use content::Content;
use desk::Desk;
use orphans::UnderWay;

/// Look again at once: what was decided on had changed.
const AGAIN: Outcome = Outcome::After(Duration::ZERO);

/// How a snapshotter works.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the driver's names of snapshots begin.
    pub name_prefix: String,
    /// How much of the snapshot's uid, less its dashes, follows; `None` for all of it as it is.
    pub name_uid_length: Option<usize>,
    /// How the driver's names of groups begin.
    pub group_name_prefix: String,
    /// As `name_uid_length`, for groups.
    pub group_name_uid_length: Option<usize>,
    /// Whether the driver is told the names of the objects.
    pub extra_create_metadata: bool,
    /// The node whose contents alone are looked after, for a snapshotter on every node.
    pub node: Option<String>,
    /// Whether groups are looked after, if the driver can.
    pub groups: bool,
    /// Contents that are worked on at once.
    pub workers: usize,
    /// Waits between tries; the longest is also that of what can't go well.
    pub retry: Backoff,
    /// Where waits are counted.
    pub metrics: RetryMetrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name_prefix: "snapshot".to_owned(),
            name_uid_length: None,
            group_name_prefix: "groupsnapshot".to_owned(),
            group_name_uid_length: None,
            extra_create_metadata: false,
            node: None,
            groups: true,
            workers: 10,
            retry: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(300),
            },
            metrics: RetryMetrics::default(),
        }
    }
}

/// Starts the snapshotter of a driver. It waits for the driver to be ready, and for the API
/// server to know snapshots.
pub fn start(process: &Process, driver: Driver, config: Config) {
    let on = process.clone();
    process.keep("snapshotter", move || {
        let (on, driver, config) = (on.clone(), driver.clone(), config.clone());
        async move {
            let info = introduce(&driver, config.retry).await;
            if !info.can(ControllerCapability::CreateDeleteSnapshot) {
                info!(driver = info.name, "the driver cuts no snapshots");
                return;
            }
            let recorder = on.recorder(&format!("csi-snapshotter {}", info.name));
            let groups = config.groups
                && info
                    .group
                    .contains(&GroupCapability::CreateDeleteGetVolumeGroupSnapshot);
            let single = run::<VolumeSnapshotContent>(&on, &driver, &info, &config, &recorder);
            let grouped = async {
                if groups {
                    run::<VolumeGroupSnapshotContent>(&on, &driver, &info, &config, &recorder)
                        .await;
                }
            };
            tokio::join!(single, grouped);
        }
    });
}

async fn run<K: Content>(
    process: &Process,
    driver: &Driver,
    info: &Arc<DriverInfo>,
    config: &Config,
    recorder: &Recorder,
) {
    until_served::<K>(&process.cluster).await;
    until_served::<K::Class>(&process.cluster).await;
    info!(driver = info.name, kind = K::KIND, "snapshotting");
    let desk = Desk::<K> {
        cluster: process.cluster.clone(),
        clock: process.clock,
        driver: driver.clone(),
        info: info.clone(),
        contents: process.cache(),
        classes: process.cache(),
        recorder: recorder.clone(),
        patience: Patience::new(
            K::NAMES.controller,
            config.retry,
            process.clock,
            config.metrics.clone(),
        ),
        under_way: UnderWay::default(),
        config: config.clone(),
    };
    let queue = Queue::<Key>::new(config.retry).measured(&process.metrics, K::NAMES.queue);
    let (wake, name) = (queue.clone(), info.name.clone());
    desk.contents.subscribe(move |change| {
        let content = change.object();
        let look = match change {
            Change::Applied { old, new } => old.is_none_or(|old| stirs(&**old, new)),
            // A cut may be under way for it.
            Change::Deleted(_) => true,
        };
        if look && content.driver() == name {
            wake.add(content.key());
        }
    });
    // A content that waits for its class, or for another one, is woken by it.
    let (wake, waiting) = (queue.clone(), desk.contents.clone());
    desk.classes.subscribe(move |change| {
        if let Change::Applied { new, .. } = change {
            let class = &new.meta().name;
            let all = waiting.all();
            let of_class = all.iter().filter(|content| {
                content.class_name() == Some(class) && content.error_message().is_some()
            });
            of_class.for_each(|content| wake.add(content.key()));
        }
    });
    desk.contents.synced().await;
    desk.classes.synced().await;
    tokio::join!(
        work(queue.clone(), config.workers, |key| desk.turn(key)),
        hurry_when_back(driver, config.retry, || queue.hurry()),
    );
}

/// Whether a change can change what is decided. What we write ourselves must not cut a backoff
/// short.
fn stirs<K: Content>(old: &K, new: &K) -> bool {
    fn matters<K: Content>(content: &K) -> impl PartialEq + use<K> {
        let (view, meta) = (content.view(), content.meta());
        (
            meta.uid.clone(),
            (view.deleting, view.being_deleted, view.unbound, view.ready),
            (view.policy, view.origin),
            content.class_name().map(str::to_owned),
            // A member's id comes from the snapshot controller.
            view.origin == decide::Origin::Member && view.handle,
        )
    }
    matters(old) != matters(new)
}
