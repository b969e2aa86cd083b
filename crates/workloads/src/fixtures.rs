//! Objects for the tables of cases.

use std::sync::Arc;

use jiff::Timestamp;
use orlop_model::{Kind, Pod, StatefulSet};
use serde_json::{Value, json};

use crate::pods::controller_reference;

#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
pub(crate) fn object<K: Kind>(body: Value) -> K {
    K::decode(body.to_string().as_bytes()).unwrap()
}

/// The spec that all workloads share.
pub(crate) fn spec(name: &str, image: &str) -> Value {
    json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        },
    })
}

/// A set of three with a claim each, rolled one by one.
pub(crate) fn stateful_set(name: &str) -> StatefulSet {
    let mut body = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
                     "resourceVersion": "1", "generation": 1},
        "spec": spec(name, "one"),
    });
    body["spec"]["replicas"] = json!(3);
    body["spec"]["serviceName"] = json!(name);
    body["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
    body["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data", "labels": {"kept": "yes"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    object(body)
}

/// A running pod of a set, of the revision `one`.
pub(crate) fn pod(set: &StatefulSet, ordinal: i32) -> Pod {
    let name = format!("{}-{ordinal}", set.metadata.name);
    object(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "labels": {
                "app": set.metadata.name, "controller-revision-hash": "one",
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": ordinal.to_string(),
            },
            "ownerReferences": [controller_reference(set)],
        },
        "spec": {"containers": []},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    }))
}

pub(crate) fn unready(pod: &Arc<Pod>) -> Arc<Pod> {
    let mut pod = (**pod).clone();
    pod.status.conditions.clear();
    Arc::new(pod)
}

pub(crate) fn deleting<K: Kind>(mut object: K) -> K {
    object.meta_mut().deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
    object
}

/// A minute after the pods of [`pod`] became ready.
pub(crate) fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}
