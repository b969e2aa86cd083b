//! DeleteSnapshot: the snapshot and its data. What was made from it lives on.

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use crate::local::fields::FieldError;
use crate::local::pool::StoreError;
use crate::local::pools::Pools;
use crate::local::snapshot::{GroupId, SnapshotId};
use crate::local::snapshots::FindError;

/// Why a snapshot was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteSnapshotError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Its record is damaged, or its pool is not here.
    #[error(transparent)]
    Find(FindError),
    /// It belongs to a group.
    #[error("snapshot {id} belongs to group snapshot {group}; delete that one")]
    Member {
        /// The snapshot.
        id: SnapshotId,
        /// The group.
        group: GroupId,
    },
    /// The pool's disk refused.
    #[error("could not delete snapshot {id}")]
    Store {
        /// The snapshot.
        id: SnapshotId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for DeleteSnapshotError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Member { .. } => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

pub(in crate::local::controller) fn delete(
    pools: &Pools,
    request: &proto::DeleteSnapshotRequest,
) -> Result<proto::DeleteSnapshotResponse, DeleteSnapshotError> {
    limits::required("snapshot_id", &request.snapshot_id).map_err(FieldError::from)?;
    let snapshot = match pools.find_snapshot(&request.snapshot_id) {
        Ok(snapshot) => snapshot,
        Err(FindError::Unknown { .. }) => return Ok(proto::DeleteSnapshotResponse {}),
        Err(other) => return Err(DeleteSnapshotError::Find(other)),
    };
    let id = snapshot.record.id;
    if let Some(membership) = snapshot.record.group {
        let group = membership.group;
        return Err(DeleteSnapshotError::Member { id, group });
    }
    match pools.pool(&snapshot.home).remove_snapshot(&id) {
        Ok(()) => {
            pools.snapshots().forget(&id);
            Ok(proto::DeleteSnapshotResponse {})
        }
        Err(source) => Err(DeleteSnapshotError::Store { id, source }),
    }
}
