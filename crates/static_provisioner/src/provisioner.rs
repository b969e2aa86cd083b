//! The provisioner's shell: wakes, looks, decides and carries out.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{Key, Kind, Node, StorageClass, Volume, VolumeMode, well_known};
use orlop_runtime::{
    ApiError, Backoff, Cache, Change, Cluster, EventType, Index, Outcome, Patch, Preconditions,
    Process, Queue, Recorder, letting_go, with_finalizer, work,
};
use serde_json::json;
use tracing::{debug, warn};

use crate::{
    clean::{self, CleanError},
    config::Config,
    disks,
    identity::{self, Identity},
    metrics::Metrics,
    offer::{self, Facts, Verdict, Wrong},
    volume::{self, Step},
};

mod absent;
mod cleaning;
mod keeping;
mod names;
mod told;
mod watching;

use keeping::Keeping;
use told::Wrongs;

/// How many volumes are worked on at once, cleaning apart.
const AT_ONCE: usize = 8;
/// After a write that came too late: the watch is about to tell.
const SOON: Duration = Duration::from_millis(50);

/// Of a cleaning that nothing is heard of for so long, that is told.
const SILENCE: Duration = Duration::from_mins(10);

/// How to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// Where the configuration is, to be read again when it changes.
    pub config_path: PathBuf,
    /// What it says now.
    pub config: Config,
    /// How many disks are cleaned at once.
    pub cleanings: usize,
    /// Whether this is a pod's container, which sees of other pods only what its pod is allowed.
    pub in_pod: bool,
}

/// Whether every disk that was found is offered.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Option<Result<(), String>>>>);

impl Readiness {
    /// What is wrong, if anything.
    ///
    /// # Errors
    /// Not all disks are offered, or it isn't known yet.
    pub fn check(&self) -> Result<(), String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || Err("the folders have not been looked at yet".to_owned());
        state.clone().unwrap_or_else(unknown)
    }

    fn set(&self, state: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }
}

/// What needs a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// The folders.
    Folders,
    /// A volume.
    Volume(String),
}

/// Who we are, and what we do.
#[derive(Debug, Clone)]
struct Me {
    node: Node,
    identity: Identity,
}

#[derive(Clone)]
struct Provisioner {
    node_name: String,
    config_path: PathBuf,
    cluster: Cluster,
    recorder: Recorder,
    volumes: Cache<Volume>,
    volumes_by_path: Index<Volume>,
    volumes_by_maker: Index<Volume>,
    classes: Cache<StorageClass>,
    queue: Queue<Item>,
    cleaning: Queue<String>,
    cleanings: usize,
    in_pod: bool,
    silence: Duration,
    metrics: Metrics,
    ready: Readiness,
    keeping: Arc<Keeping>,
    shared: Arc<Mutex<Shared>>,
}

/// What changes while we run.
struct Shared {
    config: Config,
    /// Why what it says now can't be used, and an older one stands.
    unreadable: Option<String>,
    me: Option<Me>,
    /// Volumes whose disks could not be cleaned: a mount may change that.
    stuck: BTreeSet<String>,
    /// What was said of the folders.
    told: Wrongs,
}

fn path_of(volume: &Volume) -> Vec<String> {
    let local = volume.spec.local.iter();
    local.map(|local| local.path.clone()).collect()
}

fn maker(volume: &Volume) -> Vec<String> {
    let maker = volume.metadata.annotation(well_known::PROVISIONED_BY);
    maker.map(str::to_owned).into_iter().collect()
}

/// Starts the provisioner of a node.
pub fn start(process: &Process, settings: Settings) -> Readiness {
    start_with(process, settings, SILENCE)
}

/// As [`start`], with another patience for cleanings that nothing is heard of.
pub(crate) fn start_with(process: &Process, settings: Settings, silence: Duration) -> Readiness {
    let Settings {
        node,
        config_path,
        config,
        cleanings,
        in_pod,
    } = settings;
    let volumes = process.cache::<Volume>();
    let backoff = Backoff {
        first: Duration::from_secs(1),
        most: Duration::from_secs(300),
    };
    let ready = Readiness::default();
    let provisioner = Provisioner {
        recorder: process.recorder(&format!("local-volume-provisioner-{node}")),
        node_name: node,
        config_path,
        cluster: process.cluster.clone(),
        volumes_by_path: volumes.index("static-provisioner/path", path_of),
        volumes_by_maker: volumes.index("static-provisioner/maker", maker),
        volumes,
        classes: process.cache(),
        queue: Queue::new(backoff).measured(&process.metrics, "local_disks"),
        cleaning: Queue::new(backoff).measured(&process.metrics, "local_cleaning"),
        cleanings: cleanings.max(1),
        in_pod,
        silence,
        metrics: Metrics::register(&mut process.metrics.registry()),
        ready: ready.clone(),
        keeping: Arc::default(),
        shared: Arc::new(Mutex::new(Shared {
            config,
            unreadable: None,
            me: None,
            stuck: BTreeSet::new(),
            told: Wrongs::default(),
        })),
    };
    let watching = provisioner.clone();
    process.spawn("local-static-provisioner", provisioner.run());
    process.spawn("local-disks-watch", watching.watch());
    ready
}

impl Provisioner {
    async fn run(self) {
        self.volumes.synced().await;
        self.classes.synced().await;
        self.subscribe();
        self.queue.add(Item::Folders);
        let quick = work(self.queue.clone(), AT_ONCE, |item| self.turn(item));
        let slow = work(self.cleaning.clone(), self.cleanings, |name| {
            self.cleaning_turn(name)
        });
        tokio::join!(quick, slow);
    }

    fn subscribe(&self) {
        let role = self.clone();
        self.volumes.subscribe(move |change| {
            let volume = change.object();
            if !identity::may_be_of(volume, &role.node_name) {
                return;
            }
            match change {
                Change::Deleted(_) => role.queue.add(Item::Folders),
                Change::Applied { .. } => {
                    let name = volume.metadata.name.clone();
                    role.queue.add(Item::Volume(name));
                }
            }
        });
        let role = self.clone();
        self.classes.subscribe(move |change| {
            let name = &change.object().metadata.name;
            if role.shared().config.classes.contains_key(name) {
                role.queue.add(Item::Folders);
            }
        });
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self, item: Item) -> Outcome {
        let outcome = match &item {
            Item::Folders => self.folders_turn().await,
            Item::Volume(name) => self.volume_turn(name).await,
        };
        match outcome {
            Ok(outcome) => outcome,
            Err(error) if error.is_conflict() || error.is_not_found() => {
                debug!(?item, error = error.chain(), "the view was behind");
                Outcome::After(SOON)
            }
            Err(error) => {
                warn!(?item, error = error.chain(), "will be tried again");
                Outcome::Retry
            }
        }
    }

    /// Looks at the node itself, live: disks are offered in its name.
    async fn meet_node(&self, config: &Config) -> Result<Option<Me>, ApiError> {
        let key = Key::cluster(&self.node_name);
        let Some(mut node) = self.cluster.get::<Node>(&key).await? else {
            self.ready.set(Err(format!("there is no node {key}")));
            return Ok(None);
        };
        let uid = node.metadata.uid.clone();
        let labelled = node.metadata.labels.get(well_known::LOCAL_NODE_UID) == Some(&uid);
        if !config.by_name_only && !labelled {
            // Of this very node only: its successor has another uid.
            let label = json!({"metadata": {
                "uid": uid, "labels": {well_known::LOCAL_NODE_UID: uid},
            }});
            node = self.cluster.patch(&key, &Patch::Merge(label)).await?;
        }
        let identity = match config.by_name_only {
            true => Identity::of_name(&node),
            false => Identity::of(&node),
        };
        let me = Me { node, identity };
        let mut shared = self.shared();
        let known = shared.me.as_ref().map(|me| me.identity.clone());
        if known.as_ref() != Some(&me.identity) {
            // Whose a volume is hangs on who we are.
            for volume in self.volumes.all() {
                if identity::may_be_of(&volume, &self.node_name) {
                    let name = volume.metadata.name.clone();
                    self.queue.add(Item::Volume(name));
                }
            }
            self.tell_sight(&me.node);
        }
        shared.me = Some(me.clone());
        Ok(Some(me))
    }

    async fn folders_turn(&self) -> Result<Outcome, ApiError> {
        let config = self.shared().config.clone();
        let Some(me) = self.meet_node(&config).await? else {
            return Ok(Outcome::Retry);
        };
        let mut wrongs = Wrongs::default();
        self.tell_config(&config, &mut wrongs);
        let mut known = self.names(&me, &config).await;
        let mut bytes = BTreeMap::from([("Block", 0), ("Filesystem", 0)]);
        for (name, class) in &config.classes {
            self.look_after_volumes(&me, (name, class), &mut wrongs)
                .await?;
            let storage_class = self.classes.named(name);
            let storage_class = match offer::check(name, storage_class.as_deref(), &me.node) {
                Ok(storage_class) => storage_class,
                Err(bad) => {
                    wrongs.add(bad.to_string());
                    continue;
                }
            };
            let (folder, names) = (class.mount_dir.clone(), class.names.clone());
            let found = blocking(move || disks::look(&folder, &names)).await;
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    let folder = class.mount_dir.display();
                    wrongs.add(format!("the folder {folder} can't be read: {error}"));
                    continue;
                }
            };
            if let Err(wrong) = self.keep(&me, class).await {
                wrongs.add(wrong);
                continue;
            }
            let taken = self.taken(&me, found.iter().map(|f| class.host_dir.join(&f.file)));
            let facts = Facts {
                config: &config,
                class,
                storage_class,
                node: &me.node,
                identity: &me.identity,
                taken: &taken,
            };
            for disk in &found {
                match &disk.what {
                    Ok(disks::What::Device { bytes: b }) => *bytes.entry("Block").or_default() += b,
                    Ok(disks::What::Mount { bytes: b }) => {
                        *bytes.entry("Filesystem").or_default() += b;
                    }
                    Ok(disks::What::Folder | disks::What::Other) | Err(_) => {}
                }
                let offered = match offer::judge(disk, &facts) {
                    Verdict::Wrong(wrong) => Err(wrong),
                    Verdict::Known => self.name(&mut known, class, &disk.file).await,
                    Verdict::Offer(volume) => {
                        match self.name(&mut known, class, &disk.file).await {
                            Ok(()) => {
                                self.offer(*volume, class.mount_dir.join(&disk.file))
                                    .await?
                            }
                            same => same,
                        }
                    }
                };
                if let Err(wrong) = offered {
                    wrongs.add(wrong.to_string());
                }
            }
        }
        self.metrics.found(VolumeMode::Block, bytes["Block"]);
        self.metrics
            .found(VolumeMode::Filesystem, bytes["Filesystem"]);
        Ok(self.told(&me.node, wrongs))
    }

    /// The volumes that stand for disks of this node at these paths.
    fn taken(&self, me: &Me, paths: impl Iterator<Item = PathBuf>) -> BTreeMap<String, String> {
        let node = &me.node.metadata;
        let mut taken = BTreeMap::new();
        for path in paths {
            let path = path.to_string_lossy().into_owned();
            let at_path = self.volumes_by_path.get(&path);
            let here = at_path.iter().find(|volume| {
                identity::may_be_of(volume, &node.name)
                    || volume.reachable_from(&node.name, &node.labels)
            });
            if let Some(volume) = here {
                taken.insert(path, volume.metadata.name.clone());
            }
        }
        taken
    }

    async fn offer(&self, volume: Volume, disk: PathBuf) -> Result<Result<(), Wrong>, ApiError> {
        let path = path_of(&volume).pop().unwrap_or_default();
        // Mounted elsewhere, part of something else, a pod has it, or a cleaner of an earlier run.
        let free = blocking(move || Ok(clean::is_free(&disk))).await;
        if let Err(error) = free.map_err(CleanError::Broken).flatten() {
            let why = chain(&error);
            return Ok(Err(Wrong::Refused { path, why }));
        }
        let mode = volume.volume_mode();
        match self.cluster.create(&volume).await {
            Ok(made) => {
                self.volumes.absorb(made);
                self.metrics.offered(mode);
                Ok(Ok(()))
            }
            Err(error) if error.is_already_exists() => {
                // Ours, made a moment ago; or another disk has the same name by chance.
                let there = self.cluster.get::<Volume>(&volume.key()).await?;
                match there {
                    Some(there) if path_of(&there) == path_of(&volume) => Ok(Ok(())),
                    _ => Ok(Err(Wrong::Refused {
                        path,
                        why: format!("volume {} is of another disk", volume.metadata.name),
                    })),
                }
            }
            // One disk's trouble is not the others'.
            Err(error) => match error.told() {
                Some(why) => Ok(Err(Wrong::Refused { path, why })),
                None => Err(error),
            },
        }
    }

    async fn volume_turn(&self, name: &str) -> Result<Outcome, ApiError> {
        let Some(me) = self.shared().me.clone() else {
            return Ok(Outcome::Done);
        };
        let Some(volume) = self.volumes.named(name) else {
            return Ok(Outcome::Done);
        };
        let step = volume::decide(&volume, me.identity.whose(&volume));
        debug!(volume = name, ?step, "decided");
        match step {
            Step::Leave => {}
            Step::Guard => {
                if let Some(patch) = with_finalizer(&*volume, well_known::LOCAL_UNCLEAN) {
                    let answer = self.cluster.patch(&volume.key(), &patch).await?;
                    self.volumes.absorb(answer);
                }
            }
            Step::Clean => self.cleaning.add(name.to_owned()),
            Step::Delete => self.delete(&volume).await?,
            Step::LetGo => self.let_go(&volume).await?,
            Step::Recycle => self.recorder.say(
                &*volume,
                EventType::Warning,
                "VolumeUnsupportedReclaimPolicy",
                "Volume has unsupported PersistentVolumeReclaimPolicy: Recycle",
            ),
            Step::Orphaned => self.recorder.say(
                &*volume,
                EventType::Warning,
                "VolumeOfFormerNode",
                format!(
                    "The volume belongs to an earlier node {}, which is gone. Its disk is cleaned and \
                     offered again once its claim is deleted",
                    self.node_name
                ),
            ),
        }
        Ok(Outcome::Done)
    }

    /// Deletes a volume whose disk holds nobody's data.
    async fn delete(&self, volume: &Volume) -> Result<(), ApiError> {
        let only_if = Preconditions::unchanged(volume);
        let held = self
            .cluster
            .delete_held::<Volume>(&volume.key(), &only_if)
            .await?;
        match held {
            Some(held) => self.let_go(&held).await,
            None => Ok(()),
        }
    }

    async fn let_go(&self, volume: &Volume) -> Result<(), ApiError> {
        if let Some(patch) = letting_go(volume, &[well_known::LOCAL_UNCLEAN]) {
            match self.cluster.patch::<Volume>(&volume.key(), &patch).await {
                Ok(answer) => self.volumes.absorb(answer),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Runs what may wait for a disk where nobody waits for it.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => Err(std::io::Error::other(error)),
    }
}

/// An error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
