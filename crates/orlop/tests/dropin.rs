//! The binary under the names of the Go sidecars and csi-driver-nfs, as manifests call them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use support::{Machine, PATIENCE};

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(words)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

/// What it ends with and says, both ways.
fn said(words: &[&str]) -> (Option<i32>, String, String) {
    let output = run(words);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_wrong_flag_ends_as_in_go() {
    let (code, _, error) = said(&["csi-attacher", "-nonsense"]);
    assert_eq!(code, Some(2));
    let start = "flag provided but not defined: -nonsense\nUsage of csi-attacher:\n  -";
    assert!(error.starts_with(start), "{error}");
    let (code, _, error) = said(&["csi-provisioner", "--nonsense"]);
    assert_eq!(code, Some(2));
    assert!(error.starts_with("unknown flag: --nonsense\n"), "{error}");
    let (code, _, error) = said(&["csi-resizer", "-leader-election-labels=a"]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("malformed item in list of labels: a"),
        "{error}"
    );
    let (code, _, error) = said(&["livenessprobe", "-probe-timeout=3"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("time: invalid duration \"3\""), "{error}");
}

#[test]
fn help_and_version_end_well() {
    let (code, _, help) = said(&["snapshot-controller", "-help"]);
    assert_eq!(code, Some(0));
    assert!(
        help.contains("  -leader-election-lease-duration duration\n"),
        "{help}"
    );
    let (code, version, _) = said(&["csi-resizer", "--version"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        version,
        format!("csi-resizer v{}\n", env!("CARGO_PKG_VERSION"))
    );
    let (code, _, help) = said(&["controller", "--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("  -attacher-timeout duration\n"), "{help}");
}

#[test]
fn what_can_not_be_done_is_refused_at_the_start() {
    for (words, why) in [
        (
            &["csi-attacher", "-worker-threads=0"][..],
            "must be greater than zero",
        ),
        (
            &["csi-attacher", "-http-endpoint=:1", "-metrics-address=:2"],
            "only one of",
        ),
        (
            &["csi-attacher", "-retry-interval-start=0"],
            "-retry-interval-start must be greater than zero",
        ),
        (
            &[
                "csi-attacher",
                "-http-endpoint=:1",
                "-metrics-path=/healthz",
            ],
            "health is served there",
        ),
        (
            &["csi-provisioner", "--volume-name-uuid-length=0"],
            "all would have one name",
        ),
        (
            &["livenessprobe", "-health-port=none"],
            "--health-port=none",
        ),
        (
            &["nfsplugin", "-nodeid=n", "--mount-permissions=65536"],
            "use permissions such as 0777",
        ),
        (
            &["csi-provisioner", "--enable-pprof"],
            "--enable-pprof=true: ",
        ),
        (
            &["csi-resizer", "-feature-gates=Nonsense=true"],
            "unrecognized feature gate: Nonsense",
        ),
        (
            &["csi-node-driver-registrar"],
            "kubelet-registration-path is a required parameter",
        ),
        (
            &["controller", "--controllers=nonsense"],
            "there is no controller \"nonsense\"",
        ),
    ] {
        let (code, _, error) = said(words);
        assert_eq!(code, Some(1), "{words:?}: {error}");
        assert!(error.contains(why), "{words:?}: {error}");
    }
    let probe = [
        "csi-node-driver-registrar",
        "--mode=kubelet-registration-probe",
    ];
    assert_eq!(said(&probe).0, Some(0));
}

#[test]
fn a_link_of_the_name_is_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("csi-snapshotter");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_orlop"), &link).unwrap();
    let output = Command::new(&link).arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with(&format!("{} v", link.display())), "{said}");
}

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn start(words: &[&str]) -> Self {
        Self::telling(words, Stdio::inherit())
    }

    /// Its log goes to a file.
    fn logging(words: &[&str], log: &Path) -> Self {
        Self::telling(words, fs::File::create(log).unwrap().into())
    }

    fn telling(words: &[&str], log: Stdio) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(words)
            .env_remove("KUBECONFIG")
            .env_remove("POD_NAMESPACE")
            .env_remove("ORLOP_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Asks it to end, and waits until it has.
    fn stop(mut self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// What is answered at a path; nothing while nobody listens.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn sidecars_under_their_old_names_make_a_volume_and_tell_how_they_are() {
    needs_a_machine!();
    let mut machine = Machine::command("apiserver", &[]);
    machine.start();
    let folder = machine.path().to_owned();
    let socket = folder.join("csi.sock");
    let endpoint = format!("unix://{}", socket.display());
    let pool = folder.join("pool").display().to_string();
    let driver = [
        "driver",
        "local",
        "--endpoint",
        &endpoint,
        "--nodeid",
        "n",
        "--reserve",
        "0%",
        "--pool",
        &pool,
    ];
    let driver = Running::start(&driver);
    let kubeconfig = format!("--kubeconfig={}", machine.kubeconfig().display());
    let address = format!("--csi-address={}", socket.display());
    let (port, probe_port, all_port) = (free_port(), free_port(), free_port());
    let served = format!("--http-endpoint=127.0.0.1:{port}");
    let words = [
        "csi-provisioner",
        &kubeconfig,
        &address,
        &served,
        "--leader-election",
        "--timeout=30s",
    ];
    let logs = ["provisioner.log", "controller.log"].map(|name| folder.join(name));
    let _provisioner = Running::logging(&words, &logs[0]);
    let probed = format!("-http-endpoint=127.0.0.1:{probe_port}");
    let _probe = Running::start(&["livenessprobe", &address, &probed]);
    let both = format!("--http-endpoint=127.0.0.1:{all_port}");
    let words = [
        "controller",
        &kubeconfig,
        &address,
        &both,
        "--controllers=attacher,resizer",
        "--leader-election",
        "--timeout=20s",
    ];
    let both = Running::logging(&words, &logs[1]);
    let _control = Running::start(&["control", &kubeconfig]);
    machine.apply(
        "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: local.csi.orlop.dev
parameters: {csi.storage.k8s.io/fstype: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 32Mi}}
",
    );
    let bound = [
        "wait",
        "--for=jsonpath={.status.phase}=Bound",
        "pvc/data",
        "--timeout=60s",
    ];
    machine.kubectl(&bound);
    let holder = [
        "get",
        "lease",
        "local-csi-orlop-dev",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    assert!(!machine.kubectl(&holder).trim().is_empty());

    let path = r"jsonpath={.items[0].spec.csi.volumeAttributes.storage\.kubernetes\.io/csiProvisionerIdentity}";
    let maker = machine.kubectl(&["get", "pv", "-o", path]);
    let parts: Vec<&str> = maker.trim().splitn(3, '-').collect();
    assert_eq!(parts[2], "local.csi.orlop.dev", "{maker}");

    let metrics = get(port, "/metrics").unwrap();
    for line in [
        "csi_sidecar_operations_seconds_count{driver_name=\"local.csi.orlop.dev\",\
         method_name=\"/csi.v1.Controller/CreateVolume\",grpc_status_code=\"OK\"} 1",
        "leader_election_master_status{name=\"local-csi-orlop-dev\"} 1",
        "controller_persistentvolumeclaim_provision_total{class=\"local\",source=\"\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let ok = |port, path| {
        get(port, path).is_some_and(|text| text.starts_with("HTTP/1.1 200") && text.ends_with("ok"))
    };
    assert!(ok(port, "/healthz/leader-election"));
    until("the probe", || ok(probe_port, "/healthz").then_some(()));
    until("the controllers", || ok(all_port, "/healthz").then_some(()));

    // Whoever looks at a log sees, without asking for more, who works for whom and what came of it.
    both.stop();
    let [provisioner, controller] = logs.map(|log| fs::read_to_string(log).unwrap());
    for words in [
        "met the driver",
        "driver=\"local.csi.orlop.dev\"",
        "leading",
    ] {
        assert!(provisioner.contains(words), "{words}: {provisioner}");
        assert!(controller.contains(words), "{words}: {controller}");
    }
    assert!(
        provisioner.contains("provisioned claim=default/data"),
        "{provisioner}"
    );
    let end = "stopped working, and gave the lease up";
    assert!(controller.contains(end), "{controller}");

    let kubeconfig = machine.kubeconfig().display().to_string();
    let socket = socket.display().to_string();
    let leaks = [
        "leaks",
        "--csi-address",
        &socket,
        "--kubeconfig",
        &kubeconfig,
    ];
    let (code, text, error) = said(&leaks);
    assert_eq!(code, Some(0), "{text}{error}");
    assert_eq!(text, "local.csi.orlop.dev: nothing leaked\n");
    // A volume whose object was lost: kept, and let go by hand.
    let keep = r#"{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}"#;
    let volume = machine.kubectl(&["get", "pv", "-o", "name"]);
    machine.kubectl(&["patch", volume.trim(), "-p", keep]);
    machine.kubectl(&["delete", "pvc", "data", "--timeout=60s"]);
    machine.kubectl(&["delete", "pv", "--all", "--timeout=60s"]);
    let (code, text, error) = said(&[&leaks[..], &["--output=json"]].concat());
    assert_eq!(code, Some(1), "{text}{error}");
    assert!(
        text.contains("\"volumesWithoutOwner\": [\n    \"v-"),
        "{text}"
    );
    let (code, _, error) = said(&[
        "leaks",
        "--csi-address=/nowhere",
        "--timeout=1",
        "--kubeconfig",
        &kubeconfig,
    ]);
    assert_eq!(code, Some(2), "{error}");
    let waits = "waiting for a CSI driver at /nowhere, for 1 s more\n";
    assert!(error.starts_with(waits), "{error}");
    drop(driver);
    until("the probe to tell", || {
        get(probe_port, "/healthz").filter(|text| text.starts_with("HTTP/1.1 500"))
    });
}
