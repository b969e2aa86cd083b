//! The original's cases of `PersistentVolumeClaimUnusedSinceTime` (`pvc_protection_controller_test.go`).

use orlop_model::PodPhase;
use serde_json::json;

use super::*;
use crate::fixtures::{bound, deleting, object, pod};

fn claim(told: Option<bool>) -> Claim {
    let (mut claim, _) = bound("data", "vol");
    claim.status.unused = told;
    claim
}

#[test]
fn a_claim_is_told_unused_while_no_pod_that_may_run_uses_it() {
    let running = pod("p", "n1", "data");
    let unplaced = pod("p", "", "data");
    let mut over = running.clone();
    over.status.phase = Some(PodPhase::Succeeded);
    let mut failed = running.clone();
    failed.status.phase = Some(PodPhase::Failed);
    let other = pod("p", "n1", "other");
    let correct = Decision::Correct { unused: false };
    let (used, unused) = (
        Decision::Tell { unused: false },
        Decision::Tell { unused: true },
    );
    let pending = {
        let mut claim = claim(None);
        claim.status.phase = Some(ClaimPhase::Pending);
        claim
    };
    let (nobody, one) = (&[][..], std::slice::from_ref(&running));
    let two = [over.clone(), running.clone()];
    for (name, claim, pods, expected) in [
        ("unused bound PVC with no pods", claim(None), nobody, unused),
        ("pending PVC", pending, nobody, Decision::Leave),
        (
            "already has Unused=True and is still unused",
            claim(Some(true)),
            nobody,
            Decision::Leave,
        ),
        (
            "running pod references bound PVC with Unused=True",
            claim(Some(true)),
            one,
            correct,
        ),
        ("in use without condition", claim(None), one, used),
        (
            "in use, and it says so",
            claim(Some(false)),
            one,
            Decision::Leave,
        ),
        (
            "deleting PVC",
            deleting(claim(None)),
            nobody,
            Decision::Leave,
        ),
        (
            "deleting PVC that already has Unused=True",
            deleting(claim(Some(true))),
            one,
            Decision::Leave,
        ),
        (
            "unscheduled pending pod references bound PVC",
            claim(None),
            std::slice::from_ref(&unplaced),
            used,
        ),
        (
            "terminated (Succeeded) pod does not count",
            claim(None),
            std::slice::from_ref(&over),
            unused,
        ),
        (
            "terminated (Failed) pod does not count",
            claim(None),
            std::slice::from_ref(&failed),
            unused,
        ),
        ("one of two pods is over", claim(None), &two[..], used),
        ("pod deleted", claim(Some(false)), nobody, unused),
        (
            "a pod with another claim",
            claim(Some(false)),
            std::slice::from_ref(&other),
            unused,
        ),
    ] {
        let any = pods.iter().any(|pod| uses(pod, &claim));
        assert_eq!(decide(&claim, any), expected, "{name}");
    }
}

#[test]
fn a_claim_that_was_made_for_a_pod_is_used_by_that_one_alone() {
    let pod: Pod = object(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
    }));
    let of = |owner: &str| -> Claim {
        object(
            json!({"metadata": {"name": "p-v", "namespace": "ns", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]}}),
        )
    };
    assert!(uses(&pod, &of("uid-p")));
    assert!(!uses(&pod, &of("another")));
    let mut ending = deleting(pod);
    ending.metadata.deletion_grace_period_seconds = Some(0);
    assert!(!uses(&ending, &of("uid-p")), "no container of it runs");
}
