//! What the model knows: volumes, snapshots, groups.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use orlop_csi::proto::{self, VolumeCapability};
use orlop_host::LoopDevice;

use super::store::Form;

pub(crate) type Map = BTreeMap<String, String>;

/// All of it; one call at a time has it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    pub(crate) groups: BTreeMap<String, Group>,
    made: u64,
    /// Counts calls, for faults that differ from call to call.
    pub(crate) calls: u64,
    /// How often the plugin's capabilities were asked for, for a fault.
    pub(crate) asked_for_capabilities: u64,
    /// Ids that existed once.
    pub(crate) deleted: Vec<String>,
    /// The call does not see which names exist: a fault.
    pub(crate) blind: bool,
}

impl State {
    /// An id that nothing had before, later ones sorting after earlier ones.
    pub(crate) fn fresh(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{:08}", self.made)
    }
}

#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) id: String,
    /// The request that made it, without secrets: what a repetition is compared with.
    pub(crate) asked: proto::CreateVolumeRequest,
    pub(crate) form: Form,
    pub(crate) capacity: i64,
    pub(crate) first_capacity: i64,
    pub(crate) context: Map,
    pub(crate) mutable: Map,
    /// By node.
    pub(crate) attached: BTreeMap<String, Attachment>,
    pub(crate) staged: Option<Staged>,
    /// By target path.
    pub(crate) published: BTreeMap<PathBuf, Published>,
    /// Whose data it uses, if not its own: a fault.
    pub(crate) borrows: Option<String>,
}

impl Volume {
    pub(crate) fn in_use(&self) -> bool {
        !self.attached.is_empty() || self.staged.is_some() || !self.published.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attachment {
    pub(crate) capability: VolumeCapability,
    pub(crate) readonly: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Staged {
    pub(crate) path: PathBuf,
    pub(crate) capability: VolumeCapability,
}

#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) capability: VolumeCapability,
    pub(crate) readonly: bool,
    pub(crate) device: Option<LoopDevice>,
}

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) form: Form,
    pub(crate) size: i64,
    pub(crate) made: SystemTime,
    pub(crate) group: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) sources: Vec<String>,
    pub(crate) parameters: Map,
    pub(crate) members: Vec<String>,
    pub(crate) made: SystemTime,
}
