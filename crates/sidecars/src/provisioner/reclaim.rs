//! What becomes of a volume object of ours, and of the volume behind it.

use std::collections::BTreeMap;

use orlop_model::{
    ReclaimPolicy, Volume, VolumePhase,
    volume::CsiSource,
    well_known::{EXTERNAL_PROVISIONER, MIGRATED_TO, PROVISIONED_BY},
};

use super::Deployment;

/// What is known of a volume.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) driver: &'a str,
    pub(super) deployment: &'a Deployment,
    /// The labels under which this node's volumes can be reached; node deployment only.
    pub(super) place: &'a BTreeMap<String, String>,
    /// In the driver's words.
    pub(super) volume: &'a Volume,
    /// Whether it is one of a plugin whose place the driver took.
    pub(super) of_plugin: bool,
    /// Whether an attachment names the volume.
    pub(super) attached: bool,
}

/// What to do about a volume.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step<'a> {
    /// Nothing, until something changes.
    Leave,
    /// Keep the object from vanishing before the volume behind it.
    Guard,
    /// Let the object go without the volume: its policy says so.
    Unguard,
    /// Delete the volume behind it, then the object.
    Delete(&'a CsiSource),
    /// Delete it once it is detached.
    WaitForDetach,
}

pub(super) fn decide<'a>(view: &View<'a>) -> Step<'a> {
    let volume = view.volume;
    let Some(csi) = volume.spec.csi.as_ref().filter(|c| c.driver == view.driver) else {
        return Step::Leave;
    };
    if !ours(view) {
        return Step::Leave;
    }
    if let Deployment::Node { name, .. } = view.deployment
        && !volume.reachable_from(name, view.place)
    {
        return Step::Leave;
    }
    let guarded = volume.metadata.has_finalizer(EXTERNAL_PROVISIONER);
    if volume.reclaim_policy() != ReclaimPolicy::Delete {
        return if guarded { Step::Unguard } else { Step::Leave };
    }
    match volume.phase() {
        VolumePhase::Bound if !guarded && !volume.metadata.is_deleting() => Step::Guard,
        // Deleted and not guarded: the volume behind it is gone already.
        VolumePhase::Released if volume.metadata.is_deleting() && !guarded => Step::Leave,
        VolumePhase::Released if view.attached => Step::WaitForDetach,
        VolumePhase::Released => Step::Delete(csi),
        VolumePhase::Bound
        | VolumePhase::Pending
        | VolumePhase::Available
        | VolumePhase::Failed => Step::Leave,
    }
}

/// Whether this driver's provisioner made the volume, took over from who did, or has to do with it
/// because nobody did: somebody who writes a volume of the driver by hand and says `Delete` means it.
fn ours(view: &View<'_>) -> bool {
    let named = |key| view.volume.metadata.annotation(key);
    let (by, to) = (named(PROVISIONED_BY), named(MIGRATED_TO));
    match by {
        _ if to == Some(view.driver) => true,
        Some(by) => by == view.driver,
        // A plugin's volume is the driver's only once the binder says so.
        None => !view.of_plugin,
    }
}

#[cfg(test)]
mod tests;
