//! ControllerExpandVolume: as far as there are sizes.
//!
//! A folder has the share's size unless the server limits it. Where it does, the limit must be
//! raised there first, and the call says so; where it does not, a volume's size is a label.

use orlop_csi::proto;
use tonic::Code;

use super::{Call, Capability, create, known, volume_turn};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};

pub(super) async fn expand(
    call: &Call<'_>,
    request: &proto::ControllerExpandVolumeRequest,
) -> Result<proto::ControllerExpandVolumeResponse, Failure> {
    if request.volume_id.is_empty() {
        return Err(Failure::missing("volume_id"));
    }
    if request.capacity_range.is_none() {
        return Err(Failure::missing("capacity_range"));
    }
    let (required, limit) = create::range(request.capacity_range.as_ref())?;
    let capability = request.volume_capability.as_ref();
    let plan = match capability {
        Some(capability) => Some(Capability::parse(capability)?.plan),
        None => None,
    };
    let id = known(&request.volume_id)?;
    let work = Work::Expand {
        on: call.mounting(&id.export, plan, &request.secrets)?,
        key: id.key().to_owned(),
        folder: id.folder.clone(),
        required,
    };
    let answer = call.run(work, vec![volume_turn(&id)]).await?;
    match answer {
        Answer::Volume { capacity_bytes, .. } if limit > 0 && capacity_bytes > limit => {
            let told = format!("volume {id} has {capacity_bytes} bytes already, more than {limit}");
            Err(Failure::new(Code::OutOfRange, told))
        }
        Answer::Volume {
            capacity_bytes,
            quota,
            ..
        } => {
            if quota.is_none() {
                tracing::info!(%id, capacity_bytes, "the server sets no quota: the size is a label");
            }
            Ok(proto::ControllerExpandVolumeResponse {
                capacity_bytes,
                node_expansion_required: false,
            })
        }
        Answer::Nothing => Err(Failure::not_found(format!("there is no volume {id}"))),
        _ => Err(Failure::new(
            Code::Internal,
            "the worker answered something else",
        )),
    }
}
