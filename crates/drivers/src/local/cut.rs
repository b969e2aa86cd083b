//! The cut: images of volumes as they are at one moment.
//!
//! A mounted file system is frozen, so that its image is one that it would be mounted from cleanly.
//! A device that a workload has cannot be held still, but sharing its blocks takes one moment all
//! the same, and a copy is good if nothing was written meanwhile. All volumes of one cut are held before the first is copied and until the last is, so
//! that nothing is in one that came after something missing from another.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use orlop_host::freeze::{self, FreezeError, Frozen, ThawError};
use orlop_host::{LoopDevice, image};
use tonic::Code;

use super::node::{Holding, ObserveError, Use};
use super::pool::{self, StoreError};
use super::pools::{Pools, Volume};
use super::volume::VolumeId;

/// How long workloads may be held up. Sharing blocks takes milliseconds; copying may not fit.
const LONGEST: Duration = Duration::from_secs(30);

/// Copying stops so long before, for an orderly end.
const MARGIN: Duration = Duration::from_secs(2);

/// Whether a copy may have the same blocks as its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Where the pool can.
    Allowed,
    /// It must have its own.
    Never,
}

/// One volume, and the new file that becomes its copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// The volume; the caller has its turn.
    pub volume: &'a Volume,
    /// The file.
    pub copy: &'a File,
}

/// Why there is no cut.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// Who uses the volume could not be seen.
    #[error("could not see who uses volume {id}")]
    Observe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ObserveError,
    },
    /// Its device is written to and the pool cannot share blocks.
    #[error(
        "volume {id} is being written to as a block device, and its pool's file system cannot \
         share blocks; unstage it first, or use a pool on xfs or btrfs"
    )]
    DeviceInUse {
        /// The volume.
        id: VolumeId,
    },
    /// Its device is in use and others are to be cut at the same moment.
    #[error(
        "volume {id} is in use as a block device, which cannot be held still while others are \
         cut; unstage it first, or snapshot it alone"
    )]
    NotTogether {
        /// The volume.
        id: VolumeId,
    },
    /// The device did not take what was written to it.
    #[error("could not write out the device of volume {id}")]
    Sync {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It could not be frozen.
    #[error("could not freeze volume {id}")]
    Freeze {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: FreezeError,
    },
    /// There is too much to copy in the time that workloads can be held up.
    #[error(
        "volume {id} cannot be copied in the {} seconds that it may be frozen; unstage it first, \
         or use a pool on xfs or btrfs",
        LONGEST.as_secs()
    )]
    TooLong {
        /// The volume.
        id: VolumeId,
    },
    /// Something thawed it meanwhile.
    #[error("volume {id} was not held still until it was copied; try again")]
    Thaw {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ThawError,
    },
    /// The copy could not be written.
    #[error("could not copy volume {id}")]
    Copy {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CutError {
    /// How callers should take it.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Observe { source, .. } => source.code(),
            Self::Copy { source, .. } => source.code(),
            Self::DeviceInUse { .. }
            | Self::NotTogether { .. }
            | Self::TooLong { .. }
            | Self::Freeze {
                source: FreezeError::Taken { .. },
                ..
            } => Code::FailedPrecondition,
            Self::Thaw {
                source: ThawError::Early,
                ..
            } => Code::Aborted,
            // What the volume's file system or device says if the pool below does not work.
            Self::Sync { source, .. }
            | Self::Freeze {
                source: FreezeError::Refused { source, .. },
                ..
            } if pool::is_trouble(source) => Code::Unavailable,
            Self::Sync { .. } | Self::Freeze { .. } | Self::Thaw { .. } => Code::Internal,
        }
    }
}

/// Cuts all pieces at one moment, and says for each whether it shares its source's blocks.
///
/// The copies are not on disk yet.
pub(super) fn cut(
    pools: &Pools,
    pieces: &[Piece<'_>],
    sharing: Sharing,
) -> Result<Vec<bool>, CutError> {
    let mut seen = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let id = &piece.volume.record.id;
        let failed = |source| CutError::Observe {
            id: id.clone(),
            source,
        };
        let image = pools.pool_of(piece.volume).open_image(&piece.volume.record);
        let image = image.map_err(|source| CutError::Copy {
            id: id.clone(),
            source,
        })?;
        let found = Use::observe(pools, piece.volume).map_err(failed)?;
        let holding = found.holding().map_err(failed)?;
        if pieces.len() > 1 && matches!(holding, Holding::Device { .. }) {
            return Err(CutError::NotTogether { id: id.clone() });
        }
        seen.push((*piece, image, holding));
    }
    let held = Held::hold(pools, &seen)?;
    let until = held
        .frozen
        .is_some()
        .then(|| Instant::now() + (LONGEST - MARGIN));
    let copied: Result<Vec<_>, _> = seen
        .iter()
        .map(|(piece, image, holding)| copy(*piece, image, holding, sharing, until))
        .collect();
    let released = held.release();
    let copied = copied?;
    released?;
    Ok(copied)
}

fn copy(
    piece: Piece<'_>,
    from: &File,
    holding: &Holding,
    sharing: Sharing,
    until: Option<Instant>,
) -> Result<bool, CutError> {
    let id = || piece.volume.record.id.clone();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut => CutError::TooLong { id: id() },
        _ => CutError::Copy {
            id: id(),
            source: StoreError::at("copy the image")(source),
        },
    };
    if let Holding::Device { file, .. } = holding {
        sync(piece, file)?;
    }
    let may_share = sharing == Sharing::Allowed;
    if may_share && image::reflink(from, piece.copy).map_err(failed)? {
        return Ok(true);
    }
    let copied = || image::copy_sparse(from, piece.copy, until).map_err(failed);
    match holding {
        Holding::Idle | Holding::Mounted(_) => copied()?,
        Holding::Device { file, device } => copy_at_rest(piece, file, device, copied)?,
    }
    Ok(false)
}

fn sync(piece: Piece<'_>, device: &File) -> Result<(), CutError> {
    device.sync_all().map_err(|source| CutError::Sync {
        id: piece.volume.record.id.clone(),
        source,
    })
}

/// Copies while nobody happens to write to the device: that it was so is seen afterwards.
fn copy_at_rest(
    piece: Piece<'_>,
    file: &File,
    device: &LoopDevice,
    copied: impl Fn() -> Result<(), CutError>,
) -> Result<(), CutError> {
    const ATTEMPTS: usize = 3;
    let look = || {
        device.activity().map_err(|source| CutError::Sync {
            id: piece.volume.record.id.clone(),
            source,
        })
    };
    for _ in 0..ATTEMPTS {
        sync(piece, file)?;
        let before = look()?;
        if before.is_none() {
            continue;
        }
        copied()?;
        if look()? == before {
            return Ok(());
        }
        piece.copy.set_len(0).map_err(|source| CutError::Copy {
            id: piece.volume.record.id.clone(),
            source: StoreError::at("copy the image again")(source),
        })?;
    }
    Err(CutError::DeviceInUse {
        id: piece.volume.record.id.clone(),
    })
}

/// The mounted volumes of a cut, frozen.
struct Held<'a> {
    pools: &'a Pools,
    volumes: Vec<&'a Volume>,
    frozen: Option<Frozen>,
}

impl<'a> Held<'a> {
    fn hold(pools: &'a Pools, seen: &[(Piece<'a>, File, Holding)]) -> Result<Self, CutError> {
        let mut held = Self {
            pools,
            volumes: Vec::new(),
            frozen: None,
        };
        let mut directories = Vec::new();
        for (piece, _, holding) in seen {
            if let Holding::Mounted(directory) = holding {
                let id = &piece.volume.record.id;
                let failed = |source| CutError::Copy {
                    id: id.clone(),
                    source,
                };
                let directory = directory.try_clone();
                let directory = directory
                    .map_err(|source| failed(StoreError::at("hold the volume")(source)))?;
                // On record before it happens: should even the keeper be killed with us, the next
                // start knows what to thaw.
                pools
                    .pool_of(piece.volume)
                    .note_frozen(id)
                    .map_err(failed)?;
                held.volumes.push(piece.volume);
                directories.push(directory);
            }
        }
        if !directories.is_empty() {
            match Frozen::freeze(directories, LONGEST) {
                Ok(frozen) => held.frozen = Some(frozen),
                Err(source) => {
                    let id = held.id_of(match source {
                        FreezeError::Keeper(_) => 0,
                        FreezeError::Taken { index } | FreezeError::Refused { index, .. } => index,
                    });
                    return Err(CutError::Freeze { id, source });
                }
            }
        }
        Ok(held)
    }

    fn id_of(&self, index: usize) -> VolumeId {
        self.volumes[index].record.id.clone()
    }

    fn release(mut self) -> Result<(), CutError> {
        let Some(frozen) = self.frozen.take() else {
            return Ok(());
        };
        let id = self.id_of(0);
        let thawed = frozen.thaw();
        if let Err(ThawError::Refused(_)) = thawed {
            // Still frozen, as far as we know: what is on record stays, for the next start.
            self.volumes.clear();
        }
        thawed.map_err(|source| CutError::Thaw { id, source })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        drop(self.frozen.take());
        for volume in &self.volumes {
            self.pools.pool_of(volume).note_thawed(&volume.record.id);
        }
    }
}

/// Thaws what a killed driver left frozen.
pub(super) fn thaw_leftovers(pools: &Pools) {
    for (_, pool) in pools.pools() {
        for id in pool.maybe_frozen().unwrap_or_default() {
            let Ok(volume) = pools.find(id.as_str()) else {
                pool.note_thawed(&id);
                continue;
            };
            let thawed = Use::observe(pools, &volume)
                .and_then(|found| found.holding())
                .map_err(|error| error.to_string())
                .and_then(|holding| match holding {
                    Holding::Mounted(directory) => {
                        freeze::thaw_leftover(&directory).map_err(|error| error.to_string())
                    }
                    Holding::Idle | Holding::Device { .. } => Ok(()),
                });
            match thawed {
                Ok(()) => pool.note_thawed(&id),
                Err(error) => {
                    tracing::error!(volume_id = %id, error, "the volume may be frozen; thaw it with fsfreeze -u");
                }
            }
        }
    }
}
