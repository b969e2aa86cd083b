//! The original's own cases for how many volumes a node bears (`nodevolumelimits/csi_test.go`), by
//! their names. Those of plugins of old are in `old_plugins`.

use super::*;

fn bound(name: &str, driver: &str) -> ClaimFacts {
    let mut facts = late(claim(name, "1Gi"), driver);
    edit(&mut facts, |claim| {
        claim.spec.volume_name = format!("v-{name}");
        let annotations = &mut claim.metadata.annotations;
        annotations.insert(well_known::BIND_COMPLETED.into(), "yes".into());
    });
    facts.volume = Some(Arc::new(object(json!({
        "metadata": {"name": format!("v-{name}")},
        "spec": {"capacity": {"storage": "1Gi"},
                 "csi": {"driver": driver, "volumeHandle": format!("h-{name}")}},
    }))));
    facts
}

fn ephemeral(mut facts: ClaimFacts, owner: &str) -> ClaimFacts {
    facts.ephemeral = true;
    edit(&mut facts, |claim| {
        claim.metadata.owner_references = vec![orlop_model::OwnerReference {
            kind: "Pod".into(),
            uid: owner.into(),
            controller: Some(true),
            ..orlop_model::OwnerReference::default()
        }];
    });
    facts
}

/// A node with drivers and their limits, and what it has.
struct Berth {
    drivers: Option<Vec<(&'static str, Option<i32>)>>,
    there: &'static [(&'static str, &'static str)],
    demanding: &'static [&'static str],
}

fn berth(limit: i32, there: &'static [(&'static str, &'static str)]) -> Berth {
    Berth {
        drivers: Some(vec![("d", Some(limit)), ("other", Some(limit))]),
        there,
        demanding: &[],
    }
}

fn decided(claims: Vec<ClaimFacts>, berth: &Berth) -> Decision {
    let names: Vec<String> = claims.iter().map(|facts| facts.key.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut v = view(pod("p", &names), claims);
    v.nodes.truncate(1);
    v.demanding = berth.demanding.iter().map(|d| (*d).to_owned()).collect();
    let drivers = berth.drivers.as_ref().map(|all| {
        let all: Vec<Value> = all
            .iter()
            .map(|(name, limit)| match limit {
                Some(count) => {
                    json!({"name": name, "nodeID": "n1", "allocatable": {"count": count}})
                }
                None => json!({"name": name, "nodeID": "n1"}),
            })
            .collect();
        Arc::new(object(
            json!({"metadata": {"name": "n1"}, "spec": {"drivers": all}}),
        ))
    });
    v.nodes[0].csi_node = drivers;
    for (driver, volume) in berth.there {
        let of_driver = v.nodes[0].attached.entry((*driver).to_owned());
        of_driver.or_default().insert((*volume).to_owned());
    }
    decide(&v)
}

fn check(cases: Vec<(&str, Vec<ClaimFacts>, Berth, Option<Reason>)>) {
    for (name, claims, berth, refused) in cases {
        let decision = decided(claims, &berth);
        match refused {
            None => assert_eq!(promised(&decision), "n1", "{name}"),
            Some(reason) => assert_eq!(reasons(&decision)["n1"], [reason], "{name}"),
        }
    }
}

#[test]
fn volumes_are_counted_as_in_the_original() {
    let full = || Some(Reason::VolumeCount);
    let two: &[(&str, &str)] = &[("d", "h-x"), ("d", "h-y")];
    let without_class = || {
        let mut facts = bound("a", "d");
        facts.class = None;
        facts
    };
    let pending = |name: &str| late(claim(name, "1Gi"), "d");
    check(vec![
        (
            "fits when node volume limit >= new pods CSI volume",
            vec![bound("a", "d")],
            berth(4, two),
            None,
        ),
        (
            "doesn't when node volume limit <= pods CSI volume; count VolumeAttachments",
            vec![bound("a", "d")],
            berth(2, two),
            full(),
        ),
        (
            "one volume used by several pods counts once",
            vec![bound("x", "d")],
            berth(2, two),
            None,
        ),
        (
            "should when driver does not support volume limits",
            vec![bound("a", "d")],
            Berth {
                drivers: Some(vec![("d", None)]),
                ..berth(0, two)
            },
            None,
        ),
        (
            "nil csi node",
            vec![bound("a", "d")],
            Berth {
                drivers: None,
                ..berth(0, two)
            },
            None,
        ),
        (
            "should not limit pod if volume used does not report limits",
            vec![bound("a", "third")],
            berth(2, two),
            None,
        ),
        (
            "count pending PVCs towards volume limit",
            vec![pending("a")],
            berth(2, two),
            full(),
        ),
        (
            "count multiple pending pvcs towards volume limit",
            vec![pending("a"), pending("b")],
            berth(3, two),
            full(),
        ),
        (
            "count multiple pending pvcs, enough for both",
            vec![pending("a"), pending("b")],
            berth(4, two),
            None,
        ),
        (
            "count bound pvcs without class all the same",
            vec![without_class()],
            berth(2, two),
            full(),
        ),
        (
            "count pvcs with the same type towards volume limit",
            vec![bound("a", "d"), pending("b")],
            berth(3, two),
            full(),
        ),
        (
            "don't count pvcs with different type towards volume limit",
            vec![bound("a", "other"), bound("b", "other")],
            berth(2, two),
            None,
        ),
        (
            "ephemeral doesn't when node volume limit <= pods CSI volume",
            vec![ephemeral(bound("p-a", "d"), "uid-p")],
            berth(2, two),
            full(),
        ),
        (
            "ephemeral volume unbound",
            vec![ephemeral(pending("p-a"), "uid-p")],
            berth(2, two),
            full(),
        ),
        (
            "persistent doesn't when node volume limit <= ephemeral + persistent",
            vec![ephemeral(bound("p-a", "d"), "uid-p"), bound("b", "d")],
            berth(3, two),
            full(),
        ),
        (
            "persistent okay when node volume limit > ephemeral + persistent",
            vec![ephemeral(bound("p-a", "d"), "uid-p"), bound("b", "d")],
            berth(4, two),
            None,
        ),
        (
            "a pod without volumes is not counted",
            vec![],
            berth(0, two),
            None,
        ),
    ]);
    // "ephemeral volume missing", "ephemeral volume not owned"
    let mut missing = ephemeral(pending("p-a"), "uid-p");
    missing.claim = None;
    let unready = |claims| match decided(claims, &berth(9, &[])) {
        Decision::Refuse(Refusal::Claims(unready)) => unready,
        other => panic!("{other:?}"),
    };
    assert_eq!(unready(vec![missing]), Unready::NotMade("p-a".into()));
    assert!(matches!(
        unready(vec![ephemeral(bound("p-a", "d"), "uid-q")]),
        Unready::NotOurs { .. }
    ));
}

/// The original's TestVolumeLimitScalingGate.
#[test]
fn a_driver_may_demand_to_be_there_before_its_pods() {
    let there = |drivers, demanding| Berth {
        drivers,
        there: &[],
        demanding,
    };
    let missing = || Some(Reason::NoDriver("d".into()));
    check(vec![
        (
            "allow scheduling when CSIDriver exists but PreventPodSchedulingIfMissing is not set",
            vec![bound("a", "d")],
            there(Some(vec![]), &[]),
            None,
        ),
        (
            "fail when driver not installed and PreventPodSchedulingIfMissing is true",
            vec![bound("a", "d")],
            there(Some(vec![("other", None)]), &["d"]),
            missing(),
        ),
        (
            "fail without a CSINode",
            vec![bound("a", "d")],
            there(None, &["d"]),
            missing(),
        ),
        (
            "driver installed within limit",
            vec![bound("a", "d")],
            there(Some(vec![("d", Some(1))]), &["d"]),
            None,
        ),
        (
            "another driver's demand",
            vec![bound("a", "d")],
            there(Some(vec![("d", None)]), &["other"]),
            None,
        ),
    ]);
}

#[test]
fn who_meets_a_full_node_is_told_how_full_it_is() {
    let two: &[(&str, &str)] = &[("d", "h-x"), ("d", "h-y")];
    let Decision::Refuse(refusal) = decided(vec![bound("a", "d")], &berth(2, two)) else {
        panic!("it fits");
    };
    assert_eq!(
        refusal.message(1),
        "0/1 nodes are available: 1 node(s) exceed max volume count. Note: n1 can have 2 volumes of \
         driver \"d\" and has 2; this pod would bring 1 more."
    );
}

#[test]
fn who_is_in_the_wrong_zone_is_told_which_is_right() {
    let mut facts = bound("a", "d");
    let mut volume = (**facts.volume.as_ref().unwrap()).clone();
    volume
        .metadata
        .labels
        .insert(well_known::ZONE.into(), "east__west".into());
    facts.volume = Some(Arc::new(volume));
    let mut v = view(pod("p", &["a"]), vec![facts]);
    v.nodes.truncate(1);
    let mut node = (*v.nodes[0].node).clone();
    node.metadata
        .labels
        .insert(well_known::ZONE.into(), "north".into());
    v.nodes[0].node = Arc::new(node);
    let Decision::Refuse(refusal) = decide(&v) else {
        panic!("it fits");
    };
    assert_eq!(
        refusal.message(1),
        "0/1 nodes are available: 1 node(s) had no available volume zone. Note: claim \"a\" has the \
         volume \"v-a\", which is in zone east or west."
    );
}
