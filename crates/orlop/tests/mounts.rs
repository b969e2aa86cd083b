//! How containers see mounts below their volumes, and how a volume that is not well is told of, as a
//! user sees it: `orlop up` and kubectl.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{Machine, PATIENCE};

/// Asks again until the answer is as wanted.
fn eventually(machine: &Machine, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let started = Instant::now();
    loop {
        // It may be too early to ask.
        let said = String::from_utf8(machine.try_kubectl(arguments).stdout).unwrap();
        if wanted(&said) {
            return said;
        }
        let transcript = machine.transcript();
        assert!(
            started.elapsed() < PATIENCE,
            "{arguments:?} says {said}\n{transcript}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn events(machine: &Machine, pod: &str, reason: &str, words: &str) {
    let field = format!("--field-selector=involvedObject.name={pod},reason={reason}");
    let wanted = [
        "get",
        "events",
        &field,
        "-o",
        "jsonpath={.items[*].message}",
    ];
    eventually(machine, &wanted, |said| said.contains(words));
}

fn mount(arguments: &[&str]) {
    let status = Command::new("mount").args(arguments).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

/// A mount of the host that is gone with this, and all below it, also if the test fails.
struct HostMount(PathBuf);

impl HostMount {
    /// A file system in memory whose mounts others see.
    fn shared(path: &Path) -> Self {
        fs::create_dir_all(path).unwrap();
        let text = path.to_str().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=1m", "orlop-test", text]);
        let this = Self(path.to_owned());
        mount(&["--make-private", text]);
        mount(&["--make-shared", text]);
        this
    }
}

impl Drop for HostMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-R").arg(&self.0).status();
    }
}

/// A pod with a folder of the host at `/v`.
fn pod(machine: &Machine, name: &str, (path, more): (&Path, &str), script: &str, rights: &str) {
    machine.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      command: [sh, -c, '{script}']
      securityContext: {{{rights}}}
      volumeMounts: [{{name: v, mountPath: /v{more}}}]
  volumes: [{{name: v, hostPath: {{path: {}, type: Directory}}}}]
",
        path.display()
    ));
}

#[test]
fn mounts_pass_between_host_and_container_as_the_pod_asks() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    let host = HostMount::shared(&machine.path().join("shared"));
    let folder = host.0.as_path();
    for below in ["from-host", "from-pod"] {
        fs::create_dir(folder.join(below)).unwrap();
    }
    let watch = "while sleep 0.05; do cat /v/from-host/file 2>/dev/null && break; done; echo over; exec sleep 600";
    let both = (folder, ", mountPropagation: Bidirectional");
    pod(
        &machine,
        "sees",
        (folder, ", mountPropagation: HostToContainer"),
        watch,
        "",
    );
    pod(&machine, "blind", (folder, ""), watch, "");
    pod(
        &machine,
        "mounts",
        both,
        "mount -t tmpfs own /v/from-pod && echo ahoy > /v/from-pod/file && echo mounted; exec sleep 600",
        "privileged: true",
    );
    for name in ["sees", "blind", "mounts"] {
        let pod = format!("pod/{name}");
        machine.kubectl(&["wait", "--for=condition=Ready", &pod, "--timeout=60s"]);
    }
    let late = folder.join("from-host");
    mount(&["-t", "tmpfs", "late", late.to_str().unwrap()]);
    fs::write(late.join("file"), "here\n").unwrap();
    eventually(&machine, &["logs", "sees"], |said| said == "here\nover\n");
    eventually(&machine, &["logs", "mounts"], |said| said == "mounted\n");
    let came = fs::read_to_string(folder.join("from-pod/file")).unwrap();
    assert_eq!(came, "ahoy\n", "the host sees what a container mounted");
    let blind = machine.kubectl(&["logs", "blind"]);
    assert_eq!(blind, "", "who asked for nothing sees nothing");

    // What can't be is said.
    let private = machine.path().join("private");
    fs::create_dir(&private).unwrap();
    let text = private.to_str().unwrap();
    mount(&["--bind", text, text]);
    let bound = HostMount(private.clone());
    mount(&["--make-private", text]);
    let asks = ", mountPropagation: HostToContainer";
    pod(&machine, "refused", (&bound.0, asks), "exit 0", "");
    let why = [
        "get",
        "pod",
        "refused",
        "-o",
        "jsonpath={.status.containerStatuses[0].state}",
    ];
    eventually(&machine, &why, |said| {
        said.contains("a shared or slave mount")
    });
    machine.kubectl(&["delete", "pod", "--all", "--timeout=60s"]);
    machine.stop();
}

#[test]
fn read_only_holds_below_a_volume_if_it_is_to_be_recursive() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    let host = HostMount::shared(&machine.path().join("tree"));
    let below = host.0.join("below");
    fs::create_dir(&below).unwrap();
    mount(&["-t", "tmpfs", "below", below.to_str().unwrap()]);
    let script = "touch /v/x; echo $?; touch /v/below/x; echo $?; exec sleep 600";
    for (name, more, wanted) in [
        ("plain", ", readOnly: true", "1\n0\n"),
        (
            "deep",
            ", readOnly: true, recursiveReadOnly: Enabled",
            "1\n1\n",
        ),
    ] {
        pod(&machine, name, (&host.0, more), script, "");
        let only_numbers = |said: &str| -> String {
            let lines = said.lines().filter(|line| line.len() == 1);
            lines.map(|line| format!("{line}\n")).collect()
        };
        eventually(&machine, &["logs", name], |said| {
            only_numbers(said) == wanted
        });
    }
    machine.kubectl(&["delete", "pod", "--all", "--timeout=60s"]);
    machine.stop();
}

#[test]
fn a_volume_that_is_not_well_is_told_of_on_its_pod() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    machine.apply(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: uses}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - {name: main, image: host, command: [sleep, '600'], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
",
    );
    machine.kubectl(&["wait", "--for=condition=Ready", "pod/uses", "--timeout=60s"]);
    let volumes = machine.path().join("pools/node-1/volumes");
    let image = fs::read_dir(volumes)
        .unwrap()
        .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .find(|file| file.extension().is_some_and(|end| end == "img"))
        .unwrap();
    // Its last bytes, which nobody uses.
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(image)
        .unwrap();
    let length = file.metadata().unwrap().len();
    let mut end = [0; 4096];
    file.read_exact_at(&mut end, length - 4096).unwrap();
    file.set_len(length - 4096).unwrap();
    let started = Instant::now();
    // Drivers are asked when somebody wants to know, and every minute.
    let summary = "/api/v1/nodes/node-1/proxy/metrics";
    eventually(&machine, &["get", "--raw", summary], |said| {
        let mut lines = said.lines();
        lines.any(|line| {
            line.starts_with("kubelet_volume_stats_health_status_abnormal{") && line.ends_with(" 1")
        })
    });
    events(
        &machine,
        "uses",
        "VolumeConditionAbnormal",
        "has lost data; restore it from a backup",
    );
    eprintln!("told after {:?}", started.elapsed());
    file.write_all_at(&end, length - 4096).unwrap();
    machine.kubectl(&["delete", "pod,pvc", "--all", "--timeout=60s"]);
    machine.wait_none("pods,pvc,pv");
    machine.stop();
}

#[test]
fn what_is_used_elsewhere_is_not_said_to_be_detached() {
    needs_a_machine!();
    let machine = Machine::down(&[]);
    let (image, elsewhere) = (machine.path().join("v.img"), tempfile::tempdir().unwrap());
    fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let made = Command::new("/usr/sbin/mkfs.ext4")
        .arg("-q")
        .arg(&image)
        .status();
    assert!(made.unwrap().success());
    let (image, point) = (image.to_str().unwrap(), elsewhere.path().to_str().unwrap());
    mount(&["-o", "loop", image, point]);
    let down = || {
        let mut down = Command::new(env!("CARGO_BIN_EXE_orlop"));
        let done = down
            .args(["down", "--data-dir"])
            .arg(machine.path())
            .output();
        let done = done.unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(said).unwrap())
    };
    let (clear, said) = down();
    let unmounted = Command::new("umount").arg(point).status().unwrap();
    assert!(unmounted.success());
    assert!(!clear && said.contains("still there: /dev/loop"), "{said}");
    assert!(!said.contains("detached"), "{said}");
    assert_eq!(down(), (true, String::new()));
}
