//! Whether a node can take a pod, volumes aside.

use std::collections::BTreeMap;

use orlop_model::{Node, Pod, node::Taint, pod::Container, pod::Toleration};

use crate::reason::Reason;

/// How much of each resource: processors in thousandths, everything else in units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    /// What a pod asks for: all containers together, or its hungriest init container.
    pub fn of_pod(pod: &Pod) -> Self {
        let mut total = Self::default();
        for container in &pod.spec.containers {
            total.add(&Self::of_container(container));
        }
        for container in &pod.spec.init_containers {
            for (name, amount) in Self::of_container(container).0 {
                let have = total.0.entry(name).or_default();
                *have = amount.max(*have);
            }
        }
        total
    }

    /// A limit without a request is a request.
    fn of_container(container: &Container) -> Self {
        let resources = &container.resources;
        let named = resources.limits.0.iter().chain(&resources.requests.0);
        Self(
            named
                .map(|(name, quantity)| (name.clone(), count(name, quantity)))
                .collect(),
        )
    }

    /// Adds to this.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let have = self.0.entry(name.clone()).or_default();
            *have = have.saturating_add(*amount);
        }
    }

    /// Takes from this.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if let Some(have) = self.0.get_mut(name) {
                *have = have.saturating_sub(*amount);
            }
        }
        self.0.retain(|_, amount| *amount != 0);
    }

    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

fn count(name: &str, quantity: &orlop_model::Quantity) -> i64 {
    match name {
        "cpu" => quantity.milli(),
        _ => quantity.value(),
    }
}

/// What the pods on a node take together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many they are.
    pub pods: i64,
    /// What they asked for.
    pub amounts: Amounts,
}

/// Why the node won't do for the pod; empty if it will.
pub fn check(pod: &Pod, node: &Node, tally: &Tally) -> Vec<Reason> {
    // As the original: the first test that fails is the one that is told.
    const TESTS: [Test; 4] = [check_state, check_taints, check_affinity, check_resources];
    TESTS
        .iter()
        .map(|test| test(pod, node, tally))
        .find(|reasons| !reasons.is_empty())
        .unwrap_or_default()
}

type Test = fn(&Pod, &Node, &Tally) -> Vec<Reason>;

fn check_state(pod: &Pod, node: &Node, _: &Tally) -> Vec<Reason> {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if node.spec.unschedulable && !tolerates(pod, &cordon) {
        return vec![Reason::Unschedulable];
    }
    if node.metadata.is_deleting() || !node.is_ready() {
        return vec![Reason::NotReady];
    }
    Vec::new()
}

fn check_taints(pod: &Pod, node: &Node, _: &Tally) -> Vec<Reason> {
    let borne = node
        .spec
        .taints
        .iter()
        .filter(|t| matches!(t.effect.as_str(), "NoSchedule" | "NoExecute"))
        .all(|taint| tolerates(pod, taint));
    if borne {
        Vec::new()
    } else {
        vec![Reason::Taint]
    }
}

fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let bears = |t: &Toleration| {
        (t.effect.is_empty() || t.effect == taint.effect)
            && (t.key.is_empty() || t.key == taint.key)
            && match t.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => !t.key.is_empty() && t.value == taint.value,
                _ => false,
            }
    };
    pod.spec.tolerations.iter().any(bears)
}

fn check_affinity(pod: &Pod, node: &Node, _: &Tally) -> Vec<Reason> {
    let labels = &node.metadata.labels;
    let selected = pod
        .spec
        .node_selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value));
    let wanted = pod
        .spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required.as_ref())
        .is_none_or(|required| required.matches(&node.metadata.name, labels));
    if selected && wanted {
        Vec::new()
    } else {
        vec![Reason::Affinity]
    }
}

/// A resource that the node says nothing of isn't limited.
fn check_resources(pod: &Pod, node: &Node, tally: &Tally) -> Vec<Reason> {
    let allocatable = &node.status.allocatable;
    let mut reasons = Vec::new();
    if allocatable
        .get("pods")
        .is_some_and(|most| tally.pods >= most.value())
    {
        reasons.push(Reason::Pods);
    }
    let wanted = Amounts::of_pod(pod);
    for (name, amount) in &wanted.0 {
        let short = allocatable.get(name).is_some_and(|most| {
            *amount > 0 && tally.amounts.get(name).saturating_add(*amount) > count(name, most)
        });
        if short {
            reasons.push(Reason::Resource(name.clone()));
        }
    }
    reasons
}
