//! The driver's snapshots and groups of them.

use std::time::{Duration, SystemTime};

use orlop_csi::{Method, proto};
use tonic::{Code, Request, Response, Status};

use super::FakeDriver;
use crate::backend::{Backend, Refusal};

/// When everything is cut, in seconds since 1970.
const CUT: Duration = Duration::from_secs(1_767_225_600);

fn snapshot(backend: &Backend, id: &str) -> Result<proto::Snapshot, Refusal> {
    let cut = backend.snapshots().get(id).ok_or_else(|| Refusal {
        code: Code::NotFound,
        message: format!("there is no snapshot {id}"),
    })?;
    Ok(proto::Snapshot {
        size_bytes: 1 << 30,
        snapshot_id: id.to_owned(),
        source_volume_id: cut.source.clone(),
        creation_time: Some((SystemTime::UNIX_EPOCH + CUT).into()),
        ready_to_use: true,
        group_snapshot_id: cut.group.clone().unwrap_or_default(),
    })
}

fn group(backend: &Backend, id: &str) -> Result<proto::VolumeGroupSnapshot, Refusal> {
    let members = backend.groups().get(id).ok_or_else(|| Refusal {
        code: Code::NotFound,
        message: format!("there is no group {id}"),
    })?;
    let snapshots = members.iter().map(|member| snapshot(backend, member));
    Ok(proto::VolumeGroupSnapshot {
        group_snapshot_id: id.to_owned(),
        snapshots: snapshots.collect::<Result<_, _>>()?,
        creation_time: Some((SystemTime::UNIX_EPOCH + CUT).into()),
        ready_to_use: true,
    })
}

impl FakeDriver {
    pub(super) async fn cut(
        &self,
        request: proto::CreateSnapshotRequest,
    ) -> Result<Response<proto::CreateSnapshotResponse>, Status> {
        let turn = format!("snap-{}", request.name);
        let cut = move |driver: &Self, backend: &mut Backend| {
            driver.witness.before_cut(&request.name);
            let id = backend.cut(&request.name, &request.source_volume_id)?;
            Ok(proto::CreateSnapshotResponse {
                snapshot: Some(snapshot(backend, &id)?),
            })
        };
        self.carry_out(Method::CreateSnapshot, &turn, cut).await
    }

    pub(super) async fn uncut(
        &self,
        id: String,
    ) -> Result<Response<proto::DeleteSnapshotResponse>, Status> {
        let turn = id.clone();
        let uncut = move |driver: &Self, backend: &mut Backend| {
            driver.witness.before_uncut(&id);
            backend.uncut(&id)?;
            Ok(proto::DeleteSnapshotResponse {})
        };
        self.carry_out(Method::DeleteSnapshot, &turn, uncut).await
    }

    pub(super) async fn tell_of(
        &self,
        id: String,
    ) -> Result<Response<proto::GetSnapshotResponse>, Status> {
        let turn = id.clone();
        let tell = move |_: &Self, backend: &mut Backend| {
            Ok(proto::GetSnapshotResponse {
                snapshot: Some(snapshot(backend, &id)?),
            })
        };
        self.carry_out(Method::GetSnapshot, &turn, tell).await
    }
}

#[tonic::async_trait]
impl proto::group_controller_server::GroupController for FakeDriver {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<proto::GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::GroupControllerGetCapabilitiesResponse>, Status> {
        use proto::group_controller_service_capability::{Rpc, Type, rpc};
        let kind = rpc::Type::CreateDeleteGetVolumeGroupSnapshot;
        let capability = proto::GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: kind.into(),
            })),
        };
        Ok(Response::new(
            proto::GroupControllerGetCapabilitiesResponse {
                capabilities: vec![capability],
            },
        ))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<proto::CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<proto::CreateVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let turn = format!("group-{}", request.name);
        let cut = move |driver: &Self, backend: &mut Backend| {
            driver.witness.before_cut_group(&request.name);
            let id = backend.cut_group(&request.name, &request.source_volume_ids)?;
            Ok(proto::CreateVolumeGroupSnapshotResponse {
                group_snapshot: Some(group(backend, &id)?),
            })
        };
        self.carry_out(Method::CreateVolumeGroupSnapshot, &turn, cut)
            .await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<proto::DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<proto::DeleteVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let turn = request.group_snapshot_id.clone();
        let uncut = move |driver: &Self, backend: &mut Backend| {
            let id = &request.group_snapshot_id;
            driver.witness.before_uncut_group(id);
            backend.uncut_group(id, &request.snapshot_ids)?;
            Ok(proto::DeleteVolumeGroupSnapshotResponse {})
        };
        self.carry_out(Method::DeleteVolumeGroupSnapshot, &turn, uncut)
            .await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<proto::GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<proto::GetVolumeGroupSnapshotResponse>, Status> {
        let id = request.into_inner().group_snapshot_id;
        let turn = id.clone();
        let tell = move |_: &Self, backend: &mut Backend| {
            Ok(proto::GetVolumeGroupSnapshotResponse {
                group_snapshot: Some(group(backend, &id)?),
            })
        };
        self.carry_out(Method::GetVolumeGroupSnapshot, &turn, tell)
            .await
    }
}
