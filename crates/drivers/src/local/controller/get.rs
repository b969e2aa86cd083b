//! ControllerGetVolume: one volume as it is now.

use orlop_csi::proto;
use orlop_csi::proto::controller_get_volume_response::VolumeStatus;
use orlop_csi::server::CsiError;
use tonic::Code;

use super::{published_nodes, to_wire};
use crate::local::condition;
use crate::local::fields::{self, FieldError};
use crate::local::pools::{FindError, Pools};

/// Why a volume could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
}

impl CsiError for GetError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
        }
    }
}

pub(super) fn get(
    pools: &Pools,
    request: &proto::ControllerGetVolumeRequest,
) -> Result<proto::ControllerGetVolumeResponse, GetError> {
    let volume = pools.find(fields::volume_id(&request.volume_id)?)?;
    Ok(proto::ControllerGetVolumeResponse {
        volume: Some(to_wire(pools, &volume)),
        status: Some(VolumeStatus {
            published_node_ids: published_nodes(&volume),
            volume_condition: Some(condition::of(pools, &volume)),
        }),
    })
}
