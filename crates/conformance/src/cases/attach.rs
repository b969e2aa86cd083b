//! `ControllerPublishVolume` and its reverse.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;

use crate::case::{Case, Need};

mod many;
mod publishing;
mod unpublishing;

const ATTACH: Need = Need::Controller(Can::PublishUnpublishVolume);

fn detach(volume_id: &str, node_id: &str) -> proto::ControllerUnpublishVolumeRequest {
    proto::ControllerUnpublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        ..Default::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    [publishing::cases(), unpublishing::cases(), many::cases()].concat()
}
