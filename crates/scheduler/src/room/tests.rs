use serde_json::{Value, json};

use super::*;

fn node(name: &str, zone: &str) -> Arc<Node> {
    let node = json!({"metadata": {"name": name, "labels": {"host": name, "zone": zone}}});
    Arc::new(Node::decode(node.to_string().as_bytes()).unwrap())
}

fn capacity(topology: &Value, capacity: &Value, most: &Value) -> Arc<CsiStorageCapacity> {
    let told = json!({
        "metadata": {"name": "c", "resourceVersion": "10"}, "storageClassName": "s",
        "nodeTopology": topology, "capacity": capacity, "maximumVolumeSize": most,
    });
    Arc::new(CsiStorageCapacity::decode(told.to_string().as_bytes()).unwrap())
}

fn draw(node: &Arc<Node>, bytes: i64, settled: Option<u64>) -> Draw {
    Draw {
        node: node.clone(),
        bytes,
        settled,
    }
}

#[test]
fn what_is_told_counts_where_it_is_told_of() {
    let node = node("n", "a");
    let here = json!({"matchLabels": {"host": "n"}});
    for (topology, has, most, largest) in [
        (here.clone(), json!("10"), json!(null), Some(10)),
        (here.clone(), json!("10"), json!("4"), Some(4)),
        (here.clone(), json!(null), json!("4"), Some(4)),
        (here, json!(null), json!(null), None),
        // No place at all is nowhere, an empty one is everywhere.
        (json!(null), json!("10"), json!(null), None),
        (json!({}), json!("10"), json!(null), Some(10)),
        (
            json!({"matchLabels": {"host": "m"}}),
            json!("10"),
            json!(null),
            None,
        ),
    ] {
        let capacities = [capacity(&topology, &has, &most)];
        let room = Room {
            capacities: &capacities,
            draws: &[],
        };
        assert_eq!(room.largest(&node, 0), largest, "{topology}");
    }
}

#[test]
fn what_others_were_promised_is_taken_off_once() {
    let (one, two, far) = (node("n1", "a"), node("n2", "a"), node("n3", "b"));
    let capacities = [capacity(
        &json!({"matchLabels": {"zone": "a"}}),
        &json!("10"),
        &json!("8"),
    )];
    for (draws, own, largest) in [
        (vec![], 0, 8),
        (vec![], 4, 6),
        // On another node, from the same disk.
        (vec![draw(&two, 4, None)], 0, 6),
        (vec![draw(&two, 4, None), draw(&one, 5, None)], 0, 1),
        (vec![draw(&two, 4, None)], 4, 2),
        (vec![draw(&far, 4, None)], 0, 8),
        // The volume is there, and the driver hasn't told since; or it has.
        (vec![draw(&two, 4, Some(10))], 0, 6),
        (vec![draw(&two, 4, Some(9))], 0, 8),
        (vec![draw(&two, 40, None)], 0, -30),
    ] {
        let room = Room {
            capacities: &capacities,
            draws: &draws,
        };
        assert_eq!(room.largest(&one, own), Some(largest), "{draws:?} {own}");
    }
}
