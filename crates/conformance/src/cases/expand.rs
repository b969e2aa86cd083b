//! Growing, at the controller and on the node.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;

use crate::case::{Case, Need};
use crate::make::{Placed, at_least};
use crate::trial::Trial;

mod controller;
mod node;

const EXPAND: Need = Need::Controller(Can::ExpandVolume);

fn expand(
    t: &Trial,
    volume_id: &str,
    range: proto::CapacityRange,
) -> proto::ControllerExpandVolumeRequest {
    proto::ControllerExpandVolumeRequest {
        volume_id: volume_id.to_owned(),
        capacity_range: Some(range),
        volume_capability: Some(t.capability()),
        ..Default::default()
    }
}

fn node_expand(placed: &Placed, target: &str, bytes: i64) -> proto::NodeExpandVolumeRequest {
    proto::NodeExpandVolumeRequest {
        volume_id: placed.id(),
        volume_path: target.to_owned(),
        capacity_range: Some(at_least(bytes)),
        staging_target_path: placed.staging.clone(),
        volume_capability: Some(placed.capability.clone()),
        ..Default::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    [controller::cases(), node::cases()].concat()
}
