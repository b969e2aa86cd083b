//! Snapshots of several volumes at one moment.

use std::collections::BTreeSet;
use std::time::SystemTime;

use orlop_csi::limits;
use orlop_csi::proto::*;
use tonic::Status;

use super::refuse::{self, invalid, limit};
use super::state::{Group, State};
use super::{Fault, Shared};

impl Shared {
    pub(super) fn create_volume_group_snapshot(
        &self,
        state: &mut State,
        request: &CreateVolumeGroupSnapshotRequest,
    ) -> Result<CreateVolumeGroupSnapshotResponse, Status> {
        let empty = || Ok(CreateVolumeGroupSnapshotResponse::default());
        let (name, sources) = (&request.name, &request.source_volume_ids);
        if self.has(Fault::GroupWithoutName) && name.is_empty() {
            return empty();
        }
        limits::name("name", name).map_err(|error| limit(&error))?;
        if sources.is_empty() {
            return match self.has(Fault::GroupWithoutSources) {
                true => empty(),
                false => Err(invalid("source_volume_ids is missing")),
            };
        }
        for source in sources {
            refuse::required("source_volume_ids", source)?;
        }
        limits::map("parameters", &request.parameters).map_err(|error| limit(&error))?;
        if sources.iter().collect::<BTreeSet<_>>().len() != sources.len() {
            return Err(invalid("a volume is named twice"));
        }
        let forgets = self.has(Fault::GroupForgetsNames);
        let known = state
            .groups
            .values()
            .find(|group| group.name == *name && !forgets);
        if let Some(known) = known.cloned() {
            let same = same_ids(&known.sources, sources) && known.parameters == request.parameters;
            if !same && !self.has(Fault::GroupOtherSources) {
                return Err(Status::already_exists(format!(
                    "group {} has the name, but other volumes or parameters",
                    known.id
                )));
            }
            let mut group = self.group(state, &known);
            if self.has(Fault::GroupRepeatIncomplete) {
                group.snapshots.pop();
            }
            return Ok(CreateVolumeGroupSnapshotResponse {
                group_snapshot: Some(group),
            });
        }
        let group = self.cut_group(state, request)?;
        let shown = self.group(state, &group);
        state.groups.insert(group.id.clone(), group);
        Ok(CreateVolumeGroupSnapshotResponse {
            group_snapshot: Some(shown),
        })
    }

    /// All members or none; nothing else has a turn meanwhile, so they are of one moment.
    fn cut_group(
        &self,
        state: &mut State,
        request: &CreateVolumeGroupSnapshotRequest,
    ) -> Result<Group, Status> {
        let id = state.fresh("group");
        let mut sources = request.source_volume_ids.clone();
        if self.has(Fault::GroupMemberMissing) && sources.len() > 1 {
            sources.pop();
        }
        let mut members = Vec::new();
        for source in &sources {
            match self.cut(state, "", source, &id) {
                Ok(snapshot) => {
                    members.push(snapshot.id.clone());
                    state.snapshots.insert(snapshot.id.clone(), snapshot);
                }
                Err(status) => {
                    if self.has(Fault::GroupHalfMade) {
                        return Err(status);
                    }
                    for member in members {
                        self.drop_snapshot(state, &member)?;
                    }
                    return Err(status);
                }
            }
        }
        Ok(Group {
            id,
            name: request.name.clone(),
            sources: request.source_volume_ids.clone(),
            parameters: request.parameters.clone(),
            members,
            made: SystemTime::now(),
        })
    }

    fn group(&self, state: &State, group: &Group) -> VolumeGroupSnapshot {
        VolumeGroupSnapshot {
            group_snapshot_id: group.id.clone(),
            snapshots: group
                .members
                .iter()
                .filter_map(|member| state.snapshots.get(member))
                .map(|snapshot| self.snapshot(snapshot))
                .collect(),
            creation_time: (!self.has(Fault::GroupWithoutTime)).then(|| group.made.into()),
            ready_to_use: !self.has(Fault::GroupNotReady) && !self.has(Fault::SnapshotNeverReady),
        }
    }

    pub(super) fn delete_volume_group_snapshot(
        &self,
        state: &mut State,
        request: &DeleteVolumeGroupSnapshotRequest,
    ) -> Result<DeleteVolumeGroupSnapshotResponse, Status> {
        let (id, ids) = (&request.group_snapshot_id, &request.snapshot_ids);
        let done = Ok(DeleteVolumeGroupSnapshotResponse {});
        if self.has(Fault::GroupDeleteWithoutId) && id.is_empty() {
            return done;
        }
        refuse::required("group_snapshot_id", id)?;
        let Some(group) = state.groups.get(id).cloned() else {
            return match self.has(Fault::GroupDeleteUnknownFails) {
                true => Err(Status::not_found("there is no such group")),
                false => done,
            };
        };
        let lax = match self.fault {
            Some(Fault::GroupDeleteWithoutIds) => ids.is_empty(),
            Some(Fault::GroupDeleteOtherIds) => !ids.is_empty(),
            _ => false,
        };
        if !lax && !same_ids(&group.members, ids) {
            return Err(invalid(format!("group {id} has other snapshots")));
        }
        for member in &group.members {
            if self.has(Fault::GroupDeleteKeepsMembers) {
                if let Some(snapshot) = state.snapshots.get_mut(member) {
                    snapshot.group.clear();
                }
            } else {
                self.drop_snapshot(state, member)?;
            }
        }
        state.groups.remove(id);
        done
    }

    pub(super) fn get_volume_group_snapshot(
        &self,
        state: &mut State,
        request: &GetVolumeGroupSnapshotRequest,
    ) -> Result<GetVolumeGroupSnapshotResponse, Status> {
        let (id, ids) = (&request.group_snapshot_id, &request.snapshot_ids);
        if self.has(Fault::GroupGetWithoutId) && id.is_empty() {
            return Ok(GetVolumeGroupSnapshotResponse::default());
        }
        refuse::required("group_snapshot_id", id)?;
        let Some(group) = state.groups.get(id) else {
            return match self.has(Fault::GroupGetUnknownEmpty) {
                true => Ok(GetVolumeGroupSnapshotResponse::default()),
                false => Err(Status::not_found(format!("there is no group {id:?}"))),
            };
        };
        if !same_ids(&group.members, ids) && !self.has(Fault::GroupGetOtherIds) {
            return Err(invalid(format!("group {id} has other snapshots")));
        }
        let mut shown = self.group(state, group);
        if self.has(Fault::GroupGetIncomplete) {
            shown.snapshots.pop();
        }
        Ok(GetVolumeGroupSnapshotResponse {
            group_snapshot: Some(shown),
        })
    }
}

/// The same ids, in whatever order.
fn same_ids(left: &[String], right: &[String]) -> bool {
    let sorted = |ids: &[String]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    sorted(left) == sorted(right)
}
