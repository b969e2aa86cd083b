//! The node service: volumes become mounts and devices.
//!
//! Each call is one file, as on the controller's side. What exists is seen in the kernel's tables;
//! `node.json` says what was meant, and is written before the mount that it speaks of. So whatever
//! a killed driver left is either finished by a repeated call or undone by its inverse.

use std::io;
use std::path::Path;
use std::sync::Arc;

use orlop_csi::proto;
use orlop_csi::proto::node_server::Node;
use orlop_csi::proto::node_service_capability::rpc::Type as Rpc;
use orlop_host::Place;
use tonic::{Request, Response, Status};

use super::pools::{FindError, Pools, Volume};
use super::reach::Reach;
use super::volume::{NodeName, VolumeId};
use super::{serve, topology};

mod expand;
mod inline;
mod observe;
mod publish;
mod stage;
mod stats;
mod still;
mod unpublish;
mod unstage;

pub use expand::ExpandError;
pub use inline::InlineError;
pub use observe::ObserveError;
pub(super) use observe::Use;
pub use publish::PublishError;
pub use stage::StageError;
pub use stats::StatsError;
pub(super) use still::Holding;
pub use unpublish::UnpublishError;
pub use unstage::UnstageError;

/// The node service of one node.
#[derive(Clone, Debug)]
pub struct NodeService {
    pools: Arc<Pools>,
    node: NodeName,
}

/// What the service can do.
const CAPABILITIES: [Rpc; 5] = [
    Rpc::StageUnstageVolume,
    Rpc::GetVolumeStats,
    Rpc::ExpandVolume,
    Rpc::SingleNodeMultiWriter,
    Rpc::VolumeCondition,
];

impl NodeService {
    pub(super) fn new(pools: Arc<Pools>, node: NodeName) -> Self {
        Self { pools, node }
    }
}

/// The pools, seen from one node.
#[derive(Clone, Copy, Debug)]
struct Here<'a> {
    pools: &'a Pools,
    node: &'a NodeName,
}

impl<'a> Here<'a> {
    /// A volume of this node, by our id or by the kubelet's for one that is inline; those of other
    /// nodes are unknown here.
    fn find(&self, id: &str) -> Result<Volume, FindError> {
        let inline;
        let ours = match VolumeId::parse(id) {
            Some(_) => id,
            None => {
                inline = VolumeId::of_inline(id);
                inline.as_str()
            }
        };
        let unknown = || FindError::Unknown {
            id: id.chars().take(64).collect(),
        };
        match self.pools.find(ours) {
            Ok(volume) if volume.home.node == *self.node => Ok(volume),
            Ok(_) | Err(FindError::Unknown { .. }) => Err(unknown()),
            Err(other @ (FindError::Broken { .. } | FindError::Away { .. })) => Err(other),
        }
    }

    /// Which paths may be named here.
    fn reach(&self) -> &'a Reach {
        self.pools.reach(self.node)
    }

    /// The place at a path, held.
    fn place(&self, path: &Path) -> io::Result<Place> {
        self.reach().place(path)
    }
}

/// Serves one call from this node's point of view.
macro_rules! serve_here {
    ($self:ident, $request:ident, $call:path) => {{
        let node = $self.node.clone();
        serve(&$self.pools, $request, move |pools, request| {
            $call(Here { pools, node: &node }, request)
        })
        .await
    }};
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<proto::NodeStageVolumeRequest>,
    ) -> Result<Response<proto::NodeStageVolumeResponse>, Status> {
        serve_here!(self, request, stage::stage)
    }

    async fn node_unstage_volume(
        &self,
        request: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Result<Response<proto::NodeUnstageVolumeResponse>, Status> {
        serve_here!(self, request, unstage::unstage)
    }

    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Result<Response<proto::NodePublishVolumeResponse>, Status> {
        serve_here!(self, request, publish::publish)
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<proto::NodeUnpublishVolumeResponse>, Status> {
        serve_here!(self, request, unpublish::unpublish)
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<proto::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<proto::NodeGetVolumeStatsResponse>, Status> {
        serve_here!(self, request, stats::stats)
    }

    async fn node_expand_volume(
        &self,
        request: Request<proto::NodeExpandVolumeRequest>,
    ) -> Result<Response<proto::NodeExpandVolumeResponse>, Status> {
        serve_here!(self, request, expand::expand)
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        use proto::node_service_capability::{Rpc as Wire, Type};
        let capabilities = CAPABILITIES
            .map(|rpc| proto::NodeServiceCapability {
                r#type: Some(Type::Rpc(Wire { r#type: rpc.into() })),
            })
            .to_vec();
        Ok(Response::new(proto::NodeGetCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn node_get_info(
        &self,
        _request: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        Ok(Response::new(proto::NodeGetInfoResponse {
            node_id: self.node.0.clone(),
            // By itself the kernel makes as many loop devices as are asked for.
            max_volumes_per_node: self.pools.max_volumes().into(),
            accessible_topology: Some(topology::of_node(self.pools.driver_name(), &self.node)),
        }))
    }
}
