//! DeleteVolume: the volume and its data, once nobody uses it.

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use tonic::Code;

use crate::local::fields::{self, FieldError};
use crate::local::node::{ObserveError, Use};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Pools, Volume};
use crate::local::volume::{NodeName, VolumeId};

/// Why a volume was not deleted. It is unchanged then.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Its record is damaged, or its pool is not here.
    #[error(transparent)]
    Find(FindError),
    /// It is published.
    #[error("volume {id} is published on node {node}; unpublish it first")]
    Published {
        /// The volume.
        id: VolumeId,
        /// The node.
        node: NodeName,
    },
    /// It is mounted or staged.
    #[error("volume {id} is in use on node {node}; unstage it first")]
    InUse {
        /// The volume.
        id: VolumeId,
        /// The node.
        node: NodeName,
    },
    /// Whether it is in use could not be seen.
    #[error("could not see whether volume {id} is in use")]
    Observe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ObserveError,
    },
    /// The pool's disk refused.
    #[error("could not delete volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for DeleteError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Published { .. } | Self::InUse { .. } => Code::FailedPrecondition,
            Self::Observe { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

pub(super) fn delete(
    pools: &Pools,
    request: &proto::DeleteVolumeRequest,
) -> Result<proto::DeleteVolumeResponse, DeleteError> {
    let id = fields::volume_id(&request.volume_id)?;
    // What is not an id of ours names nothing, and nothing is what shall be there.
    let Some(id) = VolumeId::parse(id) else {
        return Ok(proto::DeleteVolumeResponse {});
    };
    let volume = match pools.find(id.as_str()) {
        Ok(volume) => volume,
        Err(FindError::Unknown { .. }) => return Ok(proto::DeleteVolumeResponse {}),
        Err(other) => return Err(DeleteError::Find(other)),
    };
    let id = volume.record.id.clone();
    let usage = Use::observe(pools, &volume).map_err(|source| DeleteError::Observe {
        id: id.clone(),
        source,
    })?;
    refuse_if_used(&volume, usage.is_in_use())?;
    usage
        .release_devices()
        .map_err(|source| DeleteError::Observe {
            id: id.clone(),
            source,
        })?;
    if let Err(StoreError::NoImage(image)) = pools.pool_of(&volume).find_image(&id) {
        let image = image.display();
        tracing::warn!(volume_id = %id, %image, "the image was gone before the volume was deleted");
    }
    pools
        .remove(&volume)
        .map_err(|source| DeleteError::Store { id, source })?;
    Ok(proto::DeleteVolumeResponse {})
}

fn refuse_if_used(volume: &Volume, in_use: bool) -> Result<(), DeleteError> {
    let id = || volume.record.id.clone();
    if let Some(node) = volume.record.publications.keys().next() {
        return Err(DeleteError::Published {
            id: id(),
            node: node.clone(),
        });
    }
    if in_use {
        return Err(DeleteError::InUse {
            id: id(),
            node: volume.home.node.clone(),
        });
    }
    Ok(())
}
