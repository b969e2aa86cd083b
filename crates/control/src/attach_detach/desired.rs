//! What placed pods want attached.

use std::{collections::BTreeMap, sync::Arc};

use orlop_model::{Claim, Kind, Node, Pod, Volume};

use super::actual;

/// The pods that want a volume, by node.
pub type Wishes = BTreeMap<String, Vec<Arc<Pod>>>;

/// Whether the pod wants its volumes on its node. One that is being deleted does until it
/// is gone: its processes may still write. Only an administrator's word that the node is
/// off ends that early.
pub fn wants(pod: &Pod, node: Option<&Node>) -> bool {
    let off = node.is_some_and(actual::is_off);
    pod.is_placed() && !pod.is_finished() && !(off && pod.metadata.is_deleting())
}

/// Whether claim and volume are each other's, so that the claim's pods want this volume.
pub fn is_bound(claim: &Claim, volume: &Volume) -> bool {
    claim.is_fully_bound()
        && claim.spec.volume_name == volume.metadata.name
        && volume
            .spec
            .claim_ref
            .as_ref()
            .is_some_and(|owner| owner.uid == claim.metadata.uid && owner.key() == claim.key())
}
