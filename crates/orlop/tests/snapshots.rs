//! Snapshots with the real binary, the local driver and the real kubectl.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

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

/// A program that ends with the test, and what it says.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(folder: &Path, words: &[&str]) -> Self {
        let log = folder.join(format!("{}.log", words[0]));
        let child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(words)
            .env_remove("KUBECONFIG")
            .env_remove("POD_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

const OLD: &str = "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: local.csi.orlop.dev
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata:
  name: local
  annotations: {snapshot.storage.kubernetes.io/is-default-class: 'true'}
driver: local.csi.orlop.dev
deletionPolicy: Delete
parameters:
  csi.storage.k8s.io/snapshotter-secret-name: ${volumesnapshot.name}-key
  csi.storage.k8s.io/snapshotter-secret-namespace: ${volumesnapshot.namespace}
---
apiVersion: v1
kind: Secret
metadata: {name: cut-key}
stringData: {token: hunter2}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 32Mi}}
";

#[test]
fn snapshots_are_cut_found_again_and_measured_under_the_originals_names() {
    needs_a_machine!();
    let mut machine = Machine::command("apiserver", &[]);
    machine.start();
    let folder = machine.path().to_owned();
    let socket = folder.join("csi.sock").display().to_string();
    let (endpoint, pool) = (format!("unix://{socket}"), folder.join("pool"));
    let words = [
        "driver",
        "local",
        "--endpoint",
        &endpoint,
        "--nodeid",
        "n",
        "--reserve",
        "0%",
    ];
    let pool = ["--pool", pool.to_str().unwrap()];
    let _driver = Running::start(&folder, &[&words[..], &pool].concat());
    for manifest in ["snapshots.yaml", "group-snapshots.yaml"] {
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        machine.kubectl(&["apply", "-f", crds.join(manifest).to_str().unwrap()]);
    }
    let kubeconfig = format!("--kubeconfig={}", machine.kubeconfig().display());
    let address = format!("--csi-address={socket}");
    let (beside, central) = (free_port(), free_port());
    let [beside_at, central_at] =
        [beside, central].map(|port| format!("--http-endpoint=127.0.0.1:{port}"));
    let _control = Running::start(&folder, &["control", &kubeconfig]);
    let _provisioner = Running::start(&folder, &["csi-provisioner", &kubeconfig, &address]);
    let snapshotter = Running::start(
        &folder,
        &[
            "csi-snapshotter",
            &kubeconfig,
            &address,
            &beside_at,
            "-leader-election",
            "-v=5",
            "-snapshot-name-prefix=nightly",
            "-snapshot-name-uuid-length=8",
            "-extra-create-metadata",
        ],
    );
    let controller = [
        "snapshot-controller",
        &kubeconfig,
        &central_at,
        "-leader-election",
    ];
    let _controller = Running::start(&folder, &controller);
    machine.apply(OLD);
    machine.kubectl(&[
        "wait",
        "--for=jsonpath={.status.phase}=Bound",
        "pvc/data",
        "--timeout=60s",
    ]);
    machine.apply(CUT);
    let ready = |name: &str| {
        let name = format!("volumesnapshot/{name}");
        let until = "--for=jsonpath={.status.readyToUse}=true";
        machine.kubectl(&["wait", until, &name, "--timeout=60s"]);
    };
    ready("cut");
    let said = snapshotter.said();
    assert!(said.contains("subject=\"nightly-"), "{said}");
    assert!(!said.contains("hunter2"), "a secret is logged");

    // The same snapshot once more, as one that was there before.
    let of = "jsonpath={.items[0].status.snapshotHandle}";
    let handle = machine.kubectl(&["get", "volumesnapshotcontent", "-o", of]);
    machine.apply(&format!(
        "apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {{name: found}}
spec:
  driver: local.csi.orlop.dev
  deletionPolicy: Retain
  source: {{snapshotHandle: {handle}}}
  volumeSnapshotRef: {{name: again, namespace: default}}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {{name: again}}
spec:
  source: {{volumeSnapshotContentName: found}}
"
    ));
    ready("again");
    machine.kubectl(&["delete", "volumesnapshot", "--all", "--timeout=60s"]);
    let left = machine.kubectl(&["get", "volumesnapshotcontent", "-o", "name"]);
    assert_eq!(
        left.trim(),
        "volumesnapshotcontent.snapshot.storage.k8s.io/found"
    );

    let metrics = get(central, "/metrics");
    let operation = |name: &str, kind: &str| {
        format!(
            "snapshot_controller_operation_total_seconds_count{{\
             driver_name=\"local.csi.orlop.dev\",operation_name=\"{name}\",\
             snapshot_type=\"{kind}\",operation_status=\"success\"}} 1"
        )
    };
    for line in [
        operation("CreateSnapshot", "dynamic"),
        operation("CreateSnapshotAndReady", "dynamic"),
        operation("CreateSnapshotAndReady", "pre-provisioned"),
        operation("DeleteSnapshot", "dynamic"),
        operation("DeleteSnapshot", "pre-provisioned"),
        "snapshot_controller_operations_in_flight 0".to_owned(),
        "leader_election_master_status{name=\"snapshot-controller-leader\"} 1".to_owned(),
        "leader_election_slowpath_total{name=\"snapshot-controller-leader\"} 0".to_owned(),
        "workqueue_adds_total{name=\"snapshot-controller-snapshot\"} ".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    let metrics = get(beside, "/metrics");
    for line in [
        "method_name=\"/csi.v1.Controller/CreateSnapshot\",grpc_status_code=\"OK\"} 1",
        "workqueue_adds_total{name=\"csi-snapshotter-content\"} ",
        "leader_election_master_status{name=\"external-snapshotter-leader-local-csi-orlop-dev\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    for port in [beside, central] {
        let health = get(port, "/healthz/leader-election");
        assert!(health.ends_with("ok"), "{health}");
    }
}
