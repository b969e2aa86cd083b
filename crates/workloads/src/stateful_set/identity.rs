//! What a pod of a set is called, and what it is made of.

use orlop_model::{Pod, StatefulSet, well_known};
use serde_json::{Value, json};

use super::Revision;
use crate::pods::from_template;

/// The name of a set's pod.
pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name)
}

/// The number of a set's pod; none if it isn't named like one.
pub(super) fn ordinal(set: &StatefulSet, pod: &str) -> Option<i32> {
    let (name, number) = pod.rsplit_once('-')?;
    let ordinal = number.parse::<i32>().ok()?;
    // `-01` and `-+1` are numbers, and nobody's names.
    (name == set.metadata.name && ordinal >= 0 && ordinal.to_string() == number).then_some(ordinal)
}

/// The names of a set's claim templates.
pub(super) fn templates(set: &StatefulSet) -> impl Iterator<Item = (&str, &Value)> {
    set.spec.volume_claim_templates.iter().map(|template| {
        let name = template["metadata"]["name"].as_str();
        (name.unwrap_or_default(), template)
    })
}

/// The name of a claim of a set's pod.
pub(super) fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", set.metadata.name)
}

/// Whether a claim is named like one of a set's.
pub(super) fn has_claim(set: &StatefulSet, claim: &str) -> bool {
    let number = claim.rsplit('-').next().unwrap_or_default();
    let Ok(ordinal) = number.parse::<i32>() else {
        return false;
    };
    templates(set).any(|(template, _)| claim_name(set, template, ordinal) == claim)
}

/// The labels by which a set's pod is found.
pub(super) fn labels(set: &StatefulSet, ordinal: i32) -> [(&'static str, String); 2] {
    [
        (well_known::STATEFUL_POD_NAME, pod_name(set, ordinal)),
        (well_known::POD_INDEX, ordinal.to_string()),
    ]
}

/// Whether a pod has the labels by which it is found.
pub(super) fn is_labelled(set: &StatefulSet, ordinal: i32, pod: &Pod) -> bool {
    let mut labels = labels(set, ordinal).into_iter();
    labels.all(|(label, value)| pod.metadata.labels.get(label) == Some(&value))
}

/// A set's pod of a revision.
pub(super) fn pod(set: &StatefulSet, ordinal: i32, revision: &Revision) -> Value {
    let name = pod_name(set, ordinal);
    let mut pod = from_template(set, &name, &revision.template);
    for (label, value) in labels(set, ordinal) {
        pod["metadata"]["labels"][label] = value.into();
    }
    pod["metadata"]["labels"][well_known::REVISION_HASH] = revision.name.as_str().into();
    pod["spec"]["hostname"] = name.into();
    if !set.spec.service_name.is_empty() {
        pod["spec"]["subdomain"] = set.spec.service_name.as_str().into();
    }
    let mut volumes: Vec<Value> = templates(set)
        .map(|(template, _)| {
            let claim = claim_name(set, template, ordinal);
            json!({ "name": template, "persistentVolumeClaim": { "claimName": claim } })
        })
        .collect();
    // A claim of the set takes the place of a volume of its name.
    let others = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let others = others.filter(|volume| templates(set).all(|(name, _)| volume["name"] != name));
    volumes.extend(others.cloned());
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = volumes.into();
    }
    pod
}
