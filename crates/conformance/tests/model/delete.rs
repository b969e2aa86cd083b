//! DeleteVolume.

use orlop_csi::proto::{DeleteVolumeRequest, DeleteVolumeResponse};
use tonic::Status;

use super::refuse::{self, internal};
use super::state::State;
use super::store;
use super::{Fault, Shared};

impl Shared {
    pub(super) fn delete_volume(
        &self,
        state: &mut State,
        request: &DeleteVolumeRequest,
    ) -> Result<DeleteVolumeResponse, Status> {
        let id = &request.volume_id;
        if self.has(Fault::DeleteWithoutId) && id.is_empty() {
            return Ok(DeleteVolumeResponse {});
        }
        refuse::required("volume_id", id)?;
        if self.has(Fault::DeleteLeavesRoot) {
            // The bug is as old as drivers are: an id that is a path, removed as one.
            let _ = std::fs::remove_dir_all(self.store.volume(id));
        }
        let Some(volume) = state.volumes.get(id) else {
            let was = state.deleted.contains(id);
            return match self.fault {
                Some(Fault::DeleteUnknownFails) if !was => Err(refuse::no_volume(id)),
                Some(Fault::DeleteTwiceFails) if was => Err(refuse::no_volume(id)),
                _ => Ok(DeleteVolumeResponse {}),
            };
        };
        if volume.in_use() && !self.has(Fault::DeleteInUse) {
            if self.has(Fault::DeleteInUseDamages) {
                let _ = store::wipe(&self.store.volume(id), volume.form);
            }
            return Err(Status::failed_precondition(format!(
                "volume {id} is in use; unpublish it first"
            )));
        }
        if self.has(Fault::DeleteKeepsVolume) {
            return Ok(DeleteVolumeResponse {});
        }
        self.drop_volume(state, id)?;
        if self.has(Fault::DeleteTakesSnapshots) {
            state.snapshots.retain(|_, snapshot| snapshot.source != *id);
        }
        if self.has(Fault::DeleteTakesNeighbour) {
            let other = state.volumes.values().find(|volume| !volume.in_use());
            if let Some(other) = other.map(|volume| volume.id.clone()) {
                self.drop_volume(state, &other)?;
            }
        }
        Ok(DeleteVolumeResponse {})
    }

    fn drop_volume(&self, state: &mut State, id: &str) -> Result<(), Status> {
        self.store
            .remove(id)
            .map_err(|error| internal("remove the volume", &error))?;
        state.volumes.remove(id);
        state.deleted.push(id.to_owned());
        Ok(())
    }
}
