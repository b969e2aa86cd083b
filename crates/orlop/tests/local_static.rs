//! Local disks from `kubectl apply` to a pod's files and back: the real binary, real mounts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use support::{Machine, PATIENCE, life};

/// A provisioner that ends with the test.
struct Provisioner(Child);

impl Provisioner {
    fn start(machine: &Machine, node: &str, disks: &Path) -> Self {
        let config = machine.path().join(format!("{node}.yaml"));
        let folder = disks.display();
        let text = format!("storageClassMap: {{disks: {{hostDir: {folder}, mountDir: {folder}}}}}");
        fs::write(&config, text).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args([
                "--log",
                "info",
                "local-static-provisioner",
                "--listen-address",
                "",
            ])
            .args(["--node-name", node, "--config"])
            .arg(config)
            .arg("--kubeconfig")
            .arg(machine.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A tmpfs in a folder; unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&path)
            .status();
        assert!(mounted.unwrap().success());
        Self(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn wait(machine: &Machine, what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < PATIENCE,
            "waited in vain: {what}\n{}\n{}",
            machine.kubectl(&["get", "pv,pvc,pod,events", "-o", "wide"]),
            machine.transcript()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn volumes(machine: &Machine) -> Vec<(String, String)> {
    let path = r#"jsonpath={range .items[*]}{.spec.local.path} {.status.phase} {.metadata.uid}{"\n"}{end}"#;
    let text = machine.kubectl(&["get", "pv", "-o", path]);
    text.lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(seen, uid)| (seen.to_owned(), uid.to_owned()))
        .collect()
}

fn has(machine: &Machine, seen: &str) -> bool {
    volumes(machine).iter().any(|(now, _)| now == seen)
}

fn with_class(text: &str) -> String {
    text.replace("accessModes:", "storageClassName: disks\n  accessModes:")
}

#[test]
fn a_disk_is_found_used_cleaned_and_offered_again() {
    needs_a_machine!();
    // Dropped last: the disks must outlive the pods.
    let folder = tempfile::tempdir().unwrap();
    let at = |node: &str, disk: &str| folder.path().join(node).join(disk);
    for node in ["node-1", "node-2"] {
        fs::create_dir(folder.path().join(node)).unwrap();
    }
    let _small = Disk::mount(at("node-1", "small"), "16m");
    let large = Disk::mount(at("node-2", "large"), "64m");
    let machine = Machine::up(&["--nodes", "2"]);
    machine.apply(
        "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
",
    );
    let _one = Provisioner::start(&machine, "node-1", &folder.path().join("node-1"));
    let two = Provisioner::start(&machine, "node-2", &folder.path().join("node-2"));
    let path = |disk: &Disk| disk.0.display().to_string();
    let offered = format!("{} Available", path(&large));
    wait(&machine, "both disks are offered", || {
        volumes(&machine).len() == 2 && has(&machine, &offered)
    });
    let (_, first) = volumes(&machine)
        .into_iter()
        .find(|(seen, _)| *seen == offered)
        .unwrap();

    // The claim fits on one node only, and the pod follows it there.
    machine.apply(&with_class(&life(
        "writer",
        "echo data > /v/x && exec sleep infinity",
        "",
    )));
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/writer",
        "--timeout=60s",
    ]);
    let node = machine.kubectl(&["get", "pod", "writer", "-o", "jsonpath={.spec.nodeName}"]);
    assert_eq!(node, "node-2");
    wait(&machine, "the pod's data", || large.0.join("x").exists());
    let bound = format!("{} Bound", path(&large));
    assert!(has(&machine, &bound));

    // Nobody is there when the claim is deleted; the next provisioner finds the volume.
    drop(two);
    machine.kubectl(&["delete", "pod,pvc", "writer", "--timeout=60s"]);
    let released = format!("{} Released", path(&large));
    wait(&machine, "the volume is released", || {
        has(&machine, &released)
    });
    assert!(large.0.join("x").exists(), "nobody cleaned it yet");
    let _two = Provisioner::start(&machine, "node-2", &folder.path().join("node-2"));
    wait(&machine, "it is offered again", || {
        let now = volumes(&machine);
        now.iter()
            .any(|(seen, uid)| *seen == offered && *uid != first)
    });
    assert!(!large.0.join("x").exists(), "it is clean");
    let events = machine.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
    assert!(events.contains("VolumeCleaned"), "{events}");

    // A disk that is mounted while all runs is offered at once; what is no disk is told.
    let _late = Disk::mount(at("node-1", "late"), "32m");
    let late = format!("{} Available", at("node-1", "late").display());
    wait(&machine, "the late disk", || has(&machine, &late));
    fs::create_dir(at("node-1", "plain")).unwrap();
    wait(&machine, "the plain folder is told", || {
        let path = "jsonpath={.items[?(@.reason==\"LocalDiskNotOffered\")].message}";
        machine
            .kubectl(&["get", "events", "-o", path])
            .contains("nothing is mounted at")
    });

    // A volume that is deleted early leaves no data behind either.
    machine.apply(&with_class(&life(
        "again",
        "echo data > /v/y && exec sleep infinity",
        "",
    )));
    machine.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/again",
        "--timeout=60s",
    ]);
    let volume = machine.kubectl(&["get", "pvc", "again", "-o", "jsonpath={.spec.volumeName}"]);
    machine.kubectl(&["delete", "pv", &volume, "--wait=false"]);
    machine.kubectl(&["delete", "pod,pvc", "again", "--timeout=60s"]);
    wait(&machine, "all disks are free and clean", || {
        let now = volumes(&machine);
        now.len() == 3 && now.iter().all(|(seen, _)| seen.ends_with("Available"))
    });
    assert!(!large.0.join("y").exists() && !at("node-1", "late").join("y").exists());
}
