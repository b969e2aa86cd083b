//! The group controller service: snapshots of several volumes at one moment.
//!
//! A group exists if and only if its record is on disk: it is written after its snapshots are in
//! place and removed before they are. So a kill in between leaves snapshots without a group, which
//! nobody sees and the next start removes.

use std::sync::Arc;

use orlop_csi::proto;
use orlop_csi::proto::group_controller_server::GroupController;
use orlop_csi::proto::group_controller_service_capability::rpc::Type as Rpc;
use tonic::{Request, Response, Status};

use super::pools::Pools;
use super::serve;
use super::snapshot::{Group, Snapshot, SnapshotId};

mod create;
mod delete;
mod get;

pub use create::CreateGroupError;
pub use delete::DeleteGroupError;
pub use get::GetGroupError;

/// The group controller service over all pools.
#[derive(Clone, Debug)]
pub struct GroupControllerService {
    pools: Arc<Pools>,
}

impl GroupControllerService {
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools }
    }
}

/// A group in the protocol's words.
fn to_wire(group: &Group, snapshots: &[Snapshot]) -> proto::VolumeGroupSnapshot {
    proto::VolumeGroupSnapshot {
        group_snapshot_id: group.record.id.as_str().to_owned(),
        snapshots: snapshots.iter().map(Snapshot::to_wire).collect(),
        creation_time: Some(group.record.created.into()),
        ready_to_use: true,
    }
}

/// Whether these are the ids of a group's snapshots, in whatever order.
fn are_members(group: &Group, ids: &[String]) -> bool {
    let mut asked: Vec<_> = ids.iter().map(String::as_str).collect();
    let mut members: Vec<_> = group
        .record
        .members
        .values()
        .map(SnapshotId::as_str)
        .collect();
    asked.sort_unstable();
    members.sort_unstable();
    asked == members
}

#[tonic::async_trait]
impl GroupController for GroupControllerService {
    async fn group_controller_get_capabilities(
        &self,
        _request: Request<proto::GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::GroupControllerGetCapabilitiesResponse>, Status> {
        use proto::group_controller_service_capability::{Rpc as Wire, Type};
        let rpc = Wire {
            r#type: Rpc::CreateDeleteGetVolumeGroupSnapshot.into(),
        };
        let capabilities = vec![proto::GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(rpc)),
        }];
        Ok(Response::new(
            proto::GroupControllerGetCapabilitiesResponse { capabilities },
        ))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<proto::CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<proto::CreateVolumeGroupSnapshotResponse>, Status> {
        serve(&self.pools, request, create::create).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<proto::DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<proto::DeleteVolumeGroupSnapshotResponse>, Status> {
        serve(&self.pools, request, delete::delete).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<proto::GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<proto::GetVolumeGroupSnapshotResponse>, Status> {
        serve(&self.pools, request, get::get).await
    }
}
