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
use super::pool::{GroupRead, Pool, SnapshotRead};
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
    snapshots: BTreeMap<SnapshotId, Entry>,
    /// With the id: pools that were other drivers' may have the same numbers.
    order: BTreeSet<Place>,
    last_serial: u64,
    promised: BTreeMap<Home, u64>,
    groups: BTreeMap<GroupId, GroupEntry>,
}

#[derive(Debug)]
enum Entry {
    Sound(Box<Snapshot>),
    Broken(Home),
}

#[derive(Debug)]
enum GroupEntry {
    Sound(Group),
    Broken(Home),
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
    pub(super) fn open(pools: &BTreeMap<Home, Pool>) -> Result<Self, (Home, io::Error)> {
        let snapshots = Self::default();
        for (home, pool) in pools {
            snapshots
                .read(home, pool)
                .map_err(|error| (home.clone(), error))?;
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
                GroupRead::Broken(id) => (id, GroupEntry::Broken(home)),
            };
            index.groups.insert(id, entry);
        }
        for snapshot in snapshots {
            let home = home.clone();
            match snapshot {
                SnapshotRead::Sound(record) => index.learn(Snapshot { home, record }),
                SnapshotRead::Broken(id) => {
                    index.snapshots.insert(id, Entry::Broken(home));
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
                    pools.contains_key(&membership.home())
                        && !index.groups.contains_key(&membership.group)
                })
            })
            .cloned()
            .collect()
    }

    /// The snapshot with this id.
    pub(super) fn find(&self, id: &str) -> Result<Snapshot, FindError> {
        const WHAT: &str = "snapshot";
        let known = SnapshotId::parse(id).ok_or_else(|| FindError::unknown(WHAT, id))?;
        match self.index().snapshots.get(&known) {
            Some(Entry::Sound(snapshot)) => Ok(Snapshot::clone(snapshot)),
            Some(Entry::Broken(_)) => Err(FindError::Broken {
                what: WHAT,
                id: known.into(),
            }),
            None => Err(FindError::unknown(WHAT, id)),
        }
    }

    /// The group with this id.
    pub(super) fn find_group(&self, id: &str) -> Result<Group, FindError> {
        const WHAT: &str = "group snapshot";
        let known = GroupId::parse(id).ok_or_else(|| FindError::unknown(WHAT, id))?;
        match self.index().groups.get(&known) {
            Some(GroupEntry::Sound(group)) => Ok(group.clone()),
            Some(GroupEntry::Broken(_)) => Err(FindError::Broken {
                what: WHAT,
                id: known.into(),
            }),
            None => Err(FindError::unknown(WHAT, id)),
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
        let id = group.record.id.clone();
        index.groups.insert(id, GroupEntry::Sound(group));
    }

    /// A snapshot that is gone.
    pub(super) fn forget(&self, id: &SnapshotId) {
        self.index().forget(id);
    }

    /// A group that is gone; its snapshots may still be there.
    pub(super) fn forget_group(&self, id: &GroupId) {
        self.index().groups.remove(id);
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
            .filter_map(|place| Some((place, index.snapshots.get(&place.1)?.sound()?)))
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
            Self::Broken(_) => None,
        }
    }

    fn home(&self) -> &Home {
        match self {
            Self::Sound(snapshot) => &snapshot.home,
            Self::Broken(home) => home,
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
            .insert(record.id.clone(), Entry::Sound(Box::new(snapshot)));
    }

    fn forget(&mut self, id: &SnapshotId) {
        if let Some(Entry::Sound(snapshot)) = self.snapshots.remove(id) {
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
        self.groups.retain(|_, entry| match entry {
            GroupEntry::Sound(group) => group.home != *home,
            GroupEntry::Broken(at) => at != home,
        });
    }
}
