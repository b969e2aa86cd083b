//! Whether a claim has a volume.

use orlop_model::{Claim, Volume, VolumePhase, well_known};

use super::Decision;
use crate::Evidence;

/// Decides about a volume's protection, given the very claim that it names, if that exists.
pub fn decide(volume: &Volume, owner: Option<&Claim>, evidence: Evidence) -> Decision {
    let protected = volume.metadata.has_finalizer(well_known::PV_PROTECTION);
    match (volume.metadata.is_deleting(), protected) {
        (false, false) => Decision::Protect,
        (false, true) | (true, false) => Decision::Keep,
        (true, true) if is_used(volume, owner) => Decision::Keep,
        (true, true) => match evidence {
            Evidence::Cached => Decision::Confirm,
            Evidence::Live => Decision::Lift,
        },
    }
}

/// The phase says so; and if the phase is behind, the claim's own word counts.
fn is_used(volume: &Volume, owner: Option<&Claim>) -> bool {
    volume.phase() == VolumePhase::Bound
        || owner.is_some_and(|claim| claim.spec.volume_name == volume.metadata.name)
}
