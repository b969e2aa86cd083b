//! What one volume's phase must be, and whether it is still its claim's.

use std::sync::Arc;

use orlop_model::{Claim, ReclaimPolicy, Volume, VolumePhase, well_known};
use serde_json::{Value, json};

use super::{
    News,
    write::{Half, Party, Write},
};
use crate::Evidence;

/// Everything that a decision about a volume looks at.
#[derive(Debug, Clone)]
pub struct View {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The very claim, by uid, that the volume names, if it exists.
    pub owner: Option<Arc<Claim>>,
    /// Where the owner was looked for.
    pub evidence: Evidence,
}

/// What shall be done for a volume, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Why.
    pub because: Because,
    /// In this order.
    pub steps: Vec<Step>,
}

/// One write, or a nudge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Another phase.
    Mark(VolumePhase),
    /// A failure, and what a person should know of it.
    MarkFailed(News),
    /// The volume forgets its claim.
    Release(Forget),
    /// The claim has to move.
    WakeClaim,
}

/// How much of its claim a volume forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forget {
    /// All: the binder had reserved it.
    Everything,
    /// Only which object it was: a person had reserved it by name.
    Identity,
}

/// Why a volume is where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// Nobody has it.
    Free,
    /// It waits for a claim of some name.
    Awaited,
    /// Its claim has it.
    Owned,
    /// Its claim doesn't point to it yet.
    Reserved,
    /// Its claim wants files and it is a device, or the other way round.
    WrongMode,
    /// Its claim is gone.
    Abandoned,
    /// Its claim has another volume.
    Superfluous,
    /// Its claim seems gone or elsewhere; the API server must say so too.
    Unconfirmed,
}

impl Decision {
    fn because(because: Because) -> Self {
        Self {
            because,
            steps: Vec::new(),
        }
    }

    fn phase(because: Because, volume: &Volume, phase: VolumePhase) -> Self {
        let steps = if volume.phase() == phase {
            Vec::new()
        } else {
            vec![Step::Mark(phase)]
        };
        Self { because, steps }
    }

    /// Whether the API server must be asked before anything is done.
    pub fn needs_live_evidence(&self) -> bool {
        self.because == Because::Unconfirmed
    }
}

/// Decides what becomes of a volume.
pub fn decide(view: &View) -> Decision {
    let volume = &*view.volume;
    match &volume.spec.claim_ref {
        None => return Decision::phase(Because::Free, volume, VolumePhase::Available),
        Some(named) if named.uid.is_empty() => {
            return Decision::phase(Because::Awaited, volume, VolumePhase::Available);
        }
        Some(_) => {}
    }
    let Some(claim) = &view.owner else {
        return decide_abandoned(view);
    };
    if claim.spec.volume_name == volume.metadata.name {
        return Decision::phase(Because::Owned, volume, VolumePhase::Bound);
    }
    if !claim.spec.volume_name.is_empty() {
        return decide_superfluous(view);
    }
    if claim.volume_mode() != volume.volume_mode() {
        return Decision::because(Because::WrongMode);
    }
    Decision {
        because: Because::Reserved,
        steps: vec![Step::WakeClaim],
    }
}

fn decide_abandoned(view: &View) -> Decision {
    let volume = &*view.volume;
    match (volume.phase(), view.evidence) {
        (VolumePhase::Released, _) => Decision {
            because: Because::Abandoned,
            steps: reclaim(volume),
        },
        (VolumePhase::Failed, _) => Decision::because(Because::Abandoned),
        (_, Evidence::Cached) => Decision::because(Because::Unconfirmed),
        (_, Evidence::Live) => released(Because::Abandoned, volume),
    }
}

fn decide_superfluous(view: &View) -> Decision {
    let volume = &*view.volume;
    let made_for_it = volume
        .metadata
        .annotations
        .contains_key(well_known::PROVISIONED_BY);
    match (volume.phase(), view.evidence) {
        (VolumePhase::Released | VolumePhase::Failed, _)
            if made_for_it && volume.reclaim_policy() == ReclaimPolicy::Delete =>
        {
            Decision::because(Because::Superfluous)
        }
        (_, Evidence::Cached) => Decision::because(Because::Unconfirmed),
        (_, Evidence::Live) if made_for_it && volume.reclaim_policy() == ReclaimPolicy::Delete => {
            released(Because::Superfluous, volume)
        }
        (_, Evidence::Live) => {
            let forget = if volume.bound_by_controller() {
                Forget::Everything
            } else {
                Forget::Identity
            };
            let mut steps = vec![Step::Release(forget)];
            if volume.phase() != VolumePhase::Available {
                steps.push(Step::Mark(VolumePhase::Available));
            }
            Decision {
                because: Because::Superfluous,
                steps,
            }
        }
    }
}

fn released(because: Because, volume: &Volume) -> Decision {
    let mut steps = vec![Step::Mark(VolumePhase::Released)];
    steps.extend(reclaim(volume));
    Decision { because, steps }
}

/// What is left for the binder once a volume is released. Volumes of CSI drivers and of
/// external provisioners are deleted by those.
fn reclaim(volume: &Volume) -> Vec<Step> {
    let name = &volume.metadata.name;
    let annotations = &volume.metadata.annotations;
    let external = volume.spec.csi.is_some()
        || annotations.contains_key(well_known::PROVISIONED_BY)
        || annotations.contains_key(well_known::MIGRATED_TO);
    match volume.reclaim_policy() {
        ReclaimPolicy::Retain => Vec::new(),
        ReclaimPolicy::Delete if external => Vec::new(),
        ReclaimPolicy::Delete => vec![Step::MarkFailed(News::warning(
            "VolumeFailedDelete",
            format!(
                "error getting deleter volume plugin for volume \"{name}\": \
                 no deletable volume plugin matched"
            ),
        ))],
        ReclaimPolicy::Recycle => vec![Step::MarkFailed(News::warning(
            "VolumeFailedRecycle",
            "No recycler plugin found for the volume!",
        ))],
    }
}

impl Step {
    /// What the step changes; `None` for a nudge.
    pub fn write(&self) -> Option<Write> {
        let status = |phase: VolumePhase, reason: Value, message: Value| {
            let status = json!({"phase": phase, "reason": reason, "message": message});
            (Half::Status, json!({ "status": status }))
        };
        let (half, body) = match self {
            Self::Mark(phase) => status(*phase, Value::Null, Value::Null),
            Self::MarkFailed(news) => {
                status(VolumePhase::Failed, json!(news.reason), json!(news.message))
            }
            Self::Release(Forget::Everything) => {
                let body = json!({
                    "metadata": {"annotations": {well_known::BOUND_BY_CONTROLLER: null}},
                    "spec": {"claimRef": null},
                });
                (Half::Main, body)
            }
            Self::Release(Forget::Identity) => {
                let body = json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}});
                (Half::Main, body)
            }
            Self::WakeClaim => return None,
        };
        let of = Party::Volume;
        Some(Write { of, half, body })
    }
}
