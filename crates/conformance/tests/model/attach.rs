//! ControllerPublishVolume and ControllerUnpublishVolume.

use orlop_csi::limits;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use orlop_csi::proto::*;
use tonic::Status;

use super::refuse::{self, limit, no_volume};
use super::state::{Attachment, State};
use super::{Fault, NODE, OTHER_NODE, Shared};

/// How many volumes a node takes.
pub(super) const MOST: i64 = 24;

impl Shared {
    pub(super) fn controller_publish_volume(
        &self,
        state: &mut State,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        let done = || Ok(ControllerPublishVolumeResponse::default());
        let (id, node) = (&request.volume_id, &request.node_id);
        if self.has(Fault::AttachWithoutId) && id.is_empty() {
            return done();
        }
        refuse::required("volume_id", id)?;
        if self.has(Fault::AttachWithoutNode) && node.is_empty() {
            return done();
        }
        limits::node_id("node_id", node).map_err(|error| limit(&error))?;
        let Some(capability) = request.volume_capability.as_ref() else {
            return match self.has(Fault::AttachWithoutCapability) {
                true => done(),
                false => Err(refuse::invalid("volume_capability is missing")),
            };
        };
        let form = refuse::capability(capability)?;
        let taken = state
            .volumes
            .values()
            .filter(|volume| volume.id != *id && volume.attached.contains_key(node))
            .count();
        let again = state.calls;
        let Some(volume) = state.volumes.get_mut(id) else {
            return Err(match self.has(Fault::AttachUnknownVolumeIsInternal) {
                true => Status::internal("something is wrong with the volume"),
                false => no_volume(id),
            });
        };
        if ![NODE, OTHER_NODE].contains(&node.as_str()) && !self.has(Fault::AttachUnknownNode) {
            return Err(Status::not_found(format!("there is no node {node:?}")));
        }
        if form != volume.form {
            return Err(refuse::invalid("the volume has another access type"));
        }
        let mut publish_context: super::Map = [("device".to_owned(), format!("dev-{id}"))].into();
        let wanted = Attachment {
            capability: capability.clone(),
            readonly: request.readonly,
        };
        match volume.attached.get(node) {
            Some(_) if self.has(Fault::AttachRepeatFails) => {
                return Err(Status::already_exists("the volume is attached"));
            }
            Some(found) if *found == wanted => {
                if self.has(Fault::AttachRepeatOtherContext) {
                    publish_context.insert("call".into(), again.to_string());
                }
            }
            Some(_) if self.has(Fault::AttachOtherReadonly) => {}
            Some(_) => {
                return Err(Status::already_exists(format!(
                    "volume {id} is attached to {node} in another way"
                )));
            }
            None => {
                let other = volume
                    .attached
                    .iter()
                    .find(|(_, found)| !many_nodes(&found.capability) || !many_nodes(capability));
                if let Some((other, _)) = other.filter(|_| !self.has(Fault::AttachManyNodes)) {
                    return Err(Status::failed_precondition(format!(
                        "volume {id} is attached to node {other}; detach it there first"
                    )));
                }
                let full = i64::try_from(taken).unwrap_or(i64::MAX) >= MOST;
                if full && !self.has(Fault::AttachOverLimit) {
                    return Err(Status::resource_exhausted(format!(
                        "node {node} has {MOST} volumes; detach one first"
                    )));
                }
                volume.attached.insert(node.clone(), wanted);
            }
        }
        Ok(ControllerPublishVolumeResponse { publish_context })
    }

    pub(super) fn controller_unpublish_volume(
        &self,
        state: &mut State,
        request: &ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse, Status> {
        let (id, node) = (&request.volume_id, &request.node_id);
        let done = Ok(ControllerUnpublishVolumeResponse {});
        if self.has(Fault::DetachWithoutId) && id.is_empty() {
            return done;
        }
        refuse::required("volume_id", id)?;
        if !node.is_empty() {
            limits::node_id("node_id", node).map_err(|error| limit(&error))?;
        }
        // A volume that is not there is surely not attached.
        let Some(volume) = state.volumes.get_mut(id) else {
            return done;
        };
        if node.is_empty() {
            if self.has(Fault::DetachAllRefused) {
                return Err(refuse::invalid("node_id is missing"));
            }
            if !self.has(Fault::DetachAllKeeps) {
                volume.attached.clear();
            }
            return done;
        }
        let was = volume.attached.contains_key(node);
        match self.fault {
            Some(Fault::DetachNeverAttachedFails) if !was && volume.attached.is_empty() => {
                return Err(Status::not_found("the volume is not attached"));
            }
            Some(Fault::DetachRepeatFails) if !was => {
                return Err(Status::internal("the volume is not attached"));
            }
            Some(Fault::DetachKeeps) => return done,
            Some(Fault::DetachTakesAll) => volume.attached.clear(),
            _ => {}
        }
        volume.attached.remove(node);
        done
    }
}

/// Whether a volume may be on several nodes at once.
fn many_nodes(capability: &VolumeCapability) -> bool {
    matches!(
        refuse::mode(capability),
        Some(Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter)
    )
}
