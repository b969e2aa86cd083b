//! What moves one claim towards a volume, or away from one.
//!
//! The [`PROVISIONING`] finalizer is the record of an intent: *a CreateVolume call for this
//! claim may have an effect that no PersistentVolume tells of*.
//!
//! ```text
//!              record intent          CreateVolume, create the volume object
//!   claim ───────────────────▶ intent ───────────────────▶ intent + volume
//!     ▲                          │  │                            │ bound, or deleted
//!     │ nothing was made         │  │ claim deleted              ▼
//!     └──────────────────────────┘  └──▶ find out, undo ──▶ no intent
//! ```
//!
//! No arrow out of "intent" is taken on a guess: only the driver's own word, or a volume
//! object on the API server, takes the finalizer off.

use orlop_csi::{CallError, Retry};
use orlop_model::{
    Claim, ClaimPhase, StorageClass, Volume,
    well_known::{MIGRATED_TO, PROVISIONING},
};
use tonic::Code;

use super::{
    Deployment,
    source::{self, Wish},
};

/// What is known of a claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) driver: &'a str,
    pub(super) deployment: &'a Deployment,
    pub(super) claim: &'a Claim,
    pub(super) class: Option<&'a StorageClass>,
    /// The name that this claim's volume has or will have.
    pub(super) volume_name: &'a str,
    /// The volume object of that name.
    pub(super) volume: Option<&'a Volume>,
    /// Whether claims that nobody asked for yet may be taken.
    pub(super) unasked: Unasked,
}

/// What becomes of a claim before the binder has asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unasked {
    /// The binder must ask first; or there is a volume that it may choose.
    Wait,
    /// The binder gives way, and would ask: no volume that is there will do.
    Take,
}

/// What to do about a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step<'a> {
    /// Nothing, until something changes.
    Leave(Because),
    /// Ask the driver for a volume and put it on record.
    Provision(&'a StorageClass, Intent),
    /// The volume is on record: take the intent off.
    Settle,
    /// Nobody wants the volume any more: find out whether it exists, and delete it.
    Undo(&'a StorageClass),
    /// The arguments of the call can't be made up any more; a person must help.
    Stuck,
    /// Somebody else fills this kind of claim.
    HandOff,
    /// Any node may take the claim: try to be the one that does.
    Bid(&'a StorageClass),
}

/// Whether the intent stands on the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// It must be put there before the driver is asked.
    ToRecord,
    /// It does: an earlier call may have had an effect.
    OnRecord,
}

/// Why a claim is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    AnotherProvisioner,
    AnotherNode,
    Deleted,
    AlreadyBound,
    VolumeOnRecord,
    NoClass,
    ClassOfAnother,
    NoConsumerYet,
}

pub(super) fn decide<'a>(view: &View<'a>) -> Step<'a> {
    let claim = view.claim;
    if !is_for(claim, view.driver) {
        let may_take = view.unasked == Unasked::Take && is_unasked(claim);
        return match decide_open(view) {
            Step::Provision(class, intent) if may_take => Step::Provision(class, intent),
            _ => Step::Leave(Because::AnotherProvisioner),
        };
    }
    if let Deployment::Node { name, immediate } = view.deployment
        && claim.selected_node() != Some(name)
    {
        let may_bid = immediate.is_some() && claim.selected_node().is_none();
        let intent = claim.metadata.has_finalizer(PROVISIONING);
        return match decide_open(view) {
            Step::Provision(class, _) if may_bid && !intent && !class.waits_for_consumer() => {
                Step::Bid(class)
            }
            _ => Step::Leave(Because::AnotherNode),
        };
    }
    let recorded = view.volume.is_some_and(|v| belongs(v, claim));
    match (claim.metadata.has_finalizer(PROVISIONING), recorded) {
        (true, true) if claim.phase() == ClaimPhase::Bound || claim.metadata.is_deleting() => {
            Step::Settle
        }
        // Settling waits for the binder's last write: a patch in between would only make
        // the binder's next one fail.
        (_, true) => Step::Leave(Because::VolumeOnRecord),
        (true, false) => decide_unresolved(view),
        (false, false) => decide_open(view),
    }
}

/// Whether the driver serves the claim, by name or in an in-tree plugin's place.
pub(super) fn is_for(claim: &Claim, driver: &str) -> bool {
    claim.provisioner() == Some(driver) || migrated(claim, driver)
}

/// Whether nobody was asked to make the claim's volume, and it is one like any other.
pub(super) fn is_unasked(claim: &Claim) -> bool {
    claim.provisioner().is_none()
        && claim.metadata.annotation(MIGRATED_TO).is_none()
        && !claim.metadata.has_finalizer(PROVISIONING)
        && source::wish(claim, true) == Ok(Wish::Empty)
}

fn migrated(claim: &Claim, driver: &str) -> bool {
    claim.metadata.annotation(MIGRATED_TO) == Some(driver)
}

/// Whether the class's volumes are made by this driver, or were by what it took over from.
fn makes(class: &StorageClass, view: &View<'_>) -> bool {
    class.provisioner == view.driver || migrated(view.claim, view.driver)
}

/// Whether the volume object is the record of this very claim's volume.
fn belongs(volume: &Volume, claim: &Claim) -> bool {
    let reference = volume.spec.claim_ref.as_ref();
    reference.is_some_and(|r| r.uid == claim.metadata.uid)
}

fn decide_open<'a>(view: &View<'a>) -> Step<'a> {
    let claim = view.claim;
    if claim.metadata.is_deleting() {
        return Step::Leave(Because::Deleted);
    }
    if !claim.spec.volume_name.is_empty() {
        return Step::Leave(Because::AlreadyBound);
    }
    match view.class {
        None => Step::Leave(Because::NoClass),
        Some(class) if !makes(class, view) => Step::Leave(Because::ClassOfAnother),
        Some(class) if class.waits_for_consumer() && claim.selected_node().is_none() => {
            Step::Leave(Because::NoConsumerYet)
        }
        Some(_) if source::wish(claim, true) == Ok(Wish::Populated) => Step::HandOff,
        Some(class) => Step::Provision(class, Intent::ToRecord),
    }
}

/// The intent stands and no volume object tells of its outcome.
fn decide_unresolved<'a>(view: &View<'a>) -> Step<'a> {
    let claim = view.claim;
    if !claim.metadata.is_deleting() && claim.spec.volume_name == view.volume_name {
        // It was on record and bound; that the record is gone since is the binder's business.
        return Step::Settle;
    }
    let Some(class) = view.class.filter(|c| makes(c, view)) else {
        return Step::Stuck;
    };
    let unplaced = class.waits_for_consumer() && claim.selected_node().is_none();
    let unwanted = claim.metadata.is_deleting() || !claim.spec.volume_name.is_empty() || unplaced;
    if unwanted {
        Step::Undo(class)
    } else {
        Step::Provision(class, Intent::OnRecord)
    }
}

/// What a failed CreateVolume tells of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may exist, or come to exist: the intent stays.
    Unknown,
    /// It doesn't exist; a repetition may make it.
    Nothing,
    /// It doesn't exist, and can't at this node.
    NothingHere,
    /// It doesn't exist, and these arguments will not make it.
    Infeasible,
}

/// Judges a failed CreateVolume.
pub(super) fn judge(error: &CallError, intent: Intent, placed: bool) -> Verdict {
    match (error.code, error.retry) {
        // AlreadyExists: a volume of our name is there, made by an earlier call with other
        // arguments.
        (_, Retry::Uncertain) | (Code::AlreadyExists, _) => Verdict::Unknown,
        // The driver did not look: an earlier call, with other credentials, may have worked.
        (Code::Unauthenticated | Code::PermissionDenied, _) if intent == Intent::OnRecord => {
            Verdict::Unknown
        }
        (Code::ResourceExhausted, _) if placed => Verdict::NothingHere,
        (_, Retry::Infeasible) => Verdict::Infeasible,
        (_, Retry::Final) => Verdict::Nothing,
    }
}

#[cfg(test)]
mod tests;
