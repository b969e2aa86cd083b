//! Volumes of type `nfs`, which the node mounts without a driver, in pods of `orlop up`.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{Machine, PATIENCE};
use crate::{in_guest, server};

/// A pod that writes `written` to its volume and stays.
fn pod(name: &str, volume: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      command: [sh, -c, 'mkdir -p /v/deep; echo {name} > /v/deep/written; sleep 3600']
      volumeMounts: [{{name: v, mountPath: /v}}]
  volumes:
    - name: v
      {volume}
"
    )
}

/// A volume that is scrubbed when its claim is gone, and a claim of it.
const RECYCLED: &str = "apiVersion: v1
kind: PersistentVolume
metadata:
  name: scrubbed
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Recycle
  storageClassName: ''
  mountOptions: [nfsvers=4.1]
  nfs: {server: 127.0.0.1, path: /data/scrubbed}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: scrubbed
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ''
  resources: {requests: {storage: 1Gi}}
---
";

fn wait(machine: &Machine, what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(
            begin.elapsed() < PATIENCE * 2,
            "waited in vain: {what}\n{}\n{}",
            machine.kubectl(&["describe", "pods,pv,pvc"]),
            machine.transcript()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn pods_have_folders_of_a_server_and_released_ones_are_scrubbed() {
    in_guest!();
    server::kernel();
    for folder in ["inline", "scrubbed"] {
        fs::create_dir(server::path("data", folder)).unwrap();
    }
    let mut machine = Machine::up(&[]);
    machine.apply(&pod(
        "inline",
        "nfs: {server: 127.0.0.1, path: /data/inline}",
    ));
    machine.apply(&format!(
        "{RECYCLED}{}",
        pod("claimed", "persistentVolumeClaim: {claimName: scrubbed}")
    ));
    let ready = ["wait", "--for=condition=Ready", "pods", "--all"];
    machine.kubectl(&[&ready[..], &["--timeout=120s"]].concat());
    for (folder, name) in [("inline", "inline"), ("scrubbed", "claimed")] {
        let file = server::path("data", folder).join("deep/written");
        wait(&machine, "the pod has written", || {
            fs::read_to_string(&file).is_ok_and(|text| text.trim() == name)
        });
    }
    // A crash takes nothing from the pods.
    machine.crash();
    machine.start();
    let delete = ["delete", "pods,pvc", "--all", "--timeout=120s"];
    machine.kubectl(&delete);
    wait(&machine, "the volume is scrubbed and free", || {
        let phase = ["get", "pv", "scrubbed", "-o", "jsonpath={.status.phase}"];
        machine.kubectl(&phase) == "Available"
    });
    let left = fs::read_dir(server::path("data", "scrubbed")).unwrap();
    assert_eq!(left.count(), 0, "it is not empty");
    assert!(
        server::path("data", "inline").join("deep/written").exists(),
        "a pod's end deletes nothing on the server"
    );
    machine.stop();
    assert_eq!(crate::client::nfs_mounts(), Vec::<String>::new());
}
