//! CreateSnapshot: a volume as it is at one moment, under a name.

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use super::{UnknownParameter, no_parameters};
use crate::local::fields::FieldError;
use crate::local::making::{self, MakeError, Wanted};
use crate::local::pools::{self, Pools};
use crate::local::snapshot::{Snapshot, SnapshotId};
use crate::local::snapshots;
use crate::local::volume::VolumeId;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum CreateSnapshotError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A class parameter is not known.
    #[error(transparent)]
    Parameter(#[from] UnknownParameter),
    /// The name is taken by a snapshot of another volume.
    #[error("snapshot {name:?} exists already, of volume {source_volume}")]
    Differs {
        /// The name.
        name: String,
        /// Whose it is.
        source_volume: VolumeId,
    },
    /// The snapshot's record is damaged.
    #[error(transparent)]
    Broken(snapshots::FindError),
    /// The volume is not there or damaged.
    #[error(transparent)]
    Volume(pools::FindError),
    /// It could not be made.
    #[error(transparent)]
    Make(#[from] MakeError),
}

impl CsiError for CreateSnapshotError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Parameter(_) => Code::InvalidArgument,
            Self::Differs { .. } => Code::AlreadyExists,
            Self::Broken(source) => source.code(),
            Self::Volume(source) => source.code(),
            Self::Make(source) => source.code(),
        }
    }
}

pub(in crate::local::controller) fn create(
    pools: &Pools,
    request: &proto::CreateSnapshotRequest,
) -> Result<proto::CreateSnapshotResponse, CreateSnapshotError> {
    limits::required("source_volume_id", &request.source_volume_id).map_err(FieldError::from)?;
    limits::name("name", &request.name).map_err(FieldError::from)?;
    limits::map("parameters", &request.parameters).map_err(FieldError::from)?;
    no_parameters(&request.parameters)?;
    let id = SnapshotId::of_name(&request.name);
    let snapshot = match pools.snapshots().find(id.as_str()) {
        Ok(found) => same(found, request)?,
        Err(snapshots::FindError::Unknown { .. }) => {
            let volume = pools
                .find(&request.source_volume_id)
                .map_err(CreateSnapshotError::Volume)?;
            let name = request.name.clone();
            let id = id.in_pool(pools.pool_of(&volume).tag().as_ref());
            let made = making::make(pools, &[Wanted { id, name, volume }], None)?;
            let [snapshot] = made.snapshots.as_slice() else {
                unreachable!("one was asked for");
            };
            let snapshot = snapshot.clone();
            pools.snapshots().learn(snapshot.clone());
            snapshot
        }
        Err(other) => return Err(CreateSnapshotError::Broken(other)),
    };
    Ok(proto::CreateSnapshotResponse {
        snapshot: Some(snapshot.to_wire()),
    })
}

/// The snapshot of this name, if it is the one that is asked for.
fn same(
    found: Snapshot,
    request: &proto::CreateSnapshotRequest,
) -> Result<Snapshot, CreateSnapshotError> {
    if found.record.source.as_str() == request.source_volume_id && found.record.group.is_none() {
        Ok(found)
    } else {
        Err(CreateSnapshotError::Differs {
            name: request.name.clone(),
            source_volume: found.record.source,
        })
    }
}
