//! Which pods use a claim.

use orlop_model::{Claim, Kind, Pod, well_known};

use super::Decision;
use crate::Evidence;

/// Decides about a claim's protection.
pub fn decide<'a>(
    claim: &Claim,
    pods: impl IntoIterator<Item = &'a Pod>,
    evidence: Evidence,
) -> Decision {
    let protected = claim.metadata.has_finalizer(well_known::PVC_PROTECTION);
    match (claim.metadata.is_deleting(), protected) {
        (false, false) => Decision::Protect,
        (false, true) | (true, false) => Decision::Keep,
        (true, true) if pods.into_iter().any(|pod| uses(pod, claim)) => Decision::Keep,
        (true, true) => match evidence {
            Evidence::Cached => Decision::Confirm,
            Evidence::Live => Decision::Lift,
        },
    }
}

/// Whether the pod uses the claim. A pod that isn't placed doesn't: no node starts a pod
/// whose claim is being deleted. A finished one does, until its volumes are unmounted and it
/// is gone.
pub fn uses(pod: &Pod, claim: &Claim) -> bool {
    if !pod.is_placed() {
        return false;
    }
    let key = claim.key();
    pod.claims().any(|(volume, used)| {
        used == key
            && (volume.persistent_volume_claim.is_some()
                || (!is_shut_down(pod) && is_made_for(claim, pod)))
    })
}

/// Whether the node has vouched that nothing of the pod is left.
fn is_shut_down(pod: &Pod) -> bool {
    pod.metadata.is_deleting() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Whether the claim was made for this very pod.
pub(crate) fn is_made_for(claim: &Claim, pod: &Pod) -> bool {
    claim
        .metadata
        .controller()
        .is_some_and(|owner| owner.uid == pod.metadata.uid)
}
