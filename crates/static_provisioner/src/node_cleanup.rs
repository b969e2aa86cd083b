//! Cleaning up after nodes that were removed: what their local volumes hold is gone with them.
//!
//! One for the whole cluster, not one per node: those that it is about have nobody left. A
//! claim that is bound to a disk of a node that has been gone for a while keeps its pod from
//! ever running again; it is deleted, and then the volume is. Only volumes of classes that are
//! named are touched: whoever names a class says that its disks go with their node.
//!
//! ```text
//! node gone --> a while passes --> claim deleted --> volume Released --> volume deleted
//!     |  (the same node is back: nothing happens)
//!     +-> another node of that name: the claim goes, and that node's provisioner cleans the disk
//! ```
//!
//! Must never: delete anything of a node that exists, or of a class that isn't named; take away
//! the record that a disk is unclean while a node is there that may have the disk.

use orlop_model::{ReclaimPolicy, Volume, VolumePhase, well_known};

pub mod home;
mod metrics;
mod work;

pub use home::Home;
pub use work::{Settings, start};

/// What is to be done about a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// The claim that it is bound to is deleted, for it can't be used any more.
    DeleteClaim,
    /// The volume is deleted, for its disk is gone.
    DeleteVolume,
    /// It is being deleted, and nobody is left who could clean its disk: the finalizer goes.
    LetGo,
}

/// Decides about a local volume of a class that is cleaned up after, once its node has been
/// gone for long enough.
pub fn decide(volume: &Volume, home: Home) -> Step {
    let used = match volume.phase() {
        VolumePhase::Bound => true,
        VolumePhase::Released | VolumePhase::Failed => false,
        // With a uid, the binder is about to bind it.
        VolumePhase::Available | VolumePhase::Pending => {
            let claim = volume.spec.claim_ref.as_ref();
            claim.is_some_and(|claim| !claim.uid.is_empty())
        }
    };
    match home {
        Home::Replaced | Home::Gone if used => Step::DeleteClaim,
        // Where another took its place, the disk may be there: that node's own provisioner
        // cleans and deletes.
        Home::Unknown | Home::There | Home::Replaced => Step::Leave,
        Home::Gone if volume.metadata.is_deleting() => {
            match volume.metadata.has_finalizer(well_known::LOCAL_UNCLEAN) {
                true => Step::LetGo,
                false => Step::Leave,
            }
        }
        Home::Gone => match (volume.phase(), volume.reclaim_policy()) {
            // Nobody's data.
            (VolumePhase::Available, _) => Step::DeleteVolume,
            (VolumePhase::Released | VolumePhase::Failed, ReclaimPolicy::Delete) => {
                Step::DeleteVolume
            }
            // A person wants to look at it.
            _ => Step::Leave,
        },
    }
}

#[cfg(test)]
mod tests;
