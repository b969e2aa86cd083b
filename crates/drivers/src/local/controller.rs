//! The controller service: volumes come, go, move and grow.
//!
//! Each call is one file: understand the request, take the volume's turn, look, decide, act. The
//! work is blocking and runs on a thread of its own to its end, whether or not its caller waits.

use std::sync::Arc;

use orlop_csi::proto;
use orlop_csi::proto::controller_server::Controller;
use orlop_csi::proto::controller_service_capability::rpc::Type as Rpc;
use tonic::{Request, Response, Status};

use super::pools::{Pools, Volume};
use super::{serve, topology};

mod capacity;
mod create;
mod delete;
mod expand;
mod get;
mod list;
mod modify;
mod publish;
mod snapshots;
mod source;
mod unpublish;
mod validate;

pub use capacity::CapacityError;
pub use create::CreateError;
pub use delete::DeleteError;
pub use expand::ExpandError;
pub use get::GetError;
pub use list::ListError;
pub use modify::ModifyError;
pub use publish::PublishError;
pub(super) use snapshots::no_parameters;
pub use snapshots::{
    CreateSnapshotError, DeleteSnapshotError, GetSnapshotError, ListSnapshotsError,
    UnknownParameter,
};
pub use source::SourceError;
pub use unpublish::UnpublishError;
pub use validate::ValidateError;

/// The controller service over all pools.
#[derive(Clone, Debug)]
pub struct ControllerService {
    pools: Arc<Pools>,
}

impl ControllerService {
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools }
    }
}

/// What the service can do.
const CAPABILITIES: &[Rpc] = &[
    Rpc::CreateDeleteVolume,
    Rpc::PublishUnpublishVolume,
    Rpc::PublishReadonly,
    Rpc::ListVolumes,
    Rpc::ListVolumesPublishedNodes,
    Rpc::GetCapacity,
    Rpc::GetVolume,
    Rpc::CreateDeleteSnapshot,
    Rpc::ListSnapshots,
    Rpc::GetSnapshot,
    Rpc::CloneVolume,
    Rpc::ExpandVolume,
    Rpc::SingleNodeMultiWriter,
    Rpc::VolumeCondition,
    Rpc::ModifyVolume,
];

/// A volume in the protocol's words.
fn to_wire(pools: &Pools, volume: &Volume) -> proto::Volume {
    proto::Volume {
        capacity_bytes: i64::try_from(volume.record.capacity_bytes).unwrap_or(i64::MAX),
        volume_id: volume.record.id.as_str().to_owned(),
        content_source: volume.record.source.as_ref().map(source::to_wire),
        accessible_topology: vec![topology::of_node(pools.driver_name(), &volume.home.node)],
        ..Default::default()
    }
}

/// The nodes that a volume is published on.
fn published_nodes(volume: &Volume) -> Vec<String> {
    volume
        .record
        .publications
        .keys()
        .map(|node| node.0.clone())
        .collect()
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<proto::CreateVolumeRequest>,
    ) -> Result<Response<proto::CreateVolumeResponse>, Status> {
        serve(&self.pools, request, create::create).await
    }

    async fn delete_volume(
        &self,
        request: Request<proto::DeleteVolumeRequest>,
    ) -> Result<Response<proto::DeleteVolumeResponse>, Status> {
        serve(&self.pools, request, delete::delete).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<proto::ControllerPublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerPublishVolumeResponse>, Status> {
        serve(&self.pools, request, publish::publish).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<proto::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerUnpublishVolumeResponse>, Status> {
        serve(&self.pools, request, unpublish::unpublish).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<proto::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<proto::ValidateVolumeCapabilitiesResponse>, Status> {
        serve(&self.pools, request, validate::validate).await
    }

    async fn list_volumes(
        &self,
        request: Request<proto::ListVolumesRequest>,
    ) -> Result<Response<proto::ListVolumesResponse>, Status> {
        serve(&self.pools, request, list::list).await
    }

    async fn get_capacity(
        &self,
        request: Request<proto::GetCapacityRequest>,
    ) -> Result<Response<proto::GetCapacityResponse>, Status> {
        serve(&self.pools, request, capacity::capacity).await
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        use proto::controller_service_capability::{Rpc as Wire, Type};
        let capability = |rpc: &Rpc| proto::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Wire {
                r#type: (*rpc).into(),
            })),
        };
        let capabilities = CAPABILITIES.iter().map(capability).collect();
        Ok(Response::new(proto::ControllerGetCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<proto::CreateSnapshotRequest>,
    ) -> Result<Response<proto::CreateSnapshotResponse>, Status> {
        serve(&self.pools, request, snapshots::create).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<proto::DeleteSnapshotRequest>,
    ) -> Result<Response<proto::DeleteSnapshotResponse>, Status> {
        serve(&self.pools, request, snapshots::delete).await
    }

    async fn list_snapshots(
        &self,
        request: Request<proto::ListSnapshotsRequest>,
    ) -> Result<Response<proto::ListSnapshotsResponse>, Status> {
        serve(&self.pools, request, snapshots::list).await
    }

    async fn get_snapshot(
        &self,
        request: Request<proto::GetSnapshotRequest>,
    ) -> Result<Response<proto::GetSnapshotResponse>, Status> {
        serve(&self.pools, request, snapshots::get).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<proto::ControllerExpandVolumeRequest>,
    ) -> Result<Response<proto::ControllerExpandVolumeResponse>, Status> {
        serve(&self.pools, request, expand::expand).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<proto::ControllerGetVolumeRequest>,
    ) -> Result<Response<proto::ControllerGetVolumeResponse>, Status> {
        serve(&self.pools, request, get::get).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<proto::ControllerModifyVolumeRequest>,
    ) -> Result<Response<proto::ControllerModifyVolumeResponse>, Status> {
        serve(&self.pools, request, modify::modify).await
    }
}
