//! What moves one claim towards the attributes class that it asks for. Pure.

use std::time::Duration;

use orlop_model::{
    Claim, ClaimPhase, ModifyStatus, Volume, VolumeAttributesClass, volume::CsiSource,
};

use crate::resizer::setbacks::{Setback, Verdict};

/// What is known of a claim.
#[derive(Debug, Clone)]
pub(super) struct View<'a, Find> {
    pub(super) driver: &'a str,
    pub(super) claim: &'a Claim,
    pub(super) volume: Option<&'a Volume>,
    /// Finds a class by its name.
    pub(super) class: Find,
    pub(super) setback: Option<Setback<String>>,
}

/// What to do about a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step<'a, Class> {
    /// Nothing, until something changes.
    Leave,
    /// Say that it can't begin: the class does not exist.
    Wait { class: &'a str },
    /// Say that it won't be: the class is another driver's.
    Refuse { class: &'a str },
    /// Take back what can't be and is no longer asked for.
    Cancel,
    /// Say on the claim what the volume tells already: the change is made.
    Settle { class: &'a str },
    /// Put the class on record if it isn't, and change the volume.
    Modify(Goal<'a, Class>),
    /// The driver said that it can't be: ask again after this long.
    Later(Duration),
}

/// Which volume shall have which attributes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Goal<'a, Class> {
    pub(super) volume: &'a Volume,
    pub(super) csi: &'a CsiSource,
    pub(super) name: &'a str,
    pub(super) class: Class,
    pub(super) intent: Intent,
}

/// Whether the goal stands on the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// It must be put there before the driver is asked.
    ToRecord,
    /// It does: an earlier call may have had an effect.
    OnRecord,
    /// The claim has it by its own word, but the volume's object tells of another: a call of
    /// somebody who is no longer in charge came after the one that was settled.
    ToRepair,
}

pub(super) fn decide<'a, Class, Find>(view: &View<'a, Find>) -> Step<'a, Class>
where
    Class: AsRef<VolumeAttributesClass>,
    Find: Fn(&str) -> Option<Class>,
{
    let claim = view.claim;
    let Some((volume, csi)) = ours(view) else {
        return Step::Leave;
    };
    let asked = claim.spec.volume_attributes_class_name.as_deref();
    let asked = asked.filter(|name| !name.is_empty());
    let has = claim.status.current_volume_attributes_class_name.as_deref();
    let status = claim.status.modify_volume_status.as_ref();
    let begun = status.map(|s| (s.status, s.target_volume_attributes_class_name.as_str()));
    let failed_for_good = |name: &str| view.setback.as_ref().is_some_and(|s| s.goal == name);
    let name = match (begun, asked) {
        // What may be under way comes first: the driver must not be left in between.
        (Some((ModifyStatus::InProgress, target)), _)
            if !target.is_empty() && !failed_for_good(target) =>
        {
            target
        }
        // Somebody newer than us is at work, or nothing is asked for.
        (Some((ModifyStatus::Other, _)), _) | (None, None) => return Step::Leave,
        (None, Some(asked)) if Some(asked) == has && !differs(volume, asked) => {
            return Step::Leave;
        }
        (Some(_), None) => return Step::Cancel,
        // After a failure for good the driver has what it had before.
        (Some((ModifyStatus::Pending | ModifyStatus::Infeasible, _)), Some(asked))
            if Some(asked) == has =>
        {
            return Step::Cancel;
        }
        (_, Some(asked)) => asked,
    };
    // Nothing keeps a claim that goes: a call that is only made once more could come after the
    // record of it is gone, and find the volume being deleted.
    let told = volume.spec.volume_attributes_class_name.as_deref();
    if claim.metadata.is_deleting() && told == Some(name) && has != Some(name) {
        return Step::Settle { class: name };
    }
    if let Some(setback) = &view.setback
        && setback.goal == name
        && setback.verdict == Verdict::Infeasible
        && !setback.rest.is_zero()
    {
        return Step::Later(setback.rest);
    }
    let Some(class) = (view.class)(name) else {
        return match begun {
            // It was told, unless another one is asked for now.
            Some((ModifyStatus::Pending, target)) if target == name => Step::Leave,
            _ => Step::Wait { class: name },
        };
    };
    if class.as_ref().driver_name != view.driver {
        return Step::Refuse { class: name };
    }
    let intent = match begun {
        Some((ModifyStatus::InProgress, target)) if target == name => Intent::OnRecord,
        None if Some(name) == has => Intent::ToRepair,
        _ => Intent::ToRecord,
    };
    Step::Modify(Goal {
        volume,
        csi,
        name,
        class,
        intent,
    })
}

/// Whether the volume's object tells of other attributes than these.
pub(super) fn differs(volume: &Volume, class: &str) -> bool {
    let told = volume.spec.volume_attributes_class_name.as_deref();
    told.is_some_and(|told| told != class)
}

/// Whether a change to this class may be under way.
pub(super) fn is_begun(claim: &Claim, class: &str) -> bool {
    let status = claim.status.modify_volume_status.as_ref();
    status.is_some_and(|status| {
        status.status == ModifyStatus::InProgress
            && status.target_volume_attributes_class_name == class
    })
}

/// The claim's volume, if it is bound to it and the driver is ours.
fn ours<'a, Find>(view: &View<'a, Find>) -> Option<(&'a Volume, &'a CsiSource)> {
    let claim = view.claim;
    let volume = view.volume?;
    let csi = volume.spec.csi.as_ref()?;
    let owner = volume.spec.claim_ref.as_ref()?;
    let bound = claim.phase() == ClaimPhase::Bound
        && claim.spec.volume_name == volume.metadata.name
        && owner.uid == claim.metadata.uid;
    (bound && csi.driver == view.driver).then_some((volume, csi))
}

#[cfg(test)]
mod tests;
