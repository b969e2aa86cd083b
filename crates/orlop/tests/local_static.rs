//! Local disks from `kubectl apply` to a pod's files and back: the real binary, real mounts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    fs,
    os::unix::fs::FileExt,
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
        let folder = disks.display();
        let map = format!("{{disks: {{hostDir: {folder}, mountDir: {folder}}}}}");
        Self::by(&[env!("CARGO_BIN_EXE_orlop")], machine, (node, &map))
    }

    /// One with mounts of its own, as in a container.
    fn apart(machine: &Machine, node: &str, map: &str) -> Self {
        let orlop = env!("CARGO_BIN_EXE_orlop");
        let command = ["unshare", "-m", "--propagation", "private", orlop];
        Self::by(&command, machine, (node, map))
    }

    fn by(command: &[&str], machine: &Machine, (node, map): (&str, &str)) -> Self {
        let config = machine.path().join(format!("{node}.yaml"));
        fs::write(&config, format!("storageClassMap: {map}")).unwrap();
        let child = Command::new(command[0])
            .args(&command[1..])
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

/// A loop device over a file, and a link to it in a folder; gone when dropped.
struct Device {
    number: String,
}

impl Device {
    fn attach(image: &Path, link: &Path) -> Self {
        fs::File::create(image).unwrap().set_len(80 << 20).unwrap();
        let attached = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .unwrap();
        assert!(attached.status.success(), "{attached:?}");
        let number = String::from_utf8(attached.stdout).unwrap();
        let number = number.trim().to_owned();
        let device = Self { number };
        std::os::unix::fs::symlink(&device.number, link).unwrap();
        device
    }

    fn write(&self) {
        let file = fs::OpenOptions::new().write(true).open(&self.number);
        file.unwrap().write_all_at(SECRET, SECRET_AT).unwrap();
    }

    fn is_clean(&self) -> bool {
        let mut bytes = vec![0; SECRET.len()];
        let file = fs::File::open(&self.number).unwrap();
        file.read_exact_at(&mut bytes, SECRET_AT).unwrap();
        bytes.iter().all(|byte| *byte == 0)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.number]).status();
    }
}

const SECRET: &[u8] = b"somebody's data";
const SECRET_AT: u64 = 70 << 20;

fn claim(name: &str, class: &str, mode: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: {class}
  volumeMode: {mode}
  resources: {{requests: {{storage: 1Mi}}}}
"
    )
}

#[test]
fn what_a_pod_has_is_not_cleaned_while_it_lives_though_it_is_deleted_by_force() {
    needs_a_machine!();
    let folder = tempfile::tempdir().unwrap();
    let (files, raw) = (folder.path().join("files"), folder.path().join("raw"));
    for made in [&files, &raw] {
        fs::create_dir_all(made).unwrap();
    }
    let disk = Disk::mount(files.join("disk"), "16m");
    let device = Device::attach(&folder.path().join("image"), &raw.join("device"));
    let machine = Machine::up(&[]);
    for class in ["files", "raw"] {
        machine.apply(&format!(
            "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {class}}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: Immediate
"
        ));
    }
    let map = format!(
        "{{files: {{hostDir: {0}, mountDir: {0}}}, raw: {{hostDir: {1}, mountDir: {1}, volumeMode: Block}}}}",
        files.display(),
        raw.display()
    );
    let _provisioner = Provisioner::apart(&machine, "node-1", &map);
    let free = || {
        let now = volumes(&machine);
        now.len() == 2 && now.iter().all(|(seen, _)| seen.ends_with("Available"))
    };
    wait(&machine, "both are offered", free);
    machine.apply(&claim("files", "files", "Filesystem"));
    machine.apply(&claim("raw", "raw", "Block"));
    machine.apply(
        "apiVersion: v1
kind: Pod
metadata: {name: deaf}
spec:
  terminationGracePeriodSeconds: 60
  containers:
    - name: main
      image: host
      command: [sh, -c, \"trap '' TERM; until [ -e /v/end ]; do sleep 0.2;
        echo data > /v/x; echo data | dd of=/dev/xvda bs=1M seek=70 conv=notrunc 2>/dev/null; done\"]
      volumeMounts: [{name: files, mountPath: /v}]
      volumeDevices: [{name: raw, devicePath: /dev/xvda}]
  volumes:
    - {name: files, persistentVolumeClaim: {claimName: files}}
    - {name: raw, persistentVolumeClaim: {claimName: raw}}
",
    );
    wait(&machine, "the pod's data", || disk.0.join("x").exists());
    machine.kubectl(&["delete", "pvc", "files", "raw", "--wait=false"]);
    machine.kubectl(&["delete", "pod", "deaf", "--grace-period=0", "--force"]);
    // Its process hears no TERM, and lives for longer than the pod does.
    wait(&machine, "both cleanings are refused", || {
        let path =
            "jsonpath={range .items[?(@.reason==\"VolumeFailedDelete\")]}{.message}{\"\\n\"}{end}";
        let told = machine.kubectl(&["get", "events", "-A", "-o", path]);
        let refused = told.lines().filter(|line| line.contains("still"));
        let of = |what: &str| refused.clone().any(|line| line.contains(what));
        of("files/disk") && of("raw/device")
    });
    fs::write(disk.0.join("end"), "").unwrap();
    wait(&machine, "both are offered again, once it ended", free);
    assert!(!disk.0.join("x").exists() && device.is_clean());
}

/// A kubeconfig of an account that has the rights of its manifest, and no others.
fn kubeconfig_of(machine: &Machine, account: &str) -> PathBuf {
    let token = machine.kubectl(&["create", "token", account, "-n", "kube-system"]);
    let config = machine.kubectl(&["config", "view", "--raw", "-o", "json"]);
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = serde_json::json!({"token": token.trim()});
    let path = machine.path().join(format!("{account}.kubeconfig"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// A role of an account, and what it logs.
fn run_as(machine: &Machine, account: &str, arguments: &[&str]) -> (Provisioner, PathBuf) {
    let log = machine.path().join(format!("{account}.log"));
    let child = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["--log", "info"])
        .args(arguments)
        .args(["--listen-address", "", "--kubeconfig"])
        .arg(kubeconfig_of(machine, account))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    (Provisioner(child), log)
}

fn assert_allowed(log: &Path) {
    let text = fs::read_to_string(log).unwrap();
    assert!(!text.contains("forbidden"), "{text}");
}

#[test]
fn mounts_devices_and_folders_are_told_apart_with_no_more_rights_than_the_manifests_give() {
    needs_a_machine!();
    let folder = tempfile::tempdir().unwrap();
    let (files, raw) = (folder.path().join("files"), folder.path().join("raw"));
    for made in [&files, &raw, &files.join("plain")] {
        fs::create_dir_all(made).unwrap();
    }
    let disk = Disk::mount(files.join("disk"), "16m");
    let device = Device::attach(&folder.path().join("image"), &raw.join("device"));
    let machine = Machine::up(&[]);
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let rbac = deploy.join("local-static/rbac.yaml");
    machine.kubectl(&["apply", "-f", rbac.to_str().unwrap()]);
    for class in ["files", "raw"] {
        machine.apply(&format!(
            "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {class}}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: Immediate
"
        ));
    }
    let config = folder.path().join("config.yaml");
    let (at, at_raw) = (files.display(), raw.display());
    let text = format!(
        "storageClassMap:
  files: {{hostDir: {at}, mountDir: {at}}}
  raw: {{hostDir: {at_raw}, mountDir: {at_raw}, volumeMode: Block}}
"
    );
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let arguments = [
        "local-static-provisioner",
        "--node-name",
        "node-1",
        "--config",
        config,
    ];
    let (provisioner, log) = run_as(&machine, "orlop-local-static-provisioner", &arguments);
    let free = || {
        let now = volumes(&machine);
        now.len() == 2 && now.iter().all(|(seen, _)| seen.ends_with("Available"))
    };
    wait(
        &machine,
        "disk and device are offered, the folder is not",
        free,
    );
    let first: Vec<String> = volumes(&machine).into_iter().map(|(_, uid)| uid).collect();

    // They are of this very node, which is labelled for that.
    let uid = machine.kubectl(&["get", "node", "node-1", "-o", "jsonpath={.metadata.uid}"]);
    let affinity = machine.kubectl(&["get", "pv", "-o", "jsonpath={.items[*].spec.nodeAffinity}"]);
    assert_eq!(affinity.matches(&uid).count(), 2, "{affinity}");
    let labels = machine.kubectl(&["get", "node", "node-1", "-o", "jsonpath={.metadata.labels}"]);
    assert!(labels.contains(&uid), "{labels}");

    machine.apply(&claim("files", "files", "Filesystem"));
    machine.apply(&claim("raw", "raw", "Block"));
    wait(&machine, "both are bound", || {
        let now = volumes(&machine);
        now.iter().all(|(seen, _)| seen.ends_with("Bound"))
    });
    fs::write(disk.0.join("x"), SECRET).unwrap();
    device.write();
    machine.kubectl(&["delete", "pvc", "--all", "--timeout=60s"]);
    wait(&machine, "both are offered again", || {
        free()
            && volumes(&machine)
                .iter()
                .all(|(_, uid)| !first.contains(uid))
    });
    assert!(!disk.0.join("x").exists() && device.is_clean());
    assert_allowed(&log);
    drop(provisioner);

    // A node goes, with a claim's disk.
    let cleanup = deploy.join("local-node-cleanup/node-cleanup.yaml");
    machine.kubectl(&["apply", "-f", cleanup.to_str().unwrap()]);
    machine.kubectl(&["delete", "deployment", "-n", "kube-system", "--all"]);
    machine.apply(
        "apiVersion: v1
kind: Node
metadata: {name: ghost, labels: {kubernetes.io/hostname: ghost}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: ghosts, finalizers: [static-provisioner.orlop.dev/unclean]}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: files
  persistentVolumeReclaimPolicy: Delete
  local: {path: /mnt/ghosts}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [ghost]}]
",
    );
    let bound = claim("ghosts", "files", "Filesystem");
    machine.apply(&bound.replace("volumeMode", "volumeName: ghosts\n  volumeMode"));
    machine.kubectl(&[
        "wait",
        "--for=jsonpath={.status.phase}=Bound",
        "pvc/ghosts",
        "--timeout=60s",
    ]);
    let arguments = [
        "local-volume-node-cleanup",
        "--leader-election",
        "--storageclass-names=files",
        "--pvc-deletion-delay=500ms",
    ];
    let (_cleanup, log) = run_as(&machine, "orlop-local-volume-node-cleanup", &arguments);
    machine.kubectl(&["delete", "node", "ghost"]);
    machine.wait_none_of("pvc", "ghosts");
    machine.wait_none_of("pv", "ghosts");
    let events = machine.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
    assert!(events.contains("ReferencedNodeDeleted"), "{events}");
    assert_allowed(&log);
}
