//! The services, each call handed to the function that does it.

use std::collections::BTreeMap;

use orlop_csi::proto::controller_server::Controller;
use orlop_csi::proto::group_controller_server::GroupController;
use orlop_csi::proto::identity_server::Identity;
use orlop_csi::proto::node_server::Node;
use orlop_csi::proto::*;
use tonic::{Request, Response, Status};

use super::{Fault, Model, Private, Shared};

/// The model without what [`super::Profile::Least`] lacks. Calls that are not advertised are left to
/// the answer that the protocol has for them.
#[derive(Clone)]
pub(crate) struct Least(pub(crate) Model);

macro_rules! service {
    ($trait:ident for $model:ty, $self:ident => $inner:expr;
        $($call:ident($request:ident) -> $reply:ident;)+) => {
        #[tonic::async_trait]
        impl $trait for $model {
            $(
                async fn $call(&self, request: Request<$request>) -> Result<Response<$reply>, Status> {
                    let $self = self;
                    let request = request.into_inner();
                    let private = Private { secrets: request.secrets(), context: request.context() };
                    $inner.turn(request, &private, Shared::$call).await
                }
            )+
        }
    };
}

/// A request's confidential fields, by the names of [`Private`].
trait Confides {
    fn secrets(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    fn context(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

macro_rules! confides {
    ($($request:ident: $($field:ident = $from:ident),*;)+) => {
        $(impl Confides for $request {
            $(fn $field(&self) -> BTreeMap<String, String> {
                self.$from.clone()
            })*
        })+
    };
}

confides! {
    CreateVolumeRequest: secrets = secrets;
    DeleteVolumeRequest: secrets = secrets;
    ControllerPublishVolumeRequest: secrets = secrets, context = volume_context;
    ControllerUnpublishVolumeRequest: secrets = secrets;
    ValidateVolumeCapabilitiesRequest: secrets = secrets, context = volume_context;
    ControllerModifyVolumeRequest: secrets = secrets;
    CreateSnapshotRequest: secrets = secrets;
    DeleteSnapshotRequest: secrets = secrets;
    ListSnapshotsRequest: secrets = secrets;
    GetSnapshotRequest: secrets = secrets;
    ControllerExpandVolumeRequest: secrets = secrets;
    CreateVolumeGroupSnapshotRequest: secrets = secrets;
    DeleteVolumeGroupSnapshotRequest: secrets = secrets;
    GetVolumeGroupSnapshotRequest: secrets = secrets;
    NodeStageVolumeRequest: secrets = secrets, context = volume_context;
    NodePublishVolumeRequest: secrets = secrets, context = volume_context;
    NodeExpandVolumeRequest: secrets = secrets;
    GetPluginInfoRequest: ;
    GetPluginCapabilitiesRequest: ;
    ProbeRequest: ;
    ListVolumesRequest: ;
    GetCapacityRequest: ;
    ControllerGetCapabilitiesRequest: ;
    ControllerGetVolumeRequest: ;
    GroupControllerGetCapabilitiesRequest: ;
    NodeUnstageVolumeRequest: ;
    NodeUnpublishVolumeRequest: ;
    NodeGetVolumeStatsRequest: ;
    NodeGetCapabilitiesRequest: ;
    NodeGetInfoRequest: ;
}

service! { Identity for Model, this => this;
    get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse;
    get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
    probe(ProbeRequest) -> ProbeResponse;
}

service! { Controller for Model, this => this;
    create_volume(CreateVolumeRequest) -> CreateVolumeResponse;
    delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse;
    controller_publish_volume(ControllerPublishVolumeRequest)
        -> ControllerPublishVolumeResponse;
    controller_unpublish_volume(ControllerUnpublishVolumeRequest)
        -> ControllerUnpublishVolumeResponse;
    validate_volume_capabilities(ValidateVolumeCapabilitiesRequest)
        -> ValidateVolumeCapabilitiesResponse;
    list_volumes(ListVolumesRequest) -> ListVolumesResponse;
    get_capacity(GetCapacityRequest) -> GetCapacityResponse;
    controller_get_capabilities(ControllerGetCapabilitiesRequest)
        -> ControllerGetCapabilitiesResponse;
    create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
    delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
    list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
    get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
    controller_expand_volume(ControllerExpandVolumeRequest)
        -> ControllerExpandVolumeResponse;
    controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
    controller_modify_volume(ControllerModifyVolumeRequest)
        -> ControllerModifyVolumeResponse;
}

service! { GroupController for Model, this => this;
    group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest)
        -> GroupControllerGetCapabilitiesResponse;
    create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest)
        -> CreateVolumeGroupSnapshotResponse;
    delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest)
        -> DeleteVolumeGroupSnapshotResponse;
    get_volume_group_snapshot(GetVolumeGroupSnapshotRequest)
        -> GetVolumeGroupSnapshotResponse;
}

service! { Node for Model, this => this;
    node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
    node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
    node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
    node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
    node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
    node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
    node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
    node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
}

service! { Node for Least, this => this.0;
    node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
    node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
    node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
    node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
}

/// Written out for the two calls that faults answer although they are not advertised.
#[tonic::async_trait]
impl Controller for Least {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        self.0.create_volume(request).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        self.0.delete_volume(request).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        self.0.validate_volume_capabilities(request).await
    }

    async fn controller_get_capabilities(
        &self,
        request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        self.0.controller_get_capabilities(request).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        match self.0.0.fault {
            Some(Fault::UnadvertisedWorks) => self.0.list_volumes(request).await,
            Some(Fault::UnadvertisedIsInternal) => Err(Status::internal("not here")),
            _ => Err(Status::unimplemented("volumes are not listed")),
        }
    }
}
