//! What moves one claim towards Bound.

use std::sync::Arc;

use orlop_model::{
    Claim, ClaimPhase, Kind, StorageClass, Volume, VolumePhase,
    matching::{self, Place, Timing},
    migration, well_known,
};

use crate::Evidence;

/// Everything that a decision about a claim looks at.
#[derive(Debug, Clone)]
pub struct View {
    /// The claim.
    pub claim: Arc<Claim>,
    /// The volume that the claim names, if it names one and that exists.
    pub named: Option<Arc<Volume>>,
    /// Free volumes of the claim's class, and volumes that name the claim.
    pub candidates: Vec<Arc<Volume>>,
    /// The class that the claim asks for, if it exists.
    pub class: Option<Arc<StorageClass>>,
    /// The default class, if there is one.
    pub default_class: Option<Arc<StorageClass>>,
    /// Those of all these volumes that a recycler may still be emptying.
    pub emptied: Vec<String>,
    /// Pods that use the claim and wait for a node.
    pub unplaced_pods: Vec<String>,
    /// Where claim and named volume were read.
    pub evidence: Evidence,
}

/// What shall be done for a claim, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Why.
    pub because: Because,
    /// The volume that the steps are about.
    pub volume: Option<Arc<Volume>>,
    /// In this order; each may be the last before a crash.
    pub steps: Vec<Step>,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The volume names the claim. A crash after it leaves a reservation, never two owners.
    ReserveVolume,
    /// The volume says Bound, which protects it before the claim relies on it.
    MarkVolumeBound,
    /// The claim names the volume.
    PointClaim,
    /// The claim says Bound, and what it got.
    MarkClaimBound,
    /// The claim says Pending.
    MarkPending,
    /// The claim says Lost.
    MarkLost,
    /// The claim asks for the default class.
    TakeClass(String),
    /// The claim names the provisioner that shall act.
    AskProvisioner(String),
    /// The claim says which CSI driver took over from the plugin that was asked, or that none did.
    NoteMigration(Option<&'static str>),
}

/// Why a claim is where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// A volume was found, or was there already.
    Fits,
    /// It is being deleted and has no volume yet: none shall be given to it.
    Deleting,
    /// It said nothing about a class, and there is a default one.
    DefaultClass,
    /// A pod must be placed first.
    NoConsumer {
        /// Pods that wait for a node.
        pods: Vec<String>,
    },
    /// It wants a class that doesn't exist.
    NoSuchClass(String),
    /// The class's volumes are made by hand, or by a plugin that nobody runs.
    NoProvisioner(String),
    /// A provisioner was asked.
    Provisioning(String),
    /// It has no class, and no volume fits.
    NothingFits,
    /// The volume that it names doesn't exist.
    NoSuchVolume,
    /// The volume that it names doesn't fit.
    Mismatch {
        /// The volume.
        volume: String,
        /// What doesn't fit.
        why: matching::Mismatch,
    },
    /// The volume that it names belongs to another claim.
    Taken {
        /// The volume.
        volume: String,
        /// The other claim.
        owner: String,
    },
    /// Its volume was taken back while it was scrubbed, and that hasn't ended yet.
    BeingEmptied(String),
    /// It was bound, and names no volume any more.
    LostReference,
    /// It was bound, and its volume is gone.
    LostVolume,
    /// It was bound, and its volume belongs to another claim.
    Misbound,
    /// It is lost, and its volume didn't come back.
    Lost,
    /// It looks lost; the API server must say so too.
    Unconfirmed,
}

impl Decision {
    fn wait(view: &View, because: Because) -> Self {
        Self {
            because,
            volume: None,
            steps: pending(&view.claim),
        }
    }

    fn nothing(because: Because) -> Self {
        Self {
            because,
            volume: None,
            steps: Vec::new(),
        }
    }

    /// Whether the API server must be asked before anything is done.
    pub fn needs_live_evidence(&self) -> bool {
        self.because == Because::Unconfirmed
    }
}

/// Decides what moves a claim towards Bound.
pub fn decide(view: &View) -> Decision {
    let mut decision = decide_binding(view);
    if let Some(note) = note_of(&view.claim)
        && !decision.needs_live_evidence()
    {
        decision.steps.insert(0, note);
    }
    decision
}

/// What must be noted of a plugin that was asked before a CSI driver took over from it.
fn note_of(claim: &Claim) -> Option<Step> {
    let takes_over = migration::driver_of(claim.provisioner()?);
    let noted = claim.metadata.annotation(well_known::MIGRATED_TO);
    (noted != takes_over).then_some(Step::NoteMigration(takes_over))
}

fn decide_binding(view: &View) -> Decision {
    let claim = &*view.claim;
    let bound = claim.bind_completed();
    let decision = match (bound, claim.spec.volume_name.is_empty()) {
        (false, true) => decide_open(view),
        (false, false) => decide_asked(view),
        (true, _) => decide_done(view),
    };
    match &decision.volume {
        // What is written to it now would be gone in a moment.
        Some(volume) if view.emptied.contains(&volume.metadata.name) => {
            let because = Because::BeingEmptied(volume.metadata.name.clone());
            match bound {
                true => Decision::nothing(because),
                false => Decision::wait(view, because),
            }
        }
        _ => decision,
    }
}

fn decide_open(view: &View) -> Decision {
    let claim = &*view.claim;
    if claim.metadata.is_deleting() {
        return Decision::nothing(Because::Deleting);
    }
    let late = view.class.as_ref().is_some_and(|c| c.waits_for_consumer());
    let timing = if late { Timing::Late } else { Timing::Now };
    let candidates = view.candidates.iter().map(|v| &**v);
    if let Some(found) = matching::best(claim, candidates, Place::Anywhere, timing) {
        let name = &found.metadata.name;
        let found = view.candidates.iter().find(|v| v.metadata.name == *name);
        return found.map_or_else(
            || Decision::wait(view, Because::NothingFits),
            |volume| bind(claim, volume),
        );
    }
    match (claim.class(), &view.class, &view.default_class) {
        (None, _, Some(default)) => Decision {
            because: Because::DefaultClass,
            volume: None,
            steps: vec![Step::TakeClass(default.metadata.name.clone())],
        },
        (None | Some(""), _, _) => Decision::wait(view, Because::NothingFits),
        (Some(name), None, _) => Decision::wait(view, Because::NoSuchClass(name.to_owned())),
        (Some(_), Some(_), _) if late && claim.selected_node().is_none() => {
            let pods = view.unplaced_pods.clone();
            Decision::wait(view, Because::NoConsumer { pods })
        }
        (Some(_), Some(class), _) => provision(view, class),
    }
}

fn provision(view: &View, class: &StorageClass) -> Decision {
    let name = &class.provisioner;
    if migration::is_left_over(name) {
        return Decision::wait(view, Because::NoProvisioner(name.clone()));
    }
    let name = migration::driver_of(name).map_or_else(|| name.clone(), str::to_owned);
    let annotations = &view.claim.metadata.annotations;
    let asked = [
        well_known::STORAGE_PROVISIONER,
        well_known::BETA_STORAGE_PROVISIONER,
    ]
    .iter()
    .all(|key| annotations.get(*key) == Some(&name));
    let mut steps = pending(&view.claim);
    if !asked {
        steps.push(Step::AskProvisioner(name.clone()));
    }
    Decision {
        because: Because::Provisioning(name),
        volume: None,
        steps,
    }
}

fn decide_asked(view: &View) -> Decision {
    let claim = &*view.claim;
    let Some(volume) = &view.named else {
        return Decision::wait(view, Because::NoSuchVolume);
    };
    let name = volume.metadata.name.clone();
    let Some(owner) = &volume.spec.claim_ref else {
        return match matching::check(claim, volume) {
            // It would be called used, and nobody ever used it.
            Ok(()) if claim.metadata.is_deleting() => Decision::nothing(Because::Deleting),
            Ok(()) => bind(claim, volume),
            Err(why) => Decision::wait(view, Because::Mismatch { volume: name, why }),
        };
    };
    if volume.is_reserved_for(claim) {
        return bind(claim, volume);
    }
    let because = Because::Taken {
        volume: name,
        owner: owner.key().to_string(),
    };
    // The binder pointed it there: somebody took the mark of that away. It isn't unbound.
    match claim.bound_by_controller() {
        true => Decision::nothing(because),
        false => Decision::wait(view, because),
    }
}

fn decide_done(view: &View) -> Decision {
    let claim = &*view.claim;
    let lost = match &view.named {
        _ if claim.spec.volume_name.is_empty() => Because::LostReference,
        None => Because::LostVolume,
        Some(volume) => match &volume.spec.claim_ref {
            // Also for a claim that was lost: a volume that was deleted may be put back.
            None => return bind(claim, volume),
            // Put back by a person, it may name the claim without its uid.
            Some(_) if volume.is_reserved_for(claim) => return bind(claim, volume),
            Some(_) => Because::Misbound,
        },
    };
    match view.evidence {
        _ if claim.phase() == ClaimPhase::Lost => Decision::nothing(Because::Lost),
        Evidence::Cached => Decision::nothing(Because::Unconfirmed),
        Evidence::Live => Decision {
            because: lost,
            volume: None,
            steps: vec![Step::MarkLost],
        },
    }
}

/// What is missing of the bind.
fn bind(claim: &Claim, volume: &Arc<Volume>) -> Decision {
    let owner = volume.spec.claim_ref.as_ref();
    let steps = [
        (
            Step::ReserveVolume,
            owner.is_none_or(|o| o.key() != claim.key() || o.uid != claim.metadata.uid),
        ),
        (Step::MarkVolumeBound, volume.phase() != VolumePhase::Bound),
        (
            Step::PointClaim,
            claim.spec.volume_name != volume.metadata.name || !claim.bind_completed(),
        ),
        (
            Step::MarkClaimBound,
            claim.phase() != ClaimPhase::Bound
                || claim.status.access_modes != volume.spec.access_modes,
        ),
    ];
    Decision {
        because: Because::Fits,
        volume: Some(volume.clone()),
        steps: steps
            .into_iter()
            .filter_map(|(step, missing)| missing.then_some(step))
            .collect(),
    }
}

fn pending(claim: &Claim) -> Vec<Step> {
    let clean = claim.status.phase == Some(ClaimPhase::Pending)
        && claim.status.access_modes.is_empty()
        && claim.status.capacity.is_empty()
        && claim.status.current_volume_attributes_class_name.is_none();
    if clean {
        Vec::new()
    } else {
        vec![Step::MarkPending]
    }
}
