//! GetVolumeGroupSnapshot: one group with its snapshots.

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use super::{are_members, to_wire};
use crate::local::fields::FieldError;
use crate::local::pools::Pools;
use crate::local::snapshot::GroupId;
use crate::local::snapshots::FindError;

/// Why a group is not shown.
#[derive(Debug, thiserror::Error)]
pub enum GetGroupError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// It is not there, or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Not its snapshots.
    #[error("snapshot_ids are not the snapshots of group snapshot {id}")]
    Mismatch {
        /// The group.
        id: GroupId,
    },
    /// One of its snapshots is not there, or damaged.
    #[error("group snapshot {id} is not whole")]
    Torn {
        /// The group.
        id: GroupId,
        /// Why.
        #[source]
        source: FindError,
    },
}

impl CsiError for GetGroupError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Mismatch { .. } => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Torn { .. } => Code::DataLoss,
        }
    }
}

pub(super) fn get(
    pools: &Pools,
    request: &proto::GetVolumeGroupSnapshotRequest,
) -> Result<proto::GetVolumeGroupSnapshotResponse, GetGroupError> {
    limits::required("group_snapshot_id", &request.group_snapshot_id).map_err(FieldError::from)?;
    let group = pools.find_group(&request.group_snapshot_id)?;
    if request.snapshot_ids.is_empty() {
        return Err(FieldError::missing("snapshot_ids").into());
    }
    let id = || group.record.id.clone();
    if !are_members(&group, &request.snapshot_ids) {
        return Err(GetGroupError::Mismatch { id: id() });
    }
    let snapshots: Result<Vec<_>, _> = group
        .record
        .members
        .values()
        .map(|member| pools.snapshots().find(member.as_str()))
        .collect();
    let snapshots = snapshots.map_err(|source| GetGroupError::Torn { id: id(), source })?;
    Ok(proto::GetVolumeGroupSnapshotResponse {
        group_snapshot: Some(to_wire(&group, &snapshots)),
    })
}
