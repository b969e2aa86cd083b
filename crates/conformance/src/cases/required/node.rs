//! What calls to the node must name.

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;

use super::{NOBODY, lacks};
use crate::case::{Case, Need};

pub(super) fn cases() -> Vec<Case> {
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
