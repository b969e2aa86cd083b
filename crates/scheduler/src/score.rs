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
    use super::*;

    /// The original's `TestScore` with its default shape: the emptier, the better.
    #[test]
    fn what_a_new_volume_leaves_of_the_room_is_its_nodes_score() {
        for (requested, capacity, score) in [
            (0, 100, 100),
            (30, 100, 70),
            (50, 100, 50),
            (100, 100, 0),
            (200, 100, 0),
            (1, 0, 0),
            (i64::MAX, i64::MAX, 0),
        ] {
            let told = FULL - share(requested, capacity);
            assert_eq!(told, score, "{requested} of {capacity}");
        }
    }
}
