//! What is to be done about a volume of this node.

use orlop_model::{ReclaimPolicy, Volume, VolumePhase, well_known};

use crate::{identity::Whose, record::Record};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// The finalizer shall stand on it.
    Guard,
    /// Its disk is to be cleaned.
    Clean,
    /// Its disk is clean: the volume goes.
    Delete,
    /// It is being deleted, and its disk holds nobody's data: the finalizer goes.
    LetGo,
    /// It would have to be recycled.
    Recycle,
    /// It belongs to an earlier node of this name, and to a claim still.
    Orphaned,
}

/// Decides about a volume.
pub fn decide(volume: &Volume, whose: Whose) -> Step {
    let guarded = volume.metadata.has_finalizer(well_known::LOCAL_UNCLEAN);
    let deleting = volume.metadata.is_deleting();
    match whose {
        Whose::Others => Step::Leave,
        _ if deleting && !guarded => Step::Leave,
        _ => match (state(volume), deleting) {
            (State::Unused | State::Kept | State::Clean, true) => Step::LetGo,
            // Nobody was ever given it, and another machine can't use it.
            (State::Unused, false) if whose == Whose::Predecessor => Step::Delete,
            (State::Dirty, _) => Step::Clean,
            (State::Clean, false) => Step::Delete,
            (State::Recycled, _) => Step::Recycle,
            (State::Used, false) if whose == Whose::Predecessor => Step::Orphaned,
            (State::Unused | State::Used | State::Kept, false) if !guarded => Step::Guard,
            (State::Unused | State::Used | State::Kept, _) => Step::Leave,
        },
    }
}

/// What a volume's disk holds.
enum State {
    /// Nothing that we know of: no claim ever had it.
    Unused,
    /// The data of a claim that exists, or of which the binder hasn't said that it is gone.
    Used,
    /// The data of a claim that is gone, for a person to look at.
    Kept,
    /// The data of a claim that is gone.
    Dirty,
    /// What a claim had is gone.
    Clean,
    /// Somebody asks for what there is no more.
    Recycled,
}

fn state(volume: &Volume) -> State {
    match volume.phase() {
        VolumePhase::Released | VolumePhase::Failed => match volume.reclaim_policy() {
            ReclaimPolicy::Retain | ReclaimPolicy::Unknown => State::Kept,
            ReclaimPolicy::Recycle => State::Recycled,
            ReclaimPolicy::Delete => match Record::of(volume) {
                Some(record) if record.clean => State::Clean,
                _ => State::Dirty,
            },
        },
        VolumePhase::Bound => State::Used,
        VolumePhase::Available | VolumePhase::Pending => match &volume.spec.claim_ref {
            // Reserved by its name only: no claim has been there yet.
            Some(claim) if !claim.uid.is_empty() => State::Used,
            Some(_) | None => match volume.reclaim_policy() {
                // A person may have taken the claim off and left the data.
                ReclaimPolicy::Retain | ReclaimPolicy::Unknown => State::Kept,
                ReclaimPolicy::Delete | ReclaimPolicy::Recycle => State::Unused,
            },
        },
    }
}

#[cfg(test)]
mod tests;
