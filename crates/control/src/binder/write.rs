//! The binder's steps as patches.

use orlop_model::{Claim, ClaimPhase, Kind, Volume, VolumePhase, well_known};
use serde_json::{Value, json};

use super::claim::Step;

/// What a step changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Of which object.
    pub of: Party,
    /// In which half of it.
    pub half: Half,
    /// The merge patch.
    pub body: Value,
}

/// One of the two that a binding joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The claim.
    Claim,
    /// The volume.
    Volume,
}

/// The halves of an object, which are written apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Metadata and spec.
    Main,
    /// Status.
    Status,
}

impl Step {
    /// What the step changes, given the objects as they are now.
    pub fn write(&self, claim: &Claim, volume: Option<&Volume>) -> Option<Write> {
        let (of, half, body) = match self {
            Self::ReserveVolume => (Party::Volume, Half::Main, reservation(claim, volume?)),
            Self::MarkVolumeBound => {
                let status = json!({"phase": VolumePhase::Bound, "message": null, "reason": null});
                (Party::Volume, Half::Status, json!({ "status": status }))
            }
            Self::PointClaim => (Party::Claim, Half::Main, pointer(claim, volume?)),
            Self::MarkClaimBound => (Party::Claim, Half::Status, bound_status(claim, volume?)),
            Self::MarkPending => (
                Party::Claim,
                Half::Status,
                unbound_status(ClaimPhase::Pending),
            ),
            Self::MarkLost => (Party::Claim, Half::Status, unbound_status(ClaimPhase::Lost)),
            Self::TakeClass(name) => {
                let body = json!({"spec": {"storageClassName": name}});
                (Party::Claim, Half::Main, body)
            }
            Self::AskProvisioner(name) => {
                let body = json!({"metadata": {"annotations": {
                    well_known::STORAGE_PROVISIONER: name,
                    well_known::BETA_STORAGE_PROVISIONER: name,
                    well_known::GIVES_WAY: "yes",
                }}});
                (Party::Claim, Half::Main, body)
            }
            Self::NoteMigration(driver) => {
                let body = json!({"metadata": {"annotations": {well_known::MIGRATED_TO: driver}}});
                (Party::Claim, Half::Main, body)
            }
        };
        Some(Write { of, half, body })
    }
}

fn reservation(claim: &Claim, volume: &Volume) -> Value {
    let mut body = json!({"spec": {"claimRef": claim.reference()}});
    // A person who reserved the volume by name keeps it reserved when the claim goes.
    if !volume.is_reserved_for(claim) {
        body["metadata"]["annotations"][well_known::BOUND_BY_CONTROLLER] = json!("yes");
    }
    body
}

fn pointer(claim: &Claim, volume: &Volume) -> Value {
    let mut body = json!({"metadata": {"annotations": {well_known::BIND_COMPLETED: "yes"}}});
    if claim.spec.volume_name != volume.metadata.name {
        body["spec"]["volumeName"] = json!(volume.metadata.name);
        body["metadata"]["annotations"][well_known::BOUND_BY_CONTROLLER] = json!("yes");
    }
    let mut gone = vec![well_known::GIVES_WAY];
    if is_record(claim, volume) {
        let finalizers = claim.metadata.finalizers.iter();
        let rest: Vec<_> = finalizers
            .filter(|f| *f != well_known::PROVISIONING)
            .collect();
        body["metadata"]["finalizers"] = json!(rest);
        gone.push(well_known::PROVISIONING_PLACE);
    }
    gone.retain(|key| claim.metadata.annotations.contains_key(*key));
    for key in gone {
        body["metadata"]["annotations"][key] = Value::Null;
    }
    body
}

/// Whether the volume is the record of what came of the claim's intent. The provisioner would take the
/// intent off next; taken off along with this write it costs no request of its own. What was filled from
/// something else is left to the provisioner, who then lets go of that too.
fn is_record(claim: &Claim, volume: &Volume) -> bool {
    let (meta, uid) = (&claim.metadata, &claim.metadata.uid);
    let owner = volume.spec.claim_ref.as_ref();
    meta.has_finalizer(well_known::PROVISIONING)
        && !meta.annotations.contains_key(well_known::PROVISIONING_SOURCE)
        && !uid.is_empty()
        // Only a provisioner names a volume after a claim's uid.
        && volume.metadata.name.ends_with(uid.as_str())
        && owner.is_some_and(|owner| owner.uid == *uid)
}

fn bound_status(claim: &Claim, volume: &Volume) -> Value {
    let mut status = json!({
        "phase": ClaimPhase::Bound,
        "accessModes": volume.spec.access_modes,
    });
    // Later, the size belongs to the resizer.
    if claim.phase() != ClaimPhase::Bound {
        let size = volume.metadata.annotation(well_known::PRE_RESIZE_CAPACITY);
        let whole = volume.spec.capacity.storage();
        let size = size.map_or_else(|| json!(whole), |text| json!(text));
        status["capacity"] = json!({"storage": size});
        if let Some(name) = &volume.spec.volume_attributes_class_name {
            status["currentVolumeAttributesClassName"] = json!(name);
        }
    }
    json!({ "status": status })
}

fn unbound_status(phase: ClaimPhase) -> Value {
    json!({"status": {
        "phase": phase,
        "accessModes": null,
        "capacity": null,
        "currentVolumeAttributesClassName": null,
    }})
}
