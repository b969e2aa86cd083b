//! Every role as a process of its own, over HTTPS, as on a cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
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

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Metrics that dashboards for the original select on.
fn told(metrics: &str, wanted: &[&str]) {
    for one in wanted {
        assert!(metrics.contains(one), "{one:?} is not in {metrics}");
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
    let port = free_port();
    let endpoint = format!("--http-endpoint=127.0.0.1:{port}");
    let _control =
        Role::start(&[&["control", "--leader-election", &endpoint][..], &cluster].concat());
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
    for path in ["/healthz", "/healthz/leader-election"] {
        assert!(get(port, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    let attached = "storage_operation_duration_seconds_count{\
                    volume_plugin=\"kubernetes.io/csi:local.csi.orlop.dev\",\
                    operation_name=\"volume_attach\",status=\"success\",migrated=\"false\"} 1\n";
    told(
        &get(port, "/metrics"),
        &[
            attached,
            "storage_count_attachable_volumes_in_use{node=\"node-1\"",
            "attachdetach_controller_total_volumes{",
            "pv_collector_total_pv_count{",
            "pv_collector_bound_pv_count{storage_class=\"local\"} 1\n",
            "pv_collector_bound_pvc_count{namespace=\"default\"",
            "volume_operation_total_seconds_count{",
            "volume_operation_total_errors ",
            "ephemeral_volume_controller_create_total 0\n",
            "ephemeral_volume_controller_create_failures_total 0\n",
            "retroactive_storageclass_total 0\n",
            "leader_election_master_status{name=\"orlop-control\"} 1\n",
            "workqueue_depth{",
        ],
    );
    machine.kubectl(&["delete", "pod,pvc", "--all", "--timeout=60s"]);
    machine.wait_none("pods,pvc,pv,volumeattachments");
    let detached = attached.replace("volume_attach\"", "volume_detach\"");
    wait_for("the detachment's duration", || {
        get(port, "/metrics").contains(&detached)
    });
    wait_for("an empty machine", || machine.leftovers().is_empty());
}
