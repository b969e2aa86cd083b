//! The guest's NFS servers: the kernel's, and nfs-ganesha.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where the exports are, for the server itself.
pub(crate) const ROOT: &str = "/srv/nfs";
/// An address of the guest that other network namespaces reach.
pub(crate) const ADDRESS: &str = "10.99.0.1";
/// Where nfs-ganesha listens.
pub(crate) const GANESHA_PORT: u16 = 2050;

/// Runs a program to its end.
pub(crate) fn run(program: &str, words: &[&str]) {
    let done = Command::new(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {words:?}: {said}");
}

/// Starts the kernel's server with all exports, once.
pub(crate) fn kernel() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        for module in ["loop", "nfsd", "nfsv3", "nfsv4"] {
            run("modprobe", &[module]);
        }
        // Exports need a file system that has ids, which the guest's root has not.
        let image = "/tmp/exports.img";
        fs::File::create(image).unwrap().set_len(1 << 30).unwrap();
        // With numbers for more files than its size lets it expect.
        run("mkfs.ext4", &["-q", "-N", "262144", image]);
        fs::create_dir_all(ROOT).unwrap();
        run("mount", &["-o", "loop", image, ROOT]);
        for export in ["data", "other", "squashed", "readonly", "private"] {
            fs::create_dir(Path::new(ROOT).join(export)).unwrap();
        }
        fs::write("/etc/nfs.conf", format!("[exports]\nrootdir={ROOT}\n")).unwrap();
        fs::write(
            "/etc/exports",
            "/data *(rw,no_root_squash,no_subtree_check,insecure,sync)\n\
             /other *(rw,no_root_squash,no_subtree_check,insecure,sync)\n\
             /squashed *(rw,root_squash,no_subtree_check,insecure,sync)\n\
             /readonly *(ro,no_root_squash,no_subtree_check,insecure,sync)\n\
             /private 203.0.113.1(rw,no_root_squash,no_subtree_check,sync)\n",
        )
        .unwrap();
        run("mount", &["-t", "nfsd", "nfsd", "/proc/fs/nfsd"]);
        fs::create_dir_all("/run/rpcbind").unwrap();
        fs::create_dir_all("/var/lib/nfs/rpc_pipefs").unwrap();
        run(
            "mount",
            &["-t", "rpc_pipefs", "rpc", "/var/lib/nfs/rpc_pipefs"],
        );
        run("rpcbind", &[]);
        let begin = Instant::now();
        while Command::new("rpcinfo")
            .args(["-p", "127.0.0.1"])
            .output()
            .unwrap()
            .stdout
            .is_empty()
        {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "rpcbind does not answer"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        run("exportfs", &["-ra"]);
        // The least that it takes; clients of a server that was started anew wait for so long.
        fs::write("/proc/fs/nfsd/nfsv4leasetime", "10").unwrap();
        fs::write("/proc/fs/nfsd/nfsv4gracetime", "10").unwrap();
        start();
        run("rpc.mountd", &[]);
        run("ip", &["link", "add", "dummy0", "type", "dummy"]);
        run(
            "ip",
            &["address", "add", &format!("{ADDRESS}/32"), "dev", "dummy0"],
        );
        run("ip", &["link", "set", "dummy0", "up"]);
    });
}

/// Lets the kernel's server serve.
pub(crate) fn start() {
    run("rpc.nfsd", &["8"]);
}

/// How many requests the server has had.
pub(crate) fn requests() -> u64 {
    let told = fs::read_to_string("/proc/net/rpc/nfsd").unwrap();
    let calls = told.lines().find_map(|line| line.strip_prefix("rpc "));
    let calls = calls.unwrap().split_whitespace().next();
    calls.unwrap().parse().unwrap()
}

/// How many files and folders the exports have.
pub(crate) fn inodes() -> u64 {
    let told = rustix::fs::statvfs(ROOT).unwrap();
    told.f_files - told.f_ffree
}

/// Waits until what was written to the exports is on their disk.
pub(crate) fn settle() {
    let root = fs::File::open(ROOT).unwrap();
    rustix::fs::syncfs(root).unwrap();
}

/// How often the server was asked to copy or clone by itself.
pub(crate) fn copied() -> u64 {
    const COPY: usize = 60;
    const CLONE: usize = 71;
    let told = fs::read_to_string("/proc/net/rpc/nfsd").unwrap();
    let counts = told.lines().find_map(|line| line.strip_prefix("proc4ops "));
    let counts: Vec<u64> = counts
        .unwrap()
        .split_whitespace()
        // How many there are.
        .skip(1)
        .map(|count| count.parse().unwrap())
        .collect();
    counts[COPY] + counts[CLONE]
}

/// Ends the kernel's server; its exports and their data stay.
pub(crate) fn stop() {
    run("rpc.nfsd", &["0"]);
}

/// The kernel's server without version 4; as it was when dropped.
pub(crate) struct OnlyVersion3;

impl OnlyVersion3 {
    pub(crate) fn start() -> Self {
        kernel();
        stop();
        run("rpc.nfsd", &["-N", "4", "8"]);
        Self
    }
}

impl Drop for OnlyVersion3 {
    fn drop(&mut self) {
        let _ = Command::new("rpc.nfsd").arg("0").status();
        let _ = Command::new("rpc.nfsd").args(["-V", "4", "8"]).status();
    }
}

/// An export whose folders can have limits: `/limited`. Gone when dropped.
pub(crate) struct Limited;

impl Limited {
    pub(crate) fn start() -> Self {
        kernel();
        let (image, mounted) = ("/tmp/limited.img", path("limited", ""));
        fs::File::create(image).unwrap().set_len(2 << 30).unwrap();
        run("mkfs.xfs", &["-q", image]);
        fs::create_dir(&mounted).unwrap();
        let mounted = mounted.to_str().unwrap().to_owned();
        run("mount", &["-o", "loop,prjquota", image, &mounted]);
        let how = "rw,no_root_squash,no_subtree_check,insecure,sync";
        run("exportfs", &["-o", how, "*:/limited"]);
        Self
    }

    /// The server gives a folder so many mebibytes.
    pub(crate) fn limit(&self, folder: &str, mebibytes: u32) {
        let project = format!("project -s -p {} 42", path("limited", folder).display());
        let limit = format!("limit -p bhard={mebibytes}m 42");
        let root = path("limited", "").display().to_string();
        run("xfs_quota", &["-x", "-c", &project, "-c", &limit, &root]);
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = Command::new("exportfs").args(["-u", "*:/limited"]).status();
    }
}

/// A file of an export, as the server has it.
pub(crate) fn path(export: &str, below: &str) -> PathBuf {
    Path::new(ROOT).join(export).join(below)
}

/// nfs-ganesha beside the kernel's server, on a port of its own.
pub(crate) struct Ganesha(Child);

impl Ganesha {
    /// Starts it on the export `data`, with versions 4.0 and 4.1.
    pub(crate) fn start() -> Self {
        kernel();
        for folder in ["/run/ganesha", "/var/run/ganesha", "/var/lib/nfs/ganesha"] {
            let _ = fs::create_dir_all(folder);
        }
        fs::write(
            "/tmp/ganesha.conf",
            format!(
                "NFS_CORE_PARAM {{ NFS_Protocols = 4; NFS_Port = {GANESHA_PORT}; \
                 Enable_NLM = false; Enable_RQUOTA = false; }}\n\
                 NFSV4 {{ Grace_Period = 1; Lease_Lifetime = 5; Minor_Versions = 0,1; \
                 RecoveryBackend = fs; }}\n\
                 EXPORT {{ Export_Id = 7; Path = {ROOT}/data; Pseudo = /data; Access_Type = RW; \
                 Squash = No_Root_Squash; SecType = sys; Protocols = 4; \
                 FSAL {{ Name = VFS; }} }}\n\
                 LOG {{ Default_Log_Level = WARN; }}\n"
            ),
        )
        .unwrap();
        Self(Self::launch())
    }

    fn launch() -> Child {
        let child = Command::new("ganesha.nfsd")
            .args(["-F", "-f", "/tmp/ganesha.conf", "-L", "/tmp/ganesha.log"])
            .args(["-p", "/tmp/ganesha.pid"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", GANESHA_PORT)).is_err() {
            let said = fs::read_to_string("/tmp/ganesha.log").unwrap_or_default();
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "ganesha does not listen: {said}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        // It refuses new state for as long.
        std::thread::sleep(Duration::from_secs(2));
        child
    }

    /// Ends it as a crash would; its port refuses connections from now on.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Starts it anew after it was killed.
    pub(crate) fn start_again(&mut self) {
        self.0 = Self::launch();
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        self.kill();
    }
}
