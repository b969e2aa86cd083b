//! A node's half of the driver.

use std::collections::BTreeMap;
use std::path::Path;

use orlop_csi::{Method, proto};
use tonic::{Request, Response, Status};

use super::{FakeDriver, TOPOLOGY};
use crate::backend::{Attachment, Backend, Spot};

/// The driver as one node has it.
#[derive(Clone)]
pub(super) struct NodeSide {
    driver: FakeDriver,
    node: String,
}

impl NodeSide {
    pub(super) fn new(driver: FakeDriver, node: &str) -> Self {
        Self {
            driver,
            node: node.to_owned(),
        }
    }

    fn spot<'a>(&'a self, volume: &'a str, path: &'a str) -> Spot<'a> {
        Spot {
            volume,
            node: &self.node,
            path,
        }
    }
}

#[tonic::async_trait]
impl proto::node_server::Node for NodeSide {
    async fn node_get_info(
        &self,
        _: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        let segments = BTreeMap::from([(TOPOLOGY.to_owned(), self.node.clone())]);
        Ok(Response::new(proto::NodeGetInfoResponse {
            node_id: self.node.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(proto::Topology { segments }),
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        use proto::node_service_capability::{Rpc, Type, rpc};
        let capabilities = [rpc::Type::StageUnstageVolume, rpc::Type::ExpandVolume];
        let capabilities = capabilities.map(|kind| proto::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: kind.into(),
            })),
        });
        Ok(Response::new(proto::NodeGetCapabilitiesResponse {
            capabilities: capabilities.to_vec(),
        }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<proto::NodeStageVolumeRequest>,
    ) -> Result<Response<proto::NodeStageVolumeResponse>, Status> {
        let (side, request) = (self.clone(), request.into_inner());
        let turn = request.volume_id.clone();
        let stage = move |driver: &FakeDriver, backend: &mut Backend| {
            let (id, path) = (&request.volume_id, &request.staging_target_path);
            if !Path::new(path).is_dir() {
                driver.blame(format!("the staging folder {path} of {id} was not made"));
            }
            driver.witness.before_stage(id, &side.node);
            backend.stage(side.spot(id, path))?;
            Ok(proto::NodeStageVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodeStageVolume, &turn, stage)
            .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Result<Response<proto::NodeUnstageVolumeResponse>, Status> {
        let (side, request) = (self.clone(), request.into_inner());
        let turn = request.volume_id.clone();
        let unstage = move |_: &FakeDriver, backend: &mut Backend| {
            let (id, path) = (&request.volume_id, &request.staging_target_path);
            backend.unstage(side.spot(id, path))?;
            Ok(proto::NodeUnstageVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodeUnstageVolume, &turn, unstage)
            .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<proto::NodeExpandVolumeRequest>,
    ) -> Result<Response<proto::NodeExpandVolumeResponse>, Status> {
        let (side, request) = (self.clone(), request.into_inner());
        let turn = request.volume_id.clone();
        let range = request.capacity_range;
        let bytes = range.map_or(0, |range| range.required_bytes);
        let expand = move |driver: &FakeDriver, backend: &mut Backend| {
            let (id, path) = (&request.volume_id, &request.volume_path);
            driver.witness.before_expand_on_node(id);
            let capacity_bytes = backend.expand_on_node(side.spot(id, path), bytes)?;
            Ok(proto::NodeExpandVolumeResponse { capacity_bytes })
        };
        self.driver
            .carry_out(Method::NodeExpandVolume, &turn, expand)
            .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Result<Response<proto::NodePublishVolumeResponse>, Status> {
        let (side, request) = (self.clone(), request.into_inner());
        let turn = request.volume_id.clone();
        let publish = move |driver: &FakeDriver, backend: &mut Backend| {
            let (id, path) = (&request.volume_id, &request.target_path);
            let wanted = Attachment {
                readonly: request.readonly,
            };
            backend.publish(side.spot(id, path), &request.staging_target_path, wanted)?;
            // The target is the driver's to make, its parent is not.
            match std::fs::create_dir(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    driver.blame(format!("the target {path} of {id} can't be made: {error}"));
                }
                _ => {}
            }
            Ok(proto::NodePublishVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodePublishVolume, &turn, publish)
            .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<proto::NodeUnpublishVolumeResponse>, Status> {
        let (side, request) = (self.clone(), request.into_inner());
        let turn = request.volume_id.clone();
        let unpublish = move |driver: &FakeDriver, backend: &mut Backend| {
            let (id, path) = (&request.volume_id, &request.target_path);
            driver.witness.before_unpublish(path);
            backend.unpublish(side.spot(id, path))?;
            // One that is gone already is fine.
            drop(std::fs::remove_dir(path));
            Ok(proto::NodeUnpublishVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodeUnpublishVolume, &turn, unpublish)
            .await
    }
}
