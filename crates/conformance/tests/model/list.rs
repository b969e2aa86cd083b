//! What there is: ListVolumes, ControllerGetVolume, GetCapacity; and how lists are cut into pages.

use orlop_csi::limits;
use orlop_csi::proto::*;
use tonic::Status;

use super::create::ZONE;
use super::refuse::{self, LARGEST, POOL, UNIT, invalid, limit, no_volume};
use super::state::{State, Volume as Record};
use super::{Fault, Shared};

/// The ways in which paging may go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Slip {
    #[default]
    None,
    IgnoresMaximum,
    Repeats,
    Loses,
    WithoutToken,
    TokenForEver,
    TakesBadToken,
    BadTokenIsInvalid,
    TakesNegative,
}

/// A page of a list whose entries have ids in order. Tokens are made of a list's own letter and the
/// last id shown, so that a deletion between two pages does no harm.
pub(super) struct Page<T> {
    pub(super) entries: Vec<T>,
    pub(super) next: String,
}

pub(super) fn page<T>(
    letter: char,
    all: Vec<(String, T)>,
    max_entries: i32,
    token: &str,
    slip: Slip,
) -> Result<Page<T>, Status> {
    if max_entries < 0 && slip != Slip::TakesNegative {
        return Err(invalid("max_entries is negative"));
    }
    limits::string("starting_token", token).map_err(|error| limit(&error))?;
    let after = match token.strip_prefix(&format!("{letter}:")) {
        Some(after) => after,
        None if token.is_empty() || slip == Slip::TakesBadToken => "",
        None if slip == Slip::BadTokenIsInvalid => return Err(invalid("the token is not ours")),
        None => {
            return Err(Status::aborted(
                "the token is not ours; start again without one",
            ));
        }
    };
    let most = match usize::try_from(max_entries) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(_) if slip == Slip::IgnoresMaximum => usize::MAX,
        Ok(most) => most,
    };
    let mut left = all
        .into_iter()
        .filter(|(id, _)| id.as_str() > after)
        .peekable();
    if slip == Slip::Loses && !after.is_empty() {
        left.next();
    }
    let (mut entries, mut last, mut before) = (Vec::new(), String::new(), String::new());
    while entries.len() < most {
        let Some((id, entry)) = left.next() else {
            break;
        };
        before = std::mem::replace(&mut last, id);
        entries.push(entry);
    }
    let more = left.peek().is_some();
    let next = match slip {
        Slip::WithoutToken => String::new(),
        // Back by one, but never so far that the list has no end.
        Slip::Repeats if more && !before.is_empty() => format!("{letter}:{before}"),
        Slip::Repeats if more && most == 1 => format!("{letter}:{last}"),
        Slip::TokenForEver if max_entries > 0 && !more => format!("{letter}:"),
        _ if more => format!("{letter}:{last}"),
        _ => String::new(),
    };
    Ok(Page { entries, next })
}

impl Shared {
    pub(super) fn list_volumes(
        &self,
        state: &mut State,
        request: &ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Status> {
        let slip = match self.fault {
            Some(Fault::ListIgnoresMaximum) => Slip::IgnoresMaximum,
            Some(Fault::ListRepeats) => Slip::Repeats,
            Some(Fault::ListLoses) => Slip::Loses,
            Some(Fault::ListWithoutToken) => Slip::WithoutToken,
            Some(Fault::ListTokenForEver) => Slip::TokenForEver,
            Some(Fault::ListBadToken) => Slip::TakesBadToken,
            Some(Fault::ListBadTokenIsInvalid) => Slip::BadTokenIsInvalid,
            Some(Fault::ListNegativeMaximum) => Slip::TakesNegative,
            _ => Slip::None,
        };
        let all = state
            .volumes
            .values()
            .filter(|volume| {
                !self.has(Fault::ListWithoutNew) || volume.asked.volume_content_source.is_none()
            })
            .map(|volume| (volume.id.clone(), self.entry(volume)))
            .collect();
        let page = page('v', all, request.max_entries, &request.starting_token, slip)?;
        Ok(ListVolumesResponse {
            entries: page.entries,
            next_token: page.next,
        })
    }

    fn entry(&self, record: &Record) -> list_volumes_response::Entry {
        let mut volume = self.volume(record);
        let mut published_node_ids: Vec<_> = record.attached.keys().cloned().collect();
        match self.fault {
            Some(Fault::ListOtherContext) => {
                volume.volume_context.insert("listed".into(), "yes".into());
            }
            Some(Fault::ListOldSize) => volume.capacity_bytes = record.first_capacity,
            Some(Fault::ListWithoutNodes) => published_node_ids.clear(),
            Some(Fault::ListWithoutSource) => volume.content_source = None,
            _ => {}
        }
        list_volumes_response::Entry {
            volume: Some(volume),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids,
                volume_condition: Some(well()),
            }),
        }
    }

    pub(super) fn controller_get_volume(
        &self,
        state: &mut State,
        request: &ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        let id = &request.volume_id;
        if self.has(Fault::GetVolumeWithoutId) && id.is_empty() {
            return Ok(ControllerGetVolumeResponse::default());
        }
        refuse::required("volume_id", id)?;
        let Some(volume) = state.volumes.get(id) else {
            return Err(match self.has(Fault::GetVolumeUnknownIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(id),
            });
        };
        let mut shown = self.volume(volume);
        if self.has(Fault::GetVolumeOther) {
            shown.volume_context = [("model.csi.example/key".into(), "of-vol-0".into())].into();
        }
        let published_node_ids = match self.has(Fault::GetVolumeWithoutNodes) {
            true => Vec::new(),
            false => volume.attached.keys().cloned().collect(),
        };
        Ok(ControllerGetVolumeResponse {
            volume: Some(shown),
            status: Some(controller_get_volume_response::VolumeStatus {
                published_node_ids,
                volume_condition: (!self.has(Fault::GetVolumeWithoutCondition)).then(well),
            }),
        })
    }

    pub(super) fn get_capacity(
        &self,
        state: &mut State,
        request: &GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        for capability in &request.volume_capabilities {
            refuse::capability(capability)?;
        }
        limits::map("parameters", &request.parameters).map_err(|error| limit(&error))?;
        let here = request.accessible_topology.as_ref().is_none_or(|topology| {
            let zone = topology.segments.get(ZONE.0);
            topology.segments.is_empty() || zone.is_some_and(|zone| zone == ZONE.1)
        });
        let taken: i64 = state.volumes.values().map(|volume| volume.capacity).sum();
        let available_capacity = match self.fault {
            Some(Fault::CapacityNegative) => -taken - 1,
            _ if !here && !self.has(Fault::CapacityIgnoresTopology) => 0,
            _ => POOL - taken,
        };
        let (least, most) = match self.fault {
            Some(Fault::CapacityMaximumNegative) => (UNIT, -1),
            Some(Fault::CapacityMinimumOverMaximum) => (LARGEST + UNIT, LARGEST),
            _ => (UNIT, LARGEST),
        };
        Ok(GetCapacityResponse {
            available_capacity,
            maximum_volume_size: Some(most),
            minimum_volume_size: Some(least),
        })
    }
}

/// Nothing is the matter.
pub(super) fn well() -> VolumeCondition {
    VolumeCondition {
        abnormal: false,
        message: "the volume is well".to_owned(),
    }
}
