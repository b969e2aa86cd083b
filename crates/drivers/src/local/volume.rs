//! A volume as the driver records it.
//!
//! Owns the shape of the two files beside each image and the meaning of their fields. A volume id
//! names a record; it is never used as a path before it has been recognised as one of ours.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use orlop_host::{BootId, FsKind};
use serde::{Deserialize, Serialize};

use super::capability::Capability;
use super::ids::hashed_id;
use super::room::Allocation;

hashed_id! {
    /// The id of a volume.
    VolumeId, "v-", "not a volume id"
}

impl VolumeId {
    /// The id of an inline volume, whose own id the kubelet chose.
    #[must_use]
    pub fn of_inline(kubelet_id: &str) -> Self {
        Self::of_name(&inline_name(kubelet_id))
    }
}

/// The name of an inline volume. No name that is asked for can begin like this.
pub(super) fn inline_name(kubelet_id: &str) -> String {
    format!("\0inline\0{kubelet_id}")
}

/// The name of a node, as its kubelet and the topology know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(pub String);

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// What is known of a volume on any node: `meta.json`, on disk before anything depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRecord {
    /// The volume.
    pub id: VolumeId,
    /// The name that it was asked for by.
    pub name: String,
    /// Its place in the order of creation; lists and their tokens go by it.
    pub serial: u64,
    /// The size that was promised. The image follows: it may be smaller for a moment, never larger.
    pub capacity_bytes: u64,
    /// The class' parameters, as they were.
    pub parameters: BTreeMap<String, String>,
    /// Whether its blocks are its own from the start.
    #[serde(default)]
    pub allocation: Allocation,
    /// How far the kernel reads ahead, if not as far as it would by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead_kib: Option<u32>,
    /// What it was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Who decides when it ends.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// What the image holds.
    pub content: Content,
    /// The size that its file system was made or last grown for, or that a raw device had when it
    /// was first handed out or last grown. What lies between this and the capacity is given to the
    /// file system when the volume is next staged or expanded. An image that is smaller than this
    /// has lost data.
    #[serde(default)]
    pub file_system_bytes: u64,
    /// The nodes that it is published on.
    pub publications: BTreeMap<NodeName, Publication>,
}

impl VolumeRecord {
    /// A blank, thin volume that nobody uses yet.
    #[must_use]
    pub fn blank(name: &str, serial: u64, capacity_bytes: u64) -> Self {
        Self {
            id: VolumeId::of_name(name),
            name: name.to_owned(),
            serial,
            capacity_bytes,
            parameters: BTreeMap::new(),
            allocation: Allocation::Thin,
            read_ahead_kib: None,
            source: None,
            lifetime: Lifetime::Persistent,
            content: Content::Blank,
            file_system_bytes: 0,
            publications: BTreeMap::new(),
        }
    }

    /// The least that the image has unless it was damaged. Only what comes after may be missing: of a
    /// growth that was not finished.
    #[must_use]
    pub fn least_image_bytes(&self) -> u64 {
        match self.content {
            Content::Blank => 0,
            Content::FileSystem(_) | Content::Raw => self.file_system_bytes,
        }
    }
}

/// What a volume was copied from when it was made. It may be long gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A snapshot, by its id.
    Snapshot(String),
    /// Another volume.
    Volume(VolumeId),
}

/// Who decides when a volume ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lifetime {
    /// Whoever asked for it, by `DeleteVolume`.
    #[default]
    Persistent,
    /// The pod that it was made for: it goes with its one publication.
    Inline,
}

/// What an image holds. It only ever moves away from [`Content::Blank`].
///
/// The change is on disk before anybody can write to the volume. So a blank volume can be formatted
/// again and again, whatever a crash left in it, and any other is never formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// Nothing that anybody could miss.
    Blank,
    /// A file system that we made.
    FileSystem(FsKind),
    /// Whatever a user of the raw device put there.
    Raw,
}

impl Content {
    /// The file system that we made, if we made one.
    #[must_use]
    pub fn file_system(self) -> Option<FsKind> {
        match self {
            Self::FileSystem(kind) => Some(kind),
            Self::Blank | Self::Raw => None,
        }
    }
}

/// How a volume is published on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// In which form and by how many.
    pub capability: Capability,
    /// Whether the node may write.
    pub read_only: bool,
}

/// What the node side is doing with a volume: `node.json`.
///
/// Written before the mount that it speaks of, and removed after it: so it names every mount that
/// may exist, though not every mount that it names need exist. Void after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The boot in which all this is true.
    pub boot: BootId,
    /// Where and how it is staged.
    pub staged: Option<Staged>,
    /// Where and how it is published.
    pub targets: BTreeMap<PathBuf, Publication>,
}

impl NodeRecord {
    /// A volume that this node does not use.
    #[must_use]
    pub fn unused(boot: BootId) -> Self {
        Self {
            boot,
            staged: None,
            targets: BTreeMap::new(),
        }
    }

    /// Whether nothing is on record.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.staged.is_none() && self.targets.is_empty()
    }
}

/// Where and how a volume is staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Staged {
    /// The staging directory.
    pub path: PathBuf,
    /// The form it was asked for in.
    #[serde(flatten)]
    pub publication: Publication,
}
