use orlop_model::{Claim, Pod};
use serde_json::json;

use super::{Decision, decide};
use crate::fixtures::{claim as a_claim, object};

fn pod() -> Pod {
    object(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "uid-web"},
        "spec": {"containers": [], "volumes": [
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"accessModes": ["ReadWriteOnce"],
                         "resources": {"requests": {"storage": "1Gi"}}}}}},
            {"name": "cache", "emptyDir": {}},
        ]},
    }))
}

fn made() -> Claim {
    let pod = pod();
    match decide(&pod, &pod.spec.volumes[0], None) {
        Decision::Create(claim) => *claim,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_is_made_from_the_template_and_belongs_to_the_pod() {
    let claim = made();
    assert_eq!(claim.metadata.name, "web-scratch");
    assert_eq!(claim.metadata.namespace, "ns");
    assert_eq!(claim.metadata.labels["a"], "b");
    assert_eq!(claim.requested_bytes(), 1 << 30);
    let owner = claim.metadata.controller().unwrap();
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str()),
        ("Pod", "uid-web")
    );
    assert_eq!(owner.block_owner_deletion, Some(true));
}

#[test]
fn a_claim_that_is_there_is_taken_only_if_it_was_made_for_the_pod() {
    let pod = pod();
    let volume = &pod.spec.volumes[0];
    assert_eq!(decide(&pod, volume, Some(&made())), Decision::Keep);
    let foreign = a_claim("web-scratch", "c");
    let Decision::NotOurs(message) = decide(&pod, volume, Some(&foreign)) else {
        panic!("somebody else's claim was taken");
    };
    assert_eq!(
        message,
        "ephemeral volume scratch: PVC ns/web-scratch was not created for pod ns/web (pod is \
         not owner)"
    );
    let mut older = made();
    older.metadata.owner_references[0].uid = "an earlier pod".into();
    assert!(matches!(
        decide(&pod, volume, Some(&older)),
        Decision::NotOurs(_)
    ));
}

#[test]
fn other_volumes_need_no_claim() {
    let pod = pod();
    assert_eq!(decide(&pod, &pod.spec.volumes[1], None), Decision::Keep);
}
