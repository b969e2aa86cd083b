//! How much of a driver's storage a run takes.

use std::any::Any;
use std::collections::BTreeMap;

use orlop_csi::client::{ControllerCapability, PluginService};
use orlop_csi::proto;

use crate::bench::Bench;
use crate::make::{block_capability, mount_capability};

/// The most test volumes' worth that cases have at once: many volumes, or some with their snapshots,
/// their copies and grown to the double.
const VOLUMES_AT_ONCE: i64 = 28;

/// What a run with test volumes of this size may take at once.
pub fn needed(volume_size: i64) -> i64 {
    volume_size.saturating_mul(VOLUMES_AT_ONCE)
}

/// What is left by the driver's own word, for volumes like those of the run. Nothing if it doesn't
/// tell: whether what it says is true is for the cases to find out.
pub(crate) async fn left(bench: &Bench) -> Option<i64> {
    use proto::volume_capability::access_mode::Mode::SingleNodeWriter;
    if !bench.can(ControllerCapability::GetCapacity) {
        return None;
    }
    let settings = &bench.settings;
    let capability = match settings.block {
        true => block_capability(SingleNodeWriter),
        false => mount_capability(SingleNodeWriter, &settings.fs_type),
    };
    let topology = bench.topology.clone();
    let request = proto::GetCapacityRequest {
        volume_capabilities: vec![capability],
        parameters: settings.parameters.clone(),
        accessible_topology: topology
            .filter(|_| bench.serves(PluginService::VolumeAccessibilityConstraints)),
    };
    let reply = settings.controller.call_raw(&request, settings.timeout);
    reply.await.ok().map(|reply| reply.available_capacity)
}

/// What the volumes and snapshots of a run take, by the driver's own word.
#[derive(Debug, Default)]
pub(crate) struct Room {
    sizes: BTreeMap<String, i64>,
    most: i64,
}

impl Room {
    /// The most that was taken at once.
    pub(crate) fn most(&self) -> i64 {
        self.most
    }

    /// Looks at a call that was answered well.
    pub(crate) fn look(&mut self, request: &dyn Any, reply: &dyn Any) {
        if let Some(reply) = reply.downcast_ref::<proto::CreateVolumeResponse>() {
            if let Some(volume) = &reply.volume {
                self.take(&volume.volume_id, volume.capacity_bytes);
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::ControllerExpandVolumeResponse>() {
            if let Some(request) = request.downcast_ref::<proto::ControllerExpandVolumeRequest>() {
                self.take(&request.volume_id, reply.capacity_bytes);
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::CreateSnapshotResponse>() {
            reply.snapshot.iter().for_each(|it| self.take_snapshot(it));
        } else if let Some(reply) = reply.downcast_ref::<proto::CreateVolumeGroupSnapshotResponse>()
        {
            let members = reply.group_snapshot.iter().flat_map(|it| &it.snapshots);
            members.for_each(|it| self.take_snapshot(it));
        } else if let Some(request) = request.downcast_ref::<proto::DeleteVolumeRequest>() {
            self.sizes.remove(&request.volume_id);
        } else if let Some(request) = request.downcast_ref::<proto::DeleteSnapshotRequest>() {
            self.sizes.remove(&request.snapshot_id);
        } else if let Some(request) =
            request.downcast_ref::<proto::DeleteVolumeGroupSnapshotRequest>()
        {
            for id in &request.snapshot_ids {
                self.sizes.remove(id);
            }
        }
    }

    /// A snapshot may grow as large as its volume is, if that is known.
    fn take_snapshot(&mut self, snapshot: &proto::Snapshot) {
        let source = self.sizes.get(&snapshot.source_volume_id).copied();
        let bytes = snapshot.size_bytes.max(source.unwrap_or_default());
        self.take(&snapshot.snapshot_id, bytes);
    }

    fn take(&mut self, id: &str, bytes: i64) {
        // A driver may say anything.
        self.sizes.insert(id.to_owned(), bytes.max(0));
        let sum = self
            .sizes
            .values()
            .fold(0i64, |sum, it| sum.saturating_add(*it));
        self.most = self.most.max(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_what_was_there_at_once() {
        let mut room = Room::default();
        let volume = |id: &str, bytes| proto::CreateVolumeResponse {
            volume: Some(proto::Volume {
                volume_id: id.to_owned(),
                capacity_bytes: bytes,
                ..Default::default()
            }),
        };
        let made = proto::CreateVolumeRequest::default();
        room.look(&made, &volume("a", 10));
        let snapshot = proto::CreateSnapshotResponse {
            snapshot: Some(proto::Snapshot {
                snapshot_id: "s".to_owned(),
                source_volume_id: "a".to_owned(),
                ..Default::default()
            }),
        };
        room.look(&proto::CreateSnapshotRequest::default(), &snapshot);
        assert_eq!(room.most(), 20);
        let delete = proto::DeleteVolumeRequest {
            volume_id: "a".to_owned(),
            ..Default::default()
        };
        room.look(&delete, &proto::DeleteVolumeResponse {});
        room.look(&made, &volume("b", 5));
        room.look(&made, &volume("b", -1));
        assert_eq!(room.most(), 20);
    }
}
