//! ValidateVolumeCapabilities.

use orlop_csi::proto;
use orlop_csi::proto::validate_volume_capabilities_response::Confirmed;

use super::{Call, Capability, known};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};

pub(super) async fn validate(
    call: &Call<'_>,
    request: &proto::ValidateVolumeCapabilitiesRequest,
) -> Result<proto::ValidateVolumeCapabilitiesResponse, Failure> {
    if request.volume_id.is_empty() {
        return Err(Failure::missing("volume_id"));
    }
    let Some(first) = request.volume_capabilities.first() else {
        return Err(Failure::missing("volume_capabilities"));
    };
    let id = known(&request.volume_id)?;
    let plan = Capability::parse(first)
        .ok()
        .map(|capability| capability.plan);
    let work = Work::Look {
        on: call.mounting(&id.export, plan, &request.secrets)?,
        key: id.key().to_owned(),
        folder: id.folder.clone(),
    };
    if call.run(work, Vec::new()).await? == Answer::Nothing {
        return Err(Failure::not_found(format!("there is no volume {id}")));
    }
    let refusal = request
        .volume_capabilities
        .iter()
        .find_map(|capability| Capability::parse(capability).err());
    Ok(match refusal {
        Some(failure) => proto::ValidateVolumeCapabilitiesResponse {
            confirmed: None,
            message: failure.to_string(),
        },
        None => proto::ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context.clone(),
                volume_capabilities: request.volume_capabilities.clone(),
                parameters: request.parameters.clone(),
                ..Default::default()
            }),
            message: String::new(),
        },
    })
}
