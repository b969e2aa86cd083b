//! `orlop up` as a user runs it: the real binary, a temporary folder, the real kubectl.
//!
//! Whatever a test does, even if it fails: the process is ended, and what it mounted,
//! attached or started is gone.

#![allow(
    dead_code,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "each test file uses its own part of it"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

pub mod proxy;

/// No wait in a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Why the tests that need root and kubectl can't run here, if so.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("they mount file systems and need root".into());
    }
    let kubectl = Command::new("kubectl")
        .args(["version", "--client"])
        .output();
    if !kubectl.is_ok_and(|o| o.status.success()) {
        return Some("kubectl is missing: run scripts/setup".into());
    }
    None
}

/// Ends the test early where it can't run, and says why.
#[macro_export]
macro_rules! needs_a_machine {
    () => {
        if let Some(why) = support::obstacle() {
            eprintln!("skipped: {why}");
            return;
        }
    };
}

/// A claim, and a pod on it that runs a script with the volume at `/v`.
pub fn life(name: &str, script: &str, node_selector: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {name}
spec:
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 32Mi}}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {{{node_selector}}}
  containers:
    - name: main
      image: host
      command: [sh, -c, '{script}']
      volumeMounts: [{{name: v, mountPath: /v}}]
  volumes:
    - name: v
      persistentVolumeClaim: {{claimName: {name}}}
"
    )
}

/// A data folder and, most of the time, an `orlop up` on it.
pub struct Machine {
    folder: tempfile::TempDir,
    running: Option<Child>,
    pub output: Arc<Mutex<Vec<String>>>,
    arguments: Vec<String>,
    command: &'static str,
}

impl Machine {
    /// Starts `orlop up` with these further arguments, and waits until it is ready.
    pub fn up(arguments: &[&str]) -> Self {
        let mut machine = Self::down(arguments);
        machine.start();
        machine
    }

    /// A folder with nothing running on it yet.
    pub fn down(arguments: &[&str]) -> Self {
        Self::command("up", arguments)
    }

    /// A folder for another command that takes `--data-dir` and `--listen`.
    pub fn command(command: &'static str, arguments: &[&str]) -> Self {
        Self::command_in(&std::env::temp_dir(), command, arguments)
    }

    /// The same, with its folder on a file system of choice.
    pub fn command_in(parent: &Path, command: &'static str, arguments: &[&str]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("orlop-test-")
            .tempdir_in(parent)
            .unwrap();
        let arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        Self {
            folder,
            running: None,
            output: Arc::default(),
            arguments,
            command,
        }
    }

    pub fn start(&mut self) {
        self.launch();
        self.wait_ready();
    }

    /// Starts without waiting.
    pub fn launch(&mut self) {
        assert!(self.running.is_none(), "already running");
        let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args([
                "--log",
                "info",
                self.command,
                "--listen",
                "127.0.0.1:0",
                "--data-dir",
            ])
            .arg(self.folder.path())
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.output.lock().unwrap().clear();
        for stream in [
            Box::new(child.stdout.take().unwrap()) as Box<dyn std::io::Read + Send>,
            Box::new(child.stderr.take().unwrap()),
        ] {
            let output = self.output.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    output.lock().unwrap().push(line);
                }
            });
        }
        self.running = Some(child);
    }

    /// Waits until it has ended by itself; what it said is in the transcript soon after.
    pub fn wait_ended(&mut self) -> std::process::ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.running.as_mut().unwrap().try_wait().unwrap() {
                self.running = None;
                return status;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "still there:\n{}",
                self.transcript()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn wait_ready(&mut self) {
        let started = Instant::now();
        while !self.printed("ready") {
            if let Some(status) = self.running.as_mut().and_then(|c| c.try_wait().unwrap()) {
                self.running = None;
                panic!("orlop up ended with {status}:\n{}", self.transcript());
            }
            assert!(
                started.elapsed() < PATIENCE,
                "not ready:\n{}",
                self.transcript()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn printed(&self, text: &str) -> bool {
        self.output
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains(text))
    }

    pub fn transcript(&self) -> String {
        self.output.lock().unwrap().join("\n")
    }

    pub fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().id()
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// `kill -9`.
    pub fn crash(&mut self) {
        let mut child = self.running.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ctrl-C; the exit must be clean.
    pub fn stop(&mut self) {
        let mut child = self.running.take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{status}:\n{}", self.transcript());
                return;
            }
            if started.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("orlop up did not stop:\n{}", self.transcript());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn try_kubectl(&self, arguments: &[&str]) -> Output {
        Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments)
            .env("HOME", self.folder.path())
            .output()
            .unwrap()
    }

    /// Runs kubectl, which must succeed, and gives what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}\n{}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.transcript(),
            self.state()
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// What whoever reads of a failure wants to know of the objects.
    fn state(&self) -> String {
        let kinds = "nodes,csinodes,pods,pvc,pv,volumeattachments,leases,events";
        let output = self.try_kubectl(&["get", kinds, "-A", "-o", "wide"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn apply(&self, yaml: &str) {
        let file = self.folder.path().join("applied.yaml");
        fs::write(&file, yaml).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    /// Waits until kubectl prints nothing for `get`, i.e. no such objects are left.
    pub fn wait_none(&self, kinds: &str) {
        let started = Instant::now();
        loop {
            let left = self.kubectl(&["get", kinds, "-A", "-o", "name"]);
            if left.trim().is_empty() {
                return;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "left: {left}\n{}",
                self.transcript()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until one object is gone.
    pub fn wait_none_of(&self, kind: &str, name: &str) {
        let started = Instant::now();
        while self
            .kubectl(&["get", kind, "--ignore-not-found", "-o", "name", name])
            .contains(name)
        {
            assert!(
                started.elapsed() < PATIENCE,
                "{kind} {name} stays:\n{}",
                self.transcript()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Mounts and loop devices that belong to the folder.
    pub fn leftovers(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut found: Vec<String> = mounts
            .lines()
            .filter(|l| l.contains(folder))
            .map(str::to_owned)
            .collect();
        for entry in fs::read_dir("/sys/block").unwrap() {
            let backing = entry.unwrap().path().join("loop/backing_file");
            let file = fs::read_to_string(backing).unwrap_or_default();
            if file.starts_with(folder) {
                found.push(file);
            }
        }
        found.extend(images(&self.folder.path().join("pools")));
        found
    }
}

fn images(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            found.extend(images(&entry.path()));
        } else if entry.path().extension().is_some_and(|e| e == "img") {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Pods outlive a killed node on purpose; this ends them and takes the mounts away.
        let _ = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["down", "--data-dir"])
            .arg(self.folder.path())
            .output();
    }
}
