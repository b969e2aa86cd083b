use std::{collections::BTreeSet, sync::Arc};

use orlop_model::{Pod, ReplicaSet};
use serde_json::json;

use super::*;
use crate::fixtures::{deleting, now, object, spec, unready};
use crate::pods::controller_reference;

fn set(replicas: i32) -> ReplicaSet {
    let mut body = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": spec("web", "one"),
    });
    body["spec"]["replicas"] = json!(replicas);
    object(body)
}

fn pod(name: &str, node: &str) -> Arc<Pod> {
    Arc::new(object(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "labels": {"app": "web"}, "ownerReferences": [controller_reference(&set(0))],
        },
        "spec": {"containers": [], "nodeName": node},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    })))
}

fn run(set: &ReplicaSet, pods: &[Arc<Pod>], going: &[&str]) -> Decision {
    let going: BTreeSet<String> = going.iter().map(|uid| (*uid).to_owned()).collect();
    let taken = |name: &str| pods.iter().any(|pod| pod.metadata.name == name);
    decide(&View {
        set,
        pods,
        going: &going,
        taken: &taken,
        now: now(),
    })
}

fn made(decision: &Decision) -> Vec<String> {
    let name = |step: &Step| match step {
        Step::CreatePod(pod) => pod["metadata"]["name"].as_str().unwrap().to_owned(),
        Step::DeletePod(pod) => format!("-{}", pod.metadata.name),
    };
    decision.steps.iter().map(name).collect()
}

#[test]
fn a_lost_answer_makes_no_second_pod() {
    let first = made(&run(&set(2), &[], &[]));
    assert_eq!(first.len(), 2);
    // The pods were made, and the cache doesn't show them: the same names are asked for.
    assert_eq!(made(&run(&set(2), &[], &[])), first);
    // The cache shows one of them: the other one is asked for.
    let shown = [pod(&first[0], "a")];
    assert_eq!(made(&run(&set(2), &shown, &[])), first[1..]);
}

#[test]
fn pods_that_end_or_go_are_replaced() {
    let mut ended = (*pod("ended", "a")).clone();
    ended.status.phase = Some(orlop_model::PodPhase::Failed);
    let going = deleting((*pod("going", "a")).clone());
    let pods = [Arc::new(ended), Arc::new(going), pod("works", "a")];
    let decision = run(&set(2), &pods, &[]);
    assert_eq!(decision.steps.len(), 1);
    assert_eq!(decision.status.replicas, 1);
    assert_eq!(decision.status.terminating_replicas, Some(1));
}

#[test]
fn what_is_worth_least_goes_first() {
    let pods = [
        pod("a", "n1"),
        pod("b", "n1"),
        pod("c", "n2"),
        unready(&pod("d", "n3")),
    ];
    assert_eq!(made(&run(&set(3), &pods, &[])), ["-d"]);
    assert_eq!(made(&run(&set(2), &pods, &[])), ["-d", "-a"]);
    let mut cheap = (*pods[2]).clone();
    let cost = "controller.kubernetes.io/pod-deletion-cost".to_owned();
    cheap.metadata.annotations.insert(cost, "-1".into());
    let pods = [pods[0].clone(), pods[1].clone(), Arc::new(cheap)];
    assert_eq!(made(&run(&set(2), &pods, &[])), ["-c"]);
}

#[test]
fn a_pod_whose_deletion_was_asked_for_counts_as_gone() {
    let pods = [pod("a", "n1"), pod("b", "n1"), pod("c", "n1")];
    assert_eq!(made(&run(&set(2), &pods, &["uid-a"])), [""; 0]);
    assert_eq!(run(&set(2), &pods, &["uid-a"]).status.replicas, 2);
}

#[test]
fn a_set_that_is_deleted_makes_nothing() {
    assert_eq!(run(&deleting(set(2)), &[], &[]).steps, []);
}
