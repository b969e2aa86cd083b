//! A request without a required field is refused with `INVALID_ARGUMENT`, whatever else is
//! wrong with it.

use std::fmt::Debug;

use orlop_csi::client::{
    ControllerCapability as Can, GroupCapability, NodeCapability, PluginService,
};
use orlop_csi::{Unary, proto};
use tonic::Code;

use crate::case::{Case, Need, Outcome};
use crate::make::at_least;
use crate::spec;
use crate::trial::Trial;

/// One case: the request that `make` gives lacks `field`.
fn lacks<R>(
    id: &'static str,
    field: &'static str,
    needs: &[Need],
    make: impl Fn(&Trial) -> R + Send + Sync + 'static,
) -> Case
where
    R: Unary + Debug + Send + Sync,
    R::Reply: Debug,
{
    let title = format!(
        "{} without {field} is refused with INVALID_ARGUMENT",
        R::METHOD
    );
    Case::must(
        format!("required.{id}"),
        spec::REQUIRED,
        title,
        needs,
        move |t| {
            let request = make(&t);
            async move { refused(&t, request, field).await }
        },
    )
}

async fn refused<R>(t: &Trial, request: R, field: &str) -> Outcome
where
    R: Unary + Debug,
    R::Reply: Debug,
{
    let because = format!("the required field {field} is missing");
    t.call(request)
        .await
        .refused(Code::InvalidArgument, &because)
}

/// An id that no driver has given.
const NOBODY: &str = "orlop-conformance-no-such-thing";

pub(super) fn cases() -> Vec<Case> {
    [controller(), snapshots(), groups(), node()].concat()
}

fn controller() -> Vec<Case> {
    let create = [super::CREATE];
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
            &[super::CREATE, Need::Controller(Can::CreateDeleteSnapshot)],
            |t| proto::CreateVolumeRequest {
                volume_content_source: Some(Default::default()),
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_source_snapshot_id",
            "volume_content_source.snapshot.snapshot_id",
            &[super::CREATE, Need::Controller(Can::CreateDeleteSnapshot)],
            |t| proto::CreateVolumeRequest {
                volume_content_source: Some(crate::make::from_snapshot("")),
                ..t.create_request("x")
            },
        ),
        lacks(
            "create_volume_source_volume_id",
            "volume_content_source.volume.volume_id",
            &[super::CREATE, Need::Controller(Can::CloneVolume)],
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
            &[super::CREATE, Need::Controller(Can::ModifyVolume)],
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
            &[super::CREATE, Need::Controller(Can::ExpandVolume)],
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

fn snapshots() -> Vec<Case> {
    let snapshot = [Need::Controller(Can::CreateDeleteSnapshot)];
    let with_volume = [super::CREATE, Need::Controller(Can::CreateDeleteSnapshot)];
    vec![
        Case::must(
            "required.create_snapshot_name",
            spec::REQUIRED,
            "CreateSnapshot without name is refused with INVALID_ARGUMENT",
            &with_volume,
            |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::CreateSnapshotRequest {
                    source_volume_id: volume.volume_id,
                    ..Default::default()
                };
                refused(&t, request, "name").await
            },
        ),
        lacks(
            "create_snapshot_source",
            "source_volume_id",
            &snapshot,
            |t| t.snapshot_request("", "s"),
        ),
        lacks("delete_snapshot_id", "snapshot_id", &snapshot, |_| {
            proto::DeleteSnapshotRequest::default()
        }),
        lacks(
            "get_snapshot_id",
            "snapshot_id",
            &[Need::Controller(Can::GetSnapshot)],
            |_| proto::GetSnapshotRequest::default(),
        ),
    ]
}

fn groups() -> Vec<Case> {
    let group = [Need::Group(
        GroupCapability::CreateDeleteGetVolumeGroupSnapshot,
    )];
    vec![
        lacks("create_group_name", "name", &group, |_| {
            proto::CreateVolumeGroupSnapshotRequest {
                source_volume_ids: vec![NOBODY.into()],
                ..Default::default()
            }
        }),
        lacks("create_group_sources", "source_volume_ids", &group, |t| {
            proto::CreateVolumeGroupSnapshotRequest {
                name: t.name("g"),
                ..Default::default()
            }
        }),
        lacks("delete_group_id", "group_snapshot_id", &group, |_| {
            proto::DeleteVolumeGroupSnapshotRequest {
                snapshot_ids: vec![NOBODY.into()],
                ..Default::default()
            }
        }),
        lacks("get_group_id", "group_snapshot_id", &group, |_| {
            proto::GetVolumeGroupSnapshotRequest {
                snapshot_ids: vec![NOBODY.into()],
                ..Default::default()
            }
        }),
    ]
}

fn node() -> Vec<Case> {
    let stage = [Need::Node(NodeCapability::StageUnstageVolume)];
    let stats = [Need::Node(NodeCapability::GetVolumeStats)];
    let expand = [Need::Node(NodeCapability::ExpandVolume)];
    const PATH: &str = "/nonexistent/orlop-conformance";
    vec![
        lacks("stage_volume_id", "volume_id", &stage, |t| {
            proto::NodeStageVolumeRequest {
                staging_target_path: PATH.into(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            }
        }),
        lacks("stage_path", "staging_target_path", &stage, |t| {
            proto::NodeStageVolumeRequest {
                volume_id: NOBODY.into(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            }
        }),
        lacks("stage_capability", "volume_capability", &stage, |_| {
            proto::NodeStageVolumeRequest {
                volume_id: NOBODY.into(),
                staging_target_path: PATH.into(),
                ..Default::default()
            }
        }),
        lacks("unstage_volume_id", "volume_id", &stage, |_| {
            proto::NodeUnstageVolumeRequest {
                staging_target_path: PATH.into(),
                ..Default::default()
            }
        }),
        lacks("unstage_path", "staging_target_path", &stage, |_| {
            proto::NodeUnstageVolumeRequest {
                volume_id: NOBODY.into(),
                ..Default::default()
            }
        }),
        lacks("publish_volume_id", "volume_id", &[], |t| {
            proto::NodePublishVolumeRequest {
                target_path: PATH.into(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            }
        }),
        lacks("publish_path", "target_path", &[], |t| {
            proto::NodePublishVolumeRequest {
                volume_id: NOBODY.into(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            }
        }),
        lacks("publish_capability", "volume_capability", &[], |_| {
            proto::NodePublishVolumeRequest {
                volume_id: NOBODY.into(),
                target_path: PATH.into(),
                ..Default::default()
            }
        }),
        lacks("unpublish_volume_id", "volume_id", &[], |_| {
            proto::NodeUnpublishVolumeRequest {
                target_path: PATH.into(),
                ..Default::default()
            }
        }),
        lacks("unpublish_path", "target_path", &[], |_| {
            proto::NodeUnpublishVolumeRequest {
                volume_id: NOBODY.into(),
                ..Default::default()
            }
        }),
        lacks("stats_volume_id", "volume_id", &stats, |_| {
            proto::NodeGetVolumeStatsRequest {
                volume_path: PATH.into(),
                ..Default::default()
            }
        }),
        lacks("stats_path", "volume_path", &stats, |_| {
            proto::NodeGetVolumeStatsRequest {
                volume_id: NOBODY.into(),
                ..Default::default()
            }
        }),
        lacks("node_expand_volume_id", "volume_id", &expand, |_| {
            proto::NodeExpandVolumeRequest {
                volume_path: PATH.into(),
                ..Default::default()
            }
        }),
        lacks("node_expand_path", "volume_path", &expand, |_| {
            proto::NodeExpandVolumeRequest {
                volume_id: NOBODY.into(),
                ..Default::default()
            }
        }),
    ]
}
