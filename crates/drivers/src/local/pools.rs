//! All pools of this driver, and what is known of their volumes.
//!
//! The pools' files are the truth; the index here mirrors their records so that lists and look-ups
//! need no disk. Every change goes to disk first. The locks of the pools make the mirror exact.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_host::FsKind;

use super::home::{Home, PoolName};
use super::in_flight::InFlight;
use super::memory::Memory;
use super::pool::{self, OpenError, Pool, Presence, StoreError};
use super::reach::Reach;
use super::room::Rules;
use super::snapshots::Snapshots;
use super::volume::{Lifetime, NodeName, VolumeRecord};

mod describe;
mod find;
mod index;
mod space;

pub use describe::PoolSight;
pub(super) use find::{Elsewhere, FindError};
use index::Index;
pub(super) use space::Reservation;
pub(super) use space::ReserveError;

/// The pools of one or more nodes.
#[derive(Debug)]
pub struct Pools {
    driver_name: String,
    default_fs: FsKind,
    rules: Rules,
    max_volumes: u32,
    reaches: BTreeMap<NodeName, Reach>,
    pools: BTreeMap<Home, Pool>,
    memory: Memory,
    index: Mutex<Index>,
    snapshots: Snapshots,
    in_flight: InFlight,
}

/// What holds for all pools.
#[derive(Debug)]
pub(super) struct Common {
    pub driver_name: String,
    pub default_fs: FsKind,
    pub rules: Rules,
    pub max_volumes: u32,
    pub reaches: BTreeMap<NodeName, Reach>,
    pub memory: Memory,
}

/// A volume and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// The pool that it is in.
    pub home: Home,
    /// What is known of it.
    pub record: VolumeRecord,
}

impl Pools {
    /// Opens every pool and reads its volumes.
    pub(super) fn open(
        common: Common,
        directories: &BTreeMap<Home, PathBuf>,
    ) -> Result<Self, OpenError> {
        let Common {
            driver_name,
            default_fs,
            rules,
            max_volumes,
            reaches,
            memory,
        } = common;
        if let Some(error) = pool::same_folder(directories) {
            return Err(error);
        }
        let mut pools = BTreeMap::new();
        let mut index = Index::default();
        for (home, directory) in directories {
            let (pool, found) = Pool::open_remembered(directory, &memory)?;
            if pool.is_held() {
                index.learn_all(home, found);
            }
            pools.insert(home.clone(), pool);
        }
        let snapshots = Snapshots::open(&pools)?;
        Ok(Self {
            driver_name,
            default_fs,
            rules,
            max_volumes,
            reaches,
            pools,
            memory,
            index: Mutex::new(index),
            snapshots,
            in_flight: InFlight::default(),
        })
    }

    /// The driver's name.
    #[must_use]
    pub fn driver_name(&self) -> &str {
        &self.driver_name
    }

    /// The file system of volumes that name none.
    #[must_use]
    pub fn default_fs(&self) -> FsKind {
        self.default_fs
    }

    /// How many volumes a node may use at once; 0 means that we set no limit.
    #[must_use]
    pub fn max_volumes(&self) -> u32 {
        self.max_volumes
    }

    /// Which paths a node's callers may name.
    #[must_use]
    pub fn reach(&self, node: &NodeName) -> &Reach {
        self.reaches.get(node).unwrap_or(&Reach::Anywhere)
    }

    /// The nodes that have a pool.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        let mut last = None;
        self.pools
            .keys()
            .map(|home| &home.node)
            .filter(move |node| last.replace(*node) != Some(*node))
    }

    /// Whether a node has a pool.
    #[must_use]
    pub fn has_node(&self, node: &NodeName) -> bool {
        self.nodes().any(|known| known == node)
    }

    /// Every pool and where it is.
    pub fn pools(&self) -> impl Iterator<Item = (&Home, &Pool)> {
        self.pools.iter()
    }

    /// The pools of a node that a class allows: all, or the one that it names.
    pub(super) fn candidates(&self, node: &NodeName, named: Option<&PoolName>) -> Vec<Home> {
        self.pools
            .keys()
            .filter(|home| home.node == *node && named.is_none_or(|name| home.pool == *name))
            .cloned()
            .collect()
    }

    /// Whether any node has a pool of this name.
    pub(super) fn has_pool(&self, name: &PoolName) -> bool {
        self.pools.keys().any(|home| home.pool == *name)
    }

    /// The pool that a volume is in.
    pub(super) fn pool_of(&self, volume: &Volume) -> &Pool {
        self.pool(&volume.home)
    }

    /// The pool at a home that is known to have one.
    pub(super) fn pool(&self, home: &Home) -> &Pool {
        self.pools
            .get(home)
            .expect("volumes are known only from pools that are open")
    }

    /// What is known of snapshots.
    pub(super) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// The operations that are running.
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Takes back pools that were gone and came back.
    pub(super) fn look_after(&self) {
        for (home, pool) in &self.pools {
            let vacant = self.index().is_vacant(home) && self.snapshots.is_vacant(home);
            if let Presence::Back(found) = pool.presence(vacant) {
                let mut index = self.index();
                index.forget_home(home);
                index.learn_all(home, found);
                drop(index);
                pool.write_down(&self.memory);
                if let Err(error) = self.snapshots.read(home, pool) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(%home, error, "the pool's snapshots cannot be read");
                }
            }
        }
    }

    /// The place in the order of creation for a new volume.
    pub(super) fn next_serial(&self) -> u64 {
        self.index().next_serial()
    }

    /// Makes a blank volume for which space was reserved.
    pub(super) fn create(&self, volume: &Volume, space: Reservation<'_>) -> Result<(), StoreError> {
        self.pool_of(volume).create(&volume.record)?;
        self.created(volume, space);
        Ok(())
    }

    /// Makes a volume for which space was reserved, and whose image `fill` makes.
    pub(super) fn create_with<E: From<StoreError>>(
        &self,
        volume: &Volume,
        space: Reservation<'_>,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pool_of(volume).create_with(&volume.record, fill)?;
        self.created(volume, space);
        Ok(())
    }

    fn created(&self, volume: &Volume, space: Reservation<'_>) {
        self.index().learn(volume.clone());
        drop(space);
    }

    /// Replaces a volume's record.
    pub(super) fn save(&self, volume: &Volume) -> Result<(), StoreError> {
        self.pool_of(volume).write(&volume.record)?;
        let mut index = self.index();
        index.forget(&volume.record.id);
        index.learn(volume.clone());
        Ok(())
    }

    /// Removes a volume and its data.
    pub(super) fn remove(&self, volume: &Volume) -> Result<(), StoreError> {
        self.pool_of(volume).remove(&volume.record.id)?;
        self.index().forget(&volume.record.id);
        Ok(())
    }

    /// How many volumes are published on a node.
    pub(super) fn published_on(&self, node: &NodeName) -> usize {
        self.index()
            .sound()
            .filter(|volume| volume.record.publications.contains_key(node))
            .count()
    }

    /// Volumes in the order of their creation, beginning after `after`; at most `limit`. Those that
    /// were made for a pod are nobody else's business.
    ///
    /// The second part is the token for the next page, if there is more.
    pub(super) fn page(&self, after: u64, limit: usize) -> (Vec<Volume>, Option<u64>) {
        let index = self.index();
        let mut rest = index
            .after(after)
            .filter(|volume| volume.record.lifetime == Lifetime::Persistent);
        let page: Vec<_> = rest.by_ref().take(limit).cloned().collect();
        let last = page.last().map_or(after, |volume| volume.record.serial);
        let more = rest.next().is_some();
        (page, more.then_some(last))
    }

    /// Whether the index is whole even if its last user panicked: every change is one insertion or
    /// removal in it, made after the disk.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
