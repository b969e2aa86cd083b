//! The original's own cases for what comes after a node was found (`binder_test.go`: assuming, writing,
//! waiting until everything is bound), by their names.

use super::*;
use crate::assign::Setback;

/// A promise on `n1`, what has become of the pod's claims, and what is to be done.
struct Case {
    name: &'static str,
    claims: Vec<ClaimFacts>,
    plan: volume_binding::Plan,
    /// Claims that were told their node before.
    told: Vec<&'static str>,
    expected: Expected,
}

#[derive(Debug, PartialEq)]
enum Expected {
    /// These writes, volumes and claims by name; none to wait.
    Writes(Vec<&'static str>),
    Place,
    Reconsider,
    /// The pod is told, and waits.
    NotMade,
}

fn key(name: &str) -> Key {
    Key::namespaced("ns", name)
}

fn by_hand(name: &str, candidates: Vec<Volume>) -> ClaimFacts {
    ClaimFacts {
        candidates: candidates.into_iter().map(Arc::new).collect(),
        ..late(claim(name, "1Gi"), well_known::NO_PROVISIONER)
    }
}

fn made(name: &str, node: Option<&str>) -> ClaimFacts {
    let mut facts = late(claim(name, "1Gi"), "d");
    edit(&mut facts, |claim| {
        if let Some(node) = node {
            select(claim, node);
        }
    });
    facts
}

fn reserved(name: &str, by: &str) -> Volume {
    let mut volume = volume(name, "1Gi", "n1");
    volume.spec.claim_ref = Some(claim(by, "1Gi").reference());
    volume
}

fn bound(mut facts: ClaimFacts, to: &str, volume: Option<Volume>) -> ClaimFacts {
    edit(&mut facts, |claim| {
        claim.spec.volume_name = to.into();
        let annotations = &mut claim.metadata.annotations;
        annotations.insert(well_known::BIND_COMPLETED.into(), "yes".into());
    });
    facts.volume = volume.map(Arc::new);
    facts.candidates.clear();
    facts
}

fn gone(name: &str) -> ClaimFacts {
    ClaimFacts {
        key: key(name),
        ..ClaimFacts::default()
    }
}

fn reserve(claim: &str, volume: Volume) -> (Key, Supply) {
    (key(claim), Supply::Reserve(Arc::new(volume)))
}

fn provision(claim: &str) -> (Key, Supply) {
    (key(claim), Supply::Provision)
}

fn free(name: &str) -> Volume {
    volume(name, "1Gi", "n1")
}

fn view_of(claims: Vec<ClaimFacts>, plan: volume_binding::Plan, told: &[&str]) -> View {
    let names: Vec<String> = claims.iter().map(|facts| facts.key.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut v = view(pod("p", &names), claims);
    let mut promise = promise("n1", plan);
    promise.told = told.iter().map(|name| key(name)).collect();
    v.promise = Some(promise);
    v
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let v = view_of(case.claims, case.plan, &case.told);
        let decision = match decide(&v) {
            Decision::Prepare { node, steps } => {
                assert_eq!(node, "n1", "{}", case.name);
                Expected::Writes(steps.iter().map(name_of).collect())
            }
            Decision::Place { .. } => Expected::Place,
            Decision::Reconsider => Expected::Reconsider,
            Decision::GiveUp(Setback::NotMade { .. }) => Expected::NotMade,
            other => panic!("{}: {other:?}", case.name),
        };
        assert_eq!(decision, case.expected, "{}", case.name);
    }
}

/// Cases name few things, so that a name says which.
fn name_of(step: &Step) -> &'static str {
    let name = match step {
        Step::ReserveVolume { volume, .. } => &volume.metadata.name,
        Step::SelectNode { claim } => &claim.metadata.name,
    };
    let known = ["va", "vb", "a", "b"];
    known.into_iter().find(|k| k == name).unwrap()
}

fn case(
    name: &'static str,
    claims: Vec<ClaimFacts>,
    plan: volume_binding::Plan,
    expected: Expected,
) -> Case {
    Case {
        name,
        claims,
        plan,
        told: Vec::new(),
        expected,
    }
}

fn told(case: Case, told: &[&'static str]) -> Case {
    Case {
        told: told.to_vec(),
        ..case
    }
}

#[test]
fn what_was_assumed_is_written_volumes_first() {
    use Expected::{Place, Reconsider, Writes};
    check(vec![
        case(
            "all-bound",
            vec![bound(by_hand("a", vec![]), "va", Some(reserved("va", "a")))],
            vec![],
            Place,
        ),
        case(
            "one-binding",
            vec![by_hand("a", vec![free("va")])],
            vec![reserve("a", free("va"))],
            Writes(vec!["va"]),
        ),
        case(
            "two-bindings",
            vec![
                by_hand("a", vec![free("va"), free("vb")]),
                by_hand("b", vec![free("va"), free("vb")]),
            ],
            vec![reserve("a", free("va")), reserve("b", free("vb"))],
            Writes(vec!["va", "vb"]),
        ),
        case(
            "pv-already-bound, api-already-updated",
            vec![by_hand("a", vec![reserved("va", "a")])],
            vec![reserve("a", free("va"))],
            Writes(vec![]),
        ),
        case(
            "one-binding, one-pvc-provisioned",
            vec![made("a", None), by_hand("b", vec![free("vb")])],
            vec![provision("a"), reserve("b", free("vb"))],
            Writes(vec!["vb", "a"]),
        ),
        case(
            "one-provisioned-pvc",
            vec![made("a", None)],
            vec![provision("a")],
            Writes(vec!["a"]),
        ),
        // The crash came between the two writes.
        case(
            "binding-succeed, provision-api-update-failed",
            vec![made("a", None), by_hand("b", vec![reserved("vb", "b")])],
            vec![provision("a"), reserve("b", free("vb"))],
            Writes(vec!["a"]),
        ),
        // Somebody else was quicker: it is no candidate of this claim any more.
        case(
            "api-update-failed",
            vec![by_hand("a", vec![])],
            vec![reserve("a", free("va"))],
            Reconsider,
        ),
    ]);
}

#[test]
fn a_pod_waits_until_all_is_bound_and_thinks_again_when_that_cannot_be() {
    use Expected::{NotMade, Place, Reconsider, Writes};
    let elsewhere = {
        let mut volume = reserved("va", "a");
        volume.spec.node_affinity = super::volume("x", "1Gi", "n2").spec.node_affinity;
        volume
    };
    check(vec![
        case(
            "binding-bound",
            vec![bound(by_hand("a", vec![]), "va", Some(reserved("va", "a")))],
            vec![reserve("a", free("va"))],
            Place,
        ),
        case(
            "binding-prebound",
            vec![by_hand("a", vec![reserved("va", "a")])],
            vec![reserve("a", free("va"))],
            Writes(vec![]),
        ),
        case(
            "binding-pvc-not-exists",
            vec![gone("a")],
            vec![reserve("a", free("va"))],
            Reconsider,
        ),
        case(
            "binding-pv-not-exists",
            vec![by_hand("a", vec![])],
            vec![reserve("a", free("va"))],
            Reconsider,
        ),
        case(
            "binding-claimref-uid-empty",
            vec![by_hand("a", vec![free("va")])],
            vec![reserve("a", free("va"))],
            Writes(vec!["va"]),
        ),
        case(
            "binding-claimref-nil, of a claim that is bound",
            vec![bound(by_hand("a", vec![]), "va", Some(free("va")))],
            vec![reserve("a", free("va"))],
            Writes(vec![]),
        ),
        case(
            "binding-claimref-uid-empty, of a claim that is bound",
            vec![bound(by_hand("a", vec![]), "va", {
                let mut volume = reserved("va", "a");
                volume.spec.claim_ref.as_mut().unwrap().uid.clear();
                Some(volume)
            })],
            vec![reserve("a", free("va"))],
            Writes(vec![]),
        ),
        case(
            "binding-bound, on another node",
            vec![bound(by_hand("a", vec![]), "va", Some(elsewhere))],
            vec![reserve("a", free("va"))],
            Reconsider,
        ),
        told(
            case(
                "provisioning-pvc-bound",
                vec![bound(
                    made("a", Some("n1")),
                    "va",
                    Some(reserved("va", "a")),
                )],
                vec![provision("a")],
                Place,
            ),
            &["a"],
        ),
        told(
            case(
                "provisioning-pvc-unbound",
                vec![made("a", Some("n1"))],
                vec![provision("a")],
                Writes(vec![]),
            ),
            &["a"],
        ),
        told(
            case(
                "provisioning-pvc-not-exists",
                vec![gone("a")],
                vec![provision("a")],
                Reconsider,
            ),
            &["a"],
        ),
        told(
            case(
                "provisioning-pvc-annotations-nil",
                vec![made("a", None)],
                vec![provision("a")],
                NotMade,
            ),
            &["a"],
        ),
        told(
            case(
                "provisioning-pvc-selected-node-wrong-node",
                vec![made("a", Some("n2"))],
                vec![provision("a")],
                Reconsider,
            ),
            &["a"],
        ),
        told(
            case(
                "binding-bound-provisioning-unbound",
                vec![
                    made("a", Some("n1")),
                    bound(by_hand("b", vec![]), "vb", Some(reserved("vb", "b"))),
                ],
                vec![provision("a"), reserve("b", free("vb"))],
                Writes(vec![]),
            ),
            &["a"],
        ),
        told(
            case(
                "tolerate-provisioning-pvc-bound-pv-not-found",
                vec![bound(made("a", Some("n1")), "va", None)],
                vec![provision("a")],
                Writes(vec![]),
            ),
            &["a"],
        ),
    ]);
}

#[test]
fn what_takes_too_long_is_told_by_claim_and_begun_anew() {
    let claims = vec![
        made("a", Some("n1")),
        bound(by_hand("b", vec![]), "vb", Some(reserved("vb", "b"))),
    ];
    let mut v = view_of(
        claims,
        vec![provision("a"), reserve("b", free("vb"))],
        &["a"],
    );
    v.overdue = true;
    let overdue = Setback::Overdue {
        node: "n1".into(),
        claims: vec!["a".into()],
    };
    assert_eq!(decide(&v), Decision::GiveUp(overdue.clone()));
    assert!(
        overdue
            .to_string()
            .contains("claims a are not bound for node n1")
    );
    // Whatever time it took, what is bound is bound.
    v.claims[0] = bound(made("a", Some("n1")), "va", Some(reserved("va", "a")));
    assert!(matches!(decide(&v), Decision::Place { .. }));
    // The next look, without the promise, comes to the node that the claim was told.
    v.claims[0] = made("a", Some("n1"));
    v.promise = None;
    v.overdue = false;
    assert_eq!(promised(&decide(&v)), "n1");
}
