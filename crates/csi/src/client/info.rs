//! What a driver says about itself, asked once per connection.

use std::collections::{BTreeMap, BTreeSet};

use tonic::Code;

use super::{CallError, Driver};
use crate::{Method, proto};

pub use proto::controller_service_capability::rpc::Type as ControllerCapability;
pub use proto::group_controller_service_capability::rpc::Type as GroupCapability;
pub use proto::node_service_capability::rpc::Type as NodeCapability;
pub use proto::plugin_capability::service::Type as PluginService;
pub use proto::plugin_capability::volume_expansion::Type as VolumeExpansion;

/// A driver's name, version and capabilities. Capabilities that this version
/// of the protocol does not know are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriverInfo {
    /// The name that objects refer to the driver by.
    pub name: String,
    /// The vendor's version.
    pub version: String,
    /// The vendor's notes.
    pub manifest: BTreeMap<String, String>,
    /// Services of the plugin as a whole.
    pub services: BTreeSet<PluginService>,
    /// How volumes can grow.
    pub expansion: BTreeSet<VolumeExpansion>,
    /// What the Controller service at this socket can do.
    pub controller: BTreeSet<ControllerCapability>,
    /// What the GroupController service at this socket can do.
    pub group: BTreeSet<GroupCapability>,
    /// What the Node service at this socket can do.
    pub node: BTreeSet<NodeCapability>,
}

impl DriverInfo {
    /// Whether the plugin as a whole has a service.
    pub fn serves(&self, service: PluginService) -> bool {
        self.services.contains(&service)
    }

    /// Whether the controller at this socket can do something.
    pub fn can(&self, capability: ControllerCapability) -> bool {
        self.controller.contains(&capability)
    }

    /// Whether the node service at this socket can do something.
    pub fn node_can(&self, capability: NodeCapability) -> bool {
        self.node.contains(&capability)
    }
}

/// Asks the driver everything. A service that is not at this socket has no
/// capabilities: a plugin may be split into a controller and a node process.
pub(super) async fn ask(driver: &Driver) -> Result<DriverInfo, CallError> {
    let plugin = driver
        .get_plugin_info(proto::GetPluginInfoRequest {})
        .await?;
    if plugin.name.is_empty() {
        return Err(CallError::new(
            Method::GetPluginInfo,
            Code::Internal,
            "the driver's name is empty; it must have one",
        ));
    }
    let driver = &driver.called(&plugin.name);
    let capabilities = driver
        .get_plugin_capabilities(proto::GetPluginCapabilitiesRequest {})
        .await?
        .capabilities;
    let services = services(&capabilities);
    let expansion = expansion(&capabilities);

    let mut controller = BTreeSet::new();
    if services.contains(&PluginService::ControllerService) {
        let asked = driver
            .controller_get_capabilities(proto::ControllerGetCapabilitiesRequest {})
            .await;
        controller = controller_set(&or_none(asked)?.capabilities);
    }
    let mut group = BTreeSet::new();
    if services.contains(&PluginService::GroupControllerService) {
        let asked = driver
            .group_controller_get_capabilities(proto::GroupControllerGetCapabilitiesRequest {})
            .await;
        group = group_set(&or_none(asked)?.capabilities);
    }
    let asked = driver
        .node_get_capabilities(proto::NodeGetCapabilitiesRequest {})
        .await;
    let node = node_set(&or_none(asked)?.capabilities);

    Ok(DriverInfo {
        name: plugin.name,
        version: plugin.vendor_version,
        manifest: plugin.manifest,
        services,
        expansion,
        controller,
        group,
        node,
    })
}

fn or_none<R: Default>(asked: Result<R, CallError>) -> Result<R, CallError> {
    match asked {
        Err(error) if error.code == Code::Unimplemented => Ok(R::default()),
        other => other,
    }
}

fn services(capabilities: &[proto::PluginCapability]) -> BTreeSet<PluginService> {
    use proto::plugin_capability::Type;
    let known = capabilities
        .iter()
        .filter_map(|capability| match &capability.r#type {
            Some(Type::Service(service)) => PluginService::try_from(service.r#type).ok(),
            Some(Type::VolumeExpansion(_)) | None => None,
        });
    known
        .filter(|service| *service != PluginService::Unknown)
        .collect()
}

fn expansion(capabilities: &[proto::PluginCapability]) -> BTreeSet<VolumeExpansion> {
    use proto::plugin_capability::Type;
    let known = capabilities
        .iter()
        .filter_map(|capability| match &capability.r#type {
            Some(Type::VolumeExpansion(way)) => VolumeExpansion::try_from(way.r#type).ok(),
            Some(Type::Service(_)) | None => None,
        });
    known
        .filter(|way| *way != VolumeExpansion::Unknown)
        .collect()
}

macro_rules! rpc_set {
    ($name:ident, $message:ident, $module:ident, $kind:ident) => {
        fn $name(capabilities: &[proto::$message]) -> BTreeSet<$kind> {
            let known = capabilities.iter().filter_map(|capability| {
                let proto::$module::Type::Rpc(rpc) = capability.r#type.as_ref()?;
                $kind::try_from(rpc.r#type).ok()
            });
            known.filter(|kind| *kind != $kind::Unknown).collect()
        }
    };
}

rpc_set!(
    controller_set,
    ControllerServiceCapability,
    controller_service_capability,
    ControllerCapability
);
rpc_set!(
    group_set,
    GroupControllerServiceCapability,
    group_controller_service_capability,
    GroupCapability
);
rpc_set!(
    node_set,
    NodeServiceCapability,
    node_service_capability,
    NodeCapability
);
