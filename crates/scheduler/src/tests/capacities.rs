//! The original's own cases for how much room there is (TestCapacity of `binder_test.go`), by their names.

use super::*;

/// A capacity of a class, on a node or on all, with the largest volume.
fn told(
    class: &str,
    on: Option<&str>,
    capacity: &str,
    most: &str,
) -> Arc<orlop_model::CsiStorageCapacity> {
    let place = match on {
        Some(node) => json!({"matchLabels": {"kubernetes.io/hostname": node}}),
        None => json!({}),
    };
    let mut body = json!({
        "metadata": {"name": "x"}, "storageClassName": class, "nodeTopology": place,
    });
    for (field, amount) in [("capacity", capacity), ("maximumVolumeSize", most)] {
        if !amount.is_empty() {
            body[field] = amount.into();
        }
    }
    Arc::new(object(body))
}

#[test]
fn room_is_found_as_in_the_original() {
    let here = |capacity, most| told("late", Some("n1"), capacity, most);
    let everywhere = || told("late", None, "1Gi", "");
    let there = || told("late", Some("n2"), "1Gi", "");
    for (name, capacities, fits) in [
        ("network-attached", vec![everywhere()], true),
        ("local-storage", vec![here("1Gi", "")], true),
        (
            "multiple",
            vec![everywhere(), there(), here("1Gi", "")],
            true,
        ),
        ("no-storage", vec![], false),
        ("wrong-node", vec![there()], false),
        ("insufficient-storage", vec![here("1Mi", "")], false),
        ("insufficient-volume-size", vec![here("1Gi", "1Mi")], false),
        ("zero-storage", vec![here("0Mi", "")], false),
        ("zero-volume-size", vec![here("", "0Mi")], false),
        ("nil-storage", vec![here("", "")], false),
    ] {
        for opted_in in [true, false] {
            let mut facts = late(claim("data", "1Gi"), "d");
            facts.driver = Some(driver(opted_in));
            facts.capacities = capacities.clone();
            let mut v = view(pod("p", &["data"]), vec![facts]);
            v.nodes.truncate(1);
            v.nodes.iter_mut().for_each(register);
            let decision = decide(&v);
            match fits || !opted_in {
                true => assert_eq!(promised(&decision), "n1", "{name}"),
                false => assert_eq!(reasons(&decision)["n1"], [Reason::NoSpace], "{name}"),
            }
        }
    }
}
