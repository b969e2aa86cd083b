//! The identity service: who we are and whether we are well.

use std::sync::Arc;

use orlop_csi::proto;
use orlop_csi::proto::identity_server::Identity;
use orlop_csi::proto::plugin_capability::service::Type as ServiceType;
use orlop_csi::proto::plugin_capability::volume_expansion::Type as Expansion;
use orlop_csi::proto::plugin_capability::{Service, Type, VolumeExpansion};
use tonic::{Request, Response, Status};

use super::pools::Pools;

/// The identity service.
#[derive(Clone, Debug)]
pub struct IdentityService {
    pools: Arc<Pools>,
}

impl IdentityService {
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools }
    }
}

/// The same on every endpoint, as the protocol wants it: the driver's, not the endpoint's.
fn capabilities() -> Vec<proto::PluginCapability> {
    let service = |service: ServiceType| {
        Type::Service(Service {
            r#type: service.into(),
        })
    };
    [
        service(ServiceType::ControllerService),
        service(ServiceType::VolumeAccessibilityConstraints),
        service(ServiceType::GroupControllerService),
        service(ServiceType::SnapshotMetadataService),
        Type::VolumeExpansion(VolumeExpansion {
            r#type: Expansion::Online.into(),
        }),
    ]
    .map(|capability| proto::PluginCapability {
        r#type: Some(capability),
    })
    .to_vec()
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _request: Request<proto::GetPluginInfoRequest>,
    ) -> Result<Response<proto::GetPluginInfoResponse>, Status> {
        Ok(Response::new(proto::GetPluginInfoResponse {
            name: self.pools.driver_name().to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<proto::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(proto::GetPluginCapabilitiesResponse {
            capabilities: capabilities(),
        }))
    }

    async fn probe(
        &self,
        _request: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeResponse>, Status> {
        // Disks are asked, and may take their time.
        let pools = Arc::clone(&self.pools);
        let looked = tokio::task::spawn_blocking(move || unusable(&pools)).await;
        match looked {
            Ok(None) => {}
            Ok(Some(message)) => return Err(Status::failed_precondition(message)),
            Err(_) => return Err(Status::internal("the driver could not look at its pools")),
        }
        Ok(Response::new(proto::ProbeResponse { ready: Some(true) }))
    }
}

/// What is wrong, if no pool at all can be used. One that can is worth being served: for those that
/// cannot, calls and conditions tell.
fn unusable(pools: &Pools) -> Option<String> {
    pools.look_after();
    let mut wrong = Vec::new();
    for (home, pool) in pools.pools() {
        match pool.usage() {
            Ok(_) => return None,
            Err(error) => wrong.push(format!("the {home} cannot be used: {error}")),
        }
    }
    (!wrong.is_empty()).then(|| wrong.join("; "))
}
