//! What becomes of a volume: ControllerModifyVolume, ControllerExpandVolume, and
//! ValidateVolumeCapabilities.

use orlop_csi::limits;
use orlop_csi::proto::*;
use tonic::Status;

use super::refuse::{self, UNIT, invalid, limit, no_volume};
use super::state::{Map, State};
use super::{Fault, Shared};

impl Shared {
    /// Whether mutable parameters are ones that the model has.
    pub(super) fn check_mutable(parameters: &Map) -> Result<(), Status> {
        limits::map("mutable_parameters", parameters).map_err(|error| limit(&error))?;
        for (key, value) in parameters {
            let fits = match key.as_str() {
                "iops" => value.parse::<u32>().is_ok(),
                "tier" => ["gold", "silver"].contains(&value.as_str()),
                _ => false,
            };
            if !fits {
                return Err(invalid(format!("{key:?} cannot be set to {value:?}")));
            }
        }
        Ok(())
    }

    pub(super) fn controller_modify_volume(
        &self,
        state: &mut State,
        request: &ControllerModifyVolumeRequest,
    ) -> Result<ControllerModifyVolumeResponse, Status> {
        let done = Ok(ControllerModifyVolumeResponse {});
        let (id, wanted) = (&request.volume_id, &request.mutable_parameters);
        if self.has(Fault::ModifyWithoutId) && id.is_empty() {
            return done;
        }
        refuse::required("volume_id", id)?;
        if wanted.is_empty() {
            return match self.has(Fault::ModifyWithoutParameters) {
                true => done,
                false => Err(invalid("mutable_parameters is missing")),
            };
        }
        let Some(volume) = state.volumes.get_mut(id) else {
            return match self.has(Fault::ModifyUnknownVolume) {
                true => done,
                false => Err(no_volume(id)),
            };
        };
        if !self.has(Fault::ModifyUnknownKey) {
            Self::check_mutable(wanted)?;
        }
        let already = wanted
            .iter()
            .all(|(key, value)| volume.mutable.get(key) == Some(value));
        if already && self.has(Fault::ModifyRepeatFails) {
            return Err(Status::failed_precondition("nothing would change"));
        }
        volume.mutable.extend(wanted.clone());
        done
    }

    pub(super) fn controller_expand_volume(
        &self,
        state: &mut State,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let id = &request.volume_id;
        if self.has(Fault::ExpandWithoutId) && id.is_empty() {
            return Ok(ControllerExpandVolumeResponse::default());
        }
        refuse::required("volume_id", id)?;
        let Some(range) = request.capacity_range.as_ref() else {
            return match self.has(Fault::ExpandWithoutRange) {
                true => Ok(ControllerExpandVolumeResponse::default()),
                false => Err(invalid("capacity_range is missing")),
            };
        };
        let negative = range.required_bytes < 0 || range.limit_bytes < 0;
        if !(negative && self.has(Fault::ExpandNegative)) {
            limits::capacity_range(range).map_err(|error| limit(&error))?;
        }
        if let Some(capability) = &request.volume_capability {
            refuse::capability(capability)?;
        }
        let Some(volume) = state.volumes.get_mut(id) else {
            return Err(match self.has(Fault::ExpandUnknownIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(id),
            });
        };
        let old = volume.capacity;
        let required = range.required_bytes;
        let capacity = match self.fault {
            Some(Fault::ExpandNegative) if negative => old,
            Some(Fault::ExpandRepeatFails) if required == old => {
                return Err(Status::out_of_range("the volume has this size"));
            }
            Some(Fault::ExpandRepeatGrows) if required <= old => old + required,
            Some(Fault::ExpandShrinks) if required > 0 && required < old => {
                required.div_euclid(UNIT).max(1) * UNIT
            }
            Some(Fault::ExpandHugeSize) if required > refuse::LARGEST => required,
            Some(Fault::ExpandOverLimit) if range.limit_bytes > 0 => {
                refuse::size(Some(range), old)?.max(range.limit_bytes / UNIT * UNIT + UNIT)
            }
            // What is large enough stays as it is.
            _ if required <= old && (range.limit_bytes == 0 || old <= range.limit_bytes) => old,
            _ => refuse::size(Some(range), old)?,
        };
        if !self.has(Fault::ExpandTooLittle) {
            volume.capacity = capacity;
        }
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: volume.capacity,
            node_expansion_required: true,
        })
    }

    pub(super) fn validate_volume_capabilities(
        &self,
        state: &mut State,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        use validate_volume_capabilities_response::Confirmed;
        let (id, wanted) = (&request.volume_id, &request.volume_capabilities);
        let mut confirmed = Confirmed {
            volume_context: request.volume_context.clone(),
            volume_capabilities: wanted.clone(),
            parameters: request.parameters.clone(),
            mutable_parameters: request.mutable_parameters.clone(),
        };
        let refuses = |message: &str| {
            Ok(ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: message.to_owned(),
            })
        };
        let yes = |confirmed| {
            Ok(ValidateVolumeCapabilitiesResponse {
                confirmed: Some(confirmed),
                message: String::new(),
            })
        };
        if self.has(Fault::ValidateWithoutId) && id.is_empty() {
            return yes(confirmed);
        }
        refuse::required("volume_id", id)?;
        if wanted.is_empty() {
            return match self.has(Fault::ValidateWithoutCapabilities) {
                true => yes(confirmed),
                false => Err(invalid("volume_capabilities is missing")),
            };
        }
        for capability in wanted {
            limits::volume_capability(capability).map_err(|error| limit(&error))?;
        }
        let Some(volume) = state.volumes.get(id) else {
            return match self.has(Fault::ValidateUnknown) {
                true => yes(confirmed),
                false => Err(no_volume(id)),
            };
        };
        for capability in wanted {
            let lenient = self.has(Fault::ValidateConfirmsUnknownMode);
            match refuse::capability(capability) {
                Ok(form) if form == volume.form => {}
                Err(_) if lenient => {}
                Ok(_) => return refuses("the volume has another access type"),
                Err(_) => return refuses("a capability is not supported"),
            }
        }
        if !request.parameters.is_empty() && request.parameters != volume.asked.parameters {
            return refuses("the volume was made with other parameters");
        }
        if Self::check_mutable(&request.mutable_parameters).is_err() {
            return refuses("a mutable parameter is not supported");
        }
        match self.fault {
            Some(Fault::ValidateConfirmsNothing) => return refuses("no"),
            Some(Fault::ValidateConfirmsLess) => confirmed.volume_capabilities.clear(),
            _ => {}
        }
        yes(confirmed)
    }
}
