//! What moves one claim towards the size that it asks for. Pure.

use std::time::Duration;

use orlop_model::{
    Claim, ClaimPhase, ResizeStatus, Volume,
    volume::CsiSource,
    well_known::{PRE_RESIZE_CAPACITY, STORAGE_RESIZER},
};

use crate::resizer::setbacks::{Setback, Verdict};

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resizer) enum Ability {
    /// The backend, and a node if the driver says so.
    Controller,
    /// Nodes alone; the backend needs no telling.
    NodeOnly,
}

/// When the driver can grow a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resizer) enum Moment {
    /// At any time, or the driver says no when it can't.
    Any,
    /// While nobody uses it.
    Unused,
}

/// What is known of a claim.
#[derive(Debug, Clone)]
pub(super) struct View<'a> {
    pub(super) driver: &'a str,
    pub(super) ability: Ability,
    pub(super) claim: &'a Claim,
    /// In the driver's words.
    pub(super) volume: Option<&'a Volume>,
    /// Whether it is one of a plugin whose place the driver took.
    pub(super) of_plugin: bool,
    pub(super) setback: Option<Setback<i64>>,
}

/// What to do about a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step<'a> {
    /// Nothing, until something changes.
    Leave,
    /// The node's part is over: its mark on the volume goes.
    Tidy(&'a Volume),
    /// Put the goal on record if it isn't, and grow.
    Grow(Goal<'a>),
    /// The driver said that the goal can't be reached: ask again after this long.
    Later(Duration),
}

/// Which volume shall have how many bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal<'a> {
    pub(super) volume: &'a Volume,
    pub(super) csi: &'a CsiSource,
    pub(super) bytes: i64,
    pub(super) intent: Intent,
    /// Whether it is one of a plugin whose place the driver took.
    pub(super) of_plugin: bool,
}

/// Whether the goal stands on the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// It must be put there before the driver is asked.
    ToRecord,
    /// It does: an earlier call may have had an effect.
    OnRecord,
}

pub(super) fn decide<'a>(view: &View<'a>) -> Step<'a> {
    let claim = view.claim;
    let Some((volume, csi)) = ours(view) else {
        return Step::Leave;
    };
    let annotations = &volume.metadata.annotations;
    if annotations.contains_key(PRE_RESIZE_CAPACITY)
        && claim.capacity_bytes() >= volume.capacity_bytes()
    {
        return Step::Tidy(volume);
    }
    let Some(bytes) = bytes(view, volume) else {
        return Step::Leave;
    };
    let recorded = claim.allocated_bytes() == Some(bytes) && claim.resize_status().is_some();
    let intent = if recorded {
        Intent::OnRecord
    } else {
        Intent::ToRecord
    };
    match &view.setback {
        Some(setback)
            if setback.verdict == Verdict::Infeasible
                && setback.goal == bytes
                && !setback.rest.is_zero() =>
        {
            Step::Later(setback.rest)
        }
        _ => Step::Grow(Goal {
            volume,
            csi,
            bytes,
            intent,
            of_plugin: view.of_plugin,
        }),
    }
}

/// The claim's volume, if it is bound to it and the driver is ours.
fn ours<'a>(view: &View<'a>) -> Option<(&'a Volume, &'a CsiSource)> {
    let claim = view.claim;
    let volume = view.volume?;
    let csi = volume.spec.csi.as_ref()?;
    let owner = volume.spec.claim_ref.as_ref()?;
    let bound = claim.phase() == ClaimPhase::Bound
        && claim.spec.volume_name == volume.metadata.name
        && owner.namespace == claim.metadata.namespace
        && owner.uid == claim.metadata.uid;
    // A plugin's volume grows by whom the control plane has named: the plugin, or the driver.
    let named = claim.metadata.annotation(STORAGE_RESIZER) == Some(view.driver);
    let may = !view.of_plugin || named;
    (bound && may && csi.driver == view.driver).then_some((volume, csi))
}

/// The size to go for; `None` if there is nothing to do. What was begun comes first, unless
/// the driver said that nothing of it is under way: only then can a user's second thought,
/// which may be a smaller size, be followed.
fn bytes(view: &View<'_>, volume: &Volume) -> Option<i64> {
    let claim = view.claim;
    let asked = claim.requested_bytes();
    let made = volume.capacity_bytes();
    let wanted = (asked > claim.capacity_bytes()).then_some(asked);
    let begun = claim.allocated_bytes().unwrap_or(asked);
    let failed_for_good = view.setback.as_ref().is_some_and(|s| s.goal == begun);
    match claim.resize_status() {
        None | Some(ResizeStatus::ControllerResizeInfeasible) => wanted,
        Some(ResizeStatus::ControllerResizeInProgress) if failed_for_good => wanted,
        Some(ResizeStatus::ControllerResizeInProgress) => Some(begun),
        Some(ResizeStatus::NodeResizePending | ResizeStatus::NodeResizeInProgress) => {
            wanted.and((made < asked && made < begun).then_some(begun))
        }
        // The node tries again only when told to.
        Some(ResizeStatus::NodeResizeInfeasible) => match view.ability {
            Ability::Controller => wanted.and(Some(begun)),
            Ability::NodeOnly => wanted,
        },
        // Somebody newer than us is at work.
        Some(ResizeStatus::Other) => None,
    }
}

#[cfg(test)]
mod tests;
