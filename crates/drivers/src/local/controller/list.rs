//! ListVolumes: all volumes in the order of their creation, page by page.
//!
//! A token says after which volume a page begins. It stays good when that volume is deleted, and
//! volumes made in the meantime come at the end.

use orlop_csi::proto;
use orlop_csi::proto::list_volumes_response::{Entry, VolumeStatus};
use orlop_csi::server::CsiError;
use tonic::Code;

use super::{published_nodes, to_wire};
use crate::local::condition;
use crate::local::pools::Pools;

/// Why volumes could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// A count below zero.
    #[error("max_entries is negative")]
    Negative,
    /// Not a token of ours.
    #[error("starting_token is not one that this driver gave; start again without one")]
    Token,
}

impl CsiError for ListError {
    fn code(&self) -> Code {
        match self {
            Self::Negative => Code::InvalidArgument,
            Self::Token => Code::Aborted,
        }
    }
}

pub(super) fn list(
    pools: &Pools,
    request: &proto::ListVolumesRequest,
) -> Result<proto::ListVolumesResponse, ListError> {
    let limit = match usize::try_from(request.max_entries) {
        Ok(0) => usize::MAX,
        Ok(limit) => limit,
        Err(_) => return Err(ListError::Negative),
    };
    let after = match request.starting_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| ListError::Token)?,
    };
    let (volumes, next) = pools.page(after, limit);
    let entries = volumes
        .iter()
        .map(|volume| Entry {
            volume: Some(to_wire(pools, volume)),
            status: Some(VolumeStatus {
                published_node_ids: published_nodes(volume),
                volume_condition: Some(condition::of(pools, volume)),
            }),
        })
        .collect();
    let next_token = next.map_or_else(String::new, |serial| serial.to_string());
    Ok(proto::ListVolumesResponse {
        entries,
        next_token,
    })
}
