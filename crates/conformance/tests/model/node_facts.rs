//! NodeGetInfo, NodeGetVolumeStats, NodeExpandVolume.

use orlop_csi::limits;
use orlop_csi::proto::volume_usage::Unit;
use orlop_csi::proto::*;
use tonic::Status;

use super::attach::MOST;
use super::create::zone;
use super::list::well;
use super::refuse::{self, internal, limit, no_volume};
use super::state::{State, Volume};
use super::store::{self, Form};
use super::{Fault, NODE, Profile, Shared};

impl Shared {
    pub(super) fn node_get_info(
        &self,
        _: &mut State,
        _: &NodeGetInfoRequest,
    ) -> Result<NodeGetInfoResponse, Status> {
        let accessible_topology = match self.profile {
            Profile::Full if self.has(Fault::NodeTopologyMalformed) => Some(Topology {
                segments: [("Topology.Model/zone".to_owned(), "-a-".to_owned())].into(),
            }),
            Profile::Full | Profile::AtRest => Some(zone()),
            Profile::Least => None,
        };
        Ok(NodeGetInfoResponse {
            node_id: match self.fault {
                Some(Fault::NodeIdEmpty) => String::new(),
                Some(Fault::NodeIdTooLong) => "n".repeat(257),
                _ => NODE.to_owned(),
            },
            max_volumes_per_node: match self.has(Fault::NodeLimitNegative) {
                true => -1,
                false => MOST,
            },
            accessible_topology,
        })
    }

    pub(super) fn node_get_volume_stats(
        &self,
        state: &mut State,
        request: &NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let nothing = || Ok(NodeGetVolumeStatsResponse::default());
        let (id, path) = (&request.volume_id, &request.volume_path);
        match self.fault {
            Some(Fault::StatsWithoutId) if id.is_empty() => return nothing(),
            Some(Fault::StatsWithoutPath) if path.is_empty() => return nothing(),
            _ => {}
        }
        refuse::required("volume_id", id)?;
        refuse::present("volume_path", path)?;
        let Some(volume) = state.volumes.get(id) else {
            return match self.has(Fault::StatsUnknown) {
                true => nothing(),
                false => Err(no_volume(id)),
            };
        };
        if !self.has(Fault::StatsWrongPath) {
            check_at(volume, path)?;
        }
        let mut usage = match volume.form {
            Form::Block => vec![VolumeUsage {
                total: volume.capacity,
                unit: Unit::Bytes.into(),
                ..VolumeUsage::default()
            }],
            Form::Mount => {
                let found = orlop_host::filesystem::usage(&self.data(volume))
                    .map_err(|error| internal("measure the volume", &error))?;
                let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
                vec![
                    VolumeUsage {
                        available: signed(found.available_bytes),
                        total: signed(found.total_bytes),
                        used: signed(found.used_bytes),
                        unit: Unit::Bytes.into(),
                    },
                    VolumeUsage {
                        available: signed(found.free_inodes),
                        total: signed(found.total_inodes),
                        used: signed(found.total_inodes - found.free_inodes),
                        unit: Unit::Inodes.into(),
                    },
                ]
            }
        };
        for one in &mut usage {
            match self.fault {
                Some(Fault::StatsNegative) => one.available = -1,
                Some(Fault::StatsWithoutTotal) => one.total = 0,
                Some(Fault::StatsUnitUnknown) => one.unit = Unit::Unknown.into(),
                _ => {}
            }
        }
        Ok(NodeGetVolumeStatsResponse {
            usage,
            volume_condition: (!self.has(Fault::StatsWithoutCondition)).then(well),
        })
    }

    pub(super) fn node_expand_volume(
        &self,
        state: &mut State,
        request: &NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        let nothing = || Ok(NodeExpandVolumeResponse::default());
        let (id, path) = (&request.volume_id, &request.volume_path);
        match self.fault {
            Some(Fault::NodeExpandWithoutId) if id.is_empty() => return nothing(),
            Some(Fault::NodeExpandWithoutPath) if path.is_empty() => return nothing(),
            _ => {}
        }
        refuse::required("volume_id", id)?;
        refuse::present("volume_path", path)?;
        let again = state.deleted.contains(&format!("expanded {id}"));
        let Some(volume) = state.volumes.get(id) else {
            return Err(match self.has(Fault::NodeExpandUnknownIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(id),
            });
        };
        check_at(volume, path)?;
        if let Some(capability) = &request.volume_capability {
            refuse::capability(capability)?;
        }
        if let Some(range) = &request.capacity_range {
            limits::capacity_range(range).map_err(|error| limit(&error))?;
            if range.required_bytes > volume.capacity {
                return Err(Status::out_of_range(
                    "the controller has not expanded it so far",
                ));
            }
            if range.limit_bytes > 0 && range.limit_bytes < volume.capacity {
                return Err(Status::out_of_range("the volume is larger than the limit"));
            }
        }
        if again && self.has(Fault::NodeExpandRepeatFails) {
            return Err(Status::internal("nothing to do"));
        }
        self.size_as_promised(volume)
            .map_err(|error| internal("grow the volume", &error))?;
        if self.has(Fault::NodeExpandLosesData) {
            let _ = store::wipe(&self.data(volume), volume.form);
        }
        for device in volume
            .published
            .values()
            .filter_map(|at| at.device.as_ref())
        {
            device
                .refresh_size()
                .map_err(|error| internal("grow the device", &error))?;
        }
        let capacity_bytes = volume.capacity;
        if self.has(Fault::NodeExpandRepeatFails) {
            state.deleted.push(format!("expanded {id}"));
        }
        Ok(NodeExpandVolumeResponse { capacity_bytes })
    }
}

/// The volume must be at the path, staged or published.
fn check_at(volume: &Volume, path: &str) -> Result<(), Status> {
    let path = std::path::Path::new(path);
    let staged = volume
        .staged
        .as_ref()
        .is_some_and(|staged| staged.path == path);
    if staged || volume.published.contains_key(path) {
        return Ok(());
    }
    Err(Status::not_found(format!(
        "volume {} is not there",
        volume.id
    )))
}
