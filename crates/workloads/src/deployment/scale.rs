//! How many pods each ReplicaSet of a deployment may have: pure arithmetic.

use std::{cmp::Reverse, sync::Arc};

use orlop_model::{Deployment, ReplicaSet, well_known, workload::Amount};

/// How many pods a deployment wants.
pub(super) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// How many pods a ReplicaSet wants.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    deployment.spec.strategy.type_ != "Recreate"
}

/// How many more pods than wanted there may be, and how many fewer.
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    let total = wanted(deployment);
    let rolling = deployment.spec.strategy.rolling_update.clone();
    let rolling = rolling.unwrap_or_default();
    let quarter = || Amount::Percent("25%".to_owned());
    let surge = rolling.max_surge.unwrap_or_else(quarter).up(total);
    let missing = rolling.max_unavailable.unwrap_or_else(quarter).down(total);
    // Both may round to nothing; something has to give.
    if surge == 0 && missing == 0 {
        (0, 1)
    } else {
        (surge, missing)
    }
}

/// How many more pods than wanted there may be.
pub(super) fn surge(deployment: &Deployment) -> i32 {
    match is_rolling(deployment) {
        true => fenceposts(deployment).0,
        false => 0,
    }
}

/// How many pods may be missing.
pub(super) fn missing(deployment: &Deployment) -> i32 {
    match is_rolling(deployment) && wanted(deployment) > 0 {
        true => fenceposts(deployment).1.min(wanted(deployment)),
        false => 0,
    }
}

/// The size that the new ReplicaSet may have beside the others.
pub(super) fn new_size(deployment: &Deployment, sets: &[Arc<ReplicaSet>], own: i32) -> i32 {
    if !is_rolling(deployment) {
        return wanted(deployment);
    }
    let all: i32 = sets.iter().map(|set| size(set)).sum();
    let most = wanted(deployment) + surge(deployment);
    if all >= most {
        return own;
    }
    own + (most - all).min(wanted(deployment) - own)
}

fn number(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    set.metadata.annotation(annotation)?.parse().ok()
}

/// Whether the deployment's number changed since it scaled its ReplicaSets.
pub(super) fn was_rescaled(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
    let mut active = sets.iter().filter(|set| size(set) > 0);
    active.any(|set| {
        let then = number(set, well_known::DESIRED_REPLICAS);
        then.is_some_and(|then| then != wanted(deployment))
    })
}

/// The sizes after the deployment's number changed: one ReplicaSet takes it all, several share
/// it in proportion to their sizes.
pub(super) fn rescaled(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
) -> Vec<(Arc<ReplicaSet>, i32)> {
    let total = wanted(deployment);
    let mut active: Vec<Arc<ReplicaSet>> = old.iter().chain(new).cloned().collect();
    active.retain(|set| size(set) > 0);
    let newest = || old.iter().max_by_key(|set| set.metadata.creation_timestamp);
    let one = match active.as_slice() {
        [] => new.or_else(newest),
        [one] => Some(one),
        _ => None,
    };
    if let Some(one) = one {
        return vec![(one.clone(), total)];
    }
    if active.is_empty() {
        return Vec::new();
    }
    let saturated = new.is_some_and(|new| {
        size(new) == total
            && number(new, well_known::DESIRED_REPLICAS) == Some(total)
            && new.status.available_replicas == total
    });
    if saturated {
        let others = active.into_iter();
        let others =
            others.filter(|set| new.is_none_or(|new| new.metadata.uid != set.metadata.uid));
        return others.map(|set| (set, 0)).collect();
    }
    if !is_rolling(deployment) {
        return Vec::new();
    }
    let allowed = if total > 0 {
        total + surge(deployment)
    } else {
        0
    };
    let to_add = allowed - active.iter().map(|set| size(set)).sum::<i32>();
    // The largest gets what is left over: it bears it best. Of equals the newer grows, and the
    // older shrinks.
    active.sort_by_key(|set| {
        let born = set
            .metadata
            .creation_timestamp
            .map_or(0, jiff::Timestamp::as_nanosecond);
        (Reverse(size(set)), if to_add > 0 { -born } else { born })
    });
    let mut added = 0;
    let mut sizes = Vec::new();
    for set in active {
        let share = match to_add - added {
            0 => 0,
            left if to_add > 0 => share(deployment, &set).min(left).max(0),
            left => share(deployment, &set).max(left).min(0),
        };
        added += share;
        let next = size(&set) + share;
        sizes.push((set, next));
    }
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + to_add - added).max(0);
    }
    sizes
}

/// By how much a ReplicaSet grows or shrinks to keep its part of the whole.
fn share(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    if wanted(deployment) == 0 {
        return -size(set);
    }
    let before = number(set, well_known::MAX_REPLICAS).filter(|most| *most > 0);
    let before = before.unwrap_or(deployment.status.replicas);
    if before == 0 {
        return 0;
    }
    let most = f64::from(wanted(deployment) + surge(deployment));
    let next = f64::from(size(set)) * most / f64::from(before);
    next.round() as i32 - size(set)
}
