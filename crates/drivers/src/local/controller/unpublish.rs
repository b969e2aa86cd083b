//! ControllerUnpublishVolume: the end of a node's right to use a volume.

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use tonic::Code;

use crate::local::fields::{self, FieldError};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Pools};
use crate::local::volume::{NodeName, VolumeId};

/// Why a volume is still published.
#[derive(Debug, thiserror::Error)]
pub enum UnpublishError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Its record is damaged, or its pool is not here.
    #[error(transparent)]
    Find(FindError),
    /// The pool's disk refused.
    #[error("could not record that volume {id} is unpublished")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for UnpublishError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

pub(super) fn unpublish(
    pools: &Pools,
    request: &proto::ControllerUnpublishVolumeRequest,
) -> Result<proto::ControllerUnpublishVolumeResponse, UnpublishError> {
    let done = proto::ControllerUnpublishVolumeResponse {};
    let id = fields::volume_id(&request.volume_id)?;
    // A volume that does not exist is published nowhere.
    let Some(id) = VolumeId::parse(id) else {
        return Ok(done);
    };
    let mut volume = match pools.find(id.as_str()) {
        Ok(volume) => volume,
        Err(FindError::Unknown { .. }) => return Ok(done),
        Err(other) => return Err(UnpublishError::Find(other)),
    };
    let before = volume.record.publications.len();
    match request.node_id.as_str() {
        "" => volume.record.publications.clear(),
        node => {
            volume.record.publications.remove(&NodeName::from(node));
        }
    }
    if volume.record.publications.len() != before {
        pools
            .save(&volume)
            .map_err(|source| UnpublishError::Store { id, source })?;
    }
    Ok(done)
}
