//! The identity service.

use std::sync::Arc;

use orlop_csi::proto;
use orlop_csi::proto::identity_server::Identity;
use orlop_csi::proto::plugin_capability::service::Type as ServiceType;
use orlop_csi::proto::plugin_capability::volume_expansion::Type as Expansion;
use orlop_csi::proto::plugin_capability::{Service, Type, VolumeExpansion};
use tonic::{Request, Response, Status};

use super::Shared;

/// The identity service.
#[derive(Clone, Debug)]
pub(crate) struct IdentityService {
    shared: Arc<Shared>,
}

impl IdentityService {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _request: Request<proto::GetPluginInfoRequest>,
    ) -> Result<Response<proto::GetPluginInfoResponse>, Status> {
        Ok(Response::new(proto::GetPluginInfoResponse {
            name: self.shared.config.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<proto::GetPluginCapabilitiesResponse>, Status> {
        let service = Type::Service(Service {
            r#type: ServiceType::ControllerService.into(),
        });
        let expansion = Type::VolumeExpansion(VolumeExpansion {
            r#type: Expansion::Online.into(),
        });
        let capabilities = [service, expansion].map(|capability| proto::PluginCapability {
            r#type: Some(capability),
        });
        Ok(Response::new(proto::GetPluginCapabilitiesResponse {
            capabilities: capabilities.to_vec(),
        }))
    }

    /// Servers are not asked: one that is gone is no reason to restart the driver.
    async fn probe(
        &self,
        _request: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeResponse>, Status> {
        Ok(Response::new(proto::ProbeResponse { ready: Some(true) }))
    }
}
