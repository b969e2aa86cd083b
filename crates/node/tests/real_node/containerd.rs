//! Debian's containerd and runc, for one test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::image;

/// A container runtime of the test's own, ended with all that it ran.
pub(crate) struct Containerd {
    folder: tempfile::TempDir,
    process: Child,
}

impl Containerd {
    /// `None`, with the reason printed, where there is none to be had.
    pub(crate) fn start() -> Option<Self> {
        for program in [
            "/usr/bin/containerd",
            "/usr/bin/ctr",
            "/usr/sbin/runc",
            "/bin/busybox",
        ] {
            if !Path::new(program).exists() {
                println!(
                    "  skipped: {program} is missing; install containerd, runc and busybox-static"
                );
                return None;
            }
        }
        // Short, since sockets are below it.
        let folder = tempfile::Builder::new()
            .prefix("cri")
            .tempdir()
            .expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let config = format!(
            r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_cgroup = {no_cgroups}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#,
            root = at("root").display(),
            state = at("state").display(),
            socket = at("sock").display(),
            pause = image::PAUSE,
            no_cgroups = false,
            snapshotter = "native",
        );
        std::fs::write(at("config.toml"), config).expect("a file");
        let process = run(folder.path());
        let this = Self { folder, process };
        image::write(&this.folder.path().join("images.tar"));
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let imported = this.ctr(&["images", "import", &this.at("images.tar")]);
            if imported.status.success() {
                return Some(this);
            }
            assert!(Instant::now() < until, "{imported:?} {}", this.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// As `kill -9` does; what it ran goes on.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
    }

    /// Starts it after it was killed.
    pub(crate) fn start_again(&mut self) {
        self.process = run(self.folder.path());
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.at("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(20).collect();
        lines.join("\n")
    }

    pub(crate) fn ctr(&self, arguments: &[&str]) -> std::process::Output {
        Command::new("/usr/bin/ctr")
            .args(["--address", &self.at("sock"), "--namespace", "k8s.io"])
            .args(arguments)
            .output()
            .expect("ctr")
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.at("sock"))
    }

    pub(crate) fn containers(&self) -> usize {
        let listed = self.ctr(&["containers", "list", "-q"]);
        String::from_utf8_lossy(&listed.stdout).lines().count()
    }
}

fn run(folder: &Path) -> Child {
    let log = std::fs::File::create(folder.join("log")).expect("a file");
    Command::new("/usr/bin/containerd")
        .arg("--config")
        .arg(folder.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("containerd")
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.process.try_wait() {
            self.start_again();
            std::thread::sleep(Duration::from_secs(2));
        }
        let tasks = self.ctr(&["tasks", "list", "-q"]);
        for task in String::from_utf8_lossy(&tasks.stdout).lines() {
            self.ctr(&["tasks", "delete", "--force", task]);
        }
        let containers = self.ctr(&["containers", "list", "-q"]);
        for container in String::from_utf8_lossy(&containers.stdout).lines() {
            self.ctr(&["containers", "delete", container]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let table = orlop_host::MountTable::read().expect("the mount table");
        let mounts = table.beneath(self.folder.path());
        for point in mounts.map(|mount| &mount.point).rev() {
            let _ = Command::new("/usr/bin/umount")
                .arg("-l")
                .arg(point)
                .output();
        }
    }
}
