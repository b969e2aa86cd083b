//! Every role as a process of its own, over HTTPS, as on a cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use support::{Machine, PATIENCE, life};

/// A role that ends with the test.
struct Role(Child);

impl Role {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn roles_in_processes_of_their_own_carry_a_claim_through_its_life() {
    needs_a_machine!();
    let mut machine = Machine::command("apiserver", &[]);
    machine.start();
    let folder = machine.path().to_owned();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let kubeconfig = text(&machine.kubeconfig());
    let root = folder.join("nodes/node-1");
    let socket = root.join("plugins/local/csi.sock");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let (endpoint, path) = (format!("unix://{}", socket.display()), text(&socket));
    let (pool, registry) = (
        text(&folder.join("pools/node-1")),
        text(&root.join("plugins_registry")),
    );
    let root = text(&root);
    let cluster = ["--kubeconfig", kubeconfig.as_str()];

    let _driver = Role::start(&[
        "driver",
        "local",
        "--endpoint",
        &endpoint,
        "--nodeid",
        "node-1",
        "--pool",
        &pool,
        "--kubelet-dir",
        &root,
    ]);
    let _node =
        Role::start(&[&["node", "--name", "node-1", "--root", &root][..], &cluster].concat());
    wait_for("the node's folder", || Path::new(&registry).exists());
    let _registrar = Role::start(&[
        "node-registrar",
        "--csi-address",
        &path,
        "--kubelet-registration-path",
        &path,
        "--plugin-registration-path",
        &registry,
    ]);
    let _control = Role::start(&[&["control", "--leader-election"][..], &cluster].concat());
    let _scheduler = Role::start(&[&["scheduler"][..], &cluster].concat());
    let _controller =
        Role::start(&[&["controller", "--csi-address", &path][..], &cluster].concat());

    machine.apply(
        "apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: local.csi.orlop.dev}
spec: {attachRequired: true}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}
provisioner: local.csi.orlop.dev
volumeBindingMode: WaitForFirstConsumer
",
    );
    machine.apply(&life(
        "apart",
        "echo here > /v/x && exec sleep infinity",
        "",
    ));
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/apart",
        "--timeout=60s",
    ]);
    machine.kubectl(&["delete", "pod,pvc", "--all", "--timeout=60s"]);
    machine.wait_none("pods,pvc,pv,volumeattachments");
    wait_for("an empty machine", || machine.leftovers().is_empty());
}
