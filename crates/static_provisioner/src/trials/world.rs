//! The API server, binder and protection, a provisioner or two, and a witness.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_apiserver::{ApiServer, Config as ServerConfig, Storage};
use orlop_model::{Claim, Event, Key, Kind, Node, StorageClass, Volume, VolumePhase};
use orlop_runtime::{Change, Clock, Preconditions, Process};
use orlop_trials::Strikes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

mod configured;
mod named_twice;
mod refused;
mod shared;
mod unmounted;
mod unseen;

use super::Disks;
use crate::{Config, Settings};

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_mins(3);
/// Longer than anything is silent here that isn't meant to be.
const SILENCE: Duration = Duration::from_millis(900);
const CLASSES: [&str; 2] = ["files", "raw"];

/// Whether devices are cleaned by a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByCommand {
    No,
    Yes,
    /// By one that takes its time before it says anything.
    Silent,
}

/// What was seen of the volumes of a disk.
#[derive(Default)]
struct Seen {
    /// By class, the volumes that exist.
    there: BTreeMap<String, BTreeSet<String>>,
    /// All that there ever were.
    ever: BTreeSet<String>,
    breaches: Vec<String>,
}

pub(super) struct World {
    server: ApiServer,
    strikes: Arc<Strikes>,
    others: Process,
    disks: Arc<Disks>,
    settings: Settings,
    seen: Arc<Mutex<Seen>>,
}

impl World {
    pub(super) async fn open(strikes: Arc<Strikes>, by_command: ByCommand) -> Self {
        let server = ApiServer::open(ServerConfig::new(Storage::Memory));
        let server = server.await.unwrap();
        let others = Process::new(
            kube::Client::new(server.service(), "default"),
            Clock::system(),
        );
        let disks = Arc::new(Disks::new());
        let cleaner = match by_command {
            ByCommand::No => json!({"blockCleaner": "zero"}),
            ByCommand::Yes | ByCommand::Silent => json!({"blockCleanerCommand": ["/bin/sh", "-c",
                "[ $0 = Silent ] && sleep 1; for at in 0 65 191; do dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=1 \
                 seek=$at conv=notrunc,fsync 2>/dev/null || exit 1; echo $((at / 2))%; done", format!("{by_command:?}")]}),
        };
        let class = |name: &str, mode: &str, more: Value| {
            let folder = disks.folder(name);
            let mut class = json!({
                "hostDir": folder, "mountDir": folder, "volumeMode": mode,
            });
            class.as_object_mut().unwrap().extend(
                more.as_object()
                    .unwrap()
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
            class
        };
        let config = json!({"storageClassMap": {
            "files": class("files", "Filesystem", json!({})),
            "raw": class("raw", "Block", cleaner),
        }})
        .to_string();
        let config_path = disks.folder("config.yaml");
        fs::write(&config_path, &config).unwrap();
        let settings = Settings {
            node: "n".into(),
            config: Config::parse(&config).unwrap(),
            config_path,
            cleanings: 4,
            in_pod: false,
        };
        let world = Self {
            server,
            strikes,
            others,
            disks,
            settings,
            seen: Arc::default(),
        };
        world.furnish().await;
        world.watch();
        orlop_control::binder::start(&world.others);
        orlop_control::protection::start(&world.others);
        world
    }

    async fn furnish(&self) {
        let api = &self.others.cluster;
        let node = json!({"metadata": {
            "name": "n", "labels": {"kubernetes.io/hostname": "n"},
        }});
        api.create_json::<Node>(&node).await.unwrap();
        for name in CLASSES {
            let class = json!({
                "metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "Immediate",
            });
            api.create_json::<StorageClass>(&class).await.unwrap();
        }
    }

    /// Judges every volume as soon as it is there.
    fn watch(&self) {
        // The disks go with the world, not with what is left of its tasks.
        let (seen, disks) = (self.seen.clone(), Arc::downgrade(&self.disks));
        self.others.cache::<Volume>().subscribe(move |change| {
            let volume = change.object();
            let (class, uid) = (volume.class().to_owned(), volume.metadata.uid.clone());
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let there = seen.there.entry(class.clone()).or_default();
            match change {
                Change::Applied { .. } => there.insert(uid.clone()),
                Change::Deleted(_) => there.remove(&uid),
            };
            let count = there.len();
            if count > 1 {
                seen.breaches.push(format!("{count} volumes of {class}"));
            }
            let unclean = |disks: Arc<Disks>| disks.left(&class).0;
            if seen.ever.insert(uid) && disks.upgrade().is_some_and(unclean) {
                seen.breaches
                    .push(format!("{class} is offered with somebody's data"));
            }
        });
    }

    fn start(&self) -> Process {
        let client = self.strikes.client(self.server.service());
        let process = Process::new(client, Clock::system());
        crate::provisioner::start_with(&process, self.settings.clone(), SILENCE);
        process
    }

    /// A provisioner's settings with a changed configuration, which stands in its file as well.
    fn settings_with(&self, change: impl FnOnce(&mut Value)) -> Settings {
        let mut settings = self.settings.clone();
        let text = fs::read_to_string(&settings.config_path).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        change(&mut config["storageClassMap"]);
        let text = config.to_string();
        fs::write(&settings.config_path, &text).unwrap();
        settings.config = Config::parse(&text).unwrap();
        settings
    }

    /// The reasons of all events.
    pub(super) async fn reasons(&self) -> BTreeSet<String> {
        let events = self.others.cluster.list::<Event>(None).await.unwrap();
        events.into_iter().map(|event| event.reason).collect()
    }

    /// Waits for an event with these words.
    async fn until_told(&self, reason: &str, words: &str) {
        let told = async {
            loop {
                let events = self.others.cluster.list::<Event>(None).await.unwrap();
                let mut of = events.iter().filter(|event| event.reason == reason);
                if of.any(|event| event.message.contains(words)) {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        assert!(told.is_ok(), "waited in vain: {reason}: {words}");
    }

    /// Waits for something; what died meanwhile is started again.
    async fn until(&self, what: &str, roles: &mut [Process], holds: impl Fn(&[Volume]) -> bool) {
        let started = Instant::now();
        loop {
            let volumes = self.others.cluster.list::<Volume>(None).await.unwrap();
            if holds(&volumes) {
                return;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "waited in vain: {what}: {volumes:#?}"
            );
            tokio::select! {
                () = self.strikes.end() => {
                    // The one that was struck hangs; the others would go on.
                    for role in roles.iter_mut() {
                        role.kill();
                        *role = self.start();
                    }
                }
                () = sleep(Duration::from_millis(20)) => {}
            }
        }
    }

    async fn claim(&self, class: &str, mode: &str) {
        let claim = json!({
            "metadata": {"name": class, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "volumeMode": mode, "resources": {"requests": {"storage": "1Mi"}}},
        });
        let made = self.others.cluster.create_json::<Claim>(&claim).await;
        made.unwrap();
    }

    pub(super) async fn run(&self, instances: usize) {
        let mut roles: Vec<Process> = (0..instances).map(|_| self.start()).collect();
        let phases = |volumes: &[Volume], wanted: VolumePhase| {
            volumes.len() == CLASSES.len() && volumes.iter().all(|v| v.phase() == wanted)
        };
        self.until("both are offered", &mut roles, |volumes| {
            phases(volumes, VolumePhase::Available)
        })
        .await;
        let first = self.others.cluster.list::<Volume>(None).await.unwrap();
        for name in CLASSES {
            let mode = match name {
                "raw" => "Block",
                _ => "Filesystem",
            };
            self.claim(name, mode).await;
        }
        self.until("both are bound", &mut roles, |volumes| {
            phases(volumes, VolumePhase::Bound)
        })
        .await;
        self.disks.fill();
        // A provisioner that starts now has nothing to do, and does nothing.
        roles[0].kill();
        roles[0] = self.start();
        sleep(Duration::from_millis(50)).await;
        for class in CLASSES {
            assert!(self.disks.left(class).1, "{class} was touched while in use");
        }
        for name in CLASSES {
            let key = Key::namespaced("default", name);
            let any = Preconditions::default();
            let api = &self.others.cluster;
            api.delete::<Claim>(&key, &any).await.unwrap();
        }
        let before: BTreeSet<&str> = first.iter().map(|v| v.meta().uid.as_str()).collect();
        self.until("both are offered again", &mut roles, |volumes| {
            phases(volumes, VolumePhase::Available)
                && volumes
                    .iter()
                    .all(|v| !before.contains(v.meta().uid.as_str()))
        })
        .await;
        for class in CLASSES {
            assert!(!self.disks.left(class).0, "{class} is not clean");
        }
        for role in roles {
            role.kill();
        }
        self.others.kill();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(seen.breaches.is_empty(), "{:?}", seen.breaches);
        // Two of each: none was offered for nothing.
        assert_eq!(seen.ever.len(), 4);
    }
}
