//! The claims of a set's pods: made from the set's templates, and owned as its policy says.

use orlop_model::{
    Claim, Kind, OwnerReference, Pod, StatefulSet,
    workload::{ClaimRetention, Retention},
};
use serde_json::{Value, json};

use super::identity::{claim_name, ordinal, templates};
use crate::pods::controller_reference;

/// The numbers that a set's pods shall have.
pub(super) fn range(set: &StatefulSet) -> std::ops::Range<i32> {
    let start = set.spec.ordinals.map_or(0, |ordinals| ordinals.start);
    start..start.saturating_add(set.spec.replicas.unwrap_or(1))
}

fn policy(set: &StatefulSet) -> ClaimRetention {
    let policy = set.spec.persistent_volume_claim_retention_policy;
    policy.unwrap_or_default()
}

/// A claim of a set's pod. Its owner is there from the start, so that no crash leaves a claim
/// that outlives its set against the set's will.
pub(super) fn claim(set: &StatefulSet, template: (&str, &Value), number: i32) -> Value {
    let (name, template) = template;
    let mut metadata = json!({
        "name": claim_name(set, name, number),
        "namespace": set.metadata.namespace,
        "labels": template["metadata"]["labels"],
    });
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    for (label, value) in &set.spec.selector.match_labels {
        metadata["labels"][label] = value.as_str().into();
    }
    for field in ["annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    if policy(set).when_deleted == Retention::Delete {
        metadata["ownerReferences"] = json!([controller_reference(set)]);
    }
    json!({ "metadata": metadata, "spec": template["spec"] })
}

/// How the claims of a pod that has to be made stand.
#[derive(Debug, PartialEq)]
pub(super) enum Standing {
    /// They are there, but for these.
    Missing(Vec<Value>),
    /// This one is going, and has to be gone first.
    Going(String),
}

/// How the claims of a pod stand, that isn't there if `pod` is none.
pub(super) fn standing<'c>(
    set: &StatefulSet,
    number: i32,
    pod: Option<&Pod>,
    get: impl Fn(&str) -> Option<&'c Claim>,
) -> Standing {
    let mut missing = Vec::new();
    for template in templates(set) {
        let name = claim_name(set, template.0, number);
        match get(&name) {
            None => missing.push(claim(set, template, number)),
            Some(claim) if claim.metadata.is_deleting() => return Standing::Going(name),
            // The pod that it was to go with is gone, and it will follow.
            Some(claim) if pod.is_none() && names_a_pod(set, number, claim) => {
                return Standing::Going(name);
            }
            Some(_) => {}
        }
    }
    Standing::Missing(missing)
}

fn names_a_pod(set: &StatefulSet, number: i32, claim: &Claim) -> bool {
    let name = super::identity::pod_name(set, number);
    let mut owners = claim.metadata.owner_references.iter();
    owners.any(|owner| is(owner, &Pod::api_version(), Pod::KIND, &name))
}

fn is(owner: &OwnerReference, api_version: &str, kind: &str, name: &str) -> bool {
    owner.api_version == api_version && owner.kind == kind && owner.name == name
}

/// The owners that a pod's claim should have; none if it has them, or if they aren't ours to
/// choose.
pub(super) fn owners(set: &StatefulSet, pod: &Pod, claim: &Claim) -> Option<Vec<OwnerReference>> {
    let of_set = |owner: &OwnerReference| {
        let api_version = StatefulSet::api_version();
        is(owner, &api_version, StatefulSet::KIND, &set.metadata.name)
    };
    let of_pod =
        |owner: &OwnerReference| is(owner, &Pod::api_version(), Pod::KIND, &pod.metadata.name);
    let have = &claim.metadata.owner_references;
    let stale = |owner: &OwnerReference| {
        of_set(owner) && owner.uid != set.metadata.uid
            || of_pod(owner) && owner.uid != pod.metadata.uid
    };
    if have.iter().any(stale) {
        // It goes with an owner that is gone: leave that to the collector.
        return None;
    }
    let (mut wanted, others): (Vec<OwnerReference>, Vec<OwnerReference>) = (
        Vec::new(),
        have.iter()
            .filter(|o| !of_set(o) && !of_pod(o))
            .cloned()
            .collect(),
    );
    let policy = policy(set);
    let another = others.iter().any(|owner| owner.controller == Some(true));
    let kept = (policy.when_deleted, policy.when_scaled) == (Retention::Retain, Retention::Retain);
    if another && !kept {
        // Somebody else manages it; we only take back what we said.
        return (others.len() < have.len()).then_some(others);
    }
    let number = ordinal(set, &pod.metadata.name)?;
    let condemned = !range(set).contains(&number);
    match (policy.when_deleted, policy.when_scaled, condemned) {
        (_, Retention::Delete, true) => wanted.push(controller_reference(pod)),
        (Retention::Delete, Retention::Retain, _)
        | (Retention::Delete, Retention::Delete, false) => {
            wanted.push(controller_reference(set));
        }
        (Retention::Retain, Retention::Retain, _)
        | (Retention::Retain, Retention::Delete, false) => {}
    }
    let ours: Vec<OwnerReference> = have
        .iter()
        .filter(|o| of_set(o) || of_pod(o))
        .cloned()
        .collect();
    let same = ours.len() == wanted.len()
        && ours
            .iter()
            .zip(&wanted)
            .all(|(one, other)| one.uid == other.uid && one.controller == Some(true));
    (!same).then(|| others.into_iter().chain(wanted).collect())
}
