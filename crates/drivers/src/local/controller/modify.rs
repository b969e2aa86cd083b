//! ControllerModifyVolume: what can change while a volume lives.
//!
//! All is checked before anything changes. A volume becomes thick first and is recorded as such
//! afterwards: a driver killed in between has a thin volume with all its blocks, which harms nobody.

use std::io;

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use crate::local::fields::{self, FieldError};
use crate::local::node::{ObserveError, Use};
use crate::local::parameters::{Mutable, ParameterError};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Pools, ReserveError};
use crate::local::room::Allocation;
use crate::local::volume::{VolumeId, VolumeRecord};

/// Why a volume was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ModifyError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// A parameter cannot be changed, or not to that.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The pool has no room.
    #[error("volume {id} cannot become thick")]
    Space {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ReserveError,
    },
    /// The pool's disk refused.
    #[error("could not change volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// Whether it is in use could not be seen.
    #[error("volume {id} is changed on record, but its device could not be seen; repeat the call")]
    Observe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ObserveError,
    },
    /// Its device refused.
    #[error("volume {id} is changed on record, but its device is not; repeat the call")]
    Device {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl CsiError for ModifyError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Parameter(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Space { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
            Self::Observe { source, .. } => source.code(),
            Self::Device { .. } => Code::Internal,
        }
    }
}

/// The record as it shall be.
fn plan(record: &VolumeRecord, wanted: Mutable) -> VolumeRecord {
    VolumeRecord {
        allocation: wanted.allocation.unwrap_or(record.allocation),
        read_ahead_kib: wanted.read_ahead_kib.or(record.read_ahead_kib),
        ..record.clone()
    }
}

pub(super) fn modify(
    pools: &Pools,
    request: &proto::ControllerModifyVolumeRequest,
) -> Result<proto::ControllerModifyVolumeResponse, ModifyError> {
    let id = fields::volume_id(&request.volume_id)?;
    if request.mutable_parameters.is_empty() {
        return Err(FieldError::missing("mutable_parameters").into());
    }
    limits::map("mutable_parameters", &request.mutable_parameters).map_err(FieldError::from)?;
    let mut volume = pools.find(id)?;
    let id = volume.record.id.clone();
    let wanted = Mutable::parse(&request.mutable_parameters)?;
    let store = |source| ModifyError::Store {
        id: id.clone(),
        source,
    };
    // Also one that is thick on record: discards of an earlier life may have made holes.
    if wanted.allocation == Some(Allocation::Thick) {
        pools
            .room_to_thicken(&volume)
            .map_err(|source| ModifyError::Space {
                id: id.clone(),
                source,
            })?;
        pools
            .pool_of(&volume)
            .thicken(&volume.record)
            .map_err(store)?;
    }
    let changed = plan(&volume.record, wanted);
    if changed != volume.record {
        volume.record = changed;
        pools.save(&volume).map_err(store)?;
    }
    if let Some(kib) = wanted.read_ahead_kib {
        let usage = Use::observe(pools, &volume).map_err(|source| ModifyError::Observe {
            id: id.clone(),
            source,
        })?;
        usage
            .set_read_ahead(kib)
            .map_err(|source| ModifyError::Device { id, source })?;
    }
    Ok(proto::ControllerModifyVolumeResponse {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_given_changes() {
        let record = VolumeRecord {
            read_ahead_kib: Some(64),
            ..VolumeRecord::blank("a", 1, 1 << 30)
        };
        let thick = Mutable {
            allocation: Some(Allocation::Thick),
            read_ahead_kib: None,
        };
        let changed = plan(&record, thick);
        assert_eq!(changed.allocation, Allocation::Thick);
        assert_eq!(changed.read_ahead_kib, Some(64));
        assert_eq!(plan(&record, Mutable::default()), record);
    }
}
