//! What is known of the snapshots and groups in all pools.
//!
//! Mirrors the pools' files as the index of volumes does. A snapshot of a group that is not on
//! record is half made or half removed, and goes at start.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::Code;

use super::home::Home;
use super::pool::{GroupRead, OpenError, Pool, SnapshotRead};
use super::pools::Elsewhere;
use super::snapshot::{Group, GroupId, Snapshot, SnapshotId};
use super::volume::VolumeId;

/// A snapshot's place in the order of creation.
pub(super) type Place = (u64, SnapshotId);

/// The snapshots and groups of all pools.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    /// By the ids that they have in any pool, so that a name finds them.
    snapshots: BTreeMap<SnapshotId, Entry>,
    /// With the id: pools that were other drivers' may have the same numbers.
    order: BTreeSet<Place>,
    last_serial: u64,
    promised: BTreeMap<Home, u64>,
    /// Likewise.
    groups: BTreeMap<GroupId, GroupEntry>,
}

#[derive(Debug)]
enum Entry {
    Sound(Box<Snapshot>),
    Broken(SnapshotId, Home),
}

#[derive(Debug)]
enum GroupEntry {
    Sound(Group),
    Broken(GroupId, Home),
}

/// Why a snapshot or group cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error("there is no {what} {id:?}")]
    Unknown {
        /// A snapshot or a group.
        what: &'static str,
        /// The id as it was asked for.
        id: String,
    },
    /// Its record is damaged.
    #[error("the record of {what} {id} is damaged; restore it and restart the driver")]
    Broken {
        /// A snapshot or a group.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// It may be in a pool that is not here.
    #[error("{what} {id} cannot be looked up")]
    Away {
        /// A snapshot or a group.
        what: &'static str,
        /// Its id.
        id: String,
        /// Why.
        #[source]
        source: Box<Elsewhere>,
    },
}

impl FindError {
    /// A snapshot that is not there any more.
    pub(super) fn gone(id: &SnapshotId) -> Self {
        Self::unknown("snapshot", id.as_str())
    }

    fn unknown(what: &'static str, id: &str) -> Self {
        let id = id.chars().take(64).collect();
        Self::Unknown { what, id }
    }

    /// How callers should take it.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => Code::NotFound,
            Self::Broken { .. } => Code::DataLoss,
            Self::Away { .. } => Code::Unavailable,
        }
    }
}

/// Which snapshots a list shall show.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// Only this one.
    pub snapshot: Option<SnapshotId>,
    /// Only those of this volume.
    pub source: Option<VolumeId>,
}

impl Filter {
    fn admits(&self, snapshot: &Snapshot) -> bool {
        let record = &snapshot.record;
        self.snapshot.as_ref().is_none_or(|id| *id == record.id)
            && self.source.as_ref().is_none_or(|id| *id == record.source)
    }
}

impl Snapshots {
    /// Reads all pools and removes what is half made or half removed.
    pub(super) fn open(pools: &BTreeMap<Home, Pool>) -> Result<Self, OpenError> {
        let snapshots = Self::default();
        for (home, pool) in pools.iter().filter(|(_, pool)| pool.is_held()) {
            if let Err(source) = snapshots.read(home, pool) {
                let path = pool.directory().to_owned();
                pool.give_up_if_failing(OpenError::Directory { path, source })?;
            }
        }
        for orphan in snapshots.orphans(pools) {
            let id = &orphan.record.id;
            tracing::info!(snapshot_id = %id, "the snapshot's group is not complete; removing it");
            if let Some(pool) = pools.get(&orphan.home)
                && let Err(error) = pool.remove_snapshot(id)
            {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(snapshot_id = %id, error, "it stays until the next start");
            }
            snapshots.forget(id);
        }
        Ok(snapshots)
    }

    /// Reads a pool anew.
    pub(super) fn read(&self, home: &Home, pool: &Pool) -> io::Result<()> {
        let (snapshots, groups) = (pool.read_snapshots()?, pool.read_groups()?);
        let mut index = self.index();
        index.forget_home(home);
        for group in groups {
            let home = home.clone();
            let (id, entry) = match group {
                GroupRead::Sound(record) => {
                    (record.id.clone(), GroupEntry::Sound(Group { home, record }))
                }
                GroupRead::Broken(id) => (id.clone(), GroupEntry::Broken(id, home)),
            };
            index.groups.insert(id.anywhere(), entry);
        }
        for snapshot in snapshots {
            let home = home.clone();
            match snapshot {
                SnapshotRead::Sound(record) => index.learn(Snapshot { home, record }),
                SnapshotRead::Broken(id) => {
                    index
                        .snapshots
                        .insert(id.anywhere(), Entry::Broken(id, home));
                }
            }
        }
        Ok(())
    }

    /// Snapshots whose group should be on record in a pool that we have, and is not.
    fn orphans(&self, pools: &BTreeMap<Home, Pool>) -> Vec<Snapshot> {
        let index = self.index();
        let sound = index.snapshots.values().filter_map(Entry::sound);
        sound
            .filter(|snapshot| {
                snapshot.record.group.as_ref().is_some_and(|membership| {
                    pools.get(&membership.home()).is_some_and(Pool::is_held)
                        && !index.groups.contains_key(&membership.group.anywhere())
                })
            })
            .cloned()
            .collect()
    }

    /// The snapshot with this id.
    pub(super) fn find(&self, id: &str) -> Result<Snapshot, FindError> {
        const WHAT: &str = "snapshot";
        let known = SnapshotId::parse(id).ok_or_else(|| FindError::unknown(WHAT, id))?;
        match self.index().snapshots.get(&known.anywhere()) {
            Some(Entry::Sound(snapshot)) if known.means(&snapshot.record.id) => {
                Ok(Snapshot::clone(snapshot))
            }
            Some(Entry::Broken(id, _)) if known.means(id) => Err(FindError::Broken {
                what: WHAT,
                id: known.into(),
            }),
            Some(_) | None => Err(FindError::unknown(WHAT, id)),
        }
    }

    /// The group with this id.
    pub(super) fn find_group(&self, id: &str) -> Result<Group, FindError> {
        const WHAT: &str = "group snapshot";
        let known = GroupId::parse(id).ok_or_else(|| FindError::unknown(WHAT, id))?;
        match self.index().groups.get(&known.anywhere()) {
            Some(GroupEntry::Sound(group)) if known.means(&group.record.id) => Ok(group.clone()),
            Some(GroupEntry::Broken(id, _)) if known.means(id) => Err(FindError::Broken {
                what: WHAT,
                id: known.into(),
            }),
            Some(_) | None => Err(FindError::unknown(WHAT, id)),
        }
    }

    /// The snapshots that say that they belong to a group, whether it is on record or not.
    pub(super) fn members(&self, group: &GroupId) -> Vec<Snapshot> {
        let index = self.index();
        let sound = index.snapshots.values().filter_map(Entry::sound);
        sound
            .filter(|it| {
                let membership = it.record.group.as_ref();
                membership.is_some_and(|membership| membership.group == *group)
            })
            .cloned()
            .collect()
    }

    /// The place in the order of creation for a new snapshot.
    pub(super) fn next_serial(&self) -> u64 {
        let mut index = self.index();
        index.last_serial += 1;
        index.last_serial
    }

    /// A snapshot that is on disk.
    pub(super) fn learn(&self, snapshot: Snapshot) {
        self.index().learn(snapshot);
    }

    /// A group that is on disk, with its snapshots: all appear at once.
    pub(super) fn learn_group(&self, group: Group, snapshots: Vec<Snapshot>) {
        let mut index = self.index();
        for snapshot in snapshots {
            index.learn(snapshot);
        }
        let id = group.record.id.anywhere();
        index.groups.insert(id, GroupEntry::Sound(group));
    }

    /// A snapshot that is gone.
    pub(super) fn forget(&self, id: &SnapshotId) {
        self.index().forget(id);
    }

    /// A group that is gone; its snapshots may still be there.
    pub(super) fn forget_group(&self, id: &GroupId) {
        self.index().groups.remove(&id.anywhere());
    }

    /// Whether no snapshot or group is known in a pool.
    pub(super) fn is_vacant(&self, home: &Home) -> bool {
        let index = self.index();
        !index.snapshots.values().any(|entry| entry.home() == home)
            && !index.groups.values().any(|entry| entry.home() == home)
    }

    /// The bytes of a pool that its snapshots may yet need.
    pub(super) fn promised(&self, home: &Home) -> u64 {
        self.index().promised.get(home).copied().unwrap_or(0)
    }

    /// Snapshots in the order of their creation, beginning after `after`; at most `limit`.
    ///
    /// The second part is where the next page begins, if there is more.
    pub(super) fn page(
        &self,
        after: Option<&Place>,
        limit: usize,
        filter: &Filter,
    ) -> (Vec<Snapshot>, Option<Place>) {
        let index = self.index();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = index
            .order
            .range((begin, Bound::Unbounded))
            .filter_map(|place| Some((place, index.snapshots.get(&place.1.anywhere())?.sound()?)))
            .filter(|(_, snapshot)| filter.admits(snapshot));
        let mut last = None;
        let mut page = Vec::new();
        for (place, snapshot) in rest.by_ref().take(limit) {
            last = Some(place.clone());
            page.push(snapshot.clone());
        }
        let more = rest.next().is_some();
        (page, last.filter(|_| more))
    }

    /// Whole even if its last user panicked: every change is made after the disk.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn sound(&self) -> Option<&Snapshot> {
        match self {
            Self::Sound(snapshot) => Some(snapshot),
            Self::Broken(..) => None,
        }
    }

    fn home(&self) -> &Home {
        match self {
            Self::Sound(snapshot) => &snapshot.home,
            Self::Broken(_, home) => home,
        }
    }
}

impl GroupEntry {
    fn home(&self) -> &Home {
        match self {
            Self::Sound(group) => &group.home,
            Self::Broken(_, home) => home,
        }
    }
}

impl Index {
    fn learn(&mut self, snapshot: Snapshot) {
        let record = &snapshot.record;
        let promised = self.promised.entry(snapshot.home.clone()).or_default();
        *promised = promised.saturating_add(record.blocks.promised());
        self.last_serial = self.last_serial.max(record.serial);
        self.order.insert((record.serial, record.id.clone()));
        self.snapshots
            .insert(record.id.anywhere(), Entry::Sound(Box::new(snapshot)));
    }

    fn forget(&mut self, id: &SnapshotId) {
        if let Some(Entry::Sound(snapshot)) = self.snapshots.remove(&id.anywhere()) {
            let Snapshot { home, record } = *snapshot;
            if let Some(promised) = self.promised.get_mut(&home) {
                *promised = promised.saturating_sub(record.blocks.promised());
            }
            self.order.remove(&(record.serial, record.id));
        }
    }

    fn forget_home(&mut self, home: &Home) {
        let there: Vec<_> = self
            .snapshots
            .iter()
            .filter(|(_, entry)| entry.home() == home)
            .map(|(id, _)| id.clone())
            .collect();
        for id in there {
            self.forget(&id);
        }
        self.groups.retain(|_, entry| entry.home() != home);
    }
}
