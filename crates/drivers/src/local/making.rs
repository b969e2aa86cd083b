//! Making snapshots, one or several at one moment: all of them or none.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use tonic::Code;

use super::cut::{self, CutError, Piece, Sharing};
use super::pool::StoreError;
use super::pools::{Pools, Reservation, ReserveError, Volume};
use super::room::Allocation;
use super::snapshot::{Blocks, Membership, Snapshot, SnapshotId, SnapshotRecord};

/// A snapshot to make.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Its id, under which nothing is yet.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// Of which volume; the caller has its turn.
    pub volume: Volume,
}

/// Snapshots that are on disk. Their space is theirs by record only once they are known.
#[derive(Debug)]
pub(super) struct Made<'a> {
    /// In the order in which they were asked for.
    pub snapshots: Vec<Snapshot>,
    _space: Vec<Reservation<'a>>,
}

/// Why there are no snapshots.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The pool has no room.
    #[error("the pool has no room for what snapshot {id} may come to need")]
    Space {
        /// The snapshot.
        id: SnapshotId,
        /// Why.
        #[source]
        source: ReserveError,
    },
    /// A volume could not be cut.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The pool's disk refused.
    #[error("could not make snapshot {id}")]
    Store {
        /// The snapshot.
        id: SnapshotId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl MakeError {
    /// How callers should take it.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Space { source, .. } => source.code(),
            Self::Cut(source) => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

/// Makes all snapshots, of one moment. If it fails, there is none.
pub(super) fn make<'a>(
    pools: &'a Pools,
    wanted: &[Wanted],
    group: Option<&Membership>,
) -> Result<Made<'a>, MakeError> {
    let mut space = Vec::with_capacity(wanted.len());
    let mut unfinished = Vec::with_capacity(wanted.len());
    for Wanted { id, volume, .. } in wanted {
        let store = |source| MakeError::Store {
            id: id.clone(),
            source,
        };
        let pool = pools.pool_of(volume);
        pool.find_image(&volume.record.id).map_err(store)?;
        // Whatever the volume has now may have to be kept beside what it will be.
        let bytes = pool
            .allocated_bytes(&volume.record.id)
            .map_err(|error| store(StoreError::at("measure the image")(error)))?;
        let reserved = pools.reserve(&volume.home, bytes, Allocation::Thin);
        space.push(reserved.map_err(|source| MakeError::Space {
            id: id.clone(),
            source,
        })?);
        unfinished.push(pool.begin_snapshot(id).map_err(store)?);
    }
    let pieces: Vec<_> = wanted
        .iter()
        .zip(&unfinished)
        .map(|(wanted, unfinished)| Piece {
            volume: &wanted.volume,
            copy: &unfinished.image,
        })
        .collect();
    let created = SystemTime::now();
    let shared = cut::cut(pools, &pieces, Sharing::Allowed)?;

    let mut made = Made {
        snapshots: Vec::with_capacity(wanted.len()),
        _space: space,
    };
    for ((wanted, unfinished), shared) in wanted.iter().zip(&unfinished).zip(shared) {
        let pool = pools.pool_of(&wanted.volume);
        let finished = blocks(&unfinished.image, shared).and_then(|blocks| {
            let record = record(pools, wanted, blocks, created, group);
            pool.finish_snapshot(unfinished, &record)?;
            Ok(record)
        });
        let home = wanted.volume.home.clone();
        match finished {
            Ok(record) => made.snapshots.push(Snapshot { home, record }),
            Err(source) => {
                // It may have its name already, if only that could not be put on disk.
                let _ = pool.remove_snapshot(&wanted.id);
                unmake(pools, &made.snapshots);
                let id = wanted.id.clone();
                return Err(MakeError::Store { id, source });
            }
        }
    }
    Ok(made)
}

/// Removes snapshots that nobody knows of yet. What stays is removed at the next start if it is of
/// a group, for the group is not on record.
pub(super) fn unmake(pools: &Pools, snapshots: &[Snapshot]) {
    for snapshot in snapshots {
        let id = &snapshot.record.id;
        if let Err(error) = pools.pool(&snapshot.home).remove_snapshot(id) {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(snapshot_id = %id, error, "a snapshot that failed could not be removed");
        }
    }
}

fn blocks(image: &std::fs::File, shared: bool) -> Result<Blocks, StoreError> {
    if !shared {
        return Ok(Blocks::Copied);
    }
    let at = StoreError::at("measure the snapshot's image");
    let bytes = image.metadata().map_err(at)?.blocks().saturating_mul(512);
    Ok(Blocks::Shared { bytes })
}

fn record(
    pools: &Pools,
    wanted: &Wanted,
    blocks: Blocks,
    created: SystemTime,
    group: Option<&Membership>,
) -> SnapshotRecord {
    let volume = &wanted.volume.record;
    SnapshotRecord {
        id: wanted.id.clone(),
        name: wanted.name.clone(),
        serial: pools.snapshots().next_serial(),
        source: volume.id.clone(),
        size_bytes: volume.capacity_bytes,
        created,
        content: volume.content,
        file_system_bytes: volume.file_system_bytes,
        blocks,
        group: group.cloned(),
    }
}
