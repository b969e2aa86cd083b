//! What is promised of the pools' bytes.

use std::io;

use tonic::Code;

use super::Volume;
use super::index::Index;
use crate::local::home::Home;
use crate::local::pool::StoreError;
use crate::local::pools::Pools;
use crate::local::room::{self, Allocation, Measured};
use crate::local::size;

/// Why space could not be promised.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// There is not enough.
    #[error(
        "{}; delete volumes, enlarge the pool, or lower --reserve",
        size::shortage(*wanted, *available, home)
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
    /// What is left, as far as it is known.
    pub(in crate::local) fn available(&self) -> Option<u64> {
        match self {
            Self::NoSpace { available, .. } => Some(*available),
            Self::Measure { .. } => None,
        }
    }

    /// How callers should take it.
    pub(in crate::local) fn code(&self) -> Code {
        match self {
            Self::NoSpace { .. } => Code::ResourceExhausted,
            Self::Measure { source, .. } => source.code(),
        }
    }
}

/// Bytes that are promised though no record says so yet; given back when dropped.
#[derive(Debug)]
pub(in crate::local) struct Reservation<'a> {
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
    /// Promises bytes of a pool.
    pub(in crate::local) fn reserve(
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
    pub(in crate::local) fn available(
        &self,
        home: &Home,
        allocation: Allocation,
    ) -> Result<u64, ReserveError> {
        self.available_in(&self.index(), home, allocation, u64::MAX)
    }

    /// Refuses unless a volume could be given all the blocks that it was promised.
    pub(in crate::local) fn room_to_thicken(&self, volume: &Volume) -> Result<(), ReserveError> {
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
}
