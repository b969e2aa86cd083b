//! All pools of this driver, and what is known of their volumes.
//!
//! The pools' files are the truth; the index here mirrors their records so that lists and look-ups
//! need no disk. Every change goes to disk first. The locks of the pools make the mirror exact.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_host::FsKind;
use tonic::Code;

use super::home::{Home, PoolName};
use super::in_flight::InFlight;
use super::pool::{OpenError, Pool, Presence, StoreError};
use super::reach::Reach;
use super::room::{self, Allocation, Measured, Rules};
use super::snapshots::Snapshots;
use super::volume::{Lifetime, NodeName, VolumeId, VolumeRecord};

mod index;

use index::{Entry, Index};

/// The pools of one or more nodes.
#[derive(Debug)]
pub struct Pools {
    driver_name: String,
    default_fs: FsKind,
    rules: Rules,
    max_volumes: u32,
    reaches: BTreeMap<NodeName, Reach>,
    pools: BTreeMap<Home, Pool>,
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
}

/// A volume and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// The pool that it is in.
    pub home: Home,
    /// What is known of it.
    pub record: VolumeRecord,
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

impl FindError {
    /// How callers should take it.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => Code::NotFound,
            Self::Broken { .. } => Code::DataLoss,
        }
    }
}

/// Why space could not be promised.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// There is not enough.
    // Whole gibibytes: what is left changes by the second, and would make every repetition of the
    // same trouble a new event.
    #[error(
        "{wanted} bytes are wanted and about {} GiB are left in {home}; delete volumes, enlarge \
         the pool, or lower --reserve",
        available >> 30
    )]
    NoSpace {
        /// The pool.
        home: Home,
        /// What was asked for.
        wanted: u64,
        /// What is left.
        available: u64,
    },
    /// The pool could not be measured.
    #[error("could not measure {home}")]
    Measure {
        /// The pool.
        home: Home,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl ReserveError {
    /// How callers should take it.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::NoSpace { .. } => Code::ResourceExhausted,
            Self::Measure { source, .. } => source.code(),
        }
    }
}

/// Bytes that are promised though no record says so yet; given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    pools: &'a Pools,
    home: Home,
    allocation: Allocation,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.pools
            .index()
            .unpromise(&self.home, self.allocation, self.bytes);
    }
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
        } = common;
        let mut pools = BTreeMap::new();
        let mut index = Index::default();
        for (home, directory) in directories {
            let (pool, found) = Pool::open(directory)?;
            index.learn_all(home, found);
            pools.insert(home.clone(), pool);
        }
        let snapshots = Snapshots::open(&pools).map_err(|(home, source)| OpenError::Directory {
            path: pools[&home].directory().to_owned(),
            source,
        })?;
        Ok(Self {
            driver_name,
            default_fs,
            rules,
            max_volumes,
            reaches,
            pools,
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
            if let Presence::Back(found) = pool.presence() {
                let mut index = self.index();
                index.forget_home(home);
                index.learn_all(home, found);
                drop(index);
                if let Err(error) = self.snapshots.read(home, pool) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(%home, error, "the pool's snapshots cannot be read");
                }
            }
        }
    }

    /// The volume with this id.
    pub(super) fn find(&self, id: &str) -> Result<Volume, FindError> {
        let unknown = || FindError::Unknown {
            id: id.chars().take(64).collect(),
        };
        let id = VolumeId::parse(id).ok_or_else(unknown)?;
        match self.index().get(&id) {
            Some(Entry::Sound(volume)) => Ok(volume.clone()),
            Some(Entry::Broken { .. }) => Err(FindError::Broken { id }),
            None => Err(unknown()),
        }
    }

    /// Promises bytes of a pool.
    pub(super) fn reserve(
        &self,
        home: &Home,
        bytes: u64,
        allocation: Allocation,
    ) -> Result<Reservation<'_>, ReserveError> {
        let mut index = self.index();
        let available = self.available_in(&index, home, allocation, bytes)?;
        if bytes > available {
            return Err(ReserveError::NoSpace {
                home: home.clone(),
                wanted: bytes,
                available,
            });
        }
        index.promise(home, allocation, bytes);
        Ok(Reservation {
            pools: self,
            home: home.clone(),
            allocation,
            bytes,
        })
    }

    /// The bytes that can still be promised in a pool.
    pub(super) fn available(
        &self,
        home: &Home,
        allocation: Allocation,
    ) -> Result<u64, ReserveError> {
        self.available_in(&self.index(), home, allocation, u64::MAX)
    }

    /// Refuses unless a volume could be given all the blocks that it was promised.
    pub(super) fn room_to_thicken(&self, volume: &Volume) -> Result<(), ReserveError> {
        let (home, record) = (&volume.home, &volume.record);
        let mut index = self.index();
        index.unpromise(home, record.allocation, record.capacity_bytes);
        let available = self.available_in(&index, home, Allocation::Thick, record.capacity_bytes);
        index.promise(home, record.allocation, record.capacity_bytes);
        let available = available?;
        let has = self.pool(home).allocated_bytes(&record.id).unwrap_or(0);
        let wanted = record.capacity_bytes.saturating_sub(has);
        if wanted > available {
            return Err(ReserveError::NoSpace {
                home: home.clone(),
                wanted,
                available,
            });
        }
        Ok(())
    }

    /// At least `enough` if there is as much, else exactly what is left.
    fn available_in(
        &self,
        index: &Index,
        home: &Home,
        allocation: Allocation,
        enough: u64,
    ) -> Result<u64, ReserveError> {
        let measure = |source| ReserveError::Measure {
            home: home.clone(),
            source,
        };
        let Some(pool) = self.pools.get(home) else {
            return Ok(0);
        };
        let usage = pool.usage().map_err(measure)?;
        let mut promised = index.promised(home);
        promised.add(Allocation::Thin, self.snapshots.promised(home));
        let mut measured = Measured {
            total: usage.total_bytes,
            free: usage.available_bytes,
            taken: 0,
        };
        // As if no image had a single block yet: less than the truth, and cheap.
        let at_least = room::available(self.rules, promised, measured, allocation);
        if at_least >= enough {
            return Ok(at_least);
        }
        for volume in index.sound_at(home) {
            // A copy may share its blocks with others: they must not be counted twice.
            if volume.record.source.is_some() {
                continue;
            }
            match pool.allocated_bytes(&volume.record.id) {
                Ok(bytes) => measured.taken = measured.taken.saturating_add(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(measure(StoreError::at("measure an image")(error))),
            }
        }
        Ok(room::available(self.rules, promised, measured, allocation))
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
