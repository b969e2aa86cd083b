use orlop_model::{Kind, Node};
use serde_json::{Value, json};

use super::{home::home, *};

const OLD: &str = "11111111-1111-1111-1111-111111111111";
const NEW: &str = "22222222-2222-2222-2222-222222222222";

fn read<K: Kind>(object: &Value) -> K {
    K::decode(object.to_string().as_bytes()).unwrap()
}

fn node(name: &str, uid: &str) -> Node {
    read(&json!({"metadata": {
        "name": name, "uid": uid, "labels": {"kubernetes.io/hostname": name},
    }}))
}

fn on(terms: &[&[(&str, &[&str])]]) -> Volume {
    let terms: Vec<Value> = terms
        .iter()
        .map(|term| {
            let asked = term
                .iter()
                .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}));
            json!({"matchExpressions": asked.collect::<Vec<_>>()})
        })
        .collect();
    read(&json!({
        "metadata": {"name": "v"},
        "spec": {
            "local": {"path": "/mnt/a"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }))
}

#[test]
fn a_volumes_node_is_known_by_name_and_by_uid_where_one_is_named() {
    const HOST: &str = well_known::HOSTNAME;
    const UID: &str = well_known::LOCAL_NODE_UID;
    let by_name = || on(&[&[(HOST, &["a"])]]);
    let by_uid = || on(&[&[(HOST, &["a"]), (UID, &[OLD])]]);
    let two = || on(&[&[(HOST, &["a", "b"])]]);
    let or_zone = || on(&[&[(HOST, &["a"])], &[("zone", &["z"])]]);
    let zone_only = || on(&[&[("zone", &["z"])]]);
    let mut in_zone = node("c", OLD);
    in_zone.metadata.labels.insert("zone".into(), "z".into());
    let mut relabelled = node("a", OLD);
    relabelled
        .metadata
        .labels
        .insert(HOST.into(), "other".into());
    let mut of_label = node("machine-7", OLD);
    of_label.metadata.labels.insert(HOST.into(), "a".into());
    for (number, (volume, nodes, expected)) in [
        (by_name(), vec![], Home::Gone),
        (by_name(), vec![node("a", OLD)], Home::There),
        (by_name(), vec![node("a", NEW)], Home::There),
        (by_name(), vec![node("b", OLD)], Home::Gone),
        // The uid is the node's own, whether or not the label with it was written yet.
        (by_uid(), vec![node("a", OLD)], Home::There),
        (by_uid(), vec![node("a", NEW)], Home::Replaced),
        (by_uid(), vec![node("b", OLD)], Home::Gone),
        // Either goes: the name of the node, and what its label calls it.
        (by_name(), vec![relabelled], Home::There),
        (by_name(), vec![of_label], Home::There),
        // Any of several.
        (two(), vec![node("b", NEW)], Home::There),
        (two(), vec![], Home::Gone),
        (or_zone(), vec![in_zone.clone()], Home::There),
        (or_zone(), vec![node("c", OLD)], Home::Gone),
        // It isn't known which node it was.
        (zone_only(), vec![], Home::Unknown),
        (
            read(&json!({"metadata": {"name": "v"}, "spec": {"local": {}}})),
            vec![],
            Home::Unknown,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(home(&volume, &nodes), expected, "case {number}");
    }
}

fn volume(phase: &str, policy: &str) -> Value {
    let mut volume = json!({
        "metadata": {"name": "v", "finalizers": [well_known::LOCAL_UNCLEAN]},
        "spec": {"persistentVolumeReclaimPolicy": policy, "local": {"path": "/mnt/a"}},
        "status": {"phase": phase},
    });
    if phase != "Available" {
        volume["spec"]["claimRef"] = json!({"name": "c", "namespace": "d", "uid": "u"});
    }
    volume
}

fn deleting(mut volume: Value) -> Value {
    volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    volume
}

fn unguarded(mut volume: Value) -> Value {
    volume["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
    volume
}

fn reserved(uid: &str) -> Value {
    let mut volume = volume("Available", "Delete");
    volume["spec"]["claimRef"] = json!({"name": "c", "namespace": "d", "uid": uid});
    volume
}

#[test]
fn claims_go_before_volumes_and_nothing_goes_while_the_node_is_there() {
    use Step::{DeleteClaim, DeleteVolume, Leave, LetGo};
    let cases = [
        // As it is, and what is done with the node gone, and with another one of its name.
        (volume("Bound", "Delete"), DeleteClaim, DeleteClaim),
        (volume("Bound", "Retain"), DeleteClaim, DeleteClaim),
        (reserved("u"), DeleteClaim, DeleteClaim),
        (reserved(""), DeleteVolume, Leave),
        (volume("Available", "Delete"), DeleteVolume, Leave),
        (volume("Available", "Retain"), DeleteVolume, Leave),
        (volume("Available", "Recycle"), DeleteVolume, Leave),
        (volume("Released", "Delete"), DeleteVolume, Leave),
        (volume("Failed", "Delete"), DeleteVolume, Leave),
        (volume("Released", "Retain"), Leave, Leave),
        // Somebody else deletes it: the user, or the collector with its node.
        (deleting(volume("Released", "Delete")), LetGo, Leave),
        (deleting(volume("Released", "Retain")), LetGo, Leave),
        (deleting(volume("Available", "Delete")), LetGo, Leave),
        (
            deleting(unguarded(volume("Released", "Delete"))),
            Leave,
            Leave,
        ),
        (
            deleting(volume("Bound", "Delete")),
            DeleteClaim,
            DeleteClaim,
        ),
    ];
    for (number, (given, gone, replaced)) in cases.into_iter().enumerate() {
        let volume: Volume = read(&given);
        for (home, expected) in [
            (Home::Gone, gone),
            (Home::Replaced, replaced),
            (Home::There, Leave),
            (Home::Unknown, Leave),
        ] {
            assert_eq!(decide(&volume, home), expected, "case {number}, {home:?}");
        }
    }
}
