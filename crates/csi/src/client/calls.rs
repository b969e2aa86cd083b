//! Every call by its own name; all of them go through [`Driver::call`] or
//! [`Driver::stream`].

use super::{CallError, Driver, Replies};
use crate::proto::*;

macro_rules! calls {
    ($($doc:literal $name:ident: $request:ident => $reply:ident;)+) => {
        impl Driver {
            $(
                #[doc = $doc]
                pub async fn $name(&self, request: $request) -> Result<$reply, CallError> {
                    self.call(request).await
                }
            )+
        }
    };
}

calls! {
    "Name and version; [`Driver::info`] remembers them."
    get_plugin_info: GetPluginInfoRequest => GetPluginInfoResponse;
    "What the plugin can do; [`Driver::info`] remembers it."
    get_plugin_capabilities: GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse;
    "Whether the driver is healthy and ready."
    probe: ProbeRequest => ProbeResponse;

    "Makes a volume, or finds the one of that name."
    create_volume: CreateVolumeRequest => CreateVolumeResponse;
    "Removes a volume."
    delete_volume: DeleteVolumeRequest => DeleteVolumeResponse;
    "Makes a volume reachable from a node."
    controller_publish_volume: ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
    "Takes a volume from a node."
    controller_unpublish_volume:
        ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
    "Whether a volume can be used in some ways."
    validate_volume_capabilities:
        ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
    "One page of the driver's volumes."
    list_volumes: ListVolumesRequest => ListVolumesResponse;
    "Room for new volumes."
    get_capacity: GetCapacityRequest => GetCapacityResponse;
    "What the Controller service can do; [`Driver::info`] remembers it."
    controller_get_capabilities:
        ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse;
    "Cuts a snapshot, or finds the one of that name."
    create_snapshot: CreateSnapshotRequest => CreateSnapshotResponse;
    "Removes a snapshot."
    delete_snapshot: DeleteSnapshotRequest => DeleteSnapshotResponse;
    "One page of the driver's snapshots."
    list_snapshots: ListSnapshotsRequest => ListSnapshotsResponse;
    "One snapshot."
    get_snapshot: GetSnapshotRequest => GetSnapshotResponse;
    "Grows a volume at the backend."
    controller_expand_volume: ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
    "One volume and its state."
    controller_get_volume: ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    "Changes a volume's mutable parameters."
    controller_modify_volume: ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;

    "What the GroupController service can do; [`Driver::info`] remembers it."
    group_controller_get_capabilities:
        GroupControllerGetCapabilitiesRequest => GroupControllerGetCapabilitiesResponse;
    "Cuts a group of snapshots, or finds the one of that name."
    create_volume_group_snapshot:
        CreateVolumeGroupSnapshotRequest => CreateVolumeGroupSnapshotResponse;
    "Removes a group of snapshots."
    delete_volume_group_snapshot:
        DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse;
    "One group of snapshots."
    get_volume_group_snapshot: GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse;

    "Makes a volume ready on the node."
    node_stage_volume: NodeStageVolumeRequest => NodeStageVolumeResponse;
    "Its reverse."
    node_unstage_volume: NodeUnstageVolumeRequest => NodeUnstageVolumeResponse;
    "Makes a volume visible to a workload."
    node_publish_volume: NodePublishVolumeRequest => NodePublishVolumeResponse;
    "Its reverse."
    node_unpublish_volume: NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse;
    "Usage and health of a volume."
    node_get_volume_stats: NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse;
    "Grows a volume on the node."
    node_expand_volume: NodeExpandVolumeRequest => NodeExpandVolumeResponse;
    "What the Node service can do; [`Driver::info`] remembers it."
    node_get_capabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse;
    "The driver's name for its node."
    node_get_info: NodeGetInfoRequest => NodeGetInfoResponse;
}

impl Driver {
    /// Blocks of a snapshot that hold data.
    pub async fn get_metadata_allocated(
        &self,
        request: GetMetadataAllocatedRequest,
    ) -> Result<Replies<GetMetadataAllocatedRequest>, CallError> {
        self.stream(request).await
    }

    /// Blocks that differ between two snapshots.
    pub async fn get_metadata_delta(
        &self,
        request: GetMetadataDeltaRequest,
    ) -> Result<Replies<GetMetadataDeltaRequest>, CallError> {
        self.stream(request).await
    }
}
