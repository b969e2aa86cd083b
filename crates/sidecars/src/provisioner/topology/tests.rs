use orlop_model::{
    class::{TopologyRequirement, TopologySelectorTerm},
    driver::CsiNodeDriver,
};

use super::*;

fn zone(name: &str) -> Segment {
    Segment::from([("zone".to_owned(), name.to_owned())])
}

fn zones(names: &[&str]) -> Vec<Segment> {
    names.iter().map(|n| zone(n)).collect()
}

fn names(terms: &[proto::Topology]) -> Vec<&str> {
    terms.iter().map(|t| t.segments["zone"].as_str()).collect()
}

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let mut node = Node::default();
    node.metadata.name = name.into();
    node.metadata.labels = labels
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    node
}

fn csi_node(keys: &[&str]) -> CsiNode {
    let mut csi = CsiNode::default();
    csi.spec.drivers.push(CsiNodeDriver {
        name: "d".into(),
        node_id: "id".into(),
        topology_keys: keys.iter().map(|k| (*k).to_owned()).collect(),
        allocatable: None,
    });
    csi
}

#[test]
fn a_nodes_place_is_its_labels_under_the_drivers_keys() {
    let here = node("n1", &[("zone", "a"), ("other", "x")]);
    let with = csi_node(&["zone"]);
    assert_eq!(
        segment_of("d", "n1", Some(&here), Some(&with)),
        Ok(Some(zone("a")))
    );
    let without = csi_node(&[]);
    assert_eq!(segment_of("d", "n1", Some(&here), Some(&without)), Ok(None));
    assert_eq!(
        segment_of("d", "n1", None, Some(&with)),
        Err(TopologyError::NoNode("n1".into()))
    );
    assert!(matches!(
        segment_of("d", "n1", Some(&here), None),
        Err(TopologyError::NoDriver { .. })
    ));
    assert!(matches!(
        segment_of("d", "n1", Some(&node("n1", &[])), Some(&with)),
        Err(TopologyError::NoLabel { .. })
    ));
}

#[test]
fn places_are_listed_once_and_in_order() {
    let (b, a, again) = (
        node("n1", &[("zone", "b")]),
        node("n2", &[("zone", "a")]),
        node("n3", &[("zone", "b")]),
    );
    let keyed = csi_node(&["zone"]);
    let all = [
        (&b, Some(&keyed)),
        (&a, Some(&keyed)),
        (&again, Some(&keyed)),
    ];
    assert_eq!(segments("d", all), zones(&["a", "b"]));
}

#[test]
fn a_late_binding_claim_prefers_the_selected_nodes_place() {
    let asked = requirement(
        zones(&["a", "b", "c"]),
        &Start::At(zone("b")),
        Spread::Preferred,
    );
    let asked = asked.expect("it is allowed").expect("there are places");
    assert_eq!(names(&asked.requisite), ["a", "b", "c"]);
    assert_eq!(names(&asked.preferred), ["b", "c", "a"]);
}

#[test]
fn a_strict_claim_asks_for_the_selected_nodes_place_alone() {
    let asked = requirement(zones(&["a", "b"]), &Start::At(zone("b")), Spread::Strict);
    let asked = asked.expect("it is allowed").expect("there is a place");
    assert_eq!(names(&asked.requisite), ["b"]);
    assert_eq!(names(&asked.preferred), ["b"]);
}

#[test]
fn a_node_outside_of_the_allowed_places_is_refused() {
    for spread in [Spread::Preferred, Spread::Strict] {
        let asked = requirement(zones(&["a"]), &Start::At(zone("b")), spread);
        assert_eq!(asked, Err(TopologyError::NotAllowed));
    }
}

#[test]
fn an_allowed_place_may_name_fewer_keys_than_the_driver() {
    let mut place = zone("a");
    place.insert("rack".into(), "7".into());
    let asked = requirement(zones(&["a"]), &Start::At(place), Spread::Preferred);
    assert!(asked.is_ok_and(|r| r.is_some()));
}

#[test]
fn claims_of_a_stateful_set_walk_through_the_places() {
    let first = |name: &str| {
        let asked = requirement(
            zones(&["a", "b", "c"]),
            &Start::ByName(name),
            Spread::Preferred,
        );
        let asked = asked.expect("it is allowed").expect("there are places");
        names(&asked.preferred)[0].to_owned()
    };
    let walk: BTreeSet<String> = ["data-db-0", "data-db-1", "data-db-2"]
        .map(first)
        .into_iter()
        .collect();
    assert_eq!(walk.len(), 3, "three members, three places");
    assert_eq!(first("data-db-1"), first("logs-db-1"), "one pod, one place");
    // Published values of FNV-1, which the original spreads by.
    assert_eq!(fnv1(""), 0x811c_9dc5);
    assert_eq!(fnv1("a"), 0x050c_5d7e);
}

#[test]
fn allowed_topologies_multiply_out() {
    let want = |key: &str, values: &[&str]| TopologyRequirement {
        key: key.into(),
        values: values.iter().map(|v| (*v).to_owned()).collect(),
    };
    let class = StorageClass {
        allowed_topologies: vec![TopologySelectorTerm {
            match_label_expressions: vec![want("zone", &["a", "b"]), want("rack", &["1", "2"])],
        }],
        ..StorageClass::default()
    };
    assert_eq!(allowed(&class).len(), 4);
    assert!(allowed(&StorageClass::default()).is_empty());
}

#[test]
fn without_places_nothing_is_asked() {
    let asked = requirement(Vec::new(), &Start::ByName("x"), Spread::Preferred);
    assert_eq!(asked, Ok(None));
}
