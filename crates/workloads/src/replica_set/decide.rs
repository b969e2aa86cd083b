//! What moves a ReplicaSet towards its number: pure decisions.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use orlop_model::{Pod, PodPhase, ReplicaSet, workload::ReplicaSetStatus};
use serde_json::Value;

use crate::pods::{self, Availability};
use crate::turn::sooner;
use crate::{conditions, names};

/// How many pods are made or deleted in one turn at most.
const AT_A_TIME: usize = 500;
/// Annotation: pods that cost less go first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What is known of a set.
pub struct View<'v> {
    /// The set.
    pub set: &'v ReplicaSet,
    /// Its pods.
    pub pods: &'v [Arc<Pod>],
    /// The uids of pods whose deletion was asked for, whatever the cache says.
    pub going: &'v BTreeSet<String>,
    /// Whether a pod of this name is there, whosever it is.
    pub taken: &'v dyn Fn(&str) -> bool,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A pod too few.
    CreatePod(Value),
    /// A pod too many.
    DeletePod(Arc<Pod>),
}

/// What to do, what to say, and when to look again.
#[derive(Debug)]
pub struct Decision {
    /// In this order; what follows one that failed is not done.
    pub steps: Vec<Step>,
    /// The set's status.
    pub status: ReplicaSetStatus,
    /// When time alone changes something.
    pub again: Option<Duration>,
}

/// Decides about a set.
pub fn decide(view: &View<'_>) -> Decision {
    let set = view.set;
    let active: Vec<&Arc<Pod>> = view
        .pods
        .iter()
        .filter(|pod| is_active(view, pod))
        .collect();
    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let mut steps = Vec::new();
    if !set.metadata.is_deleting() {
        if active.len() < wanted {
            let count = (wanted - active.len()).min(AT_A_TIME);
            let owner = (set.metadata.name.as_str(), set.metadata.uid.as_str());
            let free = names::free(owner, count, view.taken);
            let pod = |name: String| pods::from_template(set, &name, &set.spec.template);
            steps.extend(free.into_iter().map(|name| Step::CreatePod(pod(name))));
        } else {
            let count = (active.len() - wanted).min(AT_A_TIME);
            let mut ranked = active.clone();
            ranked.sort_by_cached_key(|pod| worth(pod, &active));
            let spare = ranked.into_iter().take(count);
            steps.extend(spare.cloned().map(Step::DeletePod));
        }
    }
    let (status, again) = status(view, &active);
    Decision {
        steps,
        status,
        again,
    }
}

fn is_active(view: &View<'_>, pod: &Pod) -> bool {
    !pod.is_finished() && !pod.metadata.is_deleting() && !view.going.contains(&pod.metadata.uid)
}

/// The less a pod is worth, the sooner it goes: those that don't run yet, those that cost
/// little, those that share their node with most others, and the newest.
fn worth(pod: &Pod, active: &[&Arc<Pod>]) -> impl Ord + use<> {
    let phase = match pod.phase() {
        PodPhase::Pending => 0,
        PodPhase::Unknown => 1,
        PodPhase::Running | PodPhase::Succeeded | PodPhase::Failed => 2,
    };
    let cost = pod.metadata.annotation(COST);
    let cost: i32 = cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
    let beside = active
        .iter()
        .filter(|other| other.spec.node_name == pod.spec.node_name)
        .count();
    let restarts = pod.status.container_statuses.iter();
    let restarts = restarts.map(|container| container.restart_count).max();
    (
        pod.is_placed(),
        phase,
        pods::is_ready(pod),
        cost,
        Reverse(beside),
        Reverse(pods::ready_since(pod)),
        Reverse(restarts),
        Reverse(pod.metadata.creation_timestamp),
        pod.metadata.name.clone(),
    )
}

fn status(view: &View<'_>, active: &[&Arc<Pod>]) -> (ReplicaSetStatus, Option<Duration>) {
    let set = view.set;
    let labels = set.spec.template["metadata"]["labels"].as_object();
    let mut again = None;
    let mut status = ReplicaSetStatus {
        observed_generation: set.metadata.generation,
        conditions: set.status.conditions.clone(),
        ..ReplicaSetStatus::default()
    };
    for pod in active {
        status.replicas += 1;
        let labelled = labels.into_iter().flatten().all(|(label, value)| {
            pod.metadata.labels.get(label).map(String::as_str) == value.as_str()
        });
        status.fully_labeled_replicas += i32::from(labelled);
        status.ready_replicas += i32::from(pods::is_ready(pod));
        match pods::availability(pod, set.spec.min_ready_seconds, view.now) {
            Availability::Available => status.available_replicas += 1,
            Availability::Soon(wait) => again = sooner(again, Some(wait)),
            Availability::Unready => {}
        }
    }
    let going = view
        .pods
        .iter()
        .filter(|pod| !pod.is_finished() && !is_active(view, pod));
    status.terminating_replicas = Some(i32::try_from(going.count()).unwrap_or(i32::MAX));
    conditions::remove(&mut status.conditions, super::work::FAILURE);
    (status, again)
}
