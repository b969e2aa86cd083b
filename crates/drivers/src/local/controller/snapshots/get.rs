//! GetSnapshot: one snapshot.

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use crate::local::fields::FieldError;
use crate::local::pools::Pools;
use crate::local::snapshots::FindError;

/// Why a snapshot is not shown.
#[derive(Debug, thiserror::Error)]
pub enum GetSnapshotError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// It is not there, or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
}

impl CsiError for GetSnapshotError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
        }
    }
}

pub(in crate::local::controller) fn get(
    pools: &Pools,
    request: &proto::GetSnapshotRequest,
) -> Result<proto::GetSnapshotResponse, GetSnapshotError> {
    limits::required("snapshot_id", &request.snapshot_id).map_err(FieldError::from)?;
    let snapshot = pools.find_snapshot(&request.snapshot_id)?;
    Ok(proto::GetSnapshotResponse {
        snapshot: Some(snapshot.to_wire()),
    })
}
