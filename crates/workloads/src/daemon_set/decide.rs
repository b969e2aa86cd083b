//! On which nodes a set's pods are, and which come and go: pure decisions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use orlop_model::{
    DaemonSet, Node, Pod,
    node::Taint,
    pod::{PodSpec, Toleration},
    well_known,
    workload::DaemonSetStatus,
};
use serde_json::{Value, json};

use crate::names;
use crate::pods::{self, Availability};
use crate::turn::sooner;

/// Taints that say that a node isn't well: a daemon is there to bear or to mend that.
const BORNE: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// What is known of a set.
pub struct View<'v> {
    /// The set.
    pub set: &'v DaemonSet,
    /// The hash of its present template.
    pub hash: &'v str,
    /// How often a revision's name was taken.
    pub collisions: i32,
    /// Its pods.
    pub pods: &'v [Arc<Pod>],
    /// All nodes.
    pub nodes: &'v [Arc<Node>],
    /// Whether a pod of this name is there, whosever it is.
    pub taken: &'v dyn Fn(&str) -> bool,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A pod for a node that has none.
    CreatePod(Value),
    /// A pod that ended, isn't wanted on its node, or has an old template.
    DeletePod(Arc<Pod>),
}

/// What to do, what to say, and when to look again.
#[derive(Debug)]
pub struct Decision {
    /// In this order; what follows one that failed is not done.
    pub steps: Vec<Step>,
    /// The set's status.
    pub status: DaemonSetStatus,
    /// When time alone changes something.
    pub again: Option<Duration>,
}

/// Whether a node gets the set's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// It does.
    Wanted,
    /// One that is there may stay.
    Borne,
    /// It doesn't, and one that is there goes.
    Unwanted,
}

fn fit(spec: &PodSpec, tolerations: &[Toleration], node: &Node) -> Fit {
    let meta = &node.metadata;
    let named = spec.node_name.is_empty() || spec.node_name == meta.name;
    let selected = spec
        .node_selector
        .iter()
        .all(|(k, v)| meta.labels.get(k) == Some(v));
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let near = required.is_none_or(|required| required.matches(&meta.name, &meta.labels));
    if !(named && selected && near) {
        return Fit::Unwanted;
    }
    let unborne = |effect: &str| {
        let mut taints = node
            .spec
            .taints
            .iter()
            .filter(|taint| taint.effect == effect);
        taints.any(|taint| !tolerations.iter().any(|one| tolerates(one, taint)))
    };
    if unborne("NoExecute") {
        Fit::Unwanted
    } else if unborne("NoSchedule") {
        Fit::Borne
    } else {
        Fit::Wanted
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let key =
        toleration.key.is_empty() && toleration.operator == "Exists" || toleration.key == taint.key;
    let value = toleration.operator == "Exists" || toleration.value == taint.value;
    effect && key && value
}

/// The tolerations of a set's pods.
fn tolerations(template: &Value) -> Vec<Value> {
    let own = template["spec"]["tolerations"].as_array();
    let mut all = own.cloned().unwrap_or_default();
    let network = (template["spec"]["hostNetwork"] == true)
        .then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in BORNE.into_iter().chain(network) {
        let toleration = json!({ "key": key, "operator": "Exists", "effect": effect });
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

/// The node that a pod is on or for.
fn node_of(pod: &Pod) -> Option<&str> {
    if pod.is_placed() {
        return Some(&pod.spec.node_name);
    }
    let affinity = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = affinity.required.as_ref()?.node_selector_terms.iter();
    let mut fields = terms.flat_map(|term| &term.match_fields);
    let named = fields.find(|field| field.key == "metadata.name")?;
    named.values.first().map(String::as_str)
}

/// A set's pod for a node.
fn pod(view: &View<'_>, node: &str) -> Option<Value> {
    let set = view.set;
    let seed = format!("{}/{node}", set.metadata.uid);
    let owner = (set.metadata.name.as_str(), seed.as_str());
    let name = names::free(owner, 1, view.taken).pop()?;
    let mut pod = pods::from_template(set, &name, &set.spec.template);
    pod["metadata"]["labels"][well_known::REVISION_HASH] = view.hash.into();
    pod["spec"]["tolerations"] = tolerations(&set.spec.template).into();
    // In the place of the template's own, which the node satisfies.
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{
            "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }],
        }],
    });
    Some(pod)
}

/// Decides about a set.
pub fn decide(view: &View<'_>) -> Decision {
    let set = view.set;
    let spec: PodSpec =
        serde_json::from_value(set.spec.template["spec"].clone()).unwrap_or_default();
    let borne = tolerations(&set.spec.template);
    let borne: Vec<Toleration> = borne
        .into_iter()
        .filter_map(|toleration| serde_json::from_value(toleration).ok())
        .collect();
    let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in view.pods {
        by_node
            .entry(node_of(pod).unwrap_or_default())
            .or_default()
            .push(pod);
    }
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: Some(view.collisions),
        ..DaemonSetStatus::default()
    };
    let mut steps = Vec::new();
    let mut again = None;
    let mut kept: Vec<&Arc<Pod>> = Vec::new();
    for node in view.nodes {
        let there = by_node
            .remove(node.metadata.name.as_str())
            .unwrap_or_default();
        let fit = fit(&spec, &borne, node);
        let alive = |pod: &&&Arc<Pod>| !pod.metadata.is_deleting();
        match fit {
            Fit::Wanted => {
                status.desired_number_scheduled += 1;
                status.current_number_scheduled += i32::from(!there.is_empty());
            }
            Fit::Borne | Fit::Unwanted => {
                status.number_misscheduled += i32::from(!there.is_empty());
            }
        }
        if fit == Fit::Unwanted {
            steps.extend(there.iter().filter(alive).map(|pod| delete(pod)));
            continue;
        }
        if there.is_empty() && fit == Fit::Wanted {
            steps.extend(pod(view, &node.metadata.name).map(Step::CreatePod));
        }
        let (ended, mut run): (Vec<_>, Vec<_>) = there
            .into_iter()
            .filter(|pod| !pod.metadata.is_deleting())
            .partition(|pod| pod.is_finished());
        steps.extend(ended.into_iter().map(delete));
        run.sort_by_key(|pod| (!pod.is_placed(), pod.metadata.creation_timestamp));
        steps.extend(run.iter().skip(1).map(|pod| delete(pod)));
        if fit == Fit::Wanted {
            kept.extend(run.first());
        }
    }
    // Their nodes are gone.
    let lost = by_node.into_values().flatten();
    steps.extend(lost.filter(|pod| !pod.metadata.is_deleting()).map(delete));
    let mut unavailable = status.desired_number_scheduled;
    for pod in &kept {
        status.number_ready += i32::from(pods::is_ready(pod));
        status.updated_number_scheduled += i32::from(is_present(view, pod));
        match pods::availability(pod, set.spec.min_ready_seconds, view.now) {
            Availability::Available => {
                status.number_available += 1;
                unavailable -= 1;
            }
            Availability::Soon(wait) => again = sooner(again, Some(wait)),
            Availability::Unready => {}
        }
    }
    status.number_unavailable = unavailable;
    if set.metadata.is_deleting() {
        steps.clear();
    } else if set.spec.update_strategy.type_ != "OnDelete" {
        steps.extend(outdated(view, &kept, unavailable));
    }
    Decision {
        steps,
        status,
        again,
    }
}

fn delete(pod: &Arc<Pod>) -> Step {
    Step::DeletePod(pod.clone())
}

fn is_present(view: &View<'_>, pod: &Pod) -> bool {
    let hash = pod.metadata.labels.get(well_known::REVISION_HASH);
    hash.map(String::as_str) == Some(view.hash)
}

/// The pods with an old template that may go now: those that don't work, and as many others
/// as may be missing.
fn outdated(view: &View<'_>, kept: &[&Arc<Pod>], unavailable: i32) -> Vec<Step> {
    let nodes = i32::try_from(kept.len()).unwrap_or(i32::MAX);
    let rolling = view.set.spec.update_strategy.rolling_update.as_ref();
    let most = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let mut left = most.map_or(1, |most| most.up(nodes)).max(1) - unavailable;
    let mut steps = Vec::new();
    for pod in kept.iter().filter(|pod| !is_present(view, pod)) {
        let seconds = view.set.spec.min_ready_seconds;
        if pods::availability(pod, seconds, view.now) != Availability::Available {
            steps.push(delete(pod));
        } else if left > 0 {
            left -= 1;
            steps.push(delete(pod));
        }
    }
    steps
}
