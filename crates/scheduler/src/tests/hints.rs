//! What a pod is told that no node will do for.

use super::{
    originals::{bound, by_hand, elsewhere, free, immediate, made, selected, with_room},
    *,
};

fn said(claims: Vec<ClaimFacts>, change: fn(&mut View)) -> String {
    let names: Vec<String> = claims.iter().map(|facts| facts.key.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut v = view(pod("p", &names), claims);
    change(&mut v);
    match decide(&v) {
        Decision::Refuse(refusal) => refusal.message(v.nodes.len()),
        other => panic!("{other:?}"),
    }
}

/// What is said after the reasons.
fn notes(claims: Vec<ClaimFacts>, change: fn(&mut View)) -> String {
    let said = said(claims, change);
    let (_, notes) = said.split_once(" Note: ").expect("a note");
    notes.to_owned()
}

#[test]
fn a_refusal_says_what_would_have_helped() {
    // The pod was sent to a node that its volume can't be reached from.
    let stray = said(vec![bound("data", Some("n2"))], |v| {
        let pod = Arc::make_mut(&mut v.pod);
        let selector = &mut pod.spec.node_selector;
        selector.insert("kubernetes.io/hostname".into(), "n1".into());
    });
    assert_eq!(
        stray,
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) \
         didn't match Pod's node affinity/selector. Note: claim \"data\" has the volume \
         \"its-volume\", which only n2 can reach."
    );
    let all = vec![free("small", "1Gi", "n1"), free("larger", "3Gi", "n2")];
    let greedy = said(vec![by_hand("data", "5Gi", all)], |_| {});
    assert!(
        greedy.ends_with(
            "Note: claim \"data\": the largest free volume of class \"late\" that would do is \
             \"larger\" with 3Gi, and the claim asks for 5Gi."
        ),
        "{greedy}"
    );
    let far = said(
        vec![by_hand("data", "1Gi", vec![free("disk", "1Gi", "n2")])],
        |v| {
            let pod = Arc::make_mut(&mut v.pod);
            let selector = &mut pod.spec.node_selector;
            selector.insert("kubernetes.io/hostname".into(), "n1".into());
        },
    );
    assert!(
        far.ends_with(
            "Note: claim \"data\" could have the volume \"disk\" on n2, where this pod can't be."
        ),
        "{far}"
    );
    let mut alone = bound("data", Some("n1"));
    alone.used_by_another = true;
    alone.user = Some("pod q on n1".into());
    edit(&mut alone, |claim| {
        claim.spec.access_modes = vec![AccessMode::ReadWriteOncePod];
    });
    let alone = said(vec![alone], |_| {});
    assert!(
        alone.contains("claim \"data\" is for one pod at a time, and pod q on n1 has it"),
        "{alone}"
    );
    let claims = [
        immediate(by_hand("data", "1Gi", vec![])),
        bound("other", Some("n1")),
        by_hand("late", "1Gi", vec![]),
    ];
    assert_eq!(
        crate::hints::of_claims(&claims, &Unready::Unbound).as_deref(),
        Some(" Note: not bound: data; \"kubectl describe pvc\" tells why.")
    );
    assert_eq!(
        crate::hints::awaited(&claims, "node-1").as_deref(),
        Some(
            "it shall run on node-1, once its volumes are bound; not bound: data, late; \"kubectl \
             describe pvc\" tells why"
        )
    );
    let none = said(vec![by_hand("data", "5Gi", vec![])], |_| {});
    assert!(
        none.ends_with("which has no free volume and makes none by itself."),
        "{none}"
    );
    let crowded = said(
        vec![with_room(made("data", "5Gi", vec![]), "n1", "2Gi")],
        |v| {
            v.nodes.iter_mut().for_each(register);
        },
    );
    assert!(
        crowded.ends_with("the most that class \"late\" can give is 2Gi on n1."),
        "{crowded}"
    );
}

#[test]
fn claims_whose_volumes_are_on_different_nodes_are_told_with_their_nodes() {
    let apart = "no node has volumes for all claims of this pod: ";
    let there = || vec![free("t1", "1Gi", "n1")];
    let both = vec![
        by_hand("tc1", "1Gi", there()),
        by_hand("tc2", "1Gi", vec![free("t2", "1Gi", "n2")]),
    ];
    assert_eq!(
        notes(both, |_| {}),
        format!(
            "{apart}claim \"tc1\" could have the volume \"t1\" on n1; claim \"tc2\" could have the \
             volume \"t2\" on n2."
        )
    );
    let mut other = bound("other", Some("n2"));
    other.volume = Some(free("other-volume", "1Gi", "n2"));
    assert_eq!(
        notes(vec![bound("data", Some("n1")), other], |_| {}),
        format!(
            "{apart}claim \"data\" has the volume \"its-volume\" on n1; claim \"other\" has the \
             volume \"other-volume\" on n2."
        )
    );
    let asked = vec![
        selected(made("a", "1Gi", vec![]), "n1"),
        selected(made("b", "1Gi", vec![]), "n2"),
        made("c", "1Gi", vec![]),
    ];
    assert_eq!(
        notes(asked, |_| {}),
        format!(
            "{apart}claim \"a\" was already promised a volume on n1; claim \"b\" was already \
             promised a volume on n2."
        )
    );
    let mixed = vec![bound("data", Some("n2")), by_hand("tc1", "1Gi", there())];
    assert_eq!(
        notes(mixed, |_| {}),
        format!(
            "{apart}claim \"data\" has the volume \"its-volume\" on n2; claim \"tc1\" could have the \
             volume \"t1\" on n1."
        )
    );
}

#[test]
fn claims_that_want_the_same_volume_are_told_so() {
    let there = || vec![free("t1", "1Gi", "n1")];
    let both = vec![by_hand("a", "1Gi", there()), by_hand("b", "1Gi", there())];
    assert_eq!(
        notes(both, |_| {}),
        "on n1 there is a volume for each of the claims \"a\", \"b\" alone, but not for all of them \
         at once."
    );
}

#[test]
fn claims_that_are_too_large_only_together_are_told_the_sum() {
    let claims = ["a", "b"].map(|name| with_room(made(name, "6Gi", vec![]), "n1", "10Gi"));
    let told = notes(claims.to_vec(), |v| v.nodes.iter_mut().for_each(register));
    assert_eq!(
        told,
        "claims \"a\", \"b\" together ask for 12Gi of class \"late\"; the most that it can give is \
         10Gi on n1."
    );
}

#[test]
fn a_class_that_allows_no_nodes_place_is_told_with_its_topology() {
    assert_eq!(
        notes(vec![elsewhere(made("data", "1Gi", vec![]))], |_| {}),
        "claim \"data\": class \"late\" allows volumes only where zone in (elsewhere), and no node has \
         such labels."
    );
}

#[test]
fn what_exactly_keeps_a_volume_that_is_there_from_a_claim_is_told() {
    let with = |change: fn(&mut Claim)| {
        let mut facts = by_hand("data", "1Gi", vec![free("disk", "1Gi", "n2")]);
        edit(&mut facts, change);
        notes(vec![facts], |_| {})
    };
    let none = "claim \"data\": no free volume of class \"late\"";
    assert_eq!(
        with(|claim| claim.spec.access_modes = vec![AccessMode::ReadWriteMany]),
        format!("{none} offers ReadWriteMany; there are such with ReadWriteOnce.")
    );
    assert_eq!(
        with(|claim| claim.spec.volume_mode = Some(orlop_model::VolumeMode::Block)),
        format!("{none} has volumeMode Block; there are such with Filesystem.")
    );
    assert_eq!(
        with(|claim| {
            let selector = json!({"matchLabels": {"tier": "gold"}});
            claim.spec.selector = serde_json::from_value(selector).unwrap();
        }),
        "claim \"data\": volume \"disk\" would fit otherwise, but doesn't satisfy \"tier=gold\"; no \
         free volume of class \"late\" that is large enough satisfies all that the claim's selector \
         asks for."
    );
    assert_eq!(
        notes(
            vec![by_hand("data", "1Gi", vec![free("disk", "1Gi", "n9")])],
            |_| {}
        ),
        "claim \"data\" could have the volume \"disk\", which no node of this cluster can reach."
    );
}

#[test]
fn a_volume_that_is_reserved_in_vain_is_told_on_the_pod() {
    let reserved = |on: &str, mode| {
        let mut volume = volume("mine", "1Gi", on);
        volume.spec.claim_ref = Some(claim("data", "1Gi").reference());
        volume.spec.volume_mode = mode;
        notes(vec![by_hand("data", "1Gi", vec![Arc::new(volume)])], |v| {
            v.nodes.truncate(1);
        })
    };
    assert_eq!(
        reserved("n1", Some(orlop_model::VolumeMode::Block)),
        "volume \"mine\" is reserved for claim \"data\", but incompatible volumeMode (the volume has \
         Block, the claim asks for Filesystem)."
    );
    assert_eq!(
        reserved("n9", None),
        "volume \"mine\" is reserved for claim \"data\", and no node of this cluster can reach it."
    );
}

#[test]
fn a_volume_that_would_fit_but_is_being_deleted_is_told() {
    let mut going = (*free("going", "2Gi", "n2")).clone();
    going.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    let told = |more: Vec<Arc<Volume>>| {
        let all = [vec![Arc::new(going.clone())], more].concat();
        notes(vec![by_hand("data", "2Gi", all)], |_| {})
    };
    let expected = "claim \"data\": volume \"going\" would fit, but is being deleted.";
    assert_eq!(told(Vec::new()), expected);
    assert_eq!(told(vec![free("small", "1Gi", "n2")]), expected);
}

#[test]
fn nobody_is_told_to_end_a_pod_where_the_volume_could_not_be_reached_anyway() {
    let mut alone = bound("data", Some("n1"));
    alone.used_by_another = true;
    alone.user = Some("pod q on n1".into());
    edit(&mut alone, |claim| {
        claim.spec.access_modes = vec![AccessMode::ReadWriteOncePod];
    });
    let cure = "; end that one, or use a claim with ReadWriteOnce";
    assert!(notes(vec![alone.clone()], |_| {}).contains(cure));
    let note = notes(vec![alone], |v| {
        let pod = Arc::make_mut(&mut v.pod);
        let selector = &mut pod.spec.node_selector;
        selector.insert("kubernetes.io/hostname".into(), "n2".into());
    });
    assert_eq!(
        note,
        "claim \"data\" is for one pod at a time, and pod q on n1 has it. Note: claim \"data\" has the \
         volume \"its-volume\", which only n1 can reach."
    );
}
