//! CreateSnapshot, DeleteSnapshot, ListSnapshots, GetSnapshot.

use std::time::{Duration, SystemTime};

use orlop_csi::limits;
use orlop_csi::proto::*;
use tonic::Status;

use super::list::{Slip, page};
use super::refuse::{self, internal, limit, no_volume};
use super::state::{Snapshot as Record, State, Volume as VolumeRecord};
use super::{Fault, Profile, Shared};

impl Shared {
    pub(super) fn create_snapshot(
        &self,
        state: &mut State,
        request: &CreateSnapshotRequest,
    ) -> Result<CreateSnapshotResponse, Status> {
        let (name, source) = (&request.name, &request.source_volume_id);
        let lax = match self.fault {
            Some(Fault::SnapshotWithoutName) => name.is_empty(),
            Some(Fault::SnapshotNameTooLong) => name.len() > limits::STRING,
            Some(Fault::SnapshotControlCharacter) => {
                !name.is_empty() && name.len() <= limits::STRING
            }
            _ => false,
        };
        if !lax {
            limits::name("name", name).map_err(|error| limit(&error))?;
        }
        if self.has(Fault::SnapshotWithoutSource) && source.is_empty() {
            return Ok(CreateSnapshotResponse::default());
        }
        refuse::required("source_volume_id", source)?;
        limits::map("parameters", &request.parameters).map_err(|error| limit(&error))?;

        let forgets = self.has(Fault::SnapshotForgetsNames) || state.blind;
        let mut known = state.snapshots.values();
        // The names of single snapshots; a group's members have none of their own.
        let known = known.find(|found| found.group.is_empty() && found.name == *name && !forgets);
        if let Some(known) = known {
            if known.source != *source && !self.has(Fault::SnapshotOtherSource) {
                return Err(Status::already_exists(format!(
                    "snapshot {} has the name, but is of volume {}",
                    known.id, known.source
                )));
            }
            return Ok(CreateSnapshotResponse {
                snapshot: Some(self.snapshot(known)),
            });
        }
        let snapshot = self.cut(state, name, source, "")?;
        let shown = self.snapshot(&snapshot);
        state.snapshots.insert(snapshot.id.clone(), snapshot);
        Ok(CreateSnapshotResponse {
            snapshot: Some(shown),
        })
    }

    /// Refuses a cut of a volume in use, where the model is one that does.
    pub(super) fn must_rest(&self, volume: &VolumeRecord) -> Result<(), Status> {
        match self.profile == Profile::AtRest && volume.in_use() {
            true => Err(Status::failed_precondition(format!(
                "volume {} is in use; unpublish it first",
                volume.id
            ))),
            false => Ok(()),
        }
    }

    /// Copies a volume as it is now.
    pub(super) fn cut(
        &self,
        state: &mut State,
        name: &str,
        source: &str,
        group: &str,
    ) -> Result<Record, Status> {
        let id = state.fresh("snap");
        let Some(volume) = state.volumes.get(source) else {
            return Err(match self.has(Fault::SnapshotUnknownSourceIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(source),
            });
        };
        self.must_rest(volume)?;
        self.settle(volume);
        let from = self
            .store
            .volume(volume.borrows.as_deref().unwrap_or(source));
        if let Err(error) = self.store.cut(&from, &id, volume.form) {
            let _ = self.store.remove_snapshot(&id);
            return Err(internal("copy the volume", &error));
        }
        Ok(Record {
            id,
            name: name.to_owned(),
            source: source.to_owned(),
            form: volume.form,
            size: volume.capacity,
            made: SystemTime::now(),
            group: group.to_owned(),
        })
    }

    /// Brings what was written to a volume's devices to its image.
    pub(super) fn settle(&self, volume: &VolumeRecord) {
        for device in volume
            .published
            .values()
            .filter_map(|at| at.device.as_ref())
        {
            let _ = rustix::fs::fsync(device);
        }
    }

    /// A snapshot as the protocol shows it.
    pub(super) fn snapshot(&self, record: &Record) -> Snapshot {
        let ahead = match self.has(Fault::SnapshotFromTheFuture) {
            true => Duration::from_secs(86400),
            false => Duration::ZERO,
        };
        let mut shown = Snapshot {
            size_bytes: record.size,
            snapshot_id: record.id.clone(),
            source_volume_id: record.source.clone(),
            creation_time: Some((record.made + ahead).into()),
            ready_to_use: !self.has(Fault::SnapshotNeverReady),
            group_snapshot_id: record.group.clone(),
        };
        match self.fault {
            Some(Fault::SnapshotWithoutTime) => shown.creation_time = None,
            Some(Fault::SnapshotNegativeSize) => shown.size_bytes = -1,
            Some(Fault::SnapshotWrongSource) => shown.source_volume_id.clear(),
            Some(Fault::SnapshotIdTooLong) => {
                shown.snapshot_id = format!("{}{}", record.id, "x".repeat(116));
            }
            Some(Fault::GroupMemberWithoutGroup) => shown.group_snapshot_id.clear(),
            _ => {}
        }
        shown
    }

    pub(super) fn delete_snapshot(
        &self,
        state: &mut State,
        request: &DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse, Status> {
        let id = &request.snapshot_id;
        let done = Ok(DeleteSnapshotResponse {});
        if self.has(Fault::SnapshotDeleteWithoutId) && id.is_empty() {
            return done;
        }
        refuse::required("snapshot_id", id)?;
        let Some(snapshot) = state.snapshots.get(id) else {
            let was = state.deleted.contains(id);
            return match self.fault {
                Some(Fault::SnapshotDeleteUnknownFails) if !was => {
                    Err(Status::not_found("there is no such snapshot"))
                }
                Some(Fault::SnapshotDeleteTwiceFails) if was => {
                    Err(Status::not_found("there is no such snapshot"))
                }
                _ => done,
            };
        };
        if !snapshot.group.is_empty() && !self.has(Fault::GroupMemberDeleted) {
            return Err(refuse::invalid(format!(
                "snapshot {id} belongs to group {}; delete that",
                snapshot.group
            )));
        }
        if self.has(Fault::SnapshotDeleteKeeps) {
            return done;
        }
        self.drop_snapshot(state, id)?;
        done
    }

    pub(super) fn drop_snapshot(&self, state: &mut State, id: &str) -> Result<(), Status> {
        self.store
            .remove_snapshot(id)
            .map_err(|error| internal("remove the snapshot", &error))?;
        state.snapshots.remove(id);
        state.deleted.push(id.to_owned());
        if self.has(Fault::RestoreDiesWithSnapshot) {
            for volume in state.volumes.values() {
                let source = volume.asked.volume_content_source.as_ref();
                let from = source.and_then(|source| source.r#type.as_ref());
                if let Some(volume_content_source::Type::Snapshot(from)) = from
                    && from.snapshot_id == id
                {
                    let _ = super::store::wipe(&self.store.volume(&volume.id), volume.form);
                }
            }
        }
        Ok(())
    }

    pub(super) fn list_snapshots(
        &self,
        state: &mut State,
        request: &ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        let (id, source) = (&request.snapshot_id, &request.source_volume_id);
        limits::string("snapshot_id", id).map_err(|error| limit(&error))?;
        limits::string("source_volume_id", source).map_err(|error| limit(&error))?;
        let slip = match self.fault {
            Some(Fault::SnapshotListIgnoresMaximum) => Slip::IgnoresMaximum,
            Some(Fault::SnapshotListRepeats) => Slip::Repeats,
            Some(Fault::SnapshotListLoses) => Slip::Loses,
            Some(Fault::SnapshotListBadToken) => Slip::TakesBadToken,
            _ => Slip::None,
        };
        let by_id = id.is_empty() || self.has(Fault::SnapshotListIgnoresId);
        let by_source = source.is_empty() || self.has(Fault::SnapshotListIgnoresSource);
        let all: Vec<_> = state
            .snapshots
            .values()
            .filter(|snapshot| by_id || snapshot.id == *id)
            .filter(|snapshot| by_source || snapshot.source == *source)
            .map(|snapshot| {
                let entry = list_snapshots_response::Entry {
                    snapshot: Some(self.snapshot(snapshot)),
                };
                (snapshot.id.clone(), entry)
            })
            .collect();
        let none = all.is_empty();
        match self.fault {
            Some(Fault::SnapshotListUnknownIdFails) if none && !id.is_empty() => {
                return Err(Status::not_found("there is no such snapshot"));
            }
            Some(Fault::SnapshotListUnknownSourceFails) if none && !source.is_empty() => {
                return Err(Status::not_found("there is no such volume"));
            }
            _ => {}
        }
        let page = page('s', all, request.max_entries, &request.starting_token, slip)?;
        Ok(ListSnapshotsResponse {
            entries: page.entries,
            next_token: page.next,
        })
    }

    pub(super) fn get_snapshot(
        &self,
        state: &mut State,
        request: &GetSnapshotRequest,
    ) -> Result<GetSnapshotResponse, Status> {
        let id = &request.snapshot_id;
        if self.has(Fault::GetSnapshotWithoutId) && id.is_empty() {
            return Ok(GetSnapshotResponse::default());
        }
        refuse::required("snapshot_id", id)?;
        let Some(snapshot) = state.snapshots.get(id) else {
            return match self.has(Fault::GetSnapshotUnknownEmpty) {
                true => Ok(GetSnapshotResponse::default()),
                false => Err(Status::not_found(format!("there is no snapshot {id:?}"))),
            };
        };
        let mut shown = self.snapshot(snapshot);
        if self.has(Fault::GetSnapshotOtherTime) {
            let earlier = snapshot.made - Duration::from_secs(60);
            shown.creation_time = Some(earlier.into());
        }
        Ok(GetSnapshotResponse {
            snapshot: Some(shown),
        })
    }
}
