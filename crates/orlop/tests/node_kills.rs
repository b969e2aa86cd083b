//! `kill -9` of the node's process at every step of mount and unmount: before every change that it
//! makes to files and mounts, and at everything that goes between it and its driver or the API server.
//!
//! The program is the one that users run; nothing in it knows of the test. A sample of the steps by
//! default, all of them with `ORLOP_KILLS=whole`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use orlop_host::testing::Struck;
use support::{Machine, PATIENCE, proxy::Proxy};

/// Where the node is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before a change to files or mounts.
    Change,
    /// When something comes or goes at its driver's socket.
    Driver,
    /// The same at the API server's port.
    Server,
}

/// Ends with the test.
struct Role(Child);

impl Role {
    fn start(arguments: &[&str]) -> Self {
        Self(orlop(arguments).spawn().unwrap())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn orlop(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// A cluster of one node, whose every connection goes by us.
struct World {
    node: Option<Struck>,
    roles: Vec<Role>,
    machine: Machine,
    root: PathBuf,
    driver: Proxy,
    server: Proxy,
    kubeconfig: String,
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

impl World {
    fn new() -> Self {
        let mut machine = Machine::command("apiserver", &[]);
        machine.start();
        let folder = machine.path().to_owned();
        let root = folder.join("nodes/node-1");
        let (socket, between) = (
            root.join("plugins/local/csi.sock"),
            root.join("plugins/local/between.sock"),
        );
        let registry = root.join("plugins_registry");
        for needed in [socket.parent().unwrap(), &registry] {
            fs::create_dir_all(needed).unwrap();
        }
        let whole = fs::read_to_string(machine.kubeconfig()).unwrap();
        let (_, after) = whole.split_once("https://127.0.0.1:").unwrap();
        let port: String = after.chars().take_while(char::is_ascii_digit).collect();
        let server = Proxy::ports(port.parse().unwrap());
        let ours = folder.join("kubeconfig-between");
        let port = format!("https://127.0.0.1:{port}");
        let through = format!("https://127.0.0.1:{}", server.port);
        fs::write(&ours, whole.replace(&port, &through)).unwrap();
        let direct = text(&machine.kubeconfig());
        let cluster = ["--kubeconfig", &direct];
        let endpoint = format!("unix://{}", socket.display());
        let (pool, kubelet) = (text(&folder.join("pools/node-1")), text(&root));
        let roles = vec![
            Role::start(
                &[
                    &[
                        "driver",
                        "local",
                        "--endpoint",
                        &endpoint,
                        "--nodeid",
                        "node-1",
                    ][..],
                    &["--pool", &pool, "--kubelet-dir", &kubelet],
                ]
                .concat(),
            ),
            Role::start(&[&["control"][..], &cluster].concat()),
            Role::start(
                &[
                    &["controller", "--csi-address", &text(&socket)][..],
                    &cluster,
                ]
                .concat(),
            ),
        ];
        let mut world = Self {
            node: None,
            roles,
            driver: Proxy::sockets(&between, &socket),
            server,
            kubeconfig: text(&ours),
            root,
            machine,
        };
        world.start_node(None);
        world.until("the driver's socket", |_| socket.exists());
        world.roles.push(Role::start(
            &[
                &["node-registrar", "--csi-address", &text(&socket)][..],
                &["--kubelet-registration-path", &text(&between)],
                &["--plugin-registration-path", &text(&registry)],
            ]
            .concat(),
        ));
        world.machine.apply(OBJECTS);
        let bound = "--for=jsonpath={.status.phase}=Bound";
        world
            .machine
            .kubectl(&["wait", bound, "pvc", "--all", "--timeout=60s"]);
        world
    }

    /// Starts the node, to be struck at some step from now on.
    fn start_node(&mut self, strike: Option<(At, usize)>) {
        let root = text(&self.root);
        let command = orlop(
            &[
                &["node", "--name", "node-1", "--root", &root][..],
                &["--kubeconfig", &self.kubeconfig],
            ]
            .concat(),
        );
        let node = Struck::spawn(command).unwrap();
        let at = |place| {
            strike
                .filter(|(at, _)| *at == place)
                .map(|(_, number)| number)
        };
        node.begin(at(At::Change));
        self.driver.begin(node.child.id(), at(At::Driver));
        self.server.begin(node.child.id(), at(At::Server));
        if let Some(mut before) = self.node.replace(node) {
            before.child.wait().unwrap();
        }
    }

    fn end_node(&mut self) {
        let mut node = self.node.take().unwrap();
        node.child.kill().unwrap();
        node.child.wait().unwrap();
    }

    /// Waits; a node that was struck is started anew meanwhile.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
            let node = self.node.as_mut().unwrap();
            if node.child.try_wait().unwrap().is_some() {
                self.start_node(None);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Has kubectl wait for something.
    fn kubectl_until(&mut self, arguments: &[&str]) {
        let child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.machine.kubeconfig())
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut waiting = Role(child);
        let what = format!("kubectl {arguments:?}");
        let mut status = None;
        self.until(&what, |_| {
            status = waiting.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{what}");
    }

    /// What is mounted, and which files the node keeps of its volumes.
    fn traces(&self) -> BTreeSet<String> {
        let folder = text(self.machine.path());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let mut found: BTreeSet<String> = points
            .filter(|point| point.starts_with(&folder))
            .map(str::to_owned)
            .collect();
        tree(&self.root.join("plugins/kubernetes.io"), &mut found);
        for pod in entries(&self.root.join("pods")) {
            found.insert(text(&pod));
        }
        found
    }

    /// The file that a pod writes to, found from outside.
    fn ticks(&self, uid: &str) -> PathBuf {
        let volumes = self
            .root
            .join("pods")
            .join(uid)
            .join("volumes/kubernetes.io~csi");
        entries(&volumes).first().unwrap().join("mount/ticks")
    }

    fn uid(&self, pod: &str) -> String {
        self.machine
            .kubectl(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"])
    }

    /// One pod comes and goes, and the node is struck once on the way; whether it was. Afterwards all
    /// is as it was before any pod had come.
    fn life(&mut self, keeper: &Path, before: &BTreeSet<String>, strike: (At, usize)) -> bool {
        self.end_node();
        self.start_node(Some(strike));
        let first = self.node.as_ref().unwrap().child.id();
        let manifest = self.machine.path().join("web.yaml");
        fs::write(&manifest, pod("web", "data", "raw")).unwrap();
        let file = text(&manifest);
        self.machine.kubectl(&["create", "-f", &file]);
        self.kubectl_until(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]);
        let ticks = self.ticks(&self.uid("web"));
        self.until_it_grows(&ticks);
        let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
        let said = self.machine.kubectl(&["get", "pods", "-o", restarts]);
        assert_eq!(said, "0 0", "{strike:?}: no container was started twice");
        self.kubectl_until(&["delete", "-f", &file, "--timeout=60s"]);
        let (mut left, mut at) = (BTreeSet::new(), Instant::now());
        self.until("what is left of the pod", |world| {
            left = &world.traces() ^ before;
            if at.elapsed() > Duration::from_secs(10) {
                eprintln!("{strike:?}: still different: {left:#?}");
                at = Instant::now();
            }
            left.is_empty()
        });
        self.until_it_grows(keeper);
        self.node.as_ref().unwrap().child.id() != first
    }

    fn until_it_grows(&mut self, file: &Path) {
        let size = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
        let before = size(file);
        self.until("a pod that writes", |_| size(file) > before);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    read.map(|entry| entry.path()).collect()
}

fn tree(folder: &Path, found: &mut BTreeSet<String>) {
    for path in entries(folder) {
        // Not what is mounted: only what the node itself keeps.
        if path.ends_with("globalmount") || path.ends_with("dev") {
            continue;
        }
        if path.is_dir() {
            tree(&path, found);
        } else {
            found.insert(text(&path));
        }
    }
}

const OBJECTS: &str = "apiVersion: storage.k8s.io/v1
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
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {key: value}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {key: value}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 32Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept-raw}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 32Mi}}}
";

/// A pod that ends as soon as one of its volumes is not there.
fn pod(name: &str, files: &str, device: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 5
  containers:
    - name: main
      image: host
      command:
        - sh
        - -c
        - |
          trap 'exit 0' TERM
          while date +%N >> /data/ticks && echo x > /part/x && echo x > /scratch/x &&
            echo x > /memory/x && [ \"$(cat /config/key)$(cat /secret/key)\" = valuevalue ] &&
            [ -s /all/token ] && head -c 512 /dev/raw > /scratch/raw
          do sleep 0.05; done
          exit 1
      volumeMounts:
        - {{name: data, mountPath: /data}}
        - {{name: data, mountPath: /part, subPath: deep/part}}
        - {{name: scratch, mountPath: /scratch}}
        - {{name: memory, mountPath: /memory}}
        - {{name: config, mountPath: /config}}
        - {{name: secret, mountPath: /secret}}
        - {{name: all, mountPath: /all}}
      volumeDevices: [{{name: raw, devicePath: /dev/raw}}]
  volumes:
    - {{name: data, persistentVolumeClaim: {{claimName: {files}}}}}
    - {{name: raw, persistentVolumeClaim: {{claimName: {device}}}}}
    - {{name: scratch, emptyDir: {{}}}}
    - {{name: memory, emptyDir: {{medium: Memory}}}}
    - {{name: config, configMap: {{name: config}}}}
    - {{name: secret, secret: {{secretName: secret}}}}
    - name: all
      projected: {{sources: [{{serviceAccountToken: {{path: token}}}}]}}
"
    )
}

#[test]
fn the_nodes_process_may_be_killed_at_every_step() {
    needs_a_machine!();
    let whole = std::env::var("ORLOP_KILLS").is_ok_and(|wish| wish == "whole");
    let mut world = World::new();
    // One pod is there all the time, and must not notice anything.
    world.machine.apply(&pod("keeper", "kept", "kept-raw"));
    world.kubectl_until(&[
        "wait",
        "--for=condition=Ready",
        "pod/keeper",
        "--timeout=60s",
    ]);
    let keeper = world.ticks(&world.uid("keeper"));
    let before = world.traces();
    // Primes, so that a sample meets steps of all kinds.
    for (at, stride) in [(At::Change, 29), (At::Driver, 7), (At::Server, 23)] {
        let stride = if whole { 1 } else { stride };
        let (mut number, started) = (0, Instant::now());
        while world.life(&keeper, &before, (at, number)) {
            number += stride;
        }
        eprintln!(
            "{at:?}: {number} steps by {stride}, {:?}",
            started.elapsed()
        );
        assert!(number > stride, "the node was never struck at {at:?}");
    }
    let keeper = world.uid("keeper");
    let status = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(
        world
            .machine
            .kubectl(&["get", "pod", "keeper", "-o", status]),
        "0"
    );
    assert!(!keeper.is_empty());
    world.kubectl_until(&["delete", "pod", "keeper", "--timeout=60s"]);
    world.until("an empty node", |world| world.traces().is_empty());
}
