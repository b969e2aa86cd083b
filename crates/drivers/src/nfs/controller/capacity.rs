//! GetCapacity: what a class' share has left.

use orlop_csi::proto;

use super::{Call, Capability};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};
use crate::nfs::parameters::Attributes;

pub(super) async fn capacity(
    call: &Call<'_>,
    request: &proto::GetCapacityRequest,
) -> Result<proto::GetCapacityResponse, Failure> {
    let mut plan = None;
    for capability in &request.volume_capabilities {
        plan = Some(Capability::parse(capability)?.plan);
    }
    let class = Attributes::parse(&request.parameters).map_err(|error| Failure::invalid(&error))?;
    // Without a share there is nothing of which it could be the capacity.
    let Some(export) = class.export else {
        return Ok(proto::GetCapacityResponse::default());
    };
    let none = std::collections::BTreeMap::new();
    let on = call.mounting(&export, plan, &none)?;
    let available = match call.run(Work::Measure { on }, Vec::new()).await? {
        Answer::Usage(figures) => figures.available,
        _ => 0,
    };
    Ok(proto::GetCapacityResponse {
        available_capacity: i64::try_from(available).unwrap_or(i64::MAX),
        ..Default::default()
    })
}
