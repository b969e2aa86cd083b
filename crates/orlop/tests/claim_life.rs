//! A claim's whole life with the real binary and the real kubectl.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use support::{Machine, life};

fn examples() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .display()
        .to_string()
}

#[test]
fn a_claim_lives_and_dies_under_kubectl_and_nothing_is_left() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    let mode = fs::metadata(machine.kubeconfig())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "the kubeconfig is a secret");

    machine.kubectl(&["apply", "-f", &examples()]);
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/writer",
        "--timeout=30s",
    ]);

    let table = machine.kubectl(&["get", "sc,pvc,pv,volumeattachment,pod", "-o", "wide"]);
    for text in [
        "PROVISIONER",
        "VOLUMEBINDINGMODE",
        "ACCESS MODES",
        "RECLAIM POLICY",
        "ATTACHER",
        "ATTACHED",
        "RESTARTS",
        "NODE",
        "Bound",
        "Running",
        "1Gi",
        "RWO",
        "fast",
        "true",
    ] {
        assert!(table.contains(text), "{text} is missing:\n{table}");
    }

    let claim = machine.kubectl(&["describe", "pvc", "data"]);
    for text in [
        "Status:        Bound",
        "Used By:       writer",
        "WaitForFirstConsumer",
    ] {
        assert!(claim.contains(text), "{text} is missing:\n{claim}");
    }
    let pod = machine.kubectl(&["describe", "pod", "writer"]);
    for text in ["Scheduled", "SuccessfulAttachVolume", "Started"] {
        assert!(pod.contains(text), "{text} is missing:\n{pod}");
    }
    let log = machine.kubectl(&["logs", "writer"]);
    assert!(log.contains("/data"), "the pod sees its volume:\n{log}");

    let of_node = |path: &str| {
        let path = format!("/api/v1/nodes/node-1/proxy/{path}");
        machine.kubectl(&["get", "--raw", &path])
    };
    let summary = of_node("stats/summary");
    let claim = r#""pvcRef":{"name":"data","namespace":"default"}"#;
    assert!(summary.contains(claim), "{summary}");
    let metrics = of_node("metrics");
    let capacity =
        "kubelet_volume_stats_capacity_bytes{namespace=\"default\",persistentvolumeclaim=\"data\"}";
    assert!(metrics.contains(capacity), "{metrics}");

    // The process wrote into a file system of its own, not into the host's tree.
    assert!(!Path::new("/data/log").exists());

    machine.kubectl(&["delete", "-f", &examples(), "--timeout=30s"]);
    machine.wait_none("pods,pvc,pv,volumeattachments");
    assert_eq!(machine.leftovers(), Vec::<String>::new());
    machine.stop();
}

#[test]
fn state_survives_a_restart() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    machine.kubectl(&["apply", "-f", &examples()]);
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/writer",
        "--timeout=30s",
    ]);
    let uid = machine.kubectl(&["get", "pvc", "data", "-o", "jsonpath={.metadata.uid}"]);
    machine.stop();
    assert!(
        !machine.leftovers().iter().any(|l| !l.ends_with(".img")),
        "a clean stop leaves no mount and no device: {:?}",
        machine.leftovers()
    );
    machine.start();
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/writer",
        "--timeout=30s",
    ]);
    assert_eq!(
        machine.kubectl(&["get", "pvc", "data", "-o", "jsonpath={.metadata.uid}"]),
        uid
    );
    let log = machine.kubectl(&["logs", "writer"]);
    let dates = log
        .lines()
        .filter(|l| l.contains("UTC") || l.contains(':'))
        .count();
    assert!(
        dates >= 2,
        "the second run finds the first one's line:\n{log}"
    );
    machine.stop();
}

#[test]
fn several_nodes_share_one_machine() {
    needs_a_machine!();
    let machine = Machine::up(&["--nodes", "3"]);
    let nodes = machine.kubectl(&["get", "nodes", "-o", "name"]);
    assert_eq!(nodes.lines().count(), 3, "{nodes}");
    for n in 1..=3 {
        let selector = format!("kubernetes.io/hostname: node-{n}");
        machine.apply(&life(
            &format!("p{n}"),
            "touch /v/x; exec sleep infinity",
            &selector,
        ));
    }
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod",
        "--all",
        "--timeout=30s",
    ]);
    let placed = machine.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]);
    assert_eq!(placed, "node-1 node-2 node-3");
    machine.kubectl(&["delete", "pod,pvc", "--all", "--timeout=30s"]);
    machine.wait_none("pv,volumeattachments");
    assert_eq!(machine.leftovers(), Vec::<String>::new());
}
