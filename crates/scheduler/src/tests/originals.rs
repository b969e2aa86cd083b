//! The original's own cases for finding a pod's volumes (`binder_test.go`), by their names.

use super::*;
use crate::room::Draw;

/// What is asked of node `n1`, and what it answers.
struct Case {
    name: &'static str,
    claims: Vec<ClaimFacts>,
    answer: Answer,
}

#[derive(Debug, PartialEq)]
enum Answer {
    /// What each late claim gets: the volume's name, or `-` for a new one.
    Plan(Vec<(&'static str, &'static str)>),
    Refused(Reason),
    Unready(Unready),
}

pub(super) fn free(name: &str, size: &str, on: &str) -> Arc<Volume> {
    Arc::new(volume(name, size, on))
}

pub(super) fn by_hand(name: &str, size: &str, candidates: Vec<Arc<Volume>>) -> ClaimFacts {
    ClaimFacts {
        candidates,
        ..late(claim(name, size), well_known::NO_PROVISIONER)
    }
}

pub(super) fn made(name: &str, size: &str, candidates: Vec<Arc<Volume>>) -> ClaimFacts {
    ClaimFacts {
        candidates,
        ..late(claim(name, size), "d")
    }
}

pub(super) fn bound(name: &str, on: Option<&str>) -> ClaimFacts {
    let mut facts = late(claim(name, "1Gi"), "d");
    edit(&mut facts, |claim| {
        claim.spec.volume_name = "its-volume".into();
        let annotations = &mut claim.metadata.annotations;
        annotations.insert(well_known::BIND_COMPLETED.into(), "yes".into());
    });
    facts.volume = on.map(|on| free("its-volume", "1Gi", on));
    facts
}

fn prebound(name: &str) -> ClaimFacts {
    let mut facts = by_hand(name, "1Gi", vec![]);
    edit(&mut facts, |claim| {
        claim.spec.volume_name = "its-volume".into()
    });
    facts
}

pub(super) fn immediate(mut facts: ClaimFacts) -> ClaimFacts {
    let class = Arc::make_mut(facts.class.as_mut().unwrap());
    class.volume_binding_mode = Some(orlop_model::BindingMode::Immediate);
    facts
}

fn ephemeral(facts: ClaimFacts, owner: &str) -> ClaimFacts {
    let mut facts = ClaimFacts {
        ephemeral: true,
        ..facts
    };
    if facts.claim.is_some() {
        edit(&mut facts, |claim| {
            claim.metadata.owner_references = vec![orlop_model::OwnerReference {
                kind: "Pod".into(),
                uid: owner.into(),
                controller: Some(true),
                ..orlop_model::OwnerReference::default()
            }];
        });
    }
    facts
}

fn absent(name: &str) -> ClaimFacts {
    ClaimFacts {
        key: Key::namespaced("ns", name),
        ..ClaimFacts::default()
    }
}

pub(super) fn selected(mut facts: ClaimFacts, node: &str) -> ClaimFacts {
    edit(&mut facts, |claim| select(claim, node));
    facts
}

pub(super) fn elsewhere(mut facts: ClaimFacts) -> ClaimFacts {
    let class = Arc::make_mut(facts.class.as_mut().unwrap());
    class.allowed_topologies = serde_json::from_value(json!([
        {"matchLabelExpressions": [{"key": "zone", "values": ["elsewhere"]}]}
    ]))
    .unwrap();
    facts
}

fn check(cases: Vec<Case>) {
    for Case {
        name,
        claims,
        answer,
    } in cases
    {
        let names: Vec<String> = claims.iter().map(|facts| facts.key.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut v = view(pod("p", &names), claims);
        v.nodes.truncate(1);
        match (decide(&v), answer) {
            (Decision::Promise { plan, .. }, Answer::Plan(expected)) => {
                let plan: Vec<(&str, &str)> = plan
                    .iter()
                    .map(|(key, supply)| match supply {
                        Supply::Reserve(volume) => (&*key.name, &*volume.metadata.name),
                        Supply::Provision => (&*key.name, "-"),
                    })
                    .collect();
                assert_eq!(plan, expected, "{name}");
            }
            (decision @ Decision::Refuse(Refusal::Nodes { .. }), Answer::Refused(reason)) => {
                assert_eq!(reasons(&decision)["n1"], [reason], "{name}");
            }
            (Decision::Refuse(Refusal::Claims(unready)), Answer::Unready(expected)) => {
                assert_eq!(unready, expected, "{name}");
            }
            (decision, expected) => panic!("{name}: {decision:?}, not {expected:?}"),
        }
    }
}

#[test]
fn volumes_are_found_as_in_the_original_without_provisioning() {
    let case = |name, claims, answer| Case {
        name,
        claims,
        answer,
    };
    let here = || vec![free("v1", "1Gi", "n1")];
    let unready = Answer::Unready;
    let plan = Answer::Plan;
    check(vec![
        case("no-volumes, no-pvcs", vec![], plan(vec![])),
        case("bound-pvc", vec![bound("a", Some("n1"))], plan(vec![])),
        case(
            "bound-pvc, another node",
            vec![bound("a", Some("n2"))],
            Answer::Refused(Reason::VolumeAffinity),
        ),
        case(
            "bound-pvc,pv-not-exists",
            vec![bound("a", None)],
            Answer::Refused(Reason::VolumeGone),
        ),
        case(
            "prebound-pvc",
            vec![prebound("a")],
            unready(Unready::Unbound),
        ),
        case(
            "unbound-pvc,pv-same-node",
            vec![by_hand("a", "1Gi", here())],
            plan(vec![("a", "v1")]),
        ),
        case(
            "unbound-pvc,pv-different-node",
            vec![by_hand("a", "1Gi", vec![free("v1", "1Gi", "n2")])],
            Answer::Refused(Reason::NoVolume),
        ),
        case(
            "two-unbound-pvcs",
            {
                let all = vec![free("v1", "1Gi", "n1"), free("v2", "1Gi", "n1")];
                vec![by_hand("a", "1Gi", all.clone()), by_hand("b", "1Gi", all)]
            },
            plan(vec![("a", "v1"), ("b", "v2")]),
        ),
        case(
            "two-unbound-pvcs,order-by-size",
            {
                let all = vec![free("large", "5Gi", "n1"), free("small", "1Gi", "n1")];
                vec![by_hand("a", "5Gi", all.clone()), by_hand("b", "1Gi", all)]
            },
            plan(vec![("b", "small"), ("a", "large")]),
        ),
        case(
            "two-unbound-pvcs,partial-match",
            vec![by_hand("a", "1Gi", here()), by_hand("b", "1Gi", here())],
            Answer::Refused(Reason::NoVolume),
        ),
        case(
            "one-bound,one-unbound",
            vec![bound("a", Some("n1")), by_hand("b", "1Gi", here())],
            plan(vec![("b", "v1")]),
        ),
        case(
            "one-bound,one-unbound,unavailable",
            vec![
                bound("a", Some("n1")),
                by_hand("b", "1Gi", vec![free("v1", "1Gi", "n2")]),
            ],
            Answer::Refused(Reason::NoVolume),
        ),
        case(
            "one-prebound,one-unbound",
            vec![prebound("a"), by_hand("b", "1Gi", here())],
            unready(Unready::Unbound),
        ),
        case(
            "immediate-bound-pvc",
            vec![immediate(bound("a", Some("n1")))],
            plan(vec![]),
        ),
        case(
            "immediate-unbound-pvc",
            vec![immediate(by_hand("a", "1Gi", here()))],
            unready(Unready::Unbound),
        ),
        case(
            "immediate-bound,delayed-mode-bound",
            vec![
                immediate(bound("a", Some("n1"))),
                by_hand("b", "1Gi", here()),
            ],
            plan(vec![("b", "v1")]),
        ),
        case(
            "immediate-unbound,delayed-mode-unbound",
            vec![
                immediate(by_hand("a", "1Gi", vec![])),
                by_hand("b", "1Gi", here()),
            ],
            unready(Unready::Unbound),
        ),
        case(
            "generic-ephemeral,no-pvc",
            vec![ephemeral(absent("p-a"), "")],
            unready(Unready::NotMade("p-a".into())),
        ),
        case(
            "generic-ephemeral,with-pvc",
            vec![ephemeral(by_hand("p-a", "1Gi", here()), "uid-p")],
            plan(vec![("p-a", "v1")]),
        ),
        case(
            "generic-ephemeral,wrong-pvc",
            vec![ephemeral(by_hand("p-a", "1Gi", here()), "uid-q")],
            unready(Unready::NotOurs {
                claim: "ns/p-a".into(),
                pod: "ns/p".into(),
            }),
        ),
        case(
            "missing",
            vec![absent("a")],
            unready(Unready::Missing("a".into())),
        ),
    ]);
}

#[test]
fn volumes_are_found_as_in_the_original_with_provisioning() {
    let case = |name, claims, answer| Case {
        name,
        claims,
        answer,
    };
    let here = || vec![free("v1", "1Gi", "n1")];
    let plan = Answer::Plan;
    check(vec![
        case(
            "one-provisioned",
            vec![made("a", "1Gi", vec![])],
            plan(vec![("a", "-")]),
        ),
        case(
            "two-unbound-pvcs,one-matched,one-provisioned",
            vec![made("a", "1Gi", here()), made("b", "9Gi", here())],
            plan(vec![("a", "v1"), ("b", "-")]),
        ),
        case(
            "one-bound,one-provisioned",
            vec![bound("a", Some("n1")), made("b", "1Gi", vec![])],
            plan(vec![("b", "-")]),
        ),
        case(
            "one-selected-node",
            vec![selected(made("a", "1Gi", here()), "n1")],
            plan(vec![("a", "-")]),
        ),
        case(
            "one-selected-node, another",
            vec![selected(made("a", "1Gi", here()), "n2")],
            Answer::Refused(Reason::NoVolume),
        ),
        case(
            "immediate-unbound-pvc",
            vec![immediate(made("a", "1Gi", vec![]))],
            Answer::Unready(Unready::Unbound),
        ),
        case(
            "one-immediate-bound,one-provisioned",
            vec![immediate(bound("a", Some("n1"))), made("b", "1Gi", vec![])],
            plan(vec![("b", "-")]),
        ),
        case(
            "invalid-provisioner",
            vec![by_hand("a", "1Gi", vec![])],
            Answer::Refused(Reason::NoVolume),
        ),
        case(
            "volume-topology-unsatisfied",
            vec![elsewhere(made("a", "1Gi", vec![]))],
            Answer::Refused(Reason::NoVolume),
        ),
    ]);
}

pub(super) fn with_room(mut facts: ClaimFacts, on: &str, room: &str) -> ClaimFacts {
    facts.driver = Some(driver(true));
    facts.capacities = vec![capacity(on, room)];
    facts
}

fn asks(claims: Vec<ClaimFacts>) -> Decision {
    let names: Vec<String> = claims.iter().map(|facts| facts.key.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut v = view(pod("p", &names), claims);
    v.nodes.iter_mut().for_each(register);
    v.nodes.truncate(1);
    decide(&v)
}

/// kubernetes/enhancements#5926: capacity is checked per claim, two claims pass on one disk.
#[test]
fn the_same_bytes_are_not_promised_twice() {
    let six = |name| with_room(made(name, "6Gi", vec![]), "n1", "10Gi");
    assert_eq!(promised(&asks(vec![six("a")])), "n1");
    // To two claims of one pod.
    let both = asks(vec![six("a"), six("b")]);
    assert_eq!(reasons(&both)["n1"], [Reason::NoSpace]);
    // One of which was told the node before, in whatever order they come.
    let told = asks(vec![six("a"), selected(six("z"), "n1")]);
    assert_eq!(reasons(&told)["n1"], [Reason::NoSpace]);
    // To claims of two pods.
    let mut second = six("b");
    second.draws = vec![Draw {
        node: Arc::new(node("n1")),
        bytes: 6 << 30,
        settled: None,
    }];
    assert_eq!(
        reasons(&asks(vec![second.clone()]))["n1"],
        [Reason::NoSpace]
    );
    second.draws[0].node = Arc::new(node("n2"));
    assert_eq!(promised(&asks(vec![second])), "n1");
}

#[test]
fn reasons_come_in_the_originals_order_of_plugins() {
    let mut shared = bound("a", Some("n2"));
    shared.used_by_another = true;
    edit(&mut shared, |claim| {
        claim.spec.access_modes = vec![AccessMode::ReadWriteOncePod];
    });
    let in_zone = |on: &str, zone: &str| {
        let mut facts = bound("a", Some(on));
        let volume = Arc::make_mut(facts.volume.as_mut().unwrap());
        volume
            .metadata
            .labels
            .insert(well_known::ZONE.into(), zone.into());
        let mut v = view(pod("p", &["a"]), vec![facts]);
        v.nodes.truncate(1);
        let node = Arc::make_mut(&mut v.nodes[0].node);
        node.metadata
            .labels
            .insert(well_known::ZONE.into(), "here".into());
        decide(&v)
    };
    assert_eq!(reasons(&asks(vec![shared]))["n1"], [Reason::ClaimInUse]);
    assert_eq!(
        reasons(&in_zone("n2", "there"))["n1"],
        [Reason::VolumeAffinity]
    );
    assert_eq!(reasons(&in_zone("n1", "there"))["n1"], [Reason::Zone]);
    assert_eq!(promised(&in_zone("n1", "here")), "n1");
}

#[test]
fn a_tight_volume_and_ample_room_draw_a_pod() {
    let all = vec![free("large", "100Gi", "n1"), free("small", "1Gi", "n2")];
    let v = view(pod("p", &["a"]), vec![by_hand("a", "1Gi", all)]);
    assert_eq!(promised(&decide(&v)), "n2");
    let mut facts = with_room(made("a", "1Gi", vec![]), "n1", "2Gi");
    facts.capacities.push(capacity("n2", "50Gi"));
    let mut v = view(pod("p", &["a"]), vec![facts]);
    v.nodes.iter_mut().for_each(register);
    assert_eq!(promised(&decide(&v)), "n2");
}
