//! What calls to the controller must name.

use orlop_csi::client::{ControllerCapability as Can, PluginService};
use orlop_csi::proto;

use super::{NOBODY, lacks, refused};
use crate::case::{Case, Need};
use crate::make::at_least;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let create = [crate::cases::CREATE];
    let attach = [Need::Controller(Can::PublishUnpublishVolume)];
    let expand = [Need::Controller(Can::ExpandVolume)];
    let modify = [Need::Controller(Can::ModifyVolume)];
    let get = [Need::Controller(Can::GetVolume)];
    let any = [Need::Plugin(PluginService::ControllerService)];
    vec![
        lacks("create_volume_name", "name", &create, |t| {
            proto::CreateVolumeRequest {
                name: String::new(),
                ..t.create_request("x")
            }
        }),
        lacks(
            "create_volume_capabilities",
            "volume_capabilities",
            &create,
            |t| proto::CreateVolumeRequest {
                volume_capabilities: Vec::new(),
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_access_type",
            "volume_capabilities[0].access_type",
            &create,
            |t| proto::CreateVolumeRequest {
                volume_capabilities: vec![proto::VolumeCapability {
                    access_type: None,
                    ..t.capability()
                }],
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_access_mode",
            "volume_capabilities[0].access_mode",
            &create,
            |t| proto::CreateVolumeRequest {
                volume_capabilities: vec![proto::VolumeCapability {
                    access_mode: None,
                    ..t.capability()
                }],
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_access_mode_unknown",
            "volume_capabilities[0].access_mode.mode",
            &create,
            |t| proto::CreateVolumeRequest {
                volume_capabilities: vec![proto::VolumeCapability {
                    access_mode: Some(Default::default()),
                    ..t.capability()
                }],
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_second_capability",
            "volume_capabilities[1].access_mode",
            &create,
            |t| proto::CreateVolumeRequest {
                volume_capabilities: vec![
                    t.capability(),
                    proto::VolumeCapability {
                        access_mode: None,
                        ..t.capability()
                    },
                ],
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_source_type",
            "volume_content_source.type",
            &[
                crate::cases::CREATE,
                Need::Controller(Can::CreateDeleteSnapshot),
            ],
            |t| proto::CreateVolumeRequest {
                volume_content_source: Some(Default::default()),
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_source_snapshot_id",
            "volume_content_source.snapshot.snapshot_id",
            &[
                crate::cases::CREATE,
                Need::Controller(Can::CreateDeleteSnapshot),
            ],
            |t| proto::CreateVolumeRequest {
                volume_content_source: Some(crate::make::from_snapshot("")),
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_source_volume_id",
            "volume_content_source.volume.volume_id",
            &[crate::cases::CREATE, Need::Controller(Can::CloneVolume)],
            |t| proto::CreateVolumeRequest {
                volume_content_source: Some(crate::make::from_volume("")),
                ..t.create_request("x")
            },
        ),
        lacks("delete_volume_id", "volume_id", &create, |_| {
            proto::DeleteVolumeRequest::default()
        }),
        lacks("controller_publish_volume_id", "volume_id", &attach, |t| {
            proto::ControllerPublishVolumeRequest {
                node_id: t.bench().node_id.clone(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            }
        }),
        lacks("controller_publish_node_id", "node_id", &attach, |t| {
            proto::ControllerPublishVolumeRequest {
                volume_id: NOBODY.into(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            }
        }),
        lacks(
            "controller_publish_capability",
            "volume_capability",
            &attach,
            |t| proto::ControllerPublishVolumeRequest {
                volume_id: NOBODY.into(),
                node_id: t.bench().node_id.clone(),
                ..Default::default()
            },
        ),
        lacks(
            "controller_unpublish_volume_id",
            "volume_id",
            &attach,
            |t| proto::ControllerUnpublishVolumeRequest {
                node_id: t.bench().node_id.clone(),
                ..Default::default()
            },
        ),
        lacks("validate_volume_id", "volume_id", &any, |t| {
            proto::ValidateVolumeCapabilitiesRequest {
                volume_capabilities: vec![t.capability()],
                ..Default::default()
            }
        }),
        Case::must(
            "required.validate_capabilities",
            spec::REQUIRED,
            "ValidateVolumeCapabilities without volume_capabilities is refused with INVALID_ARGUMENT",
            &create,
            |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::ValidateVolumeCapabilitiesRequest {
                    volume_id: volume.volume_id,
                    ..Default::default()
                };
                refused(&t, request, "volume_capabilities").await
            },
        ),
        lacks("controller_get_volume_id", "volume_id", &get, |_| {
            proto::ControllerGetVolumeRequest::default()
        }),
        lacks("modify_volume_id", "volume_id", &modify, |t| {
            proto::ControllerModifyVolumeRequest {
                mutable_parameters: if t.bench().settings.mutable_parameters.is_empty() {
                    [("a".to_owned(), "b".to_owned())].into()
                } else {
                    t.bench().settings.mutable_parameters.clone()
                },
                ..Default::default()
            }
        }),
        Case::must(
            "required.modify_parameters",
            spec::REQUIRED,
            "ControllerModifyVolume without mutable_parameters is refused with INVALID_ARGUMENT",
            &[crate::cases::CREATE, Need::Controller(Can::ModifyVolume)],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::ControllerModifyVolumeRequest {
                    volume_id: volume.volume_id,
                    ..Default::default()
                };
                refused(&t, request, "mutable_parameters").await
            },
        ),
        lacks("expand_volume_id", "volume_id", &expand, |t| {
            proto::ControllerExpandVolumeRequest {
                capacity_range: Some(at_least(t.size())),
                ..Default::default()
            }
        }),
        Case::must(
            "required.expand_capacity_range",
            spec::REQUIRED,
            "ControllerExpandVolume without capacity_range is refused with INVALID_ARGUMENT",
            &[crate::cases::CREATE, Need::Controller(Can::ExpandVolume)],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::ControllerExpandVolumeRequest {
                    volume_id: volume.volume_id,
                    ..Default::default()
                };
                refused(&t, request, "capacity_range").await
            },
        ),
    ]
}
