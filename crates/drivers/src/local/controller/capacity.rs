//! GetCapacity: what can still be promised.
//!
//! Truthful: the bytes that would be free if every volume were written full. Images are sparse, so
//! the pool's free space alone would promise the same bytes to many.

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use tonic::Code;

use crate::local::capability::{Access, Capability};
use crate::local::parameters::{self, ParameterError};
use crate::local::pools::{Pools, ReserveError};
use crate::local::volume::NodeName;
use crate::local::{size, topology};

/// Why the capacity could not be told.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// A class parameter is not known.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// A pool could not be measured.
    #[error(transparent)]
    Measure(#[from] ReserveError),
}

impl CsiError for CapacityError {
    fn code(&self) -> Code {
        match self {
            Self::Parameter(_) => Code::InvalidArgument,
            Self::Measure(source) => source.code(),
        }
    }
}

pub(super) fn capacity(
    pools: &Pools,
    request: &proto::GetCapacityRequest,
) -> Result<proto::GetCapacityResponse, CapacityError> {
    let parameters = parameters::parse(&request.parameters)?;
    let default_fs = parameters::file_system(&parameters).unwrap_or(pools.default_fs());
    let mut smallest = size::SMALLEST;
    for wire in &request.volume_capabilities {
        match Capability::parse(wire, default_fs) {
            Ok(Capability {
                access: Access::Mount(kind),
                ..
            }) => {
                smallest = smallest.max(kind.smallest());
            }
            Ok(Capability {
                access: Access::Block,
                ..
            }) => {}
            // Of volumes that we cannot make, none can be made.
            Err(_) => return Ok(proto::GetCapacityResponse::default()),
        }
    }
    let (mut total, mut largest) = (0u64, 0u64);
    let (named, allocation) = (
        parameters::pool(&parameters),
        parameters::allocation(&parameters),
    );
    for node in nodes(pools, request.accessible_topology.as_ref()) {
        let homes = pools.candidates(&node, named.as_ref());
        // As long as nobody knows what is in one of them, none gets a new volume of this class.
        if let Some(home) = pools.first_unread(&homes) {
            tracing::warn!(%home, "a pool was not read yet, so that nothing can be made");
            continue;
        }
        for home in homes {
            let available = match pools.available(&home, allocation) {
                Ok(available) => available / size::BLOCK * size::BLOCK,
                // In a pool that is not there nothing can be made, and that is the answer.
                Err(error) if error.code() == Code::Unavailable => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a pool is missing"
                    );
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            total = total.saturating_add(available);
            largest = largest.max(available);
        }
    }
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Ok(proto::GetCapacityResponse {
        available_capacity: signed(total),
        maximum_volume_size: Some(signed(largest)),
        minimum_volume_size: Some(signed(smallest)),
    })
}

/// The nodes that a place means.
fn nodes(pools: &Pools, place: Option<&proto::Topology>) -> Vec<NodeName> {
    let Some(place) = place.filter(|place| !place.segments.is_empty()) else {
        return pools.nodes().cloned().collect();
    };
    let requirement = proto::TopologyRequirement {
        requisite: vec![place.clone()],
        preferred: Vec::new(),
    };
    match topology::Wanted::parse(Some(&requirement), pools.driver_name()) {
        topology::Wanted::OneOf(nodes) => nodes,
        topology::Wanted::Anywhere => pools.nodes().cloned().collect(),
    }
}
