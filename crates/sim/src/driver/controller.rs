//! The controller's half of the driver.

use std::collections::BTreeMap;

use orlop_csi::{Method, proto};
use tonic::{Request, Response, Status};

use super::{FakeDriver, TOPOLOGY};
use crate::backend::{Attachment, Backend, Order, Sharing};

/// The room that the backend has.
const ROOM: i64 = 100 << 30;

#[tonic::async_trait]
impl proto::controller_server::Controller for FakeDriver {
    async fn controller_get_capabilities(
        &self,
        _: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        use proto::controller_service_capability::{Rpc, Type, rpc};
        let capabilities = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::ModifyVolume,
            rpc::Type::CloneVolume,
            rpc::Type::GetCapacity,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::GetSnapshot,
        ]
        .map(|kind| proto::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: kind.into(),
            })),
        })
        .to_vec();
        Ok(Response::new(proto::ControllerGetCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn create_volume(
        &self,
        request: Request<proto::CreateVolumeRequest>,
    ) -> Result<Response<proto::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let mut order = order(&request);
        if self.temper.anywhere {
            order.places.clear();
        }
        let turn = format!("vol-{}", order.name);
        let content_source = request.volume_content_source;
        let make = move |driver: &Self, backend: &mut Backend| {
            driver.witness.before_create(&order.name);
            let made = format!("vol-{}", order.name);
            if let Some(source) = &order.source
                && !backend.volumes().contains_key(&made)
            {
                if backend.snapshots().contains_key(source) {
                    driver.witness.before_restore(source);
                } else {
                    driver.witness.before_clone(source);
                }
            }
            let (capacity_bytes, name) = (order.bytes, order.name.clone());
            let volume_id = backend.create(order)?;
            let place = backend
                .volumes()
                .get(&volume_id)
                .and_then(|made| made.place.clone());
            let topology = place.map(|node| proto::Topology {
                segments: BTreeMap::from([(TOPOLOGY.to_owned(), node)]),
            });
            let volume = proto::Volume {
                capacity_bytes,
                volume_id,
                accessible_topology: topology.into_iter().collect(),
                volume_context: BTreeMap::from([("made-for".to_owned(), name)]),
                content_source,
            };
            Ok(proto::CreateVolumeResponse {
                volume: Some(volume),
            })
        };
        self.carry_out(Method::CreateVolume, &turn, make).await
    }

    async fn delete_volume(
        &self,
        request: Request<proto::DeleteVolumeRequest>,
    ) -> Result<Response<proto::DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        let turn = id.clone();
        let delete = move |driver: &Self, backend: &mut Backend| {
            driver.witness.before_delete(&id);
            backend.delete(&id)?;
            Ok(proto::DeleteVolumeResponse {})
        };
        self.carry_out(Method::DeleteVolume, &turn, delete).await
    }

    async fn get_capacity(
        &self,
        _: Request<proto::GetCapacityRequest>,
    ) -> Result<Response<proto::GetCapacityResponse>, Status> {
        let taken: i64 = self.look(|backend| {
            let volumes = backend.volumes().values();
            volumes.map(|volume| volume.bytes).sum()
        });
        Ok(Response::new(proto::GetCapacityResponse {
            available_capacity: ROOM - taken,
            ..Default::default()
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<proto::CreateSnapshotRequest>,
    ) -> Result<Response<proto::CreateSnapshotResponse>, Status> {
        self.cut(request.into_inner()).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<proto::DeleteSnapshotRequest>,
    ) -> Result<Response<proto::DeleteSnapshotResponse>, Status> {
        self.uncut(request.into_inner().snapshot_id).await
    }

    async fn get_snapshot(
        &self,
        request: Request<proto::GetSnapshotRequest>,
    ) -> Result<Response<proto::GetSnapshotResponse>, Status> {
        self.tell_of(request.into_inner().snapshot_id).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<proto::ControllerExpandVolumeRequest>,
    ) -> Result<Response<proto::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id;
        let turn = id.clone();
        let range = request.capacity_range;
        let bytes = range.map_or(0, |range| range.required_bytes);
        let expand = move |driver: &Self, backend: &mut Backend| {
            driver.witness.before_expand(&id, bytes);
            Ok(proto::ControllerExpandVolumeResponse {
                capacity_bytes: backend.expand(&id, bytes)?,
                node_expansion_required: true,
            })
        };
        self.carry_out(Method::ControllerExpandVolume, &turn, expand)
            .await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<proto::ControllerModifyVolumeRequest>,
    ) -> Result<Response<proto::ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        let turn = request.volume_id.clone();
        let modify = move |driver: &Self, backend: &mut Backend| {
            driver.witness.before_modify(&request.volume_id);
            backend.modify(&request.volume_id, request.mutable_parameters)?;
            Ok(proto::ControllerModifyVolumeResponse {})
        };
        self.carry_out(Method::ControllerModifyVolume, &turn, modify)
            .await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<proto::ControllerPublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let turn = request.volume_id.clone();
        let attach = move |driver: &Self, backend: &mut Backend| {
            let (id, node) = (&request.volume_id, &request.node_id);
            driver.witness.before_attach(id, node);
            let wanted = Attachment {
                readonly: request.readonly,
            };
            backend.attach(id, node, wanted)?;
            let publish_context = BTreeMap::from([("device".to_owned(), format!("/dev/{id}"))]);
            Ok(proto::ControllerPublishVolumeResponse { publish_context })
        };
        self.carry_out(Method::ControllerPublishVolume, &turn, attach)
            .await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<proto::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let turn = request.volume_id.clone();
        let detach = move |_: &Self, backend: &mut Backend| {
            backend.detach(&request.volume_id, &request.node_id)?;
            Ok(proto::ControllerUnpublishVolumeResponse {})
        };
        self.carry_out(Method::ControllerUnpublishVolume, &turn, detach)
            .await
    }
}

fn order(request: &proto::CreateVolumeRequest) -> Order {
    use proto::{volume_capability::access_mode::Mode, volume_content_source::Type};
    let many = request.volume_capabilities.iter().any(|capability| {
        let mode = capability
            .access_mode
            .as_ref()
            .map(proto::volume_capability::AccessMode::mode);
        matches!(
            mode,
            Some(
                Mode::MultiNodeMultiWriter
                    | Mode::MultiNodeReaderOnly
                    | Mode::MultiNodeSingleWriter
            )
        )
    });
    let wanted = request.accessibility_requirements.iter();
    let wanted = wanted.flat_map(|wanted| wanted.preferred.iter().chain(&wanted.requisite));
    let places = wanted
        .filter_map(|place| place.segments.get(TOPOLOGY).cloned())
        .collect();
    Order {
        name: request.name.clone(),
        bytes: request
            .capacity_range
            .as_ref()
            .map_or(1 << 30, |range| range.required_bytes),
        parameters: request.parameters.clone(),
        attributes: request.mutable_parameters.clone(),
        places,
        sharing: if many {
            Sharing::ManyNodes
        } else {
            Sharing::OneNode
        },
        source: request
            .volume_content_source
            .as_ref()
            .and_then(|content| content.r#type.as_ref())
            .map(|content| match content {
                Type::Volume(volume) => volume.volume_id.clone(),
                Type::Snapshot(snapshot) => snapshot.snapshot_id.clone(),
            }),
    }
}
