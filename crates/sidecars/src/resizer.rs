//! Grows volumes whose claims ask for more, and changes their attributes.
//!
//! Owns: `allocatedResources` and the controller's part of `allocatedResourceStatuses` and of
//! the conditions on claims, `modifyVolumeStatus`, the capacity and the attributes class of
//! PersistentVolumes, and the calls ControllerExpandVolume and ControllerModifyVolume.
//!
//! ```text
//!  request > capacity
//!    -> ControllerResizeInProgress --infeasible--> ControllerResizeInfeasible
//!         | the backend has grown, the volume's object says so
//!         +-> no node's part: the capacity is the new one, over
//!         +-> NodeResizePending -> (the node) NodeResizeInProgress -> over
//!                                             +-> NodeResizeInfeasible -> asked again, slowly
//! ```
//!
//! Must never: ask the driver for a size that is not on record at the claim; go for another
//! size while the outcome of the last one is unknown; say that a claim has a size that the
//! driver has not confirmed.

use std::{sync::Arc, time::Duration};

use orlop_csi::{
    Driver, DriverInfo,
    client::{ControllerCapability, NodeCapability, VolumeExpansion},
};
use orlop_model::{Claim, Key, Kind, Volume, VolumeAttributesClass, migration};
use orlop_runtime::{Backoff, Cache, Change, Outcome, Process, Queue, work};
use tracing::info;

use crate::{
    homecoming::hurry_when_back,
    patience::{Patience, RetryMetrics},
    provisioner::{introduce, place_of},
};

mod area;
mod attributes;
mod desk;
mod growth;
mod in_use;
mod setbacks;

use area::Area;
use growth::{Ability, Moment};

/// Look again at once: what was decided on had changed.
const AGAIN: Outcome = Outcome::After(Duration::ZERO);

/// How a resizer works.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether the driver is told the names of claim and volume when attributes change.
    pub extra_modify_metadata: bool,
    /// The node whose volumes alone are looked after, for a resizer on every node.
    pub node: Option<String>,
    /// Claims that are worked on at once.
    pub workers: usize,
    /// Waits between tries; the longest is also that of infeasible sizes and attributes.
    pub retry: Backoff,
    /// Where retries are counted.
    pub metrics: RetryMetrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            extra_modify_metadata: false,
            node: None,
            workers: 10,
            retry: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(300),
            },
            metrics: RetryMetrics::default(),
        }
    }
}

/// Starts the resizer of a driver. It waits for the driver to be ready.
pub fn start(process: &Process, driver: Driver, config: Config) {
    let on = process.clone();
    process.keep("resizer", move || {
        let (on, driver, config) = (on.clone(), driver.clone(), config.clone());
        async move {
            let info = introduce(&driver, config.retry).await;
            let area = match &config.node {
                None => Area::Everywhere,
                Some(node) => Area::Node {
                    name: node.clone(),
                    place: place_of(&driver, config.retry).await,
                },
            };
            run(&on, driver, &info, area, config).await;
        }
    });
}

/// Whether a resizer has anything to do with such a driver.
pub fn suits(info: &DriverInfo) -> bool {
    Ability::of(info).is_some() || info.can(ControllerCapability::ModifyVolume)
}

async fn run(
    process: &Process,
    driver: Driver,
    info: &Arc<DriverInfo>,
    area: Area,
    config: Config,
) {
    let ability = Ability::of(info);
    let modifies = info.can(ControllerCapability::ModifyVolume);
    if ability.is_none() && !modifies {
        info!(
            driver = info.name,
            "the driver neither grows nor changes volumes"
        );
        return;
    }
    info!(driver = info.name, version = info.version, "resizing");
    let desk = desk::Desk {
        cluster: process.cluster.clone(),
        claims: process.cache(),
        recorder: process.recorder(&format!("external-resizer {}", info.name)),
    };
    let patience = Patience::new(
        "resizer",
        config.retry,
        process.clock,
        config.metrics.clone(),
    );
    let resizing = async {
        let Some(ability) = ability else { return };
        let queue =
            Queue::new(config.retry).measured(&process.metrics, &format!("{}-pvc", info.name));
        let growth = growth::Growth {
            cluster: process.cluster.clone(),
            desk: desk.clone(),
            clock: process.clock,
            driver: driver.clone(),
            name: info.name.clone(),
            ability,
            area: area.clone(),
            moment: Moment::of(info),
            volumes: process.cache(),
            users: in_use::Users::new(process, queue.clone()),
            setbacks: setbacks::Setbacks::default(),
            patience: patience.clone(),
            retry: config.retry,
        };
        feed(process, &queue, &info.name, growth::stirs);
        process.cache::<Claim>().synced().await;
        process.cache::<Volume>().synced().await;
        tokio::join!(
            work(queue.clone(), config.workers, |key| growth.turn(key)),
            hurry_when_back(&driver, config.retry, || queue.hurry()),
        );
    };
    let modifying = async {
        if !modifies {
            return;
        }
        let queue =
            Queue::new(config.retry).measured(&process.metrics, &format!("{}-pvc", info.name));
        let classes = process.cache::<VolumeAttributesClass>();
        let attributes = attributes::Attributes {
            cluster: process.cluster.clone(),
            desk: desk.clone(),
            clock: process.clock,
            driver: driver.clone(),
            name: info.name.clone(),
            area: area.clone(),
            volumes: process.cache(),
            classes: classes.clone(),
            setbacks: setbacks::Setbacks::default(),
            patience: patience.clone(),
            config: config.clone(),
        };
        feed(process, &queue, &info.name, attributes::stirs);
        wake_by_class(&classes, &process.cache(), &queue);
        process.cache::<Claim>().synced().await;
        process.cache::<Volume>().synced().await;
        // An API server without the kind never gets further than this; growth goes on.
        classes.synced().await;
        tokio::join!(
            work(queue.clone(), config.workers, |key| attributes.turn(key)),
            hurry_when_back(&driver, config.retry, || queue.hurry()),
        );
    };
    tokio::join!(resizing, modifying);
}

/// Wakes claims up: by changes that matter, and when their volume shows up or is said to have
/// other attributes.
fn feed(
    process: &Process,
    queue: &Queue<Key>,
    driver: &str,
    stirs: fn(Option<&Claim>, &Claim) -> bool,
) {
    let wake = queue.clone();
    process.cache::<Claim>().subscribe(move |change| {
        let look = match change {
            Change::Applied { old, new } => {
                !new.spec.volume_name.is_empty() && stirs(old.map(|old| &**old), new)
            }
            // What was remembered of it is forgotten.
            Change::Deleted(_) => true,
        };
        if look {
            wake.add(change.object().key());
        }
    });
    let (wake, name) = (queue.clone(), driver.to_owned());
    process.cache::<Volume>().subscribe(move |change| {
        if let Change::Applied { old, new } = change
            && migration::source(new).is_some_and(|csi| csi.driver == name)
            && let Some(claim) = &new.spec.claim_ref
            && old.is_none_or(|old| {
                let matters = |volume: &Volume| {
                    let spec = &volume.spec;
                    (
                        spec.claim_ref.clone(),
                        spec.volume_attributes_class_name.clone(),
                    )
                };
                matters(old) != matters(new)
            })
        {
            wake.add(claim.key());
        }
    });
}

/// A claim that waits for its attributes class is woken by it.
fn wake_by_class(
    classes: &Cache<VolumeAttributesClass>,
    claims: &Cache<Claim>,
    queue: &Queue<Key>,
) {
    let by_class = claims.index("resizer.attributes-class", |claim| {
        let class = claim.spec.volume_attributes_class_name.clone();
        class.into_iter().collect()
    });
    let wake = queue.clone();
    classes.subscribe(move |change| {
        if let Change::Applied { old: None, new } = change {
            for claim in by_class.get(&new.metadata.name) {
                wake.add(claim.key());
            }
        }
    });
}

/// Takes a conflict for a reason to look again, at what is there now.
async fn look_again<K: Kind>(
    cluster: &orlop_runtime::Cluster,
    cache: &Cache<K>,
    key: &Key,
) -> Result<Outcome, orlop_runtime::ApiError> {
    if let Some(live) = cluster.get::<K>(key).await? {
        cache.absorb(live);
    }
    Ok(AGAIN)
}
