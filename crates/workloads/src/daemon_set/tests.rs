use std::sync::Arc;

use orlop_model::{DaemonSet, Node, Pod};
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{deleting, now, object, spec, unready};

fn set() -> DaemonSet {
    let mut body = json!({
        "metadata": {"name": "agent", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": spec("agent", "one"),
    });
    body["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    object(body)
}

fn node(name: &str, taints: &Value) -> Arc<Node> {
    Arc::new(object(json!({
        "metadata": {"name": name, "labels": {"disk": name}}, "spec": {"taints": taints},
    })))
}

fn run(set: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>], hash: &str) -> Decision {
    let taken = |name: &str| pods.iter().any(|pod| pod.metadata.name == name);
    decide(&View {
        set,
        hash,
        collisions: 0,
        pods,
        nodes,
        taken: &taken,
        now: now(),
    })
}

/// The pods that a set makes for nodes, placed there and ready.
fn pods(set: &DaemonSet, nodes: &[Arc<Node>]) -> Vec<Arc<Pod>> {
    let made = run(set, nodes, &[], "one").steps.into_iter();
    let pods = made.zip(nodes).map(|(step, node)| {
        let Step::CreatePod(body) = step else {
            panic!("{step:?}");
        };
        let mut pod: Pod = object(body);
        pod.metadata.uid = format!("uid-{}", pod.metadata.name);
        pod.spec.node_name = node.metadata.name.clone();
        let running =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        pod.status = serde_json::from_value(running).unwrap();
        Arc::new(pod)
    });
    pods.collect()
}

fn nodes() -> [Arc<Node>; 2] {
    ["a", "b"].map(|name| node(name, &json!([])))
}

#[test]
fn every_node_gets_one_pod_and_never_two() {
    let (set, nodes) = (set(), nodes());
    let first = run(&set, &nodes, &[], "one");
    assert_eq!(first.steps.len(), 2);
    assert_eq!(
        first.steps,
        run(&set, &nodes, &[], "one").steps,
        "the same names"
    );
    let there = pods(&set, &nodes);
    let settled = run(&set, &nodes, &there, "one");
    assert_eq!(settled.steps, []);
    let status = settled.status;
    assert_eq!(
        (status.desired_number_scheduled, status.number_available),
        (2, 2)
    );
    assert_eq!(status.number_unavailable, 0);
    // One that is going still has its node.
    let going = [Arc::new(deleting((*there[0]).clone())), there[1].clone()];
    assert_eq!(run(&set, &nodes, &going, "one").steps, []);
}

#[test]
fn a_pod_says_which_node_it_is_for_before_it_is_there() {
    let (set, nodes) = (set(), nodes());
    let waiting: Vec<Arc<Pod>> = pods(&set, &nodes)
        .iter()
        .map(|pod| {
            let mut pod = (**pod).clone();
            pod.spec.node_name.clear();
            Arc::new(pod)
        })
        .collect();
    assert_eq!(run(&set, &nodes, &waiting, "one").steps, []);
    let tolerated = &waiting[0].spec.tolerations;
    let keys = tolerated.iter().map(|toleration| toleration.key.as_str());
    assert!(
        keys.into_iter()
            .any(|key| key == "node.kubernetes.io/unschedulable")
    );
}

#[test]
fn taints_and_selectors_keep_pods_away() {
    let mut set = set();
    let tainted = |effect: &str| node("a", &json!([{"key": "k", "value": "v", "effect": effect}]));
    let there = pods(&set, &[node("a", &json!([]))]);
    for (effect, comes, stays) in [("NoSchedule", false, true), ("NoExecute", false, false)] {
        let nodes = [tainted(effect)];
        assert_eq!(
            !run(&set, &nodes, &[], "one").steps.is_empty(),
            comes,
            "{effect}"
        );
        assert_eq!(
            run(&set, &nodes, &there, "one").steps.is_empty(),
            stays,
            "{effect}"
        );
    }
    set.spec.template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    assert_eq!(
        run(&set, &[tainted("NoExecute")], &[], "one").steps.len(),
        1
    );
    set.spec.template["spec"]["nodeSelector"] = json!({"disk": "b"});
    assert_eq!(run(&set, &nodes(), &[], "one").steps.len(), 1);
}

#[test]
fn a_new_template_reaches_one_node_after_the_other() {
    let (set, nodes) = (set(), nodes());
    let mut there = pods(&set, &nodes);
    let steps = run(&set, &nodes, &there, "two").steps;
    assert_eq!(steps, [Step::DeletePod(there[0].clone())]);
    // One that doesn't work is missing already: it goes, and the other waits.
    there[1] = unready(&there[1]);
    let steps = run(&set, &nodes, &there, "two").steps;
    assert_eq!(steps, [Step::DeletePod(there[1].clone())]);
}

#[test]
fn pods_of_nodes_that_are_gone_go() {
    let (set, nodes) = (set(), nodes());
    let there = pods(&set, &nodes);
    let steps = run(&set, &nodes[..1], &there, "one").steps;
    assert_eq!(steps, [Step::DeletePod(there[1].clone())]);
}
