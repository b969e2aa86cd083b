//! Claims that grow, with the real binary, the real kubectl and real file systems.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use support::{Machine, PATIENCE};

const MI: u64 = 1 << 20;

/// A class, a claim of it and a pod that tells the size of its volume for ever.
fn watched(fs_type: &str, size: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {fs_type}
provisioner: local.csi.orlop.dev
parameters: {{csi.storage.k8s.io/fstype: {fs_type}}}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: {fs_type}
  resources: {{requests: {{storage: {size}}}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: watcher
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      command:
        - sh
        - -c
        - >-
          [ -e /v/kept ] || echo 4711 > /v/kept;
          while :; do echo $(cat /v/kept) $(df -B1 --output=size /v | tail -n 1); sleep 0.2; done
      volumeMounts: [{{name: v, mountPath: /v}}]
  volumes:
    - name: v
      persistentVolumeClaim: {{claimName: data}}
"
    )
}

fn ready(machine: &Machine) {
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/watcher",
        "--timeout=60s",
    ]);
}

fn ask(machine: &Machine, size: &str) {
    let patch = format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#);
    machine.kubectl(&["patch", "pvc", "data", "-p", &patch]);
}

fn claim(machine: &Machine, path: &str) -> String {
    let path = format!("jsonpath={{{path}}}");
    machine.kubectl(&["get", "pvc", "data", "-o", &path])
}

fn wait(machine: &Machine, what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        let described = || machine.kubectl(&["describe", "pvc", "data"]);
        assert!(
            started.elapsed() < PATIENCE,
            "waited in vain: {what}\n{}\n{}",
            described(),
            machine.transcript()
        );
        thread::sleep(Duration::from_millis(100));
    }
}

/// What the pod says last: what it kept, and how many bytes its file system has.
fn seen(machine: &Machine) -> Option<(String, u64)> {
    let log = machine.kubectl(&["logs", "watcher", "--tail=1"]);
    let (kept, bytes) = log.trim().split_once(' ')?;
    Some((kept.to_owned(), bytes.trim().parse().ok()?))
}

#[test]
fn an_xfs_volume_grows_under_a_running_pod() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    machine.apply(&watched("xfs", "320Mi"));
    ready(&machine);
    wait(&machine, "the pod tells a size", || {
        seen(&machine).is_some_and(|(_, bytes)| bytes < 330 * MI)
    });

    ask(&machine, "640Mi");
    wait(&machine, "the claim has its new size", || {
        claim(&machine, ".status.capacity.storage") == "640Mi"
    });
    wait(&machine, "the pod sees it", || {
        seen(&machine).is_some_and(|(kept, bytes)| kept == "4711" && bytes > 500 * MI)
    });
    assert_eq!(
        claim(&machine, ".status.allocatedResourceStatuses.storage"),
        ""
    );
    assert_eq!(claim(&machine, ".status.conditions[*].type"), "");
    let pv = machine.kubectl(&[
        "get",
        "pv",
        "-o",
        "jsonpath={.items[0].spec.capacity.storage}",
    ]);
    assert_eq!(pv, "640Mi");
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    let restarts = machine.kubectl(&["get", "pod", "watcher", "-o", restarts]);
    assert_eq!(restarts, "0", "it never stopped");
    let events = machine.kubectl(&["describe", "pvc", "data"]);
    for reason in [
        "Resizing",
        "FileSystemResizeRequired",
        "FileSystemResizeSuccessful",
    ] {
        assert!(events.contains(reason), "{reason} is missing:\n{events}");
    }

    // And once more after a crash in the middle of nowhere.
    ask(&machine, "700Mi");
    machine.crash();
    machine.start();
    wait(&machine, "the claim grows on", || {
        claim(&machine, ".status.capacity.storage") == "700Mi"
    });
    machine.kubectl(&["delete", "pod,pvc", "--all", "--timeout=60s"]);
    machine.wait_none("pv,volumeattachments");
    assert_eq!(machine.leftovers(), Vec::<String>::new());
    machine.stop();
}

#[test]
fn a_volume_that_nobody_uses_grows_when_a_pod_comes() {
    needs_a_machine!();
    let machine = Machine::up(&[]);
    machine.apply(&watched("xfs", "320Mi"));
    ready(&machine);
    machine.kubectl(&["delete", "pod", "watcher", "--timeout=60s"]);
    ask(&machine, "640Mi");
    wait(&machine, "the claim waits for a node", || {
        claim(&machine, ".status.allocatedResourceStatuses.storage") == "NodeResizePending"
    });
    assert_eq!(claim(&machine, ".status.capacity.storage"), "320Mi");
    machine.apply(&watched("xfs", "640Mi"));
    ready(&machine);
    wait(&machine, "it has grown", || {
        claim(&machine, ".status.capacity.storage") == "640Mi"
    });
    wait(&machine, "the pod sees it", || {
        seen(&machine).is_some_and(|(kept, bytes)| kept == "4711" && bytes > 500 * MI)
    });
}

#[test]
fn a_block_device_grows_under_a_running_pod() {
    needs_a_machine!();
    let machine = Machine::up(&[]);
    let files = watched("xfs", "32Mi");
    let devices = files
        .replace("  accessModes:", "  volumeMode: Block\n  accessModes:")
        .replace(
            "volumeMounts: [{name: v, mountPath: /v}]",
            "volumeDevices: [{name: v, devicePath: /dev/v}]",
        )
        .replace("[ -e /v/kept ] || echo 4711 > /v/kept;", "")
        .replace(
            "$(cat /v/kept) $(df -B1 --output=size /v | tail -n 1)",
            "block $(blockdev --getsize64 /dev/v)",
        );
    machine.apply(&devices);
    ready(&machine);
    ask(&machine, "64Mi");
    wait(&machine, "the claim has its new size", || {
        claim(&machine, ".status.capacity.storage") == "64Mi"
    });
    wait(&machine, "the pod sees it", || {
        seen(&machine) == Some(("block".to_owned(), 64 * MI))
    });
}

#[test]
fn a_mounted_ext4_grows_or_says_which_right_is_missing() {
    needs_a_machine!();
    let machine = Machine::up(&[]);
    machine.apply(&watched("ext4", "32Mi"));
    ready(&machine);
    ask(&machine, "64Mi");
    if may_grow_ext4() {
        wait(&machine, "it has grown", || {
            claim(&machine, ".status.capacity.storage") == "64Mi"
        });
        return;
    }
    wait(&machine, "the claim says why not", || {
        let conditions = claim(&machine, ".status.conditions");
        conditions.contains("NodeResizeError") && conditions.contains("CAP_SYS_RESOURCE")
    });
    assert_eq!(claim(&machine, ".status.capacity.storage"), "32Mi");
    wait(&machine, "an event says so too", || {
        let told = machine.kubectl(&["describe", "pod", "watcher"]);
        told.contains("VolumeResizeFailed") && told.contains("CAP_SYS_RESOURCE")
    });
}

/// Whether we have CAP_SYS_RESOURCE, which growing a mounted ext4 takes.
fn may_grow_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let effective = u64::from_str_radix(effective.unwrap().trim(), 16).unwrap();
    effective & (1 << 24) != 0
}
