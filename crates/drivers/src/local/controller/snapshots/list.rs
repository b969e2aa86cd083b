//! ListSnapshots: in the order of their creation, page by page.
//!
//! A token says after which snapshot a page begins. It stays good when that snapshot is deleted,
//! and snapshots made in the meantime come at the end.

use orlop_csi::proto;
use orlop_csi::proto::list_snapshots_response::Entry;
use orlop_csi::server::CsiError;
use tonic::Code;

use crate::local::pools::Pools;
use crate::local::snapshot::SnapshotId;
use crate::local::snapshots::{Filter, Place};
use crate::local::volume::VolumeId;

/// Why snapshots could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListSnapshotsError {
    /// A count below zero.
    #[error("max_entries is negative")]
    Negative,
    /// Not a token of ours.
    #[error("starting_token is not one that this driver gave; start again without one")]
    Token,
}

impl CsiError for ListSnapshotsError {
    fn code(&self) -> Code {
        match self {
            Self::Negative => Code::InvalidArgument,
            Self::Token => Code::Aborted,
        }
    }
}

pub(in crate::local::controller) fn list(
    pools: &Pools,
    request: &proto::ListSnapshotsRequest,
) -> Result<proto::ListSnapshotsResponse, ListSnapshotsError> {
    let limit = match usize::try_from(request.max_entries) {
        Ok(0) => usize::MAX,
        Ok(limit) => limit,
        Err(_) => return Err(ListSnapshotsError::Negative),
    };
    let after = match request.starting_token.as_str() {
        "" => None,
        token => Some(place(token).ok_or(ListSnapshotsError::Token)?),
    };
    let Some(filter) = filter(request) else {
        return Ok(proto::ListSnapshotsResponse::default());
    };
    let (snapshots, next) = pools.snapshots().page(after.as_ref(), limit, &filter);
    let entries = snapshots
        .iter()
        .map(|snapshot| Entry {
            snapshot: Some(snapshot.to_wire()),
        })
        .collect();
    let next_token = next.map_or_else(String::new, |(serial, id)| format!("{serial}.{id}"));
    Ok(proto::ListSnapshotsResponse {
        entries,
        next_token,
    })
}

/// What shall be shown; nothing if an id is not one of ours.
fn filter(request: &proto::ListSnapshotsRequest) -> Option<Filter> {
    let mut filter = Filter::default();
    if !request.snapshot_id.is_empty() {
        filter.snapshot = Some(SnapshotId::parse(&request.snapshot_id)?);
    }
    if !request.source_volume_id.is_empty() {
        filter.source = Some(VolumeId::parse(&request.source_volume_id)?);
    }
    Some(filter)
}

fn place(token: &str) -> Option<Place> {
    let (serial, id) = token.split_once('.')?;
    Some((serial.parse().ok()?, SnapshotId::parse(id)?))
}
