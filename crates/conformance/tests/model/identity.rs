//! Who the model is, and what it says that it can do.

use orlop_csi::proto::controller_service_capability::rpc::Type as ControllerRpc;
use orlop_csi::proto::node_service_capability::rpc::Type as NodeRpc;
use orlop_csi::proto::plugin_capability::service::Type as Service;
use orlop_csi::proto::plugin_capability::volume_expansion::Type as Expansion;
use orlop_csi::proto::*;
use tonic::Status;

use super::state::State;
use super::{Fault, Profile, Shared};

impl Shared {
    pub(super) fn get_plugin_info(
        &self,
        _: &mut State,
        _: &GetPluginInfoRequest,
    ) -> Result<GetPluginInfoResponse, Status> {
        let name = match self.fault {
            Some(Fault::PluginNameTooLong) => "m".repeat(64),
            Some(Fault::PluginNameMalformed) => "the_model-".to_owned(),
            Some(Fault::PluginNameEmpty) => String::new(),
            _ => "model.csi.example".to_owned(),
        };
        let vendor_version = match self.has(Fault::VersionEmpty) {
            true => String::new(),
            false => "1.0".to_owned(),
        };
        let manifest = match self.has(Fault::ManifestTooLarge) {
            true => [("k".to_owned(), "v".repeat(4096))].into(),
            false => [("kind".to_owned(), "model".to_owned())].into(),
        };
        Ok(GetPluginInfoResponse {
            name,
            vendor_version,
            manifest,
        })
    }

    pub(super) fn get_plugin_capabilities(
        &self,
        state: &mut State,
        _: &GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Status> {
        use plugin_capability::{Type, VolumeExpansion};
        let service = |kind: Service| PluginCapability {
            r#type: Some(Type::Service(plugin_capability::Service {
                r#type: kind.into(),
            })),
        };
        let mut capabilities = vec![service(Service::ControllerService)];
        if self.profile != Profile::Least {
            capabilities.extend([
                service(Service::VolumeAccessibilityConstraints),
                service(Service::GroupControllerService),
                service(Service::SnapshotMetadataService),
                PluginCapability {
                    r#type: Some(Type::VolumeExpansion(VolumeExpansion {
                        r#type: Expansion::Online.into(),
                    })),
                },
            ]);
        }
        if self.has(Fault::PluginCapabilityUnknown) {
            capabilities.push(service(Service::Unknown));
        }
        state.asked_for_capabilities += 1;
        if self.has(Fault::PluginCapabilitiesVary) && state.asked_for_capabilities.is_multiple_of(2)
        {
            capabilities.pop();
        }
        Ok(GetPluginCapabilitiesResponse { capabilities })
    }

    pub(super) fn probe(&self, _: &mut State, _: &ProbeRequest) -> Result<ProbeResponse, Status> {
        Ok(ProbeResponse {
            ready: Some(!self.has(Fault::ProbeNeverReady)),
        })
    }

    pub(super) fn controller_get_capabilities(
        &self,
        _: &mut State,
        _: &ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Status> {
        use controller_service_capability::{Rpc, Type};
        let full = [
            ControllerRpc::CreateDeleteVolume,
            ControllerRpc::PublishUnpublishVolume,
            ControllerRpc::ListVolumes,
            ControllerRpc::GetCapacity,
            ControllerRpc::CreateDeleteSnapshot,
            ControllerRpc::ListSnapshots,
            ControllerRpc::CloneVolume,
            ControllerRpc::PublishReadonly,
            ControllerRpc::ExpandVolume,
            ControllerRpc::ListVolumesPublishedNodes,
            ControllerRpc::VolumeCondition,
            ControllerRpc::GetVolume,
            ControllerRpc::SingleNodeMultiWriter,
            ControllerRpc::ModifyVolume,
            ControllerRpc::GetSnapshot,
        ];
        let kinds = match self.profile {
            Profile::Full | Profile::AtRest => &full[..],
            Profile::Least => &full[..1],
        };
        let unknown = self
            .has(Fault::ControllerCapabilityUnknown)
            .then_some(ControllerRpc::Unknown);
        let capabilities = kinds
            .iter()
            .copied()
            .chain(unknown)
            .map(|kind| ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc {
                    r#type: kind.into(),
                })),
            })
            .collect();
        Ok(ControllerGetCapabilitiesResponse { capabilities })
    }

    pub(super) fn group_controller_get_capabilities(
        &self,
        _: &mut State,
        _: &GroupControllerGetCapabilitiesRequest,
    ) -> Result<GroupControllerGetCapabilitiesResponse, Status> {
        use group_controller_service_capability::{Rpc, Type, rpc};
        let capability = |kind: rpc::Type| GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: kind.into(),
            })),
        };
        let mut capabilities = vec![capability(rpc::Type::CreateDeleteGetVolumeGroupSnapshot)];
        if self.has(Fault::GroupCapabilityUnknown) {
            capabilities.push(capability(rpc::Type::Unknown));
        }
        Ok(GroupControllerGetCapabilitiesResponse { capabilities })
    }

    pub(super) fn node_get_capabilities(
        &self,
        _: &mut State,
        _: &NodeGetCapabilitiesRequest,
    ) -> Result<NodeGetCapabilitiesResponse, Status> {
        use node_service_capability::{Rpc, Type};
        let full = [
            NodeRpc::StageUnstageVolume,
            NodeRpc::GetVolumeStats,
            NodeRpc::ExpandVolume,
            NodeRpc::VolumeCondition,
            NodeRpc::SingleNodeMultiWriter,
        ];
        let kinds = match self.profile {
            Profile::Full | Profile::AtRest => &full[..],
            Profile::Least => &[],
        };
        let unknown = self
            .has(Fault::NodeCapabilityUnknown)
            .then_some(NodeRpc::Unknown);
        let capabilities = kinds
            .iter()
            .copied()
            .chain(unknown)
            .map(|kind| NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc {
                    r#type: kind.into(),
                })),
            })
            .collect();
        Ok(NodeGetCapabilitiesResponse { capabilities })
    }
}
