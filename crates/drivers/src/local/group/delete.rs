//! DeleteVolumeGroupSnapshot: a group and all of its snapshots.

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use super::are_members;
use crate::local::fields::FieldError;
use crate::local::pool::StoreError;
use crate::local::pools::Pools;
use crate::local::snapshot::GroupId;
use crate::local::snapshots::FindError;

/// Why a group was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteGroupError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Its record is damaged, or its pool is not here.
    #[error(transparent)]
    Find(FindError),
    /// Not its snapshots.
    #[error("snapshot_ids are not the snapshots of group snapshot {id}")]
    Mismatch {
        /// The group.
        id: GroupId,
    },
    /// The pool's disk refused.
    #[error("could not delete group snapshot {id}")]
    Store {
        /// The group.
        id: GroupId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for DeleteGroupError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Mismatch { .. } => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

pub(super) fn delete(
    pools: &Pools,
    request: &proto::DeleteVolumeGroupSnapshotRequest,
) -> Result<proto::DeleteVolumeGroupSnapshotResponse, DeleteGroupError> {
    limits::required("group_snapshot_id", &request.group_snapshot_id).map_err(FieldError::from)?;
    // What is not an id of ours names nothing, and nothing is what shall be there.
    let Some(id) = GroupId::parse(&request.group_snapshot_id) else {
        return Ok(proto::DeleteVolumeGroupSnapshotResponse {});
    };
    let store = |source| DeleteGroupError::Store {
        id: id.clone(),
        source,
    };
    match pools.find_group(id.as_str()) {
        Ok(group) => {
            if request.snapshot_ids.is_empty() {
                return Err(FieldError::missing("snapshot_ids").into());
            }
            if !are_members(&group, &request.snapshot_ids) {
                return Err(DeleteGroupError::Mismatch { id });
            }
            pools.pool(&group.home).remove_group(&id).map_err(store)?;
            pools.snapshots().forget_group(&id);
        }
        // Snapshots of it may be left, of a call that failed half-way.
        Err(FindError::Unknown { .. }) => {}
        Err(other) => return Err(DeleteGroupError::Find(other)),
    }
    for member in pools.snapshots().members(&id) {
        pools
            .pool(&member.home)
            .remove_snapshot(&member.record.id)
            .map_err(store)?;
        pools.snapshots().forget(&member.record.id);
    }
    Ok(proto::DeleteVolumeGroupSnapshotResponse {})
}
