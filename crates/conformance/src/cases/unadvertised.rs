//! What a driver does not announce, it does not do: `UNIMPLEMENTED`, whatever the request says.

use std::fmt::Debug;

use orlop_csi::client::{ControllerCapability as Can, NodeCapability, PluginService};
use orlop_csi::{Unary, proto};
use tonic::Code;

use crate::case::{Case, Need, ensure};
use crate::spec;
use crate::trial::Trial;
use crate::words;

const SOME: &str = "orlop-conformance-some";
const PATH: &str = "/nonexistent/orlop-conformance";

/// A call without its capability.
fn refuses<R: Unary + Debug>(
    what: &str,
    need: Need,
    request: impl Fn(&Trial) -> R + Send + Sync + 'static,
) -> Case
where
    R::Reply: Debug,
{
    Case::must(
        format!("unadvertised.{what}"),
        spec::ERRORS,
        format!(
            "without its capability, {} answers UNIMPLEMENTED",
            R::METHOD.name()
        ),
        &[need],
        move |t| {
            let request = request(&t);
            async move {
                t.call(request).await.refused(
                    Code::Unimplemented,
                    "the driver does not announce this call",
                )
            }
        },
    )
}

pub(super) fn cases() -> Vec<Case> {
    [controller(), plugin(), node()].concat()
}

fn controller() -> Vec<Case> {
    let without = Need::NoController;
    vec![
        refuses("create_volume", without(Can::CreateDeleteVolume), |t| {
            t.create_request("v")
        }),
        refuses("delete_volume", without(Can::CreateDeleteVolume), |t| {
            t.delete_request(SOME)
        }),
        refuses(
            "controller_publish",
            without(Can::PublishUnpublishVolume),
            |t| proto::ControllerPublishVolumeRequest {
                volume_id: SOME.into(),
                node_id: SOME.into(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            },
        ),
        refuses(
            "controller_unpublish",
            without(Can::PublishUnpublishVolume),
            |_| proto::ControllerUnpublishVolumeRequest {
                volume_id: SOME.into(),
                node_id: SOME.into(),
                ..Default::default()
            },
        ),
        refuses("list_volumes", without(Can::ListVolumes), |_| {
            proto::ListVolumesRequest::default()
        }),
        refuses("get_capacity", without(Can::GetCapacity), |_| {
            proto::GetCapacityRequest::default()
        }),
        refuses("create_snapshot", without(Can::CreateDeleteSnapshot), |t| {
            t.snapshot_request(SOME, "s")
        }),
        refuses(
            "delete_snapshot",
            without(Can::CreateDeleteSnapshot),
            |_| proto::DeleteSnapshotRequest {
                snapshot_id: SOME.into(),
                ..Default::default()
            },
        ),
        refuses("list_snapshots", without(Can::ListSnapshots), |_| {
            proto::ListSnapshotsRequest::default()
        }),
        refuses("get_snapshot", without(Can::GetSnapshot), |_| {
            proto::GetSnapshotRequest {
                snapshot_id: SOME.into(),
                ..Default::default()
            }
        }),
        refuses("controller_expand", without(Can::ExpandVolume), |t| {
            proto::ControllerExpandVolumeRequest {
                volume_id: SOME.into(),
                capacity_range: Some(crate::make::at_least(t.size())),
                ..Default::default()
            }
        }),
        refuses("get_volume", without(Can::GetVolume), |_| {
            proto::ControllerGetVolumeRequest {
                volume_id: SOME.into(),
            }
        }),
        refuses("modify_volume", without(Can::ModifyVolume), |_| {
            proto::ControllerModifyVolumeRequest {
                volume_id: SOME.into(),
                mutable_parameters: [("key".to_owned(), "value".to_owned())].into(),
                ..Default::default()
            }
        }),
    ]
}

fn plugin() -> Vec<Case> {
    let groups = Need::NoPlugin(PluginService::GroupControllerService);
    vec![
        refuses("create_group", groups, |t| {
            proto::CreateVolumeGroupSnapshotRequest {
                name: t.name("g"),
                source_volume_ids: vec![SOME.into()],
                ..Default::default()
            }
        }),
        refuses("delete_group", groups, |_| {
            proto::DeleteVolumeGroupSnapshotRequest {
                group_snapshot_id: SOME.into(),
                snapshot_ids: vec![SOME.into()],
                ..Default::default()
            }
        }),
        refuses("get_group", groups, |_| {
            proto::GetVolumeGroupSnapshotRequest {
                group_snapshot_id: SOME.into(),
                snapshot_ids: vec![SOME.into()],
                ..Default::default()
            }
        }),
        Case::must(
            "unadvertised.metadata",
            spec::ERRORS,
            "without the service, GetMetadataAllocated answers UNIMPLEMENTED",
            &[Need::NoPlugin(PluginService::SnapshotMetadataService)],
            |t| async move {
                let request = proto::GetMetadataAllocatedRequest {
                    snapshot_id: SOME.into(),
                    ..Default::default()
                };
                let (replies, end) = t.stream(request).await;
                let told = end.map_err(|refusal| (refusal.code, words::refusal(&refusal)));
                ensure!(
                    matches!(told, Err((Code::Unimplemented, _))),
                    "the driver does not announce SNAPSHOT_METADATA_SERVICE; GetMetadataAllocated gave {} messages, then {told:?}",
                    replies.len()
                );
                Ok(())
            },
        ),
    ]
}

fn node() -> Vec<Case> {
    let without = Need::NoNode;
    vec![
        refuses("stage", without(NodeCapability::StageUnstageVolume), |t| {
            proto::NodeStageVolumeRequest {
                volume_id: SOME.into(),
                staging_target_path: PATH.into(),
                volume_capability: Some(t.capability()),
                ..Default::default()
            }
        }),
        refuses(
            "unstage",
            without(NodeCapability::StageUnstageVolume),
            |_| proto::NodeUnstageVolumeRequest {
                volume_id: SOME.into(),
                staging_target_path: PATH.into(),
            },
        ),
        refuses("stats", without(NodeCapability::GetVolumeStats), |_| {
            proto::NodeGetVolumeStatsRequest {
                volume_id: SOME.into(),
                volume_path: PATH.into(),
                ..Default::default()
            }
        }),
        refuses("node_expand", without(NodeCapability::ExpandVolume), |_| {
            proto::NodeExpandVolumeRequest {
                volume_id: SOME.into(),
                volume_path: PATH.into(),
                ..Default::default()
            }
        }),
    ]
}
