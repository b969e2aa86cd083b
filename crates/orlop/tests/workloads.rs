//! StatefulSets, Deployments and DaemonSets with the real binary, the real kubectl and real
//! volumes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use support::{Machine, PATIENCE};

fn rolled_out(machine: &Machine, what: &str) {
    machine.kubectl(&["rollout", "status", what, "--timeout=60s"]);
}

fn get(machine: &Machine, what: &str, path: &str) -> String {
    machine.kubectl(&["get", what, "-o", &format!("jsonpath={{{path}}}")])
}

fn wait(machine: &Machine, what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < PATIENCE,
            "waited in vain: {what}\n{}\n{}",
            machine.kubectl(&["get", "sts,deploy,rs,ds,pod,pvc"]),
            machine.transcript()
        );
        thread::sleep(Duration::from_millis(100));
    }
}

/// How often a pod says that it started.
fn starts(machine: &Machine, pod: &str) -> usize {
    let log = machine.kubectl(&["logs", pod]);
    log.matches(&format!("start of {pod}")).count()
}

#[test]
fn a_stateful_set_keeps_its_pods_data_through_its_life() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/stateful-set.yaml");
    machine.kubectl(&["apply", "-f", example.to_str().unwrap()]);
    rolled_out(&machine, "sts/counter");
    let volumes = get(&machine, "pvc", ".items[*].spec.volumeName");
    assert_eq!(volumes.split(' ').count(), 3, "{volumes}");

    // A pod that is killed comes back with its data.
    let before = get(&machine, "pod/counter-1", ".metadata.uid");
    machine.kubectl(&["delete", "pod", "counter-1"]);
    wait(&machine, "counter-1 is back", || {
        let uid = machine.kubectl(&[
            "get",
            "pod",
            "counter-1",
            "--ignore-not-found",
            "-o",
            "jsonpath={.metadata.uid}",
        ]);
        !uid.is_empty() && uid != before
    });
    rolled_out(&machine, "sts/counter");
    wait(&machine, "its second start", || {
        starts(&machine, "counter-1") == 2
    });

    // A new template reaches every pod, and an undo takes it back.
    let old = get(&machine, "sts/counter", ".status.currentRevision");
    machine.kubectl(&["set", "env", "sts/counter", "ROUND=2"]);
    rolled_out(&machine, "sts/counter");
    let hashes = get(
        &machine,
        "pod",
        ".items[*].metadata.labels.controller-revision-hash",
    );
    assert!(!hashes.contains(&old), "{hashes}");
    wait(&machine, "its third start", || {
        starts(&machine, "counter-1") == 3
    });

    // Scaled down, its claims stay, as the policy says; deleted, they go.
    machine.kubectl(&["scale", "sts/counter", "--replicas=1"]);
    machine.wait_none_of("pod", "counter-1");
    let claims = get(&machine, "pvc", ".items[*].metadata.name");
    assert_eq!(claims, "data-counter-0 data-counter-1 data-counter-2");
    assert_eq!(get(&machine, "pvc", ".items[*].spec.volumeName"), volumes);
    machine.kubectl(&["delete", "sts", "counter"]);
    machine.wait_none("pod,pvc,pv");
    machine.stop();
    assert_eq!(machine.leftovers(), [""; 0]);
}

const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: &template
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: one, command: [sleep, infinity]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: one, command: [sleep, infinity]}]
";

#[test]
fn a_deployment_rolls_out_and_back_and_a_daemon_is_on_every_node() {
    needs_a_machine!();
    let mut machine = Machine::up(&["--nodes", "2"]);
    machine.apply(&WEB.replace(" &template", ""));
    rolled_out(&machine, "deploy/web");
    rolled_out(&machine, "ds/agent");
    let path = ".items[?(@.metadata.labels.app==\"agent\")].spec.nodeName";
    let agents = get(&machine, "pod", path);
    let mut agents: Vec<&str> = agents.split(' ').collect();
    agents.sort_unstable();
    assert_eq!(agents, ["node-1", "node-2"]);

    machine.kubectl(&["set", "image", "deploy/web", "main=two"]);
    rolled_out(&machine, "deploy/web");
    let images = || {
        get(
            &machine,
            "rs",
            ".items[?(@.spec.replicas>0)].spec.template.spec.containers[0].image",
        )
    };
    assert_eq!(images(), "two");
    machine.kubectl(&["rollout", "undo", "deploy/web"]);
    rolled_out(&machine, "deploy/web");
    assert_eq!(images(), "one");
    let history = machine.kubectl(&["rollout", "history", "deploy/web"]);
    assert!(
        history.contains("\n2 ") && history.contains("\n3 "),
        "{history}"
    );

    machine.kubectl(&["scale", "deploy/web", "--replicas=1"]);
    wait(&machine, "one is left", || {
        get(&machine, "deploy/web", ".status.replicas") == "1"
    });
    let table = machine.kubectl(&["get", "deploy,ds", "-o", "wide"]);
    assert!(
        table.contains("1/1") && table.contains("app=agent"),
        "{table}"
    );
    machine.kubectl(&["delete", "deploy/web", "ds/agent"]);
    machine.wait_none("pod,rs,controllerrevision");
    machine.stop();
}
