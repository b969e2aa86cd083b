//! Which of the nodes that will do is best: where volumes fit tightly and room is ample, and
//! where few pods are.

use crate::{
    assign::NodeFacts,
    volume_binding::{Plan, Sorted, Supply},
};

/// The best that each part can be.
const FULL: i64 = 100;
/// How many pods a node bears that doesn't say.
const PODS: i64 = 110;

/// How good a node is for a pod, given what its volumes would get there.
pub fn score(facts: &NodeFacts, sorted: &Sorted<'_>, plan: &Plan) -> i64 {
    spread(facts) + volumes(facts, sorted, plan)
}

/// The emptier, the better.
fn spread(facts: &NodeFacts) -> i64 {
    let most = facts.node.status.allocatable.get("pods");
    let most = most.map_or(PODS, orlop_model::Quantity::value).max(1);
    FULL - share(facts.tally.pods, most)
}

/// A claim gets a volume that isn't much larger; a new one is made where much room is left.
fn volumes(facts: &NodeFacts, sorted: &Sorted<'_>, plan: &Plan) -> i64 {
    let mut sum = 0;
    for (key, supply) in plan {
        let wanted = sorted.late.iter().find(|(claim, _)| claim.key == *key);
        let Some((claim, wanted)) = wanted else {
            continue;
        };
        let wanted = wanted.requested_bytes();
        sum += match supply {
            Supply::Reserve(volume) => share(wanted, volume.capacity_bytes()),
            Supply::Provision => match claim.room().largest(&facts.node, 0) {
                Some(largest) => FULL - share(wanted, largest),
                None => 0,
            },
        };
    }
    match i64::try_from(plan.len()) {
        Ok(count) if count > 0 => sum / count,
        _ => 0,
    }
}

/// A part of a whole, in hundredths.
fn share(part: i64, whole: i64) -> i64 {
    let hundredths = i128::from(part) * i128::from(FULL) / i128::from(whole.max(1));
    i64::try_from(hundredths).unwrap_or(FULL).clamp(0, FULL)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orlop_model::{Claim, CsiStorageCapacity, Kind, Volume};
    use serde_json::{Value, json};

    use super::*;
    use crate::volume_binding::ClaimFacts;

    fn object<K: Kind>(body: &Value) -> K {
        K::decode(body.to_string().as_bytes()).unwrap()
    }

    /// What a node's volumes are worth to a pod with one claim, where so much is left. The node is full of
    /// pods, which are worth nothing.
    fn scored(requested: i64, room: Option<i64>, supply: Supply) -> i64 {
        let claim: Claim = object(&json!({
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"resources": {"requests": {"storage": requested.to_string()}}},
        }));
        let capacity = |left: i64| -> CsiStorageCapacity {
            object(&json!({"metadata": {}, "nodeTopology": {}, "capacity": left.to_string()}))
        };
        let facts = ClaimFacts {
            key: claim.key(),
            capacities: room.map(capacity).map(Arc::new).into_iter().collect(),
            ..ClaimFacts::default()
        };
        let sorted = Sorted {
            late: vec![(&facts, &claim)],
            ..Sorted::default()
        };
        let mut node = NodeFacts::default();
        node.tally.pods = PODS;
        score(&node, &sorted, &vec![(claim.key(), supply)])
    }

    /// The original's `TestScore` with its default shape: the emptier, the better.
    #[test]
    fn what_a_new_volume_leaves_of_the_room_is_its_nodes_score() {
        for (requested, room, score) in [
            (0, Some(100), 100),
            (30, Some(100), 70),
            (50, Some(100), 50),
            (100, Some(100), 0),
            (200, Some(100), 0),
            (1, Some(0), 0),
            (i64::MAX, Some(i64::MAX), 0),
            (30, None, 0),
        ] {
            let told = scored(requested, room, Supply::Provision);
            assert_eq!(told, score, "{requested} of {room:?}");
        }
    }

    #[test]
    fn the_tighter_a_volume_fits_the_better() {
        for (requested, capacity, score) in [(100, 100, 100), (30, 100, 30), (1, 0, 100)] {
            let volume: Volume = object(&json!({
                "metadata": {"name": "v"}, "spec": {"capacity": {"storage": capacity.to_string()}},
            }));
            let told = scored(requested, None, Supply::Reserve(Arc::new(volume)));
            assert_eq!(told, score, "{requested} of {capacity}");
        }
    }

    #[test]
    fn the_fewer_pods_a_node_has_the_better() {
        let mut node = NodeFacts::default();
        for (pods, expected) in [(0, 100), (55, 50), (110, 0), (200, 0)] {
            node.tally.pods = pods;
            let told = score(&node, &Sorted::default(), &Plan::new());
            assert_eq!(told, expected, "{pods} pods");
        }
    }
}
