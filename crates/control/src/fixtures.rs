//! Objects for the tables of cases.

use std::convert::Infallible;

use kube::client::Body;
use orlop_model::{Claim, Kind, Node, Pod, StorageClass, Volume, VolumeAttachment};
use orlop_runtime::{Clock, Process};
use serde_json::{Value, json};

/// A process that no API server ever answers: its caches hold what the test puts in.
pub(crate) fn unanswered() -> Process {
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    Process::new(kube::Client::new(silent, "default"), Clock::system())
}

#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
pub(crate) fn object<K: Kind>(body: Value) -> K {
    K::decode(body.to_string().as_bytes()).unwrap()
}

/// An unbound claim of `ns` for a gibibyte.
pub(crate) fn claim(name: &str, class: &str) -> Claim {
    object(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
                     "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                 "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    }))
}

/// A free volume of two gibibytes.
pub(crate) fn volume(name: &str, class: &str) -> Volume {
    object(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                 "capacity": {"storage": "2Gi"}, "persistentVolumeReclaimPolicy": "Retain",
                 "csi": {"driver": "d", "volumeHandle": format!("h-{name}")}},
        "status": {"phase": "Available"},
    }))
}

pub(crate) fn class(name: &str, mode: &str) -> StorageClass {
    object(json!({
        "metadata": {"name": name},
        "provisioner": "driver.example",
        "volumeBindingMode": mode,
    }))
}

/// A claim and its volume, bound.
pub(crate) fn bound(claim_name: &str, volume_name: &str) -> (Claim, Volume) {
    let mut claim = claim(claim_name, "c");
    let mut volume = volume(volume_name, "c");
    volume.spec.claim_ref = Some(claim.reference());
    volume.status.phase = Some(orlop_model::VolumePhase::Bound);
    claim.spec.volume_name = volume_name.into();
    claim.status.phase = Some(orlop_model::ClaimPhase::Bound);
    claim.status.access_modes = volume.spec.access_modes.clone();
    claim
        .metadata
        .annotations
        .insert(orlop_model::well_known::BIND_COMPLETED.into(), "yes".into());
    (claim, volume)
}

/// A running pod of `ns` with one claim.
pub(crate) fn pod(name: &str, node: &str, claim: &str) -> Pod {
    object(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"nodeName": node, "containers": [],
                 "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
        "status": {"phase": "Running"},
    }))
}

pub(crate) fn node(name: &str) -> Node {
    object(json!({"metadata": {
        "name": name, "uid": format!("uid-{name}"),
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
    }}))
}

/// The attachment of a volume to a node, as this controller makes it, attached.
pub(crate) fn attachment(volume: &Volume, node: &str) -> VolumeAttachment {
    let csi = volume.spec.csi.as_ref().unwrap();
    let name = crate::attach_detach::actual::attachment_name(&csi.driver, &csi.volume_handle, node);
    object(json!({
        "metadata": {"uid": format!("uid-{name}"), "name": name, "resourceVersion": "1",
                     "finalizers": ["external-attacher/d"]},
        "spec": {"attacher": csi.driver, "nodeName": node,
                 "source": {"persistentVolumeName": volume.metadata.name}},
        "status": {"attached": true},
    }))
}

pub(crate) fn deleting<K: Kind>(mut object: K) -> K {
    object.meta_mut().deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    object
}
