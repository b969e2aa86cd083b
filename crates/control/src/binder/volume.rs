//! What one volume's phase must be, and whether it is still its claim's.

use std::sync::Arc;

use orlop_model::{Claim, ReclaimPolicy, Volume, VolumePhase, migration, well_known};
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
    /// What it says of who looks after it is brought up to date.
    KeepUp(Upkeep),
    /// It is scrubbed, and given to whoever asks next.
    Recycle,
}

/// What a volume that was made for a claim says of who looks after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// The CSI driver that took over from the plugin that made it, or that none did.
    pub migrated_to: Option<Option<&'static str>>,
    /// All its finalizers.
    pub finalizers: Option<Vec<String>>,
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
    let mut decision = decide_phase(view);
    if let Some(upkeep) = upkeep(&view.volume)
        && !decision.needs_live_evidence()
    {
        decision.steps.insert(0, Step::KeepUp(upkeep));
    }
    decision
}

/// The finalizers say who must have deleted the storage before the object may go.
fn upkeep(volume: &Volume) -> Option<Upkeep> {
    let meta = &volume.metadata;
    let maker = meta.annotation(well_known::PROVISIONED_BY)?;
    let successor = migration::driver_of(maker);
    let noted = meta.annotation(well_known::MIGRATED_TO);
    let gone = |finalizer: &str| match finalizer {
        well_known::IN_TREE_PROVISIONER => {
            successor.is_some()
                || migration::is_left_over(maker)
                    && volume.reclaim_policy() != ReclaimPolicy::Delete
        }
        well_known::EXTERNAL_PROVISIONER => migration::is_left_over(maker),
        _ => false,
    };
    let stale = meta.finalizers.iter().any(|f| gone(f));
    let kept = || meta.finalizers.iter().filter(|f| !gone(f)).cloned();
    let upkeep = Upkeep {
        migrated_to: (noted != successor).then_some(successor),
        finalizers: stale.then(|| kept().collect()),
    };
    (upkeep != Upkeep::default()).then_some(upkeep)
}

fn decide_phase(view: &View) -> Decision {
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
    let recycle = volume.reclaim_policy() == ReclaimPolicy::Recycle && !is_migrated(volume);
    match (volume.phase(), view.evidence) {
        // What is scrubbed can't be had back.
        (VolumePhase::Released | VolumePhase::Failed, Evidence::Cached) if recycle => {
            Decision::because(Because::Unconfirmed)
        }
        (VolumePhase::Released | VolumePhase::Failed, Evidence::Live) if recycle => Decision {
            because: Because::Abandoned,
            steps: reclaim(volume),
        },
        (VolumePhase::Released, _) => Decision {
            because: Because::Abandoned,
            steps: reclaim(volume),
        },
        // A person shall see that something went wrong.
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

/// Whether a CSI driver took over, and with it everything that is left to do.
fn is_migrated(volume: &Volume) -> bool {
    let meta = &volume.metadata;
    let maker = meta.annotation(well_known::PROVISIONED_BY);
    let noted = meta.annotation(well_known::MIGRATED_TO);
    match maker {
        Some(maker) => migration::driver_of(maker).is_some(),
        None => noted.is_some_and(|driver| !driver.is_empty()),
    }
}

/// What is left for the binder once a volume is released.
fn reclaim(volume: &Volume) -> Vec<Step> {
    if is_migrated(volume) {
        return Vec::new();
    }
    match volume.reclaim_policy() {
        ReclaimPolicy::Retain => Vec::new(),
        ReclaimPolicy::Delete => match no_deleter(volume) {
            None => Vec::new(),
            Some(why) => vec![Step::MarkFailed(News::warning("VolumeFailedDelete", why))],
        },
        ReclaimPolicy::Recycle => vec![Step::Recycle],
        ReclaimPolicy::Unknown => vec![Step::MarkFailed(News::warning(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        ))],
    }
}

/// Why nobody will delete a volume. Those of CSI drivers and of external provisioners are
/// deleted by those.
fn no_deleter(volume: &Volume) -> Option<String> {
    let name = &volume.metadata.name;
    let maker = volume.metadata.annotation(well_known::PROVISIONED_BY);
    match maker.filter(|maker| !maker.is_empty()) {
        Some(maker) if !migration::is_left_over(maker) => return None,
        Some(maker) => return Some(format!("no volume plugin matched name: {maker}")),
        None => {}
    }
    if volume.spec.csi.is_some() {
        return None;
    }
    if let Some(folder) = &volume.spec.host_path {
        return Some(format!(
            "failed to create deleter for volume \"{name}\": folders of hosts are not deleted; \
             empty {} by hand and delete the volume, or let its reclaim policy be Recycle",
            folder.path
        ));
    }
    Some(format!(
        "error getting deleter volume plugin for volume \"{name}\": no deletable volume plugin \
         matched"
    ))
}

impl Step {
    /// What the step changes; `None` for a nudge, and for what takes more than one write.
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
                    "metadata": {"annotations": {
                        well_known::BOUND_BY_CONTROLLER: null,
                        well_known::RECYCLER: null,
                    }},
                    "spec": {"claimRef": null},
                });
                (Half::Main, body)
            }
            Self::Release(Forget::Identity) => {
                let body = json!({
                    "metadata": {"annotations": {well_known::RECYCLER: null}},
                    "spec": {"claimRef": {"uid": null, "resourceVersion": null}},
                });
                (Half::Main, body)
            }
            Self::KeepUp(upkeep) => {
                let mut body = json!({"metadata": {}});
                if let Some(driver) = upkeep.migrated_to {
                    body["metadata"]["annotations"] = json!({well_known::MIGRATED_TO: driver});
                }
                if let Some(finalizers) = &upkeep.finalizers {
                    body["metadata"]["finalizers"] = json!(finalizers);
                }
                (Half::Main, body)
            }
            Self::WakeClaim | Self::Recycle => return None,
        };
        let of = Party::Volume;
        Some(Write { of, half, body })
    }
}
