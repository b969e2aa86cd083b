//! Tells the scheduler how much room a driver has, per class and place, as
//! CSIStorageCapacity objects.
//!
//! Owns: the objects in its namespace that carry its labels, and the call GetCapacity.
//!
//! One pass at a time: what should be told follows from classes and places, what is told
//! from a list of the objects; the difference is written. A pass follows a change of
//! classes, nodes or volumes at once, though not more often than once a second, and the poll
//! interval otherwise: nobody tells when a backend fills up by other means.
//!
//! Must never: touch an object without its labels; write what is written already.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use orlop_csi::{
    Driver, DriverInfo,
    client::{ControllerCapability, PluginService},
    proto::{GetCapacityRequest, Topology},
};
use orlop_model::{
    Claim, CsiNode, CsiStorageCapacity, Kind, Node, OwnerReference, StorageClass, Volume,
};
use orlop_runtime::{
    ApiError, Backoff, Bucket, Cache, Cap, Change, Cluster, Patch, Preconditions, Process,
};
use serde_json::json;
use tokio::{sync::Notify, time::Instant};
use tracing::{debug, info, warn};

use crate::provisioner::{
    Deployment, MoreRoom, introduce, place_of,
    topology::{self, Segment},
};

mod board;
mod metrics;
mod owner;

use board::{Board, Manager, Room, Spot};
pub use metrics::Metrics;
pub use owner::{Above, OwnerError};

/// The least time between two passes.
const GAP: Duration = Duration::from_secs(1);

/// How capacity is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the objects are.
    pub namespace: String,
    /// One teller for the cluster, or one per node for the place of that node.
    pub deployment: Deployment,
    /// Whether classes that bind immediately are told of, too.
    pub immediate: bool,
    /// How often the driver is asked when nothing changes.
    pub poll: Duration,
    /// Who takes the objects along when it goes; `None` for nobody.
    pub owner: Option<Above>,
    /// Calls that are made at once.
    pub workers: usize,
    /// The most that is asked of the API server.
    pub cap: Option<Cap>,
    /// Waits between tries.
    pub retry: Backoff,
    /// Where objects are counted.
    pub metrics: Metrics,
    /// Who wants to know of more room: the provisioner beside it.
    pub more_room: MoreRoom,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            deployment: Deployment::Central,
            immediate: false,
            poll: Duration::from_secs(60),
            owner: None,
            workers: 1,
            cap: None,
            retry: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(300),
            },
            metrics: Metrics::default(),
            more_room: MoreRoom::default(),
        }
    }
}

/// Starts telling a driver's capacity. It waits for the driver to be ready.
pub fn start(process: &Process, driver: Driver, config: Config) {
    let on = process.clone();
    process.keep("capacity", move || {
        let (on, driver, config) = (on.clone(), driver.clone(), config.clone());
        async move {
            let info = introduce(&driver, config.retry).await;
            if !info.can(ControllerCapability::GetCapacity) {
                warn!(
                    driver = info.name,
                    "the driver can not tell its capacity: it lacks the GET_CAPACITY capability"
                );
                return;
            }
            info!(driver = info.name, "telling capacity");
            run(&on, driver, &info, config).await;
        }
    });
}

/// What was heard of since the last pass.
#[derive(Default)]
struct News {
    /// Classes whose room may have changed; `None` in it for all.
    stale: Mutex<BTreeSet<Option<String>>>,
    heard: Notify,
}

impl News {
    fn hear(&self, class: Option<String>) {
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        stale.insert(class);
        drop(stale);
        self.heard.notify_one();
    }

    fn take(&self) -> BTreeSet<Option<String>> {
        std::mem::take(&mut *self.stale.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn run(process: &Process, driver: Driver, info: &Arc<DriverInfo>, config: Config) {
    let fixed = match &config.deployment {
        Deployment::Central => None,
        Deployment::Node { .. } => Some(place_of(&driver, config.retry).await),
    };
    let owner = match &config.owner {
        None => None,
        Some(above) => Some(above.insist(&process.cluster, config.retry).await),
    };
    let placed = info.serves(PluginService::VolumeAccessibilityConstraints);
    let news = Arc::new(News::default());
    feed(process, &info.name, fixed.is_none() && placed, &news);
    let teller = Teller {
        cluster: process.cluster.clone(),
        driver,
        name: info.name.clone(),
        manager: Manager::of(&info.name, &config.deployment),
        owner,
        classes: process.cache(),
        places: match (fixed, placed) {
            (Some(place), _) => Places::Here(place),
            (None, false) => Places::Here(Segment::new()),
            (None, true) => Places::Nodes(process.cache(), process.cache()),
        },
        bucket: config.cap.map(Bucket::new),
        config,
    };
    process.cache::<Claim>().synced().await;
    process.cache::<Volume>().synced().await;
    teller.synced().await;
    teller.tell_for_ever(&news).await;
}

/// Hears of whatever changes the room, or where it is.
fn feed(process: &Process, driver: &str, nodes: bool, news: &Arc<News>) {
    let (name, tell) = (driver.to_owned(), news.clone());
    process.cache::<StorageClass>().subscribe(move |change| {
        let class = change.object();
        if class.provisioner == name {
            tell.hear(Some(class.metadata.name.clone()));
        }
    });
    let (name, tell) = (driver.to_owned(), news.clone());
    process.cache::<Volume>().subscribe(move |change| {
        let volume = change.object();
        let ours = volume.spec.csi.as_ref().is_some_and(|c| c.driver == name);
        let counts = match change {
            Change::Applied { old, new } => {
                old.is_none_or(|old| old.capacity_bytes() != new.capacity_bytes())
            }
            Change::Deleted(_) => true,
        };
        if ours && counts {
            tell.hear(Some(volume.class().to_owned()));
        }
    });
    // A claim that is sent back to the scheduler met a place that is fuller than was told.
    let (name, tell) = (driver.to_owned(), news.clone());
    process.cache::<Claim>().subscribe(move |change| {
        if let Change::Applied {
            old: Some(old),
            new,
        } = change
            && new.provisioner() == Some(&name)
            && old.selected_node().is_some()
            && new.selected_node().is_none()
        {
            tell.hear(new.class().map(str::to_owned));
        }
    });
    if nodes {
        let (name, tell) = (driver.to_owned(), news.clone());
        process.cache::<CsiNode>().subscribe(move |change| {
            let differs = match change {
                Change::Applied { old, new } => {
                    old.is_none_or(|old| old.driver(&name) != new.driver(&name))
                }
                Change::Deleted(_) => true,
            };
            if differs {
                tell.hear(None);
            }
        });
        let tell = news.clone();
        process.cache::<Node>().subscribe(move |change| {
            let differs = match change {
                Change::Applied { old, new } => {
                    old.is_none_or(|old| old.metadata.labels != new.metadata.labels)
                }
                Change::Deleted(_) => true,
            };
            if differs {
                tell.hear(None);
            }
        });
    }
}

/// Where room is asked for.
enum Places {
    /// One place, which may be everywhere.
    Here(Segment),
    /// Wherever the driver runs.
    Nodes(Cache<Node>, Cache<CsiNode>),
}

struct Teller {
    cluster: Cluster,
    driver: Driver,
    name: String,
    manager: Manager,
    owner: Option<OwnerReference>,
    classes: Cache<StorageClass>,
    places: Places,
    bucket: Option<Bucket>,
    config: Config,
}

impl Teller {
    async fn synced(&self) {
        self.classes.synced().await;
        if let Places::Nodes(nodes, csi_nodes) = &self.places {
            nodes.synced().await;
            csi_nodes.synced().await;
        }
    }

    /// Waits until the API server may be asked.
    async fn turn(&self) {
        if let Some(bucket) = &self.bucket {
            bucket.turn().await;
        }
    }

    async fn tell_for_ever(&self, news: &News) {
        let mut next_poll = Instant::now();
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let stale = news.take();
            let all = begun >= next_poll || stale.contains(&None);
            if begun >= next_poll {
                next_poll = begun + self.config.poll;
            }
            match self
                .pass(|class| all || stale.contains(&Some(class.to_owned())))
                .await
            {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    let wait = self.config.retry.after(failures);
                    warn!(
                        error = error.chain(),
                        ?wait,
                        "capacity is not told; will try again"
                    );
                    next_poll = next_poll.min(Instant::now() + wait);
                }
            }
            tokio::time::sleep_until(begun + GAP).await;
            tokio::select! {
                () = news.heard.notified() => {}
                () = tokio::time::sleep_until(next_poll) => {}
            }
        }
    }

    /// Makes what is told equal to what should be; the driver is asked about classes that
    /// are `stale`, and about spots that nothing is told of.
    async fn pass(&self, stale: impl Fn(&str) -> bool) -> Result<(), ApiError> {
        let namespace = self.config.namespace.as_str();
        self.turn().await;
        let told = self
            .cluster
            .list::<CsiStorageCapacity>(Some(namespace))
            .await?;
        let board = Board::new(&self.manager, self.wanted(), told);
        let metrics = &self.config.metrics;
        metrics.shows(board.wanted(), board.told(), board.obsolete().len());
        for object in board.obsolete() {
            let (key, only_if) = (object.key(), Preconditions::unchanged(object));
            self.turn().await;
            match self
                .cluster
                .delete::<CsiStorageCapacity>(&key, &only_if)
                .await
            {
                // It has changed: the next pass judges it anew.
                Err(error) if !error.is_conflict() => return Err(error),
                _ => {}
            }
        }
        let stale: Vec<_> = board
            .spots()
            .filter(|(spot, told)| told.is_none() || stale(&spot.class))
            .map(|(spot, told)| (spot.clone(), told.cloned()))
            .collect();
        let mut writes = stream::iter(stale)
            .map(|(spot, told)| async move { self.refresh(&spot, told.as_ref()).await })
            .buffer_unordered(self.config.workers.max(1));
        let (mut current, mut failed) = (board.told(), Ok(()));
        while let Some(written) = writes.next().await {
            match written {
                Ok(new) => current += usize::from(new),
                // One that is refused must not keep the others from being told.
                Err(error) => failed = Err(error),
            }
        }
        metrics.shows(board.wanted(), current, 0);
        failed
    }

    fn wanted(&self) -> BTreeSet<Spot> {
        let segments = match &self.places {
            Places::Here(segment) => vec![segment.clone()],
            Places::Nodes(nodes, csi_nodes) => {
                let nodes = nodes.all();
                let entries: Vec<_> = nodes
                    .iter()
                    .map(|node| csi_nodes.named(&node.metadata.name))
                    .collect();
                let pairs = nodes.iter().zip(&entries);
                topology::segments(&self.name, pairs.map(|(n, c)| (&**n, c.as_deref())))
            }
        };
        let classes = self.classes.all();
        let told = classes.iter().filter(|class| {
            class.provisioner == self.name && (class.waits_for_consumer() || self.config.immediate)
        });
        told.flat_map(|class| {
            segments.iter().map(|segment| Spot {
                class: class.metadata.name.clone(),
                segment: segment.clone(),
            })
        })
        .collect()
    }

    /// Asks the driver and writes its answer down; tells whether that is something new.
    async fn refresh(
        &self,
        spot: &Spot,
        told: Option<&CsiStorageCapacity>,
    ) -> Result<bool, ApiError> {
        let Some(class) = self.classes.named(&spot.class) else {
            return Ok(false);
        };
        let request = GetCapacityRequest {
            parameters: driver_parameters(&class),
            accessible_topology: (!spot.segment.is_empty()).then(|| Topology {
                segments: spot.segment.clone(),
            }),
            ..GetCapacityRequest::default()
        };
        let room = match self.driver.get_capacity(request).await {
            Ok(reply) => {
                if reply.available_capacity < 0 {
                    let bytes = reply.available_capacity;
                    warn!(
                        class = spot.class,
                        bytes, "the driver says that it has less than no room"
                    );
                }
                Room::told(reply.available_capacity, reply.maximum_volume_size)
            }
            Err(error) => {
                // What was told stands; the next poll asks again.
                warn!(%error, class = spot.class, "the driver does not tell its capacity");
                return Ok(false);
            }
        };
        match told {
            None => {
                let object =
                    self.manager
                        .object(&self.config.namespace, self.owner.as_ref(), spot, &room);
                self.turn().await;
                self.cluster.create(&object).await?;
                Ok(true)
            }
            Some(told) if Room::of(told) == room => Ok(false),
            Some(told) => {
                debug!(class = spot.class, ?room, "capacity changed");
                if room.is_more_than(&Room::of(told)) {
                    self.config.more_room.tell();
                }
                let body = json!({
                    "capacity": room.free_quantity(),
                    "maximumVolumeSize": room.largest_quantity(),
                });
                let patch = Patch::merge_on(told, body);
                let key = told.key();
                self.turn().await;
                match self.cluster.patch::<CsiStorageCapacity>(&key, &patch).await {
                    // Somebody changed or removed it: the next pass sees what is there.
                    Err(error) if !(error.is_conflict() || error.is_not_found()) => Err(error),
                    _ => Ok(false),
                }
            }
        }
    }
}

/// A class's parameters, without those that are Kubernetes' own.
fn driver_parameters(class: &StorageClass) -> BTreeMap<String, String> {
    let own = orlop_model::well_known::CSI_PARAMETER_PREFIX;
    let all = class
        .parameters
        .iter()
        .filter(|(key, _)| !key.starts_with(own));
    all.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
