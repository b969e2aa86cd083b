//! The driver under test and what it says about itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_csi::client::{ControllerCapability, NodeCapability, PluginService, VolumeExpansion};
use orlop_csi::{CallError, Driver, DriverInfo, Method, Service, proto};
use tonic::Code;

use crate::case::Need;
use crate::folder::RunFolder;
use crate::observed::Observed;
use crate::room::Room;
use crate::settings::Settings;

/// A secret shorter than this can't be told from chance.
const SHORTEST_SECRET: usize = 6;

/// Why the driver could not be met.
#[derive(Debug)]
pub(crate) enum MeetError {
    Call(Box<CallError>),
    Folder(std::io::Error),
}

impl From<CallError> for MeetError {
    fn from(error: CallError) -> Self {
        Self::Call(Box::new(error))
    }
}

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) settings: Settings,
    /// The plugin as the controller's socket tells it.
    pub(crate) controller: DriverInfo,
    /// The plugin as the node's socket tells it.
    pub(crate) node: DriverInfo,
    /// What the node is called; empty without a Node service.
    pub(crate) node_id: String,
    pub(crate) max_volumes: i64,
    pub(crate) topology: Option<proto::Topology>,
    mounts: bool,
    blocks: bool,
    pub(crate) observed: Observed,
    pub(crate) folder: RunFolder,
    /// A word in every name of this run.
    pub(crate) tag: String,
    counter: AtomicU64,
    canaries: Mutex<Vec<String>>,
    /// What was listed before the run.
    pub(crate) volumes_before: BTreeSet<String>,
    made: Mutex<BTreeSet<String>>,
    room: Mutex<Room>,
}

impl Bench {
    /// Meets the driver.
    pub(crate) async fn meet(settings: Settings) -> Result<Self, MeetError> {
        let controller = settings.controller.info().await?.as_ref().clone();
        let node = settings.node.info().await?.as_ref().clone();
        let told = settings.node.node_get_info(proto::NodeGetInfoRequest {});
        let told = match told.await {
            Ok(told) => told,
            Err(error) if error.code == Code::Unimplemented => Default::default(),
            Err(error) => return Err(error.into()),
        };
        let volumes_before = listed(&settings).await;
        // Last, so that a driver that isn't there leaves no folder behind.
        let folder = RunFolder::make(&settings.staging_folder, &settings.target_folder)
            .map_err(MeetError::Folder)?;
        let secrets: Vec<String> = settings
            .secrets
            .values()
            .filter(|value| value.len() >= SHORTEST_SECRET)
            .map(str::to_owned)
            .collect();
        Ok(Self {
            settings,
            controller,
            node,
            node_id: told.node_id,
            max_volumes: told.max_volumes_per_node,
            topology: told.accessible_topology,
            mounts: true,
            blocks: true,
            observed: Observed::default(),
            folder,
            tag: format!("{:08x}", fastrand::u32(..)),
            counter: AtomicU64::new(0),
            canaries: Mutex::new(secrets),
            volumes_before,
            made: Mutex::default(),
            room: Mutex::default(),
        })
    }

    /// Remembers which kinds of volumes the driver turned out not to make.
    pub(crate) fn set_kinds(&mut self, mounts: bool, blocks: bool) {
        self.mounts = mounts;
        self.blocks = blocks;
    }

    /// Where a call goes.
    pub(crate) fn driver(&self, method: Method) -> &Driver {
        match method.service() {
            Service::Node | Service::Identity => &self.settings.node,
            Service::Controller | Service::GroupController | Service::SnapshotMetadata => {
                &self.settings.controller
            }
        }
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers a volume of this run.
    pub(crate) fn add_made(&self, volume_id: String) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert(volume_id);
    }

    /// Every volume that this run has made.
    pub(crate) fn made(&self) -> BTreeSet<String> {
        self.made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What the run's volumes and snapshots take.
    pub(crate) fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Values that must never come back in a message.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let canaries = self.canaries.lock().unwrap_or_else(PoisonError::into_inner);
        canaries.clone()
    }

    pub(crate) fn add_canary(&self, canary: String) {
        let mut canaries = self.canaries.lock().unwrap_or_else(PoisonError::into_inner);
        canaries.push(canary);
    }

    /// The text without secrets.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets() {
            if text.contains(&secret) {
                text = text.replace(&secret, "***secret***");
            }
        }
        text
    }

    pub(crate) fn can(&self, capability: ControllerCapability) -> bool {
        self.controller.can(capability)
    }

    pub(crate) fn node_can(&self, capability: NodeCapability) -> bool {
        self.node.node_can(capability)
    }

    pub(crate) fn serves(&self, service: PluginService) -> bool {
        self.controller.serves(service) || self.node.serves(service)
    }

    fn grows(&self, how: VolumeExpansion) -> bool {
        self.controller.expansion.contains(&how) || self.node.expansion.contains(&how)
    }

    pub(crate) fn grows_online(&self) -> bool {
        self.grows(VolumeExpansion::Online)
    }

    /// Whether a case's need is met.
    pub(crate) fn has(&self, need: Need) -> bool {
        match need {
            Need::Plugin(what) => self.serves(what),
            Need::NoPlugin(what) => !self.serves(what),
            Need::Controller(what) => self.can(what),
            Need::NoController(what) => {
                self.serves(PluginService::ControllerService) && !self.can(what)
            }
            Need::Group(what) => self.controller.group.contains(&what),
            Need::Node(what) => self.node_can(what),
            Need::NoNode(what) => !self.node_can(what) && !self.node_id.is_empty(),
            Need::Expansion(how) => self.grows(how),
            Need::OfflineExpansionOnly => {
                self.grows(VolumeExpansion::Offline) && !self.grows(VolumeExpansion::Online)
            }
            Need::MountVolumes => self.mounts,
            Need::BlockVolumes => self.blocks,
            Need::MutableParameters => !self.settings.mutable_parameters.is_empty(),
            Need::Restart => self.settings.restart.is_some(),
            Need::DriverLog => self.settings.driver_log.is_some(),
            Need::OtherNode => self.settings.other_node_id.is_some(),
            Need::SocketFile => self.settings.socket.is_some(),
            Need::VolumeLimit(most) => (1..=most).contains(&self.max_volumes),
        }
    }
}

/// The ids of all volumes; as many as can be had from a driver whose list is yet to be judged.
async fn listed(settings: &Settings) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut starting_token = String::new();
    for _ in 0..1000 {
        let request = proto::ListVolumesRequest {
            max_entries: 0,
            starting_token,
        };
        let Ok(reply) = settings
            .controller
            .call_raw(&request, settings.timeout)
            .await
        else {
            break;
        };
        let volumes = reply.entries.into_iter().filter_map(|entry| entry.volume);
        ids.extend(volumes.map(|volume| volume.volume_id));
        if reply.next_token.is_empty() {
            break;
        }
        starting_token = reply.next_token;
    }
    ids
}
