//! Makes volumes for claims, and deletes them when their claims are gone.
//!
//! Owns: the intent finalizer on claims, PersistentVolume objects until the binder takes
//! over, the finalizer that keeps them while the volume behind them exists, and the calls
//! CreateVolume and DeleteVolume.
//!
//! Must never: call CreateVolume before the intent is on the claim; forget an intent whose
//! outcome it doesn't know; call DeleteVolume for a volume that a live read doesn't show to
//! be released, detached and without its claim; show a secret's value.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use orlop_csi::{
    Driver, DriverInfo,
    client::{ControllerCapability, PluginService},
    proto::NodeGetInfoRequest,
};
use orlop_model::{
    Claim, CsiNode, Node, StorageClass, Volume, VolumeAttachment, well_known::attacher_finalizer,
};
use orlop_runtime::{Backoff, Change, Joint, Outcome, Process, Queue, work};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::{homecoming::hurry_when_back, patience::Patience};

mod attributes;
mod bids;
mod claims;
mod decide;
mod identity;
mod intent;
mod metrics;
mod migration;
mod no_room;
pub(crate) mod parameters;
mod places;
mod prepare;
mod reclaim;
mod request;
mod source;
mod sources;
pub(crate) mod topology;
mod unasked;
mod volume;
mod volumes;

pub(crate) use volumes::by_volume as attachments_by_volume;

pub use identity::Identity;
pub use metrics::Metrics;
pub use no_room::MoreRoom;
pub use parameters::ParameterError;
pub use request::Refusal;
pub use source::SourceError;
pub use topology::{Immediate, Spread, TopologyError};

/// Look again at once: what was decided on had changed.
const AGAIN: Outcome = Outcome::After(Duration::ZERO);

/// Whose claims this provisioner serves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Deployment {
    /// One for the cluster.
    #[default]
    Central,
    /// One per node, for claims that were placed on this node and volumes that are there.
    Node {
        /// The node.
        name: String,
        /// Whether, and after which waits, claims that bind immediately are taken; `None`
        /// leaves them to others.
        immediate: Option<Backoff>,
    },
}

impl Deployment {
    /// One per node, with the original's waits for claims that bind immediately.
    pub fn node(name: &str) -> Self {
        Self::Node {
            name: name.to_owned(),
            immediate: Some(Backoff {
                first: Duration::from_secs(20),
                most: Duration::from_secs(60),
            }),
        }
    }
}

/// How a provisioner works.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who it is, by its driver's name and its node's, if it is of one.
    pub identity: fn(&str, Option<&str>) -> Identity,
    /// Whose claims are served.
    pub deployment: Deployment,
    /// Volumes are named after it and the claim's uid.
    pub volume_name_prefix: String,
    /// How much of the uid is in the name, dashes left out; `None` for the uid as it is.
    pub volume_name_uuid_length: Option<usize>,
    /// How far late-binding volumes may be from the selected node.
    pub spread: Spread,
    /// What immediate-binding volumes are told of places.
    pub immediate: Immediate,
    /// The file system of classes that name none.
    pub default_fs_type: String,
    /// Whether the driver is told the names of claim and volume.
    pub extra_create_metadata: bool,
    /// Whether volumes that many nodes may only read are attached to be read only.
    pub controller_publish_readonly: bool,
    /// Whether a snapshot is restored as the other volume mode only with its
    /// administrator's word.
    pub prevent_volume_mode_conversion: bool,
    /// Whether claims may be filled from other namespaces, by ReferenceGrant.
    pub cross_namespace_sources: bool,
    /// How often snapshots are looked through for a finalizer that a crash left; zero for
    /// never.
    pub snapshot_sweep: Duration,
    /// Claims, and volumes, that are worked on at once.
    pub workers: usize,
    /// Waits between tries; the longest is also that of infeasible claims.
    pub retry: Backoff,
    /// Where work is counted.
    pub metrics: Metrics,
    /// What the teller of capacity beside it knows.
    pub more_room: MoreRoom,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            identity: Identity::of_driver,
            deployment: Deployment::Central,
            volume_name_prefix: "pvc".to_owned(),
            volume_name_uuid_length: None,
            spread: Spread::default(),
            immediate: Immediate::default(),
            default_fs_type: String::new(),
            extra_create_metadata: false,
            controller_publish_readonly: false,
            prevent_volume_mode_conversion: true,
            cross_namespace_sources: false,
            snapshot_sweep: Duration::from_secs(300),
            workers: 100,
            retry: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(300),
            },
            metrics: Metrics::default(),
            more_room: MoreRoom::default(),
        }
    }
}

impl Config {
    /// The name of a claim's volume, the same every time.
    fn volume_name(&self, claim: &Claim) -> String {
        let (prefix, uid) = (&self.volume_name_prefix, &claim.metadata.uid);
        match self.volume_name_uuid_length {
            None => format!("{prefix}-{uid}"),
            Some(length) => {
                let digits: String = uid.chars().filter(|c| *c != '-').take(length).collect();
                format!("{prefix}-{digits}")
            }
        }
    }
}

/// Starts the provisioner of a driver. It waits for the driver to be ready.
pub fn start(process: &Process, driver: Driver, config: Config) {
    let on = process.clone();
    process.keep("provisioner", move || {
        let (on, driver, config) = (on.clone(), driver.clone(), config.clone());
        async move {
            let info = introduce(&driver, config.retry).await;
            let place = match &config.deployment {
                Deployment::Central => BTreeMap::new(),
                Deployment::Node { .. } => place_of(&driver, config.retry).await,
            };
            info!(driver = info.name, version = info.version, "provisioning");
            run(&on, driver, &info, place, config).await;
        }
    });
}

/// The driver's name and capabilities, once it is ready.
pub(crate) async fn introduce(driver: &Driver, retry: Backoff) -> std::sync::Arc<DriverInfo> {
    // A driver without Probe is taken to be ready.
    let _ = driver.probe_until_ready().await;
    let mut failures = 0;
    loop {
        match driver.info().await {
            Ok(info) => return info,
            Err(error) => {
                failures += 1;
                warn!(%error, "the driver does not say who it is; asking again");
                // No event tells when a driver recovers.
                sleep(retry.after(failures)).await;
            }
        }
    }
}

pub(crate) async fn place_of(driver: &Driver, retry: Backoff) -> topology::Segment {
    let mut failures = 0;
    loop {
        match driver.node_get_info(NodeGetInfoRequest {}).await {
            Ok(node) => return node.accessible_topology.unwrap_or_default().segments,
            Err(error) => {
                failures += 1;
                warn!(%error, "the driver does not say where it is; asking again");
                // No event tells when a driver recovers.
                sleep(retry.after(failures)).await;
            }
        }
    }
}

async fn run(
    process: &Process,
    driver: Driver,
    info: &DriverInfo,
    place: topology::Segment,
    config: Config,
) {
    let node = match &config.deployment {
        Deployment::Central => None,
        Deployment::Node { name, .. } => Some(name.as_str()),
    };
    let identity = (config.identity)(&info.name, node);
    let recorder = process.recorder(&identity.component);
    let claim_queue = Queue::new(config.retry).measured(&process.metrics, "claims");
    let volume_queue = Queue::new(config.retry).measured(&process.metrics, "volumes");
    let source_queue = Queue::new(config.retry);
    let (workers, retry) = (config.workers, config.retry);
    let patience = Patience::new(
        "provisioner",
        config.retry,
        process.clock,
        config.metrics.retries.clone(),
    );
    let needed = sources::by_need(&process.cache());
    let sources = Arc::new(sources::Sources {
        cluster: process.cluster.clone(),
        name: info.name.clone(),
        claims: process.cache(),
        volumes: process.cache(),
        needed: needed.clone(),
        guard: if config.prevent_volume_mode_conversion {
            source::ModeGuard::On
        } else {
            source::ModeGuard::Off
        },
        across: config.cross_namespace_sources,
        readiness: sources::Readiness::new(process, needed.clone(), &claim_queue),
        recorder: recorder.clone(),
        wake: source_queue.clone(),
        beginnings: sources::Beginnings::default(),
    });
    let prepare = prepare::Prepare {
        cluster: process.cluster.clone(),
        driver: driver.clone(),
        name: info.name.clone(),
        places: info
            .serves(PluginService::VolumeAccessibilityConstraints)
            .then(|| places::Places {
                nodes: process.cache(),
                csi_nodes: process.cache(),
            }),
        sources: sources.clone(),
        attributes: attributes::AttributesClasses::new(process, &claim_queue),
        here: place.clone(),
        config: config.clone(),
        plans: prepare::Plans::default(),
    };
    let no_room = Arc::new(no_room::NoRoom::new(config.retry));
    let hope = Hope {
        no_room: no_room.clone(),
        claims: claim_queue.clone(),
    };
    let claims = claims::Claims {
        cluster: process.cluster.clone(),
        driver: driver.clone(),
        name: info.name.clone(),
        claims: process.cache(),
        classes: process.cache(),
        volumes: process.cache(),
        prepare,
        sources: sources.clone(),
        recorder: recorder.clone(),
        herald: process.recorder("external-provisioner"),
        patience: patience.clone(),
        maker: identity.maker,
        bids: bids::Bids::default(),
        no_room,
        binder: unasked::Binder::default(),
        shelves: unasked::Shelves::new(&process.cache()),
        config: config.clone(),
    };
    let volumes = volumes::Volumes {
        cluster: process.cluster.clone(),
        driver: driver.clone(),
        name: info.name.clone(),
        place,
        volumes: process.cache(),
        claims: process.cache(),
        attacher: info
            .can(ControllerCapability::PublishUnpublishVolume)
            .then(|| attacher_finalizer(&info.name)),
        classes: process.cache(),
        attachments: volumes::by_volume(&process.cache()),
        attached: Joint::new(process.cluster.clone()),
        recorder,
        patience,
        config,
    };

    let sweep_every = match info.can(ControllerCapability::CreateDeleteSnapshot) {
        true => claims.config.snapshot_sweep,
        false => Duration::ZERO,
    };

    feed_claims(process, info, &hope, &claims.binder);
    sources::feed(process, needed, &claim_queue, &source_queue);
    feed_volumes(process, &hope, &volume_queue, &info.name);
    claims.synced().await;
    process.cache::<VolumeAttachment>().synced().await;
    let hurry = || {
        hope.arise();
        claim_queue.hurry();
        volume_queue.hurry();
    };
    tokio::join!(
        work(claim_queue.clone(), workers, |key| claims.turn(key)),
        work(volume_queue.clone(), workers, |name| volumes.turn(name)),
        hurry_when_back(&driver, retry, hurry),
        hope.heed(&claims.config.more_room),
        sources.sweep(sweep_every, &source_queue),
        work(source_queue.clone(), 1, |origin| sources.turn(origin)),
    );
}

/// Wakes claims up that found no room anywhere, when there may be some.
#[derive(Clone)]
struct Hope {
    no_room: Arc<no_room::NoRoom>,
    claims: Queue<orlop_model::Key>,
}

impl Hope {
    fn arise(&self) {
        for claim in self.no_room.hope() {
            self.claims.add(claim);
        }
    }

    /// Does so whenever more capacity is told.
    async fn heed(&self, more_room: &MoreRoom) {
        loop {
            more_room.told().await;
            self.arise();
        }
    }
}

/// Wakes claims up: by their own changes, their class's and their node's.
fn feed_claims(process: &Process, info: &DriverInfo, hope: &Hope, binder: &unasked::Binder) {
    let queue = &hope.claims;
    let claims = process.cache::<Claim>();
    let by_class = claims.index("provisioner.class", |claim| {
        let waiting = claim.spec.volume_name.is_empty();
        let class = claim.class().filter(|_| waiting);
        class.map(str::to_owned).into_iter().collect()
    });
    let (name, wake, binder) = (info.name.clone(), queue.clone(), binder.clone());
    claims.subscribe(move |change| {
        let Change::Applied { old, new } = change else {
            return;
        };
        let ours = decide::is_for(new, &name);
        if ours {
            binder.asked(new);
        }
        if (ours || (binder.gives_way() && decide::is_unasked(new)))
            && old.is_none_or(|old| claims::stirs(old, new))
        {
            wake.add(orlop_model::Kind::key(&***new));
        }
    });
    let (name, wake) = (info.name.clone(), queue.clone());
    process.cache::<StorageClass>().subscribe(move |change| {
        if let Change::Applied { old, new } = change
            && old.is_none_or(|old| old.metadata.uid != new.metadata.uid)
        {
            let waiting = by_class.get(&new.metadata.name);
            for claim in waiting.iter().filter(|c| decide::is_for(c, &name)) {
                wake.add(orlop_model::Kind::key(&**claim));
            }
        }
    });
    if info.serves(PluginService::VolumeAccessibilityConstraints) {
        let by_node = claims.index("provisioner.selected-node", |claim| {
            let waiting = claim.spec.volume_name.is_empty();
            let node = claim.selected_node().filter(|_| waiting);
            node.map(str::to_owned).into_iter().collect()
        });
        let (name, wake, hope) = (info.name.clone(), queue.clone(), hope.clone());
        process.cache::<CsiNode>().subscribe(move |change| {
            if let Change::Applied { old, new } = change
                && old.is_none_or(|old| old.driver(&name) != new.driver(&name))
            {
                hope.arise();
                for claim in by_node.get(&new.metadata.name) {
                    wake.add(orlop_model::Kind::key(&*claim));
                }
            }
        });
        // Only read, but it must be there before the first claim is.
        let _nodes = process.cache::<Node>();
    }
}

/// Wakes volumes up: by their own changes and their attachments' end. A volume that is
/// gone wakes its claim, whose intent it may have been the record of, and those that lack room.
fn feed_volumes(process: &Process, hope: &Hope, volumes: &Queue<String>, driver: &str) {
    let (name, wake, hope) = (driver.to_owned(), volumes.clone(), hope.clone());
    process.cache::<Volume>().subscribe(move |change| {
        let volume = change.object();
        // A plugin's own volumes are those of the driver that took its place.
        if orlop_model::migration::source(volume).is_none_or(|c| c.driver != name) {
            return;
        }
        match change {
            Change::Applied { .. } => wake.add(volume.metadata.name.clone()),
            Change::Deleted(_) => {
                if let Some(claim) = &volume.spec.claim_ref {
                    hope.claims.add(claim.key());
                }
                hope.arise();
            }
        }
    });
    let (name, wake) = (driver.to_owned(), volumes.clone());
    process
        .cache::<VolumeAttachment>()
        .subscribe(move |change| {
            if let Change::Deleted(attachment) = change
                && attachment.spec.attacher == name
            {
                wake.add(attachment.volume_name().to_owned());
            }
        });
}
