//! ControllerExpandVolume: a larger promise, and a larger image.
//!
//! The promise is on record before the image grows; a driver killed in between finds the image too
//! small when it next opens it, and grows it then.

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use tonic::Code;

use crate::local::capability::{Capability, CapabilityError};
use crate::local::fields::{self, FieldError};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Pools, ReserveError, Volume};
use crate::local::size::{SizeError, SizeRange};
use crate::local::volume::{Content, VolumeId};

/// Why a volume did not grow.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The capability cannot be had.
    #[error("volume {id} cannot be used like this")]
    Capability {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: CapabilityError,
    },
    /// The sizes make no sense, or are out of range.
    #[error("the capacity range cannot be met")]
    Size(#[source] SizeError),
    /// The pool has no room.
    #[error("volume {id} cannot grow")]
    Space {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ReserveError,
    },
    /// The pool's disk refused.
    #[error("could not grow volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for ExpandError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_)
            | Self::Capability { .. }
            | Self::Size(SizeError::Negative | SizeError::Empty) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            // The caller must be able to tell a shrinking limit from a malformed request.
            Self::Size(SizeError::Contradiction { .. } | SizeError::OutOfRange { .. }) => {
                Code::OutOfRange
            }
            // The specification's code, and the one that lets a claim's owner ask for less again.
            Self::Space {
                source: ReserveError::NoSpace { .. },
                ..
            } => Code::OutOfRange,
            Self::Space { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

/// The size that a volume shall have: never less than it has.
fn plan(current: u64, range: SizeRange) -> Result<u64, SizeError> {
    range.choose(current)
}

pub(super) fn expand(
    pools: &Pools,
    request: &proto::ControllerExpandVolumeRequest,
) -> Result<proto::ControllerExpandVolumeResponse, ExpandError> {
    let id = fields::volume_id(&request.volume_id)?;
    let range = request
        .capacity_range
        .ok_or(FieldError::missing("capacity_range"))?;
    let volume = pools.find(id)?;
    let id = volume.record.id.clone();
    if let Some(wire) = &request.volume_capability {
        Capability::parse(wire, pools.default_fs()).map_err(|source| ExpandError::Capability {
            id: id.clone(),
            source,
        })?;
    }
    let range = SizeRange::parse(&range).map_err(ExpandError::Size)?;
    let size = plan(volume.record.capacity_bytes, range).map_err(ExpandError::Size)?;
    let node_expansion_required = match volume.record.content {
        Content::Blank => false,
        Content::FileSystem(_) | Content::Raw => true,
    };
    grow(pools, volume, size)?;
    Ok(proto::ControllerExpandVolumeResponse {
        capacity_bytes: i64::try_from(size).unwrap_or(i64::MAX),
        node_expansion_required,
    })
}

fn grow(pools: &Pools, mut volume: Volume, size: u64) -> Result<(), ExpandError> {
    let id = volume.record.id.clone();
    let store = |source| ExpandError::Store {
        id: id.clone(),
        source,
    };
    let more = size - volume.record.capacity_bytes;
    let space = pools
        .reserve(&volume.home, more, volume.record.allocation)
        .map_err(|source| ExpandError::Space {
            id: id.clone(),
            source,
        })?;
    if more > 0 {
        volume.record.capacity_bytes = size;
        pools.save(&volume).map_err(store)?;
    }
    drop(space);
    pools
        .pool_of(&volume)
        .open_image(&volume.record)
        .map_err(store)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_grows_to_what_is_asked_and_never_shrinks() {
        let range = |required_bytes, limit_bytes| {
            SizeRange::parse(&proto::CapacityRange {
                required_bytes,
                limit_bytes,
            })
            .unwrap()
        };
        let gib = 1 << 30;
        assert_eq!(plan(gib, range(2 << 30, 0)), Ok(2 << 30));
        assert_eq!(plan(gib, range(1, 0)), Ok(gib));
        assert_eq!(plan(gib, range(1 << 30, 1 << 30)), Ok(gib));
        assert!(matches!(
            plan(gib, range(1, 1 << 20)),
            Err(SizeError::OutOfRange { .. })
        ));
    }
}
