//! The node: the kubelet's storage half, and a pod runner.
//!
//! From "a pod was placed here" to "its processes run and see their volumes", and back.
//! The folder has the kubelet's layout; drivers register over the kubelet's plugin
//! registration; what a pod needs is decided by two pure functions, one per volume
//! (`volumes::decide`) and one per pod (`pods::decide`), and carried out by thin shells.
//!
//! Invariants:
//! - Pods outlive this role: it may be killed at any instruction, and its successor takes
//!   over what runs and what is mounted.
//! - An effect is on record before it happens and until its reverse is certain.
//! - Nothing is unmounted while a container that may use it runs, and nothing at all
//!   before the pods of this node have been read from the API server.
//! - Nothing is removed across a mount point.
//!
//! Seams, each with a real and a simulated side: [`Runner`] (containers),
//! [`DriverConnector`] (drivers), [`Registrations`] (who registers).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use orlop_model::{Claim, CsiDriver, Node as NodeObject, Pod};
use orlop_runtime::{Backoff, Change, Joint, Process, Queue, work};
use tokio::sync::Notify;

mod checkpoint;
mod drivers;
mod identity;
mod layout;
mod plugins;
mod pods;
mod registration;
mod returns;
mod runner;
mod stats;
mod subpaths;
mod volumes;
mod words;
mod workers;

pub use drivers::{DriverConnector, SocketDrivers};
pub use layout::{Layout, PodUid, Run, log_path};
pub use registration::{
    Announcement, Announcer, ChannelRegistrations, PluginId, Registrations, Sighting,
    SocketRegistrations, Work,
};
pub use runner::{
    Attempts, ContainerId, CriRunner, Finish, Found, HostRunner, Image, Launch, PodName, Pull,
    Runner, RunnerError, RunningContainer, Tell,
};

/// Pods that are worked on at the same time. Much of a turn may be spent waiting for a container
/// runtime that takes the remains of one pod away, while another's volumes could go.
const PODS_AT_ONCE: usize = 128;
/// Volumes: most of a turn is spent waiting for a driver, and one that hangs keeps its turns.
const VOLUMES_AT_ONCE: usize = 256;

/// Where the kubelet looks for FlexVolume drivers.
pub const VOLUME_PLUGIN_DIR: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec";

/// Who the node is and where it lives.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's name.
    pub name: String,
    /// The kubelet's root folder.
    pub root: PathBuf,
    /// The address that pods and the node report.
    pub address: String,
    /// Labels beside the usual ones.
    pub labels: BTreeMap<String, String>,
    /// How many pods fit.
    pub max_pods: u32,
    /// Folders of the host that containers must find empty.
    pub hidden: Vec<PathBuf>,
    /// Where FlexVolume drivers are.
    pub volume_plugin_dir: PathBuf,
    /// How long such a driver may take for one call; five times that to attach.
    pub flex_deadline: Duration,
    /// How soon a secret that a pod's volume shows is asked for again.
    pub secrets_again: Duration,
    /// Where containers find the API server, as host and port; none tells them nothing.
    pub api_server: Option<(String, u16)>,
    /// How often a driver that wants it is asked again to publish a volume.
    pub republish: Duration,
    /// How long an operation on a volume's files may make no progress before it is given up.
    pub patience: Duration,
}

impl NodeConfig {
    /// A node with the usual traits; its own folder is hidden from containers.
    pub fn new(name: impl Into<String>, root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            name: name.into(),
            hidden: vec![root.clone()],
            root,
            address: "127.0.0.1".to_owned(),
            labels: BTreeMap::new(),
            max_pods: 110,
            volume_plugin_dir: PathBuf::from(VOLUME_PLUGIN_DIR),
            // With that, attaching has the ten minutes that the kubelet waits.
            flex_deadline: Duration::from_mins(2),
            secrets_again: Duration::from_mins(1),
            api_server: None,
            // As often as the kubelet looks at a pod.
            republish: Duration::from_secs(60),
            patience: Duration::from_secs(30),
        }
    }
}

/// What differs between a real node and a simulated one.
pub struct Seams {
    /// Runs containers.
    pub runner: Arc<dyn Runner>,
    /// Reaches drivers.
    pub connector: Arc<dyn DriverConnector>,
    /// Tells who registers.
    pub registrations: Box<dyn Registrations>,
}

/// A node that runs; its tasks live as long as its process.
pub struct RunningNode {
    pods: Arc<pods::Pods>,
    told: NodeStats,
}

/// What a node tells of its volumes to whoever asks. Clones are of the same node.
#[derive(Clone)]
pub struct NodeStats {
    stats: Arc<stats::Stats>,
}

impl NodeStats {
    /// The kubelet's `/stats/summary`, as far as it is about volumes.
    pub async fn summary(&self) -> serde_json::Value {
        self.stats.summary().await
    }

    /// The kubelet's `kubelet_volume_stats_*`, in Prometheus' text form.
    pub async fn metrics(&self) -> String {
        self.stats.metrics().await
    }
}

impl RunningNode {
    /// Stops all pods and takes all volumes away, and returns when that is done; no pod
    /// gets more than `longest` to end by itself. Objects stay as they are, so that the
    /// next node role starts the pods again. Nothing starts any more on this one.
    pub async fn stop_all_pods(&self, longest: Duration) {
        self.pods.stop_all(longest).await;
    }

    /// What the node tells of its volumes.
    pub fn stats(&self) -> NodeStats {
        self.told.clone()
    }
}

/// Ends the programs of FlexVolume drivers that a node role has left running in its folder, and
/// tells how many those were, or what could not be ended.
///
/// # Errors
/// If something stays.
pub async fn end_left_drivers(root: &std::path::Path) -> Result<usize, Vec<String>> {
    plugins::end_left_flex_drivers(&Layout::new(root)).await
}

/// Starts a node on a process. Returns at once; the node registers itself and begins to
/// work as soon as the API server answers.
pub fn start(process: &Process, config: NodeConfig, seams: Seams) -> RunningNode {
    let NodeConfig {
        name,
        root,
        address,
        labels,
        max_pods,
        hidden,
        api_server,
        republish,
        patience,
        volume_plugin_dir,
        flex_deadline,
        secrets_again,
    } = config;
    let Seams {
        runner,
        connector,
        registrations,
    } = seams;
    let layout = Layout::new(root);
    let found = checkpoint::scan(&layout);
    let found_pods = found.pods.clone();

    let placed_here = format!("spec.nodeName={name}");
    let pod_cache = process.informers.fields::<Pod>(&placed_here);
    let node_cache = process
        .informers
        .fields::<NodeObject>(&format!("metadata.name={name}"));
    let csi_drivers = process.cache::<CsiDriver>();
    let drivers = drivers::Drivers::default();
    let recorder = process.recorder("kubelet");
    let pod_queue: Queue<PodUid> = Queue::new(Backoff::default());
    let claims = process.cache::<Claim>();

    let workers = workers::Workers::new(&mut process.metrics.registry(), &name);
    let volumes = Arc::new(volumes::Volumes::new(
        volumes::Parts {
            node_name: name.clone(),
            layout: layout.clone(),
            cluster: process.cluster.clone(),
            recorder: recorder.clone(),
            node: node_cache.clone(),
            csi_drivers: csi_drivers.clone(),
            claims: claims.clone(),
            clock: process.clock,
            drivers: drivers.clone(),
            workers: workers.clone(),
            republish,
            patience,
            pods: pod_queue.clone(),
        },
        found,
    ));
    let told: Arc<OnceLock<Weak<pods::Pods>>> = Arc::default();
    let sources = plugins::Sources {
        cluster: process.cluster.clone(),
        objects: plugins::Objects::new(&process.cluster, &process.informers, {
            let told = told.clone();
            move |shown| {
                if let Some(pods) = told.get().and_then(Weak::upgrade) {
                    pods.went_stale(shown);
                }
            }
        }),
        tokens: plugins::Tokens::default(),
        facts: plugins::NodeFacts {
            address: address.clone(),
            allocatable: identity::allocatable(),
        },
        secrets_again: secrets_again
            .try_into()
            .unwrap_or(jiff::SignedDuration::MAX),
    };
    let for_pods = workers::ForPods {
        workers: workers.clone(),
        patience,
        queue: pod_queue.clone(),
    };
    let flex = Arc::new(plugins::Flex::new(
        layout.clone(),
        name.clone(),
        process.cluster.clone(),
        (volume_plugin_dir, flex_deadline),
        for_pods.clone(),
    ));
    process.spawn("flexvolume", flex.clone().watch());
    let growth = flex.clone().grow(claims.clone(), recorder.clone());
    process.spawn("flexvolume growth", growth);
    let returns = runner.returns();
    let (pods, watched) = pods::Pods::new(
        pods::Parts {
            address: address.clone(),
            hidden,
            api_server,
            layout,
            cluster: process.cluster.clone(),
            clock: process.clock,
            recorder: recorder.clone(),
            pods: pod_cache.clone(),
            live: Joint::matching(process.cluster.clone(), &placed_here),
            runner,
            volumes: volumes.clone(),
            sources,
            flex,
            workers: workers.clone(),
            for_pods,
            patience,
            queue: pod_queue.clone(),
        },
        found_pods.into_iter().chain(volumes.pods()).collect(),
    );
    let pods = Arc::new(pods);
    // Set once; nobody is told before.
    let _ = told.set(Arc::downgrade(&pods));
    let stats = Arc::new(stats::Stats::new(stats::Parts {
        node_name: name.clone(),
        clock: process.clock,
        recorder,
        workers,
        volumes: volumes.clone(),
        pods: pods.clone(),
    }));
    process.spawn("volume health", stats.clone().watch_health());

    let anew = Arc::new(Notify::new());
    let identity = identity::Identity {
        anew: anew.clone(),
        name: name.clone(),
        address,
        labels,
        max_pods,
        cluster: process.cluster.clone(),
        clock: process.clock,
        node: node_cache.clone(),
    };
    let traits_changed = Arc::new(Notify::new());
    let registrar = registration::Registrar {
        csi_drivers: csi_drivers.clone(),
        traits_changed: traits_changed.clone(),
        anew,
        node_name: name,
        cluster: process.cluster.clone(),
        connector,
        drivers,
        ready: {
            let volumes = volumes.clone();
            Arc::new(move |driver: &str| volumes.look_at_all(Some(driver)))
        },
    };
    process.spawn("node", async move {
        identity.settle().await;
        tokio::join!(identity.live(), registrar.run(registrations));
    });
    process.spawn("containers", pods.clone().watch_exits(watched));
    if let Some(mut returns) = returns {
        let pods = pods.clone();
        process.spawn("container runtime", async move {
            // What failed because it was away waits for nothing else.
            while returns.changed().await.is_ok() {
                pods.look_at_all();
            }
        });
    }

    let woken = Wakers {
        pods: Arc::downgrade(&pods),
        traits_changed,
        volumes: volumes.clone(),
        queue: pod_queue.clone(),
    };
    process.spawn("pods", {
        let pods = pods.clone();
        async move {
            // Until all of this is read, nobody knows what may be unmounted.
            tokio::join!(
                pod_cache.synced(),
                node_cache.synced(),
                csi_drivers.synced()
            );
            volumes.read_report().await;
            woken.subscribe(&pod_cache, &node_cache, &csi_drivers, &claims);
            pods.look_at_all();
            volumes.look_at_all(None);
            volumes.in_use_queue.add(());
            let turn = |uid| pods.turn(uid);
            let device_turn = async |key| {
                let outcome = volumes.turn(key).await;
                pods.progressed();
                outcome
            };
            tokio::join!(
                work(pod_queue, PODS_AT_ONCE, turn),
                work(volumes.queue.clone(), VOLUMES_AT_ONCE, device_turn),
                work(volumes.in_use_queue.clone(), 1, |unit| volumes
                    .report_turn(unit)),
            );
        }
    });
    RunningNode {
        pods,
        told: NodeStats { stats },
    }
}

/// Turns changes on the API server into looks.
struct Wakers {
    pods: Weak<pods::Pods>,
    traits_changed: Arc<Notify>,
    volumes: Arc<volumes::Volumes>,
    queue: Queue<PodUid>,
}

impl Wakers {
    fn subscribe(
        self,
        pods: &orlop_runtime::Cache<Pod>,
        nodes: &orlop_runtime::Cache<NodeObject>,
        csi_drivers: &orlop_runtime::Cache<CsiDriver>,
        claims: &orlop_runtime::Cache<Claim>,
    ) {
        let Self {
            pods: here,
            traits_changed,
            volumes,
            queue,
        } = self;
        traits_changed.notify_one();
        let by_claim = pods.index("claims", |pod| {
            pod.claims().map(|(_, key)| key.to_string()).collect()
        });
        {
            let queue = queue.clone();
            pods.subscribe(move |change| {
                if let Change::Applied {
                    old: Some(old),
                    new,
                } = change
                    && old.metadata.uid == new.metadata.uid
                    && let Some(uid) = PodUid::new(&new.metadata.uid)
                    && let Some(here) = here.upgrade()
                {
                    here.changed(&uid, old, new);
                }
                // A pod that took the place of another: both need a look.
                if let Change::Applied {
                    old: Some(old),
                    new,
                } = change
                    && old.metadata.uid != new.metadata.uid
                    && let Some(uid) = PodUid::new(&old.metadata.uid)
                {
                    queue.add(uid);
                }
                if let Some(uid) = PodUid::new(&change.object().metadata.uid) {
                    queue.add(uid);
                }
            });
        }
        let growing = volumes.clone();
        claims.subscribe(move |change| {
            if let Change::Applied { old, new } = change {
                growing.claim_changed(old.map(|old| &**old), new);
            }
            for uid in pods::Pods::users_of(&by_claim, &change.object().metadata.key()) {
                queue.add(uid);
            }
        });
        {
            let volumes = volumes.clone();
            nodes.subscribe(move |change| {
                if let Change::Applied { old, new } = change {
                    let attached = |node: &NodeObject| -> BTreeSet<String> {
                        let names = node.status.volumes_attached.iter();
                        names.map(|volume| volume.name.clone()).collect()
                    };
                    let before = old.map(|old| attached(old)).unwrap_or_default();
                    volumes.look_at(&(&before ^ &attached(new)));
                    volumes.look_at_report(new);
                }
            });
        }
        csi_drivers.subscribe(move |change| {
            volumes.look_at_all(Some(&change.object().metadata.name));
            volumes.in_use_queue.add(());
            traits_changed.notify_one();
        });
    }
}
