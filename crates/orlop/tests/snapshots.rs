//! Snapshots with the real binary, the local driver and the real kubectl.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use support::{Machine, life};

/// A claim that is filled from something, and a pod that prints the file in it.
fn copy(name: &str, source: &str) -> String {
    let life = life(name, "cat /v/file; exec sleep infinity", "");
    life.replacen(
        "spec:\n",
        &format!("spec:\n  dataSource: {{{source}}}\n"),
        1,
    )
}

const CUT: &str = "apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: cut}
spec:
  source: {persistentVolumeClaimName: data}
";

#[test]
fn a_snapshot_is_taken_restored_and_cloned_under_kubectl() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    let told = "snapshots    VolumeSnapshots and VolumeGroupSnapshots of class local (default)";
    assert!(machine.printed(told), "{}", machine.transcript());
    let write = "echo kept > /v/file; sync; exec sleep infinity";
    machine.apply(&life("data", write, ""));
    let ready = [
        "wait",
        "--for=condition=Ready",
        "pod",
        "--all",
        "--timeout=30s",
    ];
    machine.kubectl(&ready);
    machine.apply(CUT);
    machine.kubectl(&[
        "wait",
        "--for=jsonpath={.status.readyToUse}=true",
        "volumesnapshot/cut",
        "--timeout=30s",
    ]);
    let table = machine.kubectl(&["get", "volumesnapshot", "cut"]);
    for text in [
        "READYTOUSE",
        "SOURCEPVC",
        "RESTORESIZE",
        "true",
        "data",
        "32Mi",
        "local",
    ] {
        assert!(table.contains(text), "{text} is missing:\n{table}");
    }
    let story = machine.kubectl(&["describe", "volumesnapshot", "cut"]);
    for text in ["CreatingSnapshot", "SnapshotCreated", "SnapshotReady"] {
        assert!(story.contains(text), "{text} is missing:\n{story}");
    }
    let snapshot = "apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: cut";
    let claim = "kind: PersistentVolumeClaim, name: data";
    machine.apply(&copy("restored", snapshot));
    machine.apply(&copy("cloned", claim));
    machine.kubectl(&ready);
    for pod in ["restored", "cloned"] {
        assert_eq!(machine.kubectl(&["logs", pod]), "kept\n", "{pod}");
    }

    machine.kubectl(&["delete", "pod,volumesnapshot,pvc", "--all", "--timeout=30s"]);
    machine.wait_none("pv,volumeattachments,volumesnapshotcontents");
    assert_eq!(machine.leftovers(), Vec::<String>::new());
    machine.stop();
}
