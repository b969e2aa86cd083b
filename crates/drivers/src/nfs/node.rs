//! The node service: a volume's folder appears at a path.
//!
//! There is nothing to stage: the kernel shares what mounts of one share have in common. What is
//! mounted where is read from the kernel's table, which never waits for a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use orlop_csi::proto;
use orlop_csi::proto::node_server::Node;
use orlop_csi::proto::node_service_capability::rpc::Type as Rpc;
use orlop_csi::server::answer;
use tonic::{Request, Response, Status};

use super::Shared;
use super::controller::Call;
use super::order::Mounting;
use super::sub_dir::SubDir;

mod publish;
mod stats;
mod unpublish;

pub(super) use publish::table;

/// The node service.
#[derive(Clone, Debug)]
pub(crate) struct NodeService {
    shared: Arc<Shared>,
}

impl NodeService {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

const CAPABILITIES: [Rpc; 3] = [
    Rpc::GetVolumeStats,
    Rpc::SingleNodeMultiWriter,
    Rpc::VolumeCondition,
];

/// A volume at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Published {
    volume: String,
    on: Mounting,
    folder: Option<SubDir>,
    alone: bool,
}

/// What this process has published. A restarted one knows the kernel's table, which is enough to
/// undo it; only then it cannot tell that a second call for a path differs in its mode.
#[derive(Debug, Default)]
pub(super) struct Memory {
    published: Mutex<BTreeMap<PathBuf, Published>>,
    figures: Mutex<BTreeMap<(String, PathBuf), (Instant, proto::NodeGetVolumeStatsResponse)>>,
}

impl Memory {
    fn published(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Published>> {
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(
        &self,
    ) -> MutexGuard<'_, BTreeMap<(String, PathBuf), (Instant, proto::NodeGetVolumeStatsResponse)>>
    {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a path.
    fn forget(&self, path: &Path) {
        self.published().remove(path);
        self.figures().retain(|(_, at), _| at != path);
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Result<Response<proto::NodePublishVolumeResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(publish::publish(&call, request.get_ref()).await)
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<proto::NodeUnpublishVolumeResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(unpublish::unpublish(&call, request.get_ref()).await)
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<proto::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<proto::NodeGetVolumeStatsResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(stats::stats(&call, request.get_ref()).await)
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        use proto::node_service_capability::{Rpc as Wire, Type};
        let capabilities = CAPABILITIES.map(|rpc| proto::NodeServiceCapability {
            r#type: Some(Type::Rpc(Wire { r#type: rpc.into() })),
        });
        Ok(Response::new(proto::NodeGetCapabilitiesResponse {
            capabilities: capabilities.to_vec(),
        }))
    }

    async fn node_get_info(
        &self,
        _request: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        Ok(Response::new(proto::NodeGetInfoResponse {
            node_id: self.shared.config.node.clone(),
            ..Default::default()
        }))
    }

    async fn node_stage_volume(
        &self,
        _request: Request<proto::NodeStageVolumeRequest>,
    ) -> Result<Response<proto::NodeStageVolumeResponse>, Status> {
        Err(Status::unimplemented("NFS volumes are not staged"))
    }

    async fn node_unstage_volume(
        &self,
        _request: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Result<Response<proto::NodeUnstageVolumeResponse>, Status> {
        Err(Status::unimplemented("NFS volumes are not staged"))
    }

    async fn node_expand_volume(
        &self,
        _request: Request<proto::NodeExpandVolumeRequest>,
    ) -> Result<Response<proto::NodeExpandVolumeResponse>, Status> {
        Err(Status::unimplemented(
            "a node has nothing to do for a larger NFS volume",
        ))
    }
}
