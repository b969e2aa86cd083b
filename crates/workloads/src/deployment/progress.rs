//! What a deployment says of itself: its numbers, and whether it gets anywhere.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use orlop_model::{
    Deployment, ReplicaSet,
    workload::{DeploymentStatus, WorkloadCondition},
};

use super::scale::{missing, size, wanted};
use crate::conditions::{self, found};

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
/// A deadline that is none.
const NEVER: i32 = i32::MAX;

/// What a turn finds of the new ReplicaSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum New {
    /// There is none, and none is made now.
    Absent,
    /// It is being made under this name.
    Made(String),
    /// It is there under this name.
    Found(String),
}

/// A deployment's status, and when time alone may change it.
pub(super) fn status(
    deployment: &Deployment,
    (new, old): (Option<&Arc<ReplicaSet>>, &[Arc<ReplicaSet>]),
    named: &New,
    now: Timestamp,
) -> (DeploymentStatus, Option<Duration>) {
    let all = || old.iter().chain(new);
    let sum = |of: fn(&ReplicaSet) -> i32| all().map(|set| of(set)).sum::<i32>();
    let available = sum(|set| set.status.available_replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: sum(|set| set.status.replicas),
        updated_replicas: new.map_or(0, |new| new.status.replicas),
        ready_replicas: sum(|set| set.status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: (sum(size) - available).max(0),
        terminating_replicas: Some(sum(|set| set.status.terminating_replicas.unwrap_or(0))),
        conditions: deployment.status.conditions.clone(),
        collision_count: deployment.status.collision_count,
    };
    let at_least = wanted(deployment) - missing(deployment);
    let enough = match available >= at_least {
        true => ("True", "MinimumReplicasAvailable", "has"),
        false => ("False", "MinimumReplicasUnavailable", "does not have"),
    };
    let said = format!("Deployment {} minimum availability.", enough.2);
    set(
        &mut status,
        found(AVAILABLE, enough.0, (enough.1, said), now),
    );
    let again = progress(deployment, &mut status, named, now);
    let failure = |set: &Arc<ReplicaSet>| conditions::get(&set.status.conditions, FAILURE).cloned();
    match new.into_iter().chain(old).find_map(failure) {
        Some(failure) => set(&mut status, failure),
        None => conditions::remove(&mut status.conditions, FAILURE),
    }
    (status, again)
}

fn set(status: &mut DeploymentStatus, mut condition: WorkloadCondition) {
    condition.last_update_time = condition.last_transition_time;
    conditions::set(&mut status.conditions, condition);
}

/// Whether all pods are new, and there.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = wanted(deployment);
    [
        status.updated_replicas,
        status.replicas,
        status.available_replicas,
    ] == [wanted; 3]
        && status.observed_generation >= deployment.metadata.generation
}

fn has_moved(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| status.replicas - status.updated_replicas;
    after.updated_replicas > before.updated_replicas
        || old(after) < old(before)
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

/// Says how the deployment gets on.
fn progress(
    deployment: &Deployment,
    status: &mut DeploymentStatus,
    named: &New,
    now: Timestamp,
) -> Option<Duration> {
    let deadline = deployment.spec.progress_deadline_seconds;
    let Some(deadline) = deadline.filter(|deadline| *deadline != NEVER) else {
        conditions::remove(&mut status.conditions, PROGRESSING);
        return None;
    };
    let before = conditions::get(&deployment.status.conditions, PROGRESSING);
    let is = |reason: &str| before.is_some_and(|before| before.reason == reason);
    let say = |status: &mut DeploymentStatus, value: &str, reason: &str, message: String| {
        set(status, found(PROGRESSING, value, (reason, message), now));
    };
    if deployment.spec.paused {
        if !is("ProgressDeadlineExceeded") {
            let message = "Deployment is paused".to_owned();
            say(status, "Unknown", "DeploymentPaused", message);
        }
        return None;
    }
    if is("DeploymentPaused") {
        let message = "Deployment is resumed".to_owned();
        say(status, "Unknown", "DeploymentResumed", message);
    }
    let subject = match named {
        New::Absent => format!("Deployment {:?}", deployment.metadata.name),
        New::Made(name) => {
            let message = format!("Created new replica set {name:?}");
            say(status, "True", "NewReplicaSetCreated", message);
            return None;
        }
        New::Found(name) => {
            if before.is_none() {
                let message = format!("Found new replica set {name:?}");
                say(status, "True", "FoundNewReplicaSet", message);
            }
            format!("ReplicaSet {name:?}")
        }
    };
    let was_complete = is("NewReplicaSetAvailable");
    if was_complete && status.replicas == status.updated_replicas {
        return None;
    }
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        say(status, "True", "NewReplicaSetAvailable", message);
        return None;
    }
    if has_moved(&deployment.status, status) {
        // Each move is said anew, since the deadline counts from the last one.
        let mut moved = found(
            PROGRESSING,
            "True",
            ("ReplicaSetUpdated", format!("{subject} is progressing.")),
            now,
        );
        moved.last_update_time = Some(now);
        if let Some(before) = before.filter(|before| before.status == "True") {
            moved.last_transition_time = before.last_transition_time;
        }
        conditions::remove(&mut status.conditions, PROGRESSING);
        status.conditions.push(moved);
        return Some(Duration::from_secs(u64::try_from(deadline).unwrap_or(0)));
    }
    let since = before.filter(|_| !was_complete)?.last_update_time?;
    let late = since
        .checked_add(SignedDuration::from_secs(deadline.into()))
        .ok()?;
    if is("ProgressDeadlineExceeded") {
        return None;
    }
    if now > late {
        let message = format!("{subject} has timed out progressing.");
        say(status, "False", "ProgressDeadlineExceeded", message);
        return None;
    }
    let left = late.duration_since(now) + SignedDuration::from_secs(1);
    Some(left.unsigned_abs())
}
