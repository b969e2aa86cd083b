//! Snapshots and groups of them, as the driver records them.
//!
//! A snapshot never changes: its record is written once, with its image, before it has its name.

use std::collections::BTreeMap;
use std::time::SystemTime;

use orlop_csi::proto;
use serde::{Deserialize, Serialize};

use super::home::{Home, PoolName};
use super::ids::hashed_id;
use super::volume::{Content, NodeName, VolumeId};

hashed_id! {
    /// The id of a snapshot.
    SnapshotId, "s-", "not a snapshot id"
}

hashed_id! {
    /// The id of a group of snapshots.
    GroupId, "g-", "not a group snapshot id"
}

impl SnapshotId {
    /// The id of the snapshot that a group has of a volume.
    #[must_use]
    pub fn of_member(group: &GroupId, volume: &VolumeId) -> Self {
        // No name that a snapshot can be asked for by has such a character.
        Self::of_name(&format!("{group}\0{volume}")).in_pool(volume.pool().as_ref())
    }
}

/// What is known of a snapshot: `meta.json` beside its image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotRecord {
    /// The snapshot.
    pub id: SnapshotId,
    /// The name that it was asked for by; that of the group for a member of one.
    pub name: String,
    /// Its place in the order of creation; lists and their tokens go by it.
    pub serial: u64,
    /// The volume that it was cut from, which may be long gone.
    pub source: VolumeId,
    /// The size of that volume then.
    pub size_bytes: u64,
    /// The moment of the cut.
    pub created: SystemTime,
    /// What the image holds.
    pub content: Content,
    /// The size that its file system was made or last grown for.
    pub file_system_bytes: u64,
    /// Its blocks.
    pub blocks: Blocks,
    /// The group that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Membership>,
}

/// Whose a snapshot's blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Blocks {
    /// Its own.
    Copied,
    /// Those of its source, as long as that does not change: then so many bytes more are needed.
    Shared {
        /// How many at most.
        bytes: u64,
    },
}

impl Blocks {
    /// The bytes of the pool that may yet be needed.
    #[must_use]
    pub(super) fn promised(self) -> u64 {
        match self {
            Self::Copied => 0,
            Self::Shared { bytes } => bytes,
        }
    }
}

/// A snapshot's place in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Membership {
    /// The group.
    pub group: GroupId,
    /// The node and the pool where the group's record is. Without that record the snapshot is half
    /// made or half removed.
    pub node: NodeName,
    /// See above.
    pub pool: PoolName,
}

impl Membership {
    /// Where the group's record is.
    #[must_use]
    pub(super) fn home(&self) -> Home {
        Home {
            node: self.node.clone(),
            pool: self.pool.clone(),
        }
    }
}

/// A group of snapshots of one moment. It exists if and only if this is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupRecord {
    /// The group.
    pub id: GroupId,
    /// The name that it was asked for by.
    pub name: String,
    /// The moment of the cut.
    pub created: SystemTime,
    /// Its snapshots, by the volume that each was cut from.
    pub members: BTreeMap<VolumeId, SnapshotId>,
}

/// A snapshot and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Its pool.
    pub home: Home,
    /// What is known of it.
    pub record: SnapshotRecord,
}

impl Snapshot {
    /// In the protocol's words.
    pub(super) fn to_wire(&self) -> proto::Snapshot {
        let record = &self.record;
        let group = record.group.as_ref();
        proto::Snapshot {
            size_bytes: i64::try_from(record.size_bytes).unwrap_or(i64::MAX),
            snapshot_id: record.id.as_str().to_owned(),
            source_volume_id: record.source.as_str().to_owned(),
            creation_time: Some(record.created.into()),
            // It has its name only once it is whole.
            ready_to_use: true,
            group_snapshot_id: group.map_or_else(String::new, |it| it.group.as_str().to_owned()),
        }
    }
}

/// A group and where its record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The pool with the record.
    pub home: Home,
    /// What is known of it.
    pub record: GroupRecord,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_an_id_that_no_other_snapshot_can_have() {
        let group = GroupId::of_name("nightly");
        let (one, two) = (VolumeId::of_name("1"), VolumeId::of_name("2"));
        let member = SnapshotId::of_member(&group, &one);
        assert_ne!(member, SnapshotId::of_member(&group, &two));
        assert_ne!(member, SnapshotId::of_name("nightly"));
        assert_eq!(SnapshotId::parse(member.as_str()), Some(member));
    }
}
