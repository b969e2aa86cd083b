use orlop_model::{Claim, ObjectRef, Pod, Volume, VolumePhase, well_known};
use serde_json::json;

use super::{Decision, claim, volume};
use crate::{
    Evidence,
    fixtures::{bound, claim as a_claim, deleting, object, pod, volume as a_volume},
};

fn protected() -> Claim {
    let mut claim = a_claim("data", "c");
    claim.metadata.finalizers = vec![well_known::PVC_PROTECTION.into()];
    claim
}

#[test]
fn a_claim_is_protected_while_it_lives() {
    let bare = a_claim("data", "c");
    assert_eq!(
        claim::decide(&bare, [], Evidence::Cached),
        Decision::Protect
    );
    assert_eq!(
        claim::decide(&protected(), [], Evidence::Cached),
        Decision::Keep
    );
    let going = deleting(bare);
    assert_eq!(claim::decide(&going, [], Evidence::Cached), Decision::Keep);
}

#[test]
fn a_protection_is_lifted_only_on_the_servers_word() {
    let going = deleting(protected());
    let user = pod("p", "n1", "data");
    assert_eq!(
        claim::decide(&going, [], Evidence::Cached),
        Decision::Confirm
    );
    assert_eq!(
        claim::decide(&going, [&user], Evidence::Live),
        Decision::Keep
    );
    assert_eq!(claim::decide(&going, [], Evidence::Live), Decision::Lift);
}

fn ephemeral_pod() -> Pod {
    object(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "spec": {"nodeName": "n1", "containers": [],
                 "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
    }))
}

#[test]
fn only_placed_pods_that_may_still_run_use_a_claim() {
    let mut finished = pod("p", "n1", "data");
    finished.status.phase = Some(orlop_model::PodPhase::Succeeded);
    let cases = [
        ("placed", pod("p", "n1", "data"), true),
        ("finished", finished, true),
        ("not placed", pod("p", "", "data"), false),
        ("another claim", pod("p", "n1", "other"), false),
    ];
    for (name, pod, uses) in cases {
        assert_eq!(claim::uses(&pod, &a_claim("data", "c")), uses, "{name}");
    }
    let mut made = a_claim("p-v", "c");
    let pod = ephemeral_pod();
    assert!(!claim::uses(&pod, &made), "it wasn't made for the pod");
    made.metadata.owner_references = object::<Claim>(json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true}
    ]}}))
    .metadata
    .owner_references;
    assert!(claim::uses(&pod, &made));
    let mut shut_down = deleting(pod);
    assert!(claim::uses(&shut_down, &made));
    shut_down.metadata.deletion_grace_period_seconds = Some(0);
    assert!(!claim::uses(&shut_down, &made));
}

#[test]
fn a_volume_is_protected_while_a_claim_has_it() {
    let guard = |mut volume: Volume| {
        volume.metadata.finalizers = vec![well_known::PV_PROTECTION.into()];
        volume
    };
    let (claim, volume) = bound("data", "vol");
    let bare = a_volume("vol", "c");
    assert_eq!(
        volume::decide(&bare, None, Evidence::Cached),
        Decision::Protect
    );
    let going = deleting(guard(volume));
    assert_eq!(volume::decide(&going, None, Evidence::Live), Decision::Keep);
    let mut released = going.clone();
    released.status.phase = Some(VolumePhase::Released);
    let cached = volume::decide(&released, None, Evidence::Cached);
    assert_eq!(cached, Decision::Confirm);
    assert_eq!(
        volume::decide(&released, None, Evidence::Live),
        Decision::Lift
    );
    // The claim points to it already, and its phase is behind.
    let mut behind = going;
    behind.status.phase = Some(VolumePhase::Available);
    assert_eq!(
        volume::decide(&behind, Some(&claim), Evidence::Live),
        Decision::Keep
    );
    // Reserved, but the claim never took it.
    behind.spec.claim_ref = Some(ObjectRef::default());
    let untaken = a_claim("data", "c");
    assert_eq!(
        volume::decide(&behind, Some(&untaken), Evidence::Live),
        Decision::Lift
    );
}
