//! All pools of this driver, and what is known of their volumes.
//!
//! The pools' files are the truth; the index here mirrors their records so that lists and look-ups
//! need no disk. Every change goes to disk first. The locks of the pools make the mirror exact.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_host::FsKind;

use super::in_flight::InFlight;
use super::pool::{Found, OpenError, Pool, StoreError};
use super::volume::{NodeName, VolumeId, VolumeRecord};

/// The pools of one or more nodes, one each.
#[derive(Debug)]
pub struct Pools {
    driver_name: String,
    default_fs: FsKind,
    pools: BTreeMap<NodeName, Pool>,
    index: Mutex<Index>,
    in_flight: InFlight,
}

/// A volume and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// The node whose pool it is in.
    pub node: NodeName,
    /// What is known of it.
    pub record: VolumeRecord,
}

#[derive(Debug, Default)]
struct Index {
    volumes: BTreeMap<VolumeId, Entry>,
    order: BTreeMap<u64, VolumeId>,
    last_serial: u64,
    promised: BTreeMap<NodeName, u64>,
}

#[derive(Debug)]
enum Entry {
    Sound(Volume),
    Broken,
}

/// Why a volume cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error("there is no volume {id:?}")]
    Unknown {
        /// The id as it was asked for.
        id: String,
    },
    /// Its record is damaged.
    #[error("the record of volume {id} is damaged; restore its meta.json and restart the driver")]
    Broken {
        /// The volume.
        id: VolumeId,
    },
}

/// Why space could not be promised.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// There is not enough.
    // Whole gibibytes: what is left changes by the second, and would make every repetition of the
    // same trouble a new event.
    #[error(
        "{wanted} bytes are wanted and about {} GiB are left in the pool of node {node}",
        available >> 30
    )]
    NoSpace {
        /// The pool's node.
        node: NodeName,
        /// What was asked for.
        wanted: u64,
        /// What is left.
        available: u64,
    },
    /// The pool could not be measured.
    #[error("could not measure the pool of node {node}")]
    Measure {
        /// The pool's node.
        node: NodeName,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Bytes that are promised though no record says so yet; given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    pools: &'a Pools,
    node: NodeName,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.pools.index().unpromise(&self.node, self.bytes);
    }
}

impl Pools {
    /// Opens every pool and reads its volumes.
    pub(super) fn open(
        driver_name: String,
        default_fs: FsKind,
        directories: &BTreeMap<NodeName, PathBuf>,
    ) -> Result<Self, OpenError> {
        let mut pools = BTreeMap::new();
        let mut index = Index::default();
        for (node, directory) in directories {
            let (pool, found) = Pool::open(directory)?;
            index.promised.insert(node.clone(), 0);
            for found in found {
                index.learn(node, found);
            }
            pools.insert(node.clone(), pool);
        }
        let index = Mutex::new(index);
        Ok(Self {
            driver_name,
            default_fs,
            pools,
            index,
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

    /// The nodes that have a pool.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.pools.keys()
    }

    /// The pool of a node.
    #[must_use]
    pub fn pool(&self, node: &NodeName) -> Option<&Pool> {
        self.pools.get(node)
    }

    /// The pool that a volume is in.
    pub(super) fn pool_of(&self, volume: &Volume) -> &Pool {
        self.pools
            .get(&volume.node)
            .expect("volumes are known only from pools that are open")
    }

    /// The operations that are running.
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The volume with this id.
    pub(super) fn find(&self, id: &str) -> Result<Volume, FindError> {
        let unknown = || FindError::Unknown {
            id: id.chars().take(64).collect(),
        };
        let id = VolumeId::parse(id).ok_or_else(unknown)?;
        match self.index().volumes.get(&id) {
            Some(Entry::Sound(volume)) => Ok(volume.clone()),
            Some(Entry::Broken) => Err(FindError::Broken { id }),
            None => Err(unknown()),
        }
    }

    /// Promises bytes of a node's pool.
    pub(super) fn reserve(
        &self,
        node: &NodeName,
        bytes: u64,
    ) -> Result<Reservation<'_>, ReserveError> {
        let mut index = self.index();
        let available = self.available_in(&index, node, bytes)?;
        if bytes > available {
            return Err(ReserveError::NoSpace {
                node: node.clone(),
                wanted: bytes,
                available,
            });
        }
        *index.promised.entry(node.clone()).or_default() += bytes;
        Ok(Reservation {
            pools: self,
            node: node.clone(),
            bytes,
        })
    }

    /// The bytes that can still be promised in a node's pool.
    pub(super) fn available(&self, node: &NodeName) -> Result<u64, ReserveError> {
        self.available_in(&self.index(), node, u64::MAX)
    }

    /// At least `enough` if there is as much, else exactly what is left.
    fn available_in(
        &self,
        index: &Index,
        node: &NodeName,
        enough: u64,
    ) -> Result<u64, ReserveError> {
        let measure = |source| ReserveError::Measure {
            node: node.clone(),
            source,
        };
        let Some(pool) = self.pools.get(node) else {
            return Ok(0);
        };
        let free = pool.usage().map_err(measure)?.available_bytes;
        let promised = index.promised.get(node).copied().unwrap_or(0);
        // As if no image had a single block yet: less than the truth, and cheap.
        let at_least = free.saturating_sub(promised);
        if at_least >= enough {
            return Ok(at_least);
        }
        let mut taken = 0u64;
        for (id, entry) in &index.volumes {
            if matches!(entry, Entry::Sound(volume) if volume.node == *node) {
                match pool.allocated_bytes(id) {
                    Ok(bytes) => taken = taken.saturating_add(bytes),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(measure(error)),
                }
            }
        }
        Ok(free.saturating_add(taken).saturating_sub(promised))
    }

    /// The place in the order of creation for a new volume.
    pub(super) fn next_serial(&self) -> u64 {
        let mut index = self.index();
        index.last_serial += 1;
        index.last_serial
    }

    /// Makes a volume for which space was reserved.
    pub(super) fn create(&self, volume: &Volume, space: Reservation<'_>) -> Result<(), StoreError> {
        self.pool_of(volume).create(&volume.record)?;
        self.index()
            .learn(&volume.node, Found::Sound(volume.record.clone()));
        drop(space);
        Ok(())
    }

    /// Replaces a volume's record.
    pub(super) fn save(&self, volume: &Volume) -> Result<(), StoreError> {
        self.pool_of(volume).write(&volume.record)?;
        let mut index = self.index();
        index.forget(&volume.record.id);
        index.learn(&volume.node, Found::Sound(volume.record.clone()));
        Ok(())
    }

    /// Removes a volume and its data.
    pub(super) fn remove(&self, volume: &Volume) -> Result<(), StoreError> {
        self.pool_of(volume).remove(&volume.record.id)?;
        self.index().forget(&volume.record.id);
        Ok(())
    }

    /// Volumes in the order of their creation, beginning after `after`; at most `limit`.
    ///
    /// The second part is the token for the next page, if there is more.
    pub(super) fn page(&self, after: u64, limit: usize) -> (Vec<Volume>, Option<u64>) {
        let index = self.index();
        let mut rest = index
            .order
            .range(after.saturating_add(1)..)
            .filter_map(|(serial, id)| match index.volumes.get(id) {
                Some(Entry::Sound(volume)) => Some((*serial, volume)),
                Some(Entry::Broken) | None => None,
            });
        let mut last = after;
        let mut page = Vec::new();
        for (serial, volume) in rest.by_ref().take(limit) {
            last = serial;
            page.push(volume.clone());
        }
        let more = rest.next().is_some();
        (page, more.then_some(last))
    }

    /// Whether the index is whole even if its last user panicked: every change is one insertion or
    /// removal in it, made after the disk.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn learn(&mut self, node: &NodeName, found: Found) {
        let promised = self.promised.entry(node.clone()).or_default();
        match found {
            Found::Sound(record) => {
                *promised = promised.saturating_add(record.capacity_bytes);
                self.last_serial = self.last_serial.max(record.serial);
                self.order.insert(record.serial, record.id.clone());
                let id = record.id.clone();
                self.volumes.insert(
                    id,
                    Entry::Sound(Volume {
                        node: node.clone(),
                        record,
                    }),
                );
            }
            Found::Broken { id, image_bytes } => {
                *promised = promised.saturating_add(image_bytes);
                self.volumes.insert(id, Entry::Broken);
            }
        }
    }

    fn forget(&mut self, id: &VolumeId) {
        if let Some(Entry::Sound(volume)) = self.volumes.remove(id) {
            self.order.remove(&volume.record.serial);
            self.unpromise(&volume.node, volume.record.capacity_bytes);
        }
    }

    fn unpromise(&mut self, node: &NodeName, bytes: u64) {
        if let Some(promised) = self.promised.get_mut(node) {
            *promised = promised.saturating_sub(bytes);
        }
    }
}
