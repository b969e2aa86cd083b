//! FlexVolume: volumes of drivers that are programs in a folder of the node.
//!
//! A driver is called as the kubelet calls it, with the same arguments and options, but with a
//! deadline, and none of its answers is trusted. The node attaches and detaches by itself. Before
//! a driver is asked for anything, a file says for which pod: whatever was begun is undone after
//! a crash, and a volume is detached when the last file of its users is gone.
//!
//! ```text
//! <plugins>/kubernetes.io/flexvolume/<vendor>/<driver>/mounts/<volume>      the device's mount
//! <plugins>/kubernetes.io/flexvolume/<vendor>/<driver>/users/<volume>/<pod> who uses it
//! <plugins>/kubernetes.io/flexvolume/<vendor>/<driver>/calls/<volume>       a call that runs
//! <pods>/<pod>/volumes/<vendor>~<driver>/<volume>                           the pod's mount
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use orlop_host::flex::{Answer, Capabilities, Found, OUTPUT, Refusal, find, judge, time_for};
use orlop_host::foreign::{self, ForeignError, Limits, Note};
use orlop_host::mount::Depth;
use orlop_host::{MountTable, Place, Restrictions};
use orlop_model::volume::FlexSource;
use orlop_model::{Key, Pod};
use orlop_runtime::{ApiError, Backoff, Cluster, Queue};
use tokio::time::timeout;
use tracing::warn;

pub(crate) use self::calls::Doing;
use self::calls::{Calls, Purpose};
use self::options::Options;
use super::disk::{self, Disk, DiskError};
use crate::checkpoint::{gone, make_folder};
use crate::layout::{Layout, PodUid};
use crate::words::chain;
use crate::workers::{ForPods, Hung};

mod calls;
mod growth;
mod options;
mod programs;
mod users;

use self::programs::Programs;

/// Why a volume of a driver is not there, or not gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlexError {
    #[error("{0:?} can't be the name of a FlexVolume driver")]
    BadName(String),
    #[error("FlexVolume driver {driver} is not installed: {} is missing", path.display())]
    NoDriver { driver: String, path: PathBuf },
    #[error("FlexVolume driver {driver} can't be run: {} is not executable", path.display())]
    NotExecutable { driver: String, path: PathBuf },
    #[error("FlexVolume driver {driver}")]
    Refused {
        driver: String,
        #[source]
        source: Refusal,
    },
    #[error("FlexVolume driver {driver}, {command} command")]
    Foreign {
        driver: String,
        command: &'static str,
        #[source]
        source: ForeignError,
    },
    #[error("secret {0} not found")]
    NoSecret(Key),
    #[error("secret {secret} is of type {type_:?}, but must be of type {driver:?}")]
    SecretType {
        secret: Key,
        type_: String,
        driver: String,
    },
    #[error(
        "another volume named {volume:?} of driver {driver}, with other options, is used on this \
         node by pod {pod}; volumes written in pods need names of their own"
    )]
    SameName {
        volume: String,
        driver: String,
        pod: String,
    },
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Grow(#[from] orlop_host::filesystem::GrowError),
    #[error(transparent)]
    Hung(#[from] Hung),
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl FlexError {
    fn is_not_supported(&self) -> bool {
        let Self::Refused { source, .. } = self else {
            return false;
        };
        *source == Refusal::NotSupported
    }

    /// Whether somebody has yet to bring the driver.
    fn wants_driver(&self) -> bool {
        matches!(self, Self::NoDriver { .. } | Self::NotExecutable { .. })
    }

    /// Whether the driver is at nothing any more: it has said no, or is not there to be asked.
    fn is_last_word(&self) -> bool {
        let could_not = |source: &ForeignError| matches!(source, ForeignError::Start { .. });
        match self {
            Self::Refused { .. } => true,
            Self::Foreign { source, .. } => could_not(source),
            other => other.wants_driver(),
        }
    }
}

fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FlexError {
    move |source| FlexError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// A volume that a pod asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlexVolume<'a> {
    /// The pod's name for it, or its PersistentVolume's.
    pub(crate) name: &'a str,
    /// The pod's name for it.
    pub(crate) called: &'a str,
    pub(crate) source: &'a FlexSource,
    pub(crate) read_only: bool,
}

type Turn = Arc<tokio::sync::Mutex<()>>;

/// The volumes of all such drivers.
pub(crate) struct Flex {
    layout: Layout,
    node_name: String,
    cluster: Cluster,
    programs: Programs,
    /// How long a driver may take for one call.
    deadline: Duration,
    for_pods: ForPods,
    /// Claims whose volumes may have to grow.
    growth: Queue<Key>,
    /// Calls for one volume come one after the other.
    turns: Mutex<BTreeMap<(String, Option<String>), Turn>>,
    calls: Calls,
}

/// A driver as a set of calls.
struct Driver<'a> {
    flex: &'a Flex,
    name: &'a str,
    purpose: Purpose<'a>,
    program: PathBuf,
    capabilities: Capabilities,
}

impl Flex {
    /// Drivers are looked for in `folder`; pods that miss one are woken when it comes. Those that an
    /// earlier node role has left running are killed.
    pub(crate) fn new(
        layout: Layout,
        node_name: String,
        cluster: Cluster,
        (folder, deadline): (PathBuf, Duration),
        for_pods: ForPods,
    ) -> Self {
        for path in layout.flex_calls() {
            match Note::at(path.clone()).kill() {
                Ok(killed) if killed.is_empty() => {}
                Ok(_) => {
                    warn!(call = %path.display(), "killed a FlexVolume driver that was left running")
                }
                Err(error) => warn!(
                    error = chain(&error),
                    "could not look for FlexVolume drivers"
                ),
            }
        }
        Self {
            layout,
            node_name,
            cluster,
            programs: Programs::new(folder, for_pods.queue.clone()),
            deadline,
            for_pods,
            growth: Queue::new(Backoff::default()),
            turns: Mutex::default(),
            calls: Calls::default(),
        }
    }

    /// Notices drivers that come, for ever.
    pub(crate) async fn watch(self: Arc<Self>) {
        self.programs.watch().await;
    }

    /// Without a volume, for the driver itself.
    fn turn(&self, driver: &str, volume: Option<&str>) -> Turn {
        let mut turns = lock(&self.turns);
        // Those that nobody holds are of no use to anybody.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let key = (driver.to_owned(), volume.map(str::to_owned));
        turns.entry(key).or_default().clone()
    }

    /// What drivers are doing for a pod's volumes.
    pub(crate) fn doing(&self, pod: &PodUid) -> BTreeMap<String, Doing> {
        self.calls.of(pod)
    }

    async fn driver<'a>(
        &'a self,
        name: &'a str,
        purpose: Purpose<'a>,
    ) -> Result<Driver<'a>, FlexError> {
        let program = self.programs.path(name)?;
        let driver = || name.to_owned();
        let path = program.clone();
        let stamp = match find(&program) {
            Found::Program(stamp) => stamp,
            Found::NotExecutable => {
                let driver = driver();
                return Err(FlexError::NotExecutable { driver, path });
            }
            Found::Nothing => {
                let driver = driver();
                return Err(FlexError::NoDriver { driver, path });
            }
        };
        let mut driver = Driver {
            flex: self,
            name,
            purpose,
            program,
            capabilities: Capabilities::default(),
        };
        let turn = self.turn(name, None);
        let _held = turn.lock().await;
        driver.capabilities = match self.programs.folder.known(name, stamp) {
            Some(known) => known,
            None => {
                let answer = driver.call("init", &[], &[]).await?;
                let capabilities = answer.capabilities();
                self.programs
                    .folder
                    .learn(name, stamp, capabilities.clone());
                capabilities
            }
        };
        Ok(driver)
    }

    /// Brings a volume to where the pod's containers find it.
    pub(crate) async fn set_up(
        &self,
        pod: &Pod,
        uid: &PodUid,
        volume: FlexVolume<'_>,
    ) -> Result<PathBuf, FlexError> {
        let name = volume.source.driver.as_str();
        let purpose = Purpose {
            pod: uid,
            called: volume.called,
            volume: volume.name,
        };
        let driver = match self.driver(name, purpose).await {
            Err(error) if error.wants_driver() => {
                // Told from now on; and it may have come just before.
                self.programs.miss(uid);
                self.driver(name, purpose).await?
            }
            other => other?,
        };
        let turn = self.turn(name, Some(volume.name));
        let _held = turn.lock().await;
        let target = self.layout.flex_target(uid, name, volume.name);
        if is_mounted(&target)? {
            return Ok(target);
        }
        let (secret, hidden) = options::secret(&self.cluster, pod, volume.source).await?;
        let plain = Options::of(volume, None, &BTreeMap::new()).text();
        if driver.capabilities.attach {
            let record = users::Record {
                driver: name.to_owned(),
                options: plain.clone(),
            };
            users::add(&self.layout, &record, volume.name, uid)?;
            driver.stage(volume, &plain).await?;
        }
        make_folder(&target).map_err(at("make", &target))?;
        let options = Options::of(volume, Some(pod), &secret).text();
        let arguments = [target.display().to_string(), options];
        let mounted = match driver.call("mount", &arguments, &hidden).await {
            Err(error) if error.is_not_supported() && driver.capabilities.attach => {
                let from = self.layout.flex_global(name, volume.name);
                let (to, read_only) = (target.clone(), volume.read_only);
                let work = move || bind(&from, &to, read_only);
                let bound = self.for_pods.run(uid, "bind a FlexVolume", work).await;
                bound.map_err(FlexError::from).and_then(|bound| bound)
            }
            other => other.map(drop),
        };
        if let Err(error) = mounted {
            // As the kubelet does: a folder that stayed would be unmounted by the driver, which
            // knows nothing of it. One that holds something stays.
            let _it_may_hold_something = std::fs::remove_dir(&target);
            return Err(error);
        }
        let group = pod.spec.security_context.as_ref();
        let group = group.and_then(|context| u32::try_from(context.fs_group?).ok());
        if let Some(group) = group
            && driver.capabilities.fs_group
            && !volume.read_only
        {
            let given = self.for_pods.give(uid, target.clone(), group).await?;
            given.map_err(at("give to the pod's group", &target))?;
        }
        Ok(target)
    }

    async fn unmount(&self, pod: &PodUid, path: &Path) -> Result<(), FlexError> {
        let at_path = path.to_owned();
        let work = move || Place::at(&at_path).and_then(|place| orlop_host::mount::unmount(&place));
        let done = self.for_pods.run(pod, "unmount a FlexVolume", work).await?;
        done.map_err(at("unmount", path))
    }

    /// A claim's volume was mounted: it may have to grow.
    pub(crate) fn look_at_size(&self, claim: Key) {
        self.growth.add(claim);
    }

    /// Whether something of a pod may be left to take away.
    pub(crate) fn any_set_up(&self, uid: &PodUid) -> bool {
        !self.layout.flex_targets(uid).is_empty() || !users::of(&self.layout, uid).is_empty()
    }

    /// Takes all of a pod's volumes away; one that stays keeps no other.
    pub(crate) async fn tear_down(&self, uid: &PodUid) -> Result<(), FlexError> {
        let targets: BTreeMap<_, _> = self
            .layout
            .flex_targets(uid)
            .into_iter()
            .map(|(name, volume, target)| ((name, volume), target))
            .collect();
        let used = BTreeSet::from_iter(users::of(&self.layout, uid));
        let all: BTreeSet<_> = targets.keys().chain(&used).collect();
        let each = all.into_iter().map(async |key| {
            let (name, volume) = key;
            let turn = self.turn(name, Some(volume));
            let _held = turn.lock().await;
            let purpose = Purpose {
                pod: uid,
                called: volume,
                volume,
            };
            if let Some(target) = targets.get(key) {
                self.unmount_target(name, purpose, target).await?;
            }
            if used.contains(key) {
                if users::is_last(&self.layout, (name, volume), uid) {
                    self.driver(name, purpose).await?.unstage().await?;
                }
                users::remove(&self.layout, (name, volume), uid)?;
            }
            Ok(())
        });
        join_all(each).await.into_iter().collect()
    }

    /// The driver is always asked, since it may have more to undo than a mount. But if the kernel knows
    /// of no mount, as after a crash in the middle of it, whatever the driver says of that is no reason
    /// to go on for ever.
    async fn unmount_target(
        &self,
        name: &str,
        purpose: Purpose<'_>,
        target: &Path,
    ) -> Result<(), FlexError> {
        let asked = async { self.driver(name, purpose).await?.unmount(target).await };
        match asked.await {
            Err(error) if error.is_last_word() && !is_mounted(target)? => {
                let (path, error) = (target.display(), chain(&error));
                warn!(%path, error, "a FlexVolume counts as unmounted, since nothing is mounted");
                done_with(target)
            }
            other => other,
        }
    }
}

impl Driver<'_> {
    /// One call. `hidden` is what its answer must not repeat.
    async fn call(
        &self,
        command: &'static str,
        arguments: &[String],
        hidden: &[String],
    ) -> Result<Answer, FlexError> {
        let limits = Limits {
            deadline: time_for(command, self.flex.deadline),
            output: OUTPUT,
        };
        let volume = (command != "init").then_some(self.purpose.volume);
        let note = Note::at(self.flex.layout.flex_call(self.name, volume));
        let mut all = vec![command.to_owned()];
        all.extend_from_slice(arguments);
        let driver = || self.name.to_owned();
        let _told_of = self.flex.calls.begin(self.purpose, command);
        let run = foreign::run(&self.program, &all, limits, &note);
        tokio::pin!(run);
        let workers = &self.flex.for_pods.workers;
        let patience = time_for(command, self.flex.for_pods.patience);
        let said = match timeout(patience, &mut run).await {
            Ok(said) => said,
            Err(_) => {
                let _counted = workers.hangs();
                run.await
            }
        };
        if let Err(ForeignError::Deadline { .. }) = &said {
            workers.gave_up(command);
        }
        let said = said.map_err(|source| FlexError::Foreign {
            driver: driver(),
            command,
            source,
        })?;
        judge(command, &said, hidden).map_err(|source| FlexError::Refused {
            driver: driver(),
            source,
        })
    }

    /// The same, where a driver need not have the command.
    async fn try_call(
        &self,
        command: &'static str,
        arguments: &[String],
    ) -> Result<Option<Answer>, FlexError> {
        match self.call(command, arguments, &[]).await {
            Err(error) if error.is_not_supported() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Attaches a volume to this node and mounts its device, once for all pods.
    async fn stage(&self, volume: FlexVolume<'_>, options: &str) -> Result<(), FlexError> {
        let layout = &self.flex.layout;
        let global = layout.flex_global(self.name, volume.name);
        if is_mounted(&global)? {
            return Ok(());
        }
        make_folder(&global).map_err(at("make", &global))?;
        let options = options.to_owned();
        let node = self.flex.node_name.clone();
        // The kubelet takes no other name than the volume's, but asks; so do drivers expect it.
        self.try_call("getvolumename", std::slice::from_ref(&options))
            .await?;
        let attached = self.try_call("attach", &[options.clone(), node]).await?;
        let device = attached.map(|answer| answer.device).unwrap_or_default();
        let waited = self
            .try_call("waitforattach", &[device.clone(), options.clone()])
            .await?;
        let device = waited.map_or(device, |answer| answer.device);
        let mount = [global.display().to_string(), device.clone(), options];
        if self.try_call("mountdevice", &mount).await?.is_none() && !device.is_empty() {
            let disk = Disk {
                device: device.into(),
                target: global,
                fs_type: volume.source.fs_type.clone(),
                read_only: volume.read_only,
                options: Vec::new(),
            };
            let work = move || disk::mount(&disk);
            let for_pods = &self.flex.for_pods;
            let mounted = for_pods.run(self.purpose.pod, "mount a device", work);
            mounted.await??;
        }
        Ok(())
    }

    async fn unmount(&self, target: &Path) -> Result<(), FlexError> {
        let path = target.display().to_string();
        if self.try_call("unmount", &[path]).await?.is_none() {
            self.flex.unmount(self.purpose.pod, target).await?;
        }
        done_with(target)
    }

    /// The reverse of [`stage`](Self::stage), for the last pod.
    async fn unstage(&self) -> Result<(), FlexError> {
        let Purpose { pod, volume, .. } = self.purpose;
        let global = self.flex.layout.flex_global(self.name, volume);
        if is_mounted(&global)? {
            let path = global.display().to_string();
            if self.try_call("unmountdevice", &[path]).await?.is_none() {
                self.flex.unmount(pod, &global).await?;
            }
        }
        done_with(&global)?;
        let node = self.flex.node_name.clone();
        let arguments = [volume.to_owned(), node.clone()];
        let Err(error) = self.try_call("detach", &arguments).await else {
            return Ok(());
        };
        // Something that is not attached can't be detached, which is no reason to stay.
        let record = users::options(&self.flex.layout, self.name, volume);
        let asked = self.try_call("isattached", &[record, node]).await;
        match asked {
            Ok(Some(answer)) if !answer.attached => Ok(()),
            _ => Err(error),
        }
    }
}

/// A driver that says that it has unmounted something may be wrong: a folder is removed, and what
/// is mounted on it is never emptied.
fn done_with(folder: &Path) -> Result<(), FlexError> {
    gone(std::fs::remove_dir(folder)).map_err(at("remove", folder))
}

/// By the kernel's table: the driver's file system is not asked, since it may not answer.
fn is_mounted(path: &Path) -> Result<bool, FlexError> {
    let table = MountTable::read().map_err(at("look for mounts at", path))?;
    Ok(table.at(path).is_some())
}

fn bind(from: &Path, to: &Path, read_only: bool) -> Result<(), FlexError> {
    let open = |path: &Path| Place::at(path).and_then(|place| place.open());
    let source = open(from).map_err(at("open", from))?;
    let target = open(to).map_err(at("open", to))?;
    let restrictions = Restrictions {
        read_only,
        ..Restrictions::default()
    };
    orlop_host::mount::bind(source, target, Depth::One, restrictions).map_err(at("mount at", to))
}

/// Ends the drivers that a node role has left running which is no more, and tells what stays.
pub(crate) async fn end_left(layout: &Layout) -> Result<usize, Vec<String>> {
    let (mut ended, mut troubles) = (0, Vec::new());
    for path in layout.flex_calls() {
        let note = Note::at(path);
        let some = note.kill().is_ok_and(|killed| !killed.is_empty());
        match note.end().await {
            Ok(()) => ended += usize::from(some),
            Err(error) => troubles.push(chain(&error)),
        }
    }
    match troubles.is_empty() {
        true => Ok(ended),
        false => Err(troubles),
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
