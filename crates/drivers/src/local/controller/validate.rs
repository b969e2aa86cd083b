//! ValidateVolumeCapabilities: whether a volume can be used in some ways.

use orlop_csi::proto;
use orlop_csi::proto::validate_volume_capabilities_response::Confirmed;
use orlop_csi::server::CsiError;
use tonic::Code;

use crate::local::capability::{Access, Capability, CapabilityError};
use crate::local::fields::{self, FieldError};
use crate::local::parameters;
use crate::local::pools::{FindError, Pools, Volume};
use crate::local::volume::Content;

/// Why the question could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// A capability is not one.
    #[error("a volume capability is incomplete")]
    Incomplete(#[source] CapabilityError),
}

impl CsiError for ValidateError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Incomplete(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
        }
    }
}

pub(super) fn validate(
    pools: &Pools,
    request: &proto::ValidateVolumeCapabilitiesRequest,
) -> Result<proto::ValidateVolumeCapabilitiesResponse, ValidateError> {
    let id = fields::volume_id(&request.volume_id)?;
    if request.volume_capabilities.is_empty() {
        return Err(FieldError::missing("volume_capabilities").into());
    }
    let volume = pools.find(id)?;
    let refused = |message| proto::ValidateVolumeCapabilitiesResponse {
        confirmed: None,
        message,
    };
    for wire in &request.volume_capabilities {
        match objection(pools, &volume, wire) {
            None => {}
            Some(error @ CapabilityError::Missing(_)) => {
                return Err(ValidateError::Incomplete(error));
            }
            Some(error) => return Ok(refused(error.to_string())),
        }
    }
    match parameters::parse(&request.parameters) {
        Ok(asked) if asked.is_empty() || asked == volume.record.parameters => {}
        Ok(_) => return Ok(refused("the volume has other parameters".to_owned())),
        Err(error) => return Ok(refused(error.to_string())),
    }
    Ok(proto::ValidateVolumeCapabilitiesResponse {
        confirmed: Some(Confirmed {
            volume_context: request.volume_context.clone(),
            volume_capabilities: request.volume_capabilities.clone(),
            parameters: request.parameters.clone(),
            mutable_parameters: request.mutable_parameters.clone(),
        }),
        message: String::new(),
    })
}

/// Why a volume cannot be used like this.
fn objection(
    pools: &Pools,
    volume: &Volume,
    wire: &proto::VolumeCapability,
) -> Option<CapabilityError> {
    let default_fs =
        parameters::file_system(&volume.record.parameters).unwrap_or(pools.default_fs());
    let capability = match Capability::parse_whole(wire, default_fs) {
        Ok(capability) => capability,
        Err(error) => return Some(error),
    };
    match (capability.access, volume.record.content) {
        (Access::Mount(asked), Content::FileSystem(has)) if asked != has => {
            Some(CapabilityError::FileSystem(asked.name().to_owned()))
        }
        _ => None,
    }
}
