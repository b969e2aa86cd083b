//! Who the driver is, and what it says that it can do.

use std::collections::BTreeSet;

use orlop_csi::client::{ControllerCapability, GroupCapability, NodeCapability, PluginService};
use orlop_csi::{limits, proto};

use crate::case::{Case, Need, ensure};
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let controller = [Need::Plugin(PluginService::ControllerService)];
    vec![
        Case::must(
            "identity.name_is_a_domain_name",
            spec::GET_PLUGIN_INFO,
            "the plugin's name is at most 63 characters in domain name form",
            &[],
            |t| async move {
                let reply = t.call(proto::GetPluginInfoRequest {}).await.ok()?;
                let checked = limits::plugin_name(&reply.name);
                ensure!(
                    checked.is_ok(),
                    "GetPluginInfo names the plugin {:?}: {}",
                    reply.name,
                    checked.err().map_or_else(String::new, |e| e.to_string())
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.vendor_version_is_set",
            spec::GET_PLUGIN_INFO,
            "vendor_version is set",
            &[],
            |t| async move {
                let reply = t.call(proto::GetPluginInfoRequest {}).await.ok()?;
                ensure!(
                    !reply.vendor_version.is_empty(),
                    "GetPluginInfo has an empty vendor_version, which is required"
                );
                ensure!(
                    reply.vendor_version.len() <= limits::STRING,
                    "vendor_version has {} bytes; 128 are allowed",
                    reply.vendor_version.len()
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.manifest_is_small",
            spec::NAME_RULES,
            "the manifest's map is at most 4 KiB",
            &[],
            |t| async move {
                let reply = t.call(proto::GetPluginInfoRequest {}).await.ok()?;
                let size = limits::map("manifest", &reply.manifest);
                ensure!(
                    size.is_ok(),
                    "GetPluginInfo: {}",
                    size.err().map_or_else(String::new, |e| e.to_string())
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.info_never_changes",
            spec::GET_PLUGIN_INFO,
            "name, version and capabilities are the same at every question",
            &[],
            |t| async move {
                let first = t.call(proto::GetPluginInfoRequest {}).await.ok()?;
                let can = t.call(proto::GetPluginCapabilitiesRequest {}).await.ok()?;
                for _ in 0..5 {
                    let again = t.call(proto::GetPluginInfoRequest {}).await.ok()?;
                    ensure!(
                        again == first,
                        "GetPluginInfo first answered {first:?}, then {again:?}"
                    );
                    let again = t.call(proto::GetPluginCapabilitiesRequest {}).await.ok()?;
                    ensure!(
                        again == can,
                        "GetPluginCapabilities first answered {can:?}, then {again:?}"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.capabilities_are_known",
            spec::GET_PLUGIN_CAPABILITIES,
            "every plugin capability is one that the specification knows",
            &[],
            |t| async move {
                use proto::plugin_capability::Type;
                let reply = t.call(proto::GetPluginCapabilitiesRequest {}).await.ok()?;
                for capability in &reply.capabilities {
                    let known = match &capability.r#type {
                        None => false,
                        Some(Type::Service(service)) => {
                            service.r#type() as i32 != 0
                                && service.r#type() as i32 == service.r#type
                        }
                        Some(Type::VolumeExpansion(how)) => {
                            how.r#type() as i32 != 0 && how.r#type() as i32 == how.r#type
                        }
                    };
                    ensure!(
                        known,
                        "GetPluginCapabilities lists {capability:?}, which is no capability of CSI 1.12"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.probe_answers",
            spec::PROBE,
            "Probe succeeds on a driver that works",
            &[],
            |t| async move {
                t.call(proto::ProbeRequest {}).await.ok()?;
                Ok(())
            },
        ),
        Case::must(
            "identity.probe_says_ready",
            spec::PROBE,
            "a driver that serves calls is ready, or says nothing about it",
            &[],
            |t| async move {
                let reply = t.call(proto::ProbeRequest {}).await.ok()?;
                ensure!(
                    reply.ready != Some(false),
                    "Probe says ready=false, but the driver serves calls"
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.probe_is_repeatable",
            spec::PROBE,
            "Probe may be called at any time, many at once",
            &[],
            |t| async move {
                let probes = (0..16).map(|_| t.call(proto::ProbeRequest {}));
                for answer in futures::future::join_all(probes).await {
                    answer.ok()?;
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.controller_capabilities_are_known",
            spec::CONTROLLER_CAPABILITIES,
            "every controller capability is one that the specification knows, and listed once",
            &controller,
            |t| async move {
                use proto::controller_service_capability::Type;
                let reply = t
                    .call(proto::ControllerGetCapabilitiesRequest {})
                    .await
                    .ok()?;
                let mut seen = BTreeSet::new();
                for capability in &reply.capabilities {
                    let Some(Type::Rpc(rpc)) = &capability.r#type else {
                        ensure!(false, "ControllerGetCapabilities lists an empty capability");
                        continue;
                    };
                    let known = ControllerCapability::try_from(rpc.r#type)
                        .is_ok_and(|known| known != ControllerCapability::Unknown);
                    ensure!(
                        known,
                        "ControllerGetCapabilities lists type {}, which CSI 1.12 doesn't know",
                        rpc.r#type
                    );
                    if !seen.insert(rpc.r#type) {
                        t.warn(format!("{} is listed twice", rpc.r#type().as_str_name()));
                    }
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.controller_service_is_announced",
            spec::GET_PLUGIN_CAPABILITIES,
            "a controller with capabilities is announced as CONTROLLER_SERVICE",
            &[],
            |t| async move {
                let any = !t.bench().controller.controller.is_empty();
                ensure!(
                    !any || t.bench().serves(PluginService::ControllerService),
                    "ControllerGetCapabilities lists capabilities, but GetPluginCapabilities doesn't list CONTROLLER_SERVICE"
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.group_capabilities_are_known",
            spec::GROUP_CAPABILITIES,
            "every group controller capability is one that the specification knows",
            &[Need::Plugin(PluginService::GroupControllerService)],
            |t| async move {
                use proto::group_controller_service_capability::Type;
                let reply = t
                    .call(proto::GroupControllerGetCapabilitiesRequest {})
                    .await
                    .ok()?;
                for capability in &reply.capabilities {
                    let known = matches!(&capability.r#type, Some(Type::Rpc(rpc)) if GroupCapability::try_from(rpc.r#type).is_ok_and(|known| known != GroupCapability::Unknown));
                    ensure!(
                        known,
                        "GroupControllerGetCapabilities lists {capability:?}, which CSI 1.12 doesn't know"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.node_capabilities_are_known",
            spec::NODE_CAPABILITIES,
            "every node capability is one that the specification knows, and listed once",
            &[],
            |t| async move {
                use proto::node_service_capability::Type;
                let reply = t.call(proto::NodeGetCapabilitiesRequest {}).await.ok()?;
                let mut seen = BTreeSet::new();
                for capability in &reply.capabilities {
                    let Some(Type::Rpc(rpc)) = &capability.r#type else {
                        ensure!(false, "NodeGetCapabilities lists an empty capability");
                        continue;
                    };
                    let known = NodeCapability::try_from(rpc.r#type)
                        .is_ok_and(|known| known != NodeCapability::Unknown);
                    ensure!(
                        known,
                        "NodeGetCapabilities lists type {}, which CSI 1.12 doesn't know",
                        rpc.r#type
                    );
                    if !seen.insert(rpc.r#type) {
                        t.warn(format!("{} is listed twice", rpc.r#type().as_str_name()));
                    }
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.node_has_an_id",
            spec::NODE_INFO,
            "NodeGetInfo gives the node an id of at most 256 bytes",
            &[],
            |t| async move {
                let reply = t.call(proto::NodeGetInfoRequest {}).await.ok()?;
                ensure!(
                    !reply.node_id.is_empty(),
                    "NodeGetInfo has an empty node_id"
                );
                ensure!(
                    reply.node_id.len() <= limits::NODE_ID,
                    "node_id has {} bytes; 256 are allowed",
                    reply.node_id.len()
                );
                if reply.node_id.len() > limits::STRING {
                    t.warn("node_id has more than 128 bytes; older orchestrators refuse it");
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.node_limit_is_not_negative",
            spec::NODE_INFO,
            "max_volumes_per_node is not negative",
            &[],
            |t| async move {
                let reply = t.call(proto::NodeGetInfoRequest {}).await.ok()?;
                ensure!(
                    reply.max_volumes_per_node >= 0,
                    "max_volumes_per_node is {}",
                    reply.max_volumes_per_node
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.node_topology_is_well_formed",
            spec::NODE_INFO,
            "the node's topology has keys and values in the form that the specification gives",
            &[Need::Plugin(PluginService::VolumeAccessibilityConstraints)],
            |t| async move {
                let reply = t.call(proto::NodeGetInfoRequest {}).await.ok()?;
                let Some(topology) = reply.accessible_topology else {
                    ensure!(
                        false,
                        "the plugin has VOLUME_ACCESSIBILITY_CONSTRAINTS, but NodeGetInfo tells no accessible_topology"
                    );
                    return Ok(());
                };
                ensure!(
                    !topology.segments.is_empty(),
                    "accessible_topology has no segments"
                );
                let checked = limits::topology(&topology.segments);
                ensure!(
                    checked.is_ok(),
                    "accessible_topology {:?}: {}",
                    topology.segments,
                    checked.err().map_or_else(String::new, |e| e.to_string())
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.node_topology_only_where_announced",
            spec::NODE_INFO,
            "a plugin without VOLUME_ACCESSIBILITY_CONSTRAINTS tells no topology",
            &[Need::NoPlugin(
                PluginService::VolumeAccessibilityConstraints,
            )],
            |t| async move {
                let reply = t.call(proto::NodeGetInfoRequest {}).await.ok()?;
                let told = reply
                    .accessible_topology
                    .filter(|topology| !topology.segments.is_empty());
                ensure!(
                    told.is_none(),
                    "NodeGetInfo tells {told:?}, but the plugin doesn't announce VOLUME_ACCESSIBILITY_CONSTRAINTS"
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.node_info_never_changes",
            spec::NODE_INFO,
            "the node's id and topology are the same at every question",
            &[],
            |t| async move {
                let first = t.call(proto::NodeGetInfoRequest {}).await.ok()?;
                for _ in 0..5 {
                    let again = t.call(proto::NodeGetInfoRequest {}).await.ok()?;
                    ensure!(
                        again.node_id == first.node_id
                            && again.accessible_topology == first.accessible_topology,
                        "NodeGetInfo first answered {first:?}, then {again:?}"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "identity.both_sockets_are_one_plugin",
            spec::GET_PLUGIN_INFO,
            "the controller and the node of one plugin have the same name",
            &[],
            |t| async move {
                let (controller, node) = (&t.bench().controller, &t.bench().node);
                ensure!(
                    controller.name == node.name,
                    "the controller calls itself {:?}, the node {:?}",
                    controller.name,
                    node.name
                );
                ensure!(
                    controller.services == node.services && controller.expansion == node.expansion,
                    "the controller and the node announce different plugin capabilities"
                );
                Ok(())
            },
        ),
        Case::must(
            "identity.expansion_is_announced_consistently",
            spec::GET_PLUGIN_CAPABILITIES,
            "a driver that expands says whether ONLINE or OFFLINE",
            &[Need::Controller(ControllerCapability::ExpandVolume)],
            |t| async move {
                let told = !t.bench().controller.expansion.is_empty();
                if !told {
                    t.warn("EXPAND_VOLUME is announced, but no VolumeExpansion plugin capability: no orchestrator will expand");
                }
                Ok(())
            },
        ),
    ]
}
