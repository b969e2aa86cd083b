//! What a worker is told to do, and what it tells.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::export::Export;
use super::failure::Failure;
use super::options::MountPlan;
use super::parameters::OnDelete;
use super::record::Record;
use super::shown::Seen;
use super::sub_dir::SubDir;

/// One call's work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// An empty folder to see shares on.
    pub(crate) working_dir: PathBuf,
    /// A folder that stands for all servers, in tests: `server/share` below it.
    pub(crate) stand_in: Option<PathBuf>,
    /// Whether what others left in the share's trash is deleted as well.
    pub(crate) sweep: bool,
    pub(crate) work: Work,
}

/// A share, and how it is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mounting {
    pub(crate) export: Export,
    pub(crate) plan: MountPlan,
}

/// The kinds of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Make a volume's folder.
    Create(Create),
    /// Do away with a volume's folder.
    Delete {
        on: Mounting,
        key: String,
        folder: SubDir,
        on_delete: OnDelete,
        remove_archived: bool,
        /// What this node shows of servers.
        shown: Vec<Seen>,
    },
    /// Look whether a volume is there.
    Look {
        on: Mounting,
        key: String,
        folder: SubDir,
    },
    /// Let a volume have another size, as far as there are sizes.
    Expand {
        on: Mounting,
        key: String,
        folder: SubDir,
        required: i64,
    },
    /// Measure a share.
    Measure { on: Mounting },
    /// Pack a volume into an archive.
    Pack {
        from: Mounting,
        source: SubDir,
        to: Mounting,
        folder: SubDir,
        /// Where it goes if a volume has that folder.
        aside: SubDir,
        archive: SubDir,
        compress: bool,
    },
    /// Do away with a snapshot's folder.
    Discard {
        on: Mounting,
        folder: SubDir,
        /// What its archive is named after.
        source: SubDir,
        /// What this node shows of servers.
        shown: Vec<Seen>,
    },
    /// Show a volume at a path of this node.
    Publish(Publish),
    /// Take it away from there.
    Unpublish {
        reach: Option<PathBuf>,
        target: PathBuf,
        force: bool,
    },
    /// Measure what is mounted at a path of this node.
    Stats {
        path: PathBuf,
        /// What is there, for messages.
        export: Option<Export>,
    },
}

/// See [`Work::Create`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Create {
    pub(crate) on: Mounting,
    pub(crate) record: Record,
    pub(crate) required: i64,
    pub(crate) limit: i64,
    pub(crate) permissions: Option<u32>,
    pub(crate) content: Option<Content>,
    /// What this node shows of servers, if there is content.
    pub(crate) shown: Vec<Seen>,
}

/// What a new volume is filled from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Content {
    Volume {
        on: Mounting,
        key: String,
        folder: SubDir,
    },
    Snapshot {
        on: Mounting,
        folder: SubDir,
        source: SubDir,
    },
}

/// See [`Work::Publish`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Publish {
    pub(crate) on: Mounting,
    pub(crate) folder: Option<SubDir>,
    pub(crate) permissions: Option<u32>,
    pub(crate) reach: Option<PathBuf>,
    pub(crate) target: PathBuf,
    /// What is at the target already, if it may be just this volume.
    pub(crate) there: Option<Seen>,
}

impl Work {
    /// The share that it works on, by a mount of its own.
    pub(crate) fn on(&self) -> Option<&Mounting> {
        match self {
            Self::Create(create) => Some(&create.on),
            Self::Delete { on, .. }
            | Self::Look { on, .. }
            | Self::Expand { on, .. }
            | Self::Measure { on }
            | Self::Discard { on, .. }
            | Self::Pack { to: on, .. } => Some(on),
            Self::Publish(_) | Self::Unpublish { .. } | Self::Stats { .. } => None,
        }
    }

    /// The same, if there is no other and it stays out of the node's mounts: then whoever has done it can do
    /// the next one on that share.
    pub(crate) fn only(&self) -> Option<&Mounting> {
        self.on().filter(|_| self.copies_in().is_none())
    }

    /// The share that it fills with a copy of something.
    pub(crate) fn copies_in(&self) -> Option<&Export> {
        match self {
            Self::Create(create) if create.content.is_some() => Some(&create.on.export),
            Self::Pack { to, .. } => Some(&to.export),
            _ => None,
        }
    }

    /// The share whose trash it fills.
    pub(crate) fn throws_away_in(&self) -> Option<&Export> {
        match self {
            Self::Delete { on, .. } | Self::Discard { on, .. } => Some(&on.export),
            _ => None,
        }
    }

    /// The share that it is about, for messages.
    pub(crate) fn export(&self) -> Option<&Export> {
        match self {
            Self::Publish(publish) => Some(&publish.on.export),
            Self::Pack { from, .. } => Some(&from.export),
            Self::Stats { export, .. } => export.as_ref(),
            _ => self.on().map(|on| &on.export),
        }
    }
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// What it is about to do: a verb for "while it was asked to …".
    Doing(String),
    /// It goes on: so many files are done.
    Beat(u64),
    /// The answer. It may go on tidying up afterwards, and says so by further beats.
    Done(Answer),
    /// It did not work out.
    Failed(Failure),
    /// It waits for another order on the share that it has.
    Free,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Nothing to tell.
    Done,
    /// The volume, and whether its server limits it.
    Volume {
        capacity_bytes: i64,
        quota: Option<u64>,
        /// What nodes were told about it, if that was written down.
        context: BTreeMap<String, String>,
    },
    /// There is no such volume.
    Nothing,
    /// An archive: bytes, and seconds and nanoseconds of its cut.
    Archive {
        bytes: u64,
        made: (i64, u32),
        /// Whether it is aside, since a volume has the folder of its name.
        is_aside: bool,
    },
    /// Figures of a file system.
    Usage(Figures),
    /// The path shows a mount whose server has replaced what was there.
    Stale,
}

/// A file system's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) total: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

impl From<orlop_host::Usage> for Figures {
    fn from(usage: orlop_host::Usage) -> Self {
        Self {
            total: usage.total_bytes,
            available: usage.available_bytes,
            used: usage.used_bytes,
            inodes: usage.total_inodes,
            inodes_free: usage.free_inodes,
        }
    }
}
