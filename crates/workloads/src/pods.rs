//! Pods as their owners see them: how they are, and how they are made.

use std::time::Duration;

use jiff::Timestamp;
use orlop_model::{Kind, OwnerReference, Pod, PodPhase};
use serde_json::{Value, json};

/// Whether a pod can be counted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It isn't ready.
    Unready,
    /// It is ready, and will have been so for long enough after this time.
    Soon(Duration),
    /// It has been ready for long enough.
    Available,
}

/// Whether a pod says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod.phase() == PodPhase::Running && ready(pod).is_some()
}

fn ready(pod: &Pod) -> Option<&orlop_model::node::Condition> {
    let mut conditions = pod.status.conditions.iter();
    conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Since when a pod has been ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready(pod)?.last_transition_time
}

/// Whether a pod has been ready for so many seconds.
pub(crate) fn availability(pod: &Pod, seconds: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::Unready;
    }
    if seconds <= 0 {
        return Availability::Available;
    }
    let Some(since) = ready_since(pod) else {
        return Availability::Unready;
    };
    let passed = now.duration_since(since).as_secs_f64();
    let left = f64::from(seconds) - passed;
    if left <= 0.0 {
        Availability::Available
    } else {
        Availability::Soon(Duration::from_secs_f64(left.min(f64::from(seconds))))
    }
}

/// A reference that says who manages an object.
pub(crate) fn controller_reference<K: Kind>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(),
        kind: K::KIND.to_owned(),
        name: owner.meta().name.clone(),
        uid: owner.meta().uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A pod of a template, for its owner.
pub(crate) fn from_template<K: Kind>(owner: &K, name: &str, template: &Value) -> Value {
    let mut metadata = json!({
        "name": name,
        "namespace": owner.meta().namespace,
        "ownerReferences": [controller_reference(owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    json!({ "metadata": metadata, "spec": template["spec"] })
}
