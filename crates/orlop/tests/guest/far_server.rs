//! The kernel's server as a host of its own: a network, mounts and daemons that nobody else has.
//!
//! Its end is that of a host whose power fails: not a word reaches it, and none comes from it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server;
use crate::server::run;

/// How long it may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);
/// The address of its only link, by which its neighbours know it though it is silent: else they would
/// say after some seconds that there is no such host.
const LINK: &str = "02:00:00:00:98:01";

/// What its first process does. Folders that daemons share are its own; what it exports is not.
const BEGIN: &str = "
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib/nfs
mkdir -p /run/rpcbind /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs rpc /var/lib/nfs/rpc_pipefs
rpcbind
# Remembers clients, so that they get their open files back after a restart.
nfsdcld -p /var/lib/nfs/rpc_pipefs -s /var/lib/nfs/nfsdcld
exportfs -ra
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
rpc.nfsd 8
rpc.mountd
echo begun
exec sleep infinity
";

/// The host; gone when dropped, with its daemons.
pub(crate) struct FarServer {
    first: Child,
}

impl FarServer {
    /// Where it is reached.
    pub(crate) const ADDRESS: &'static str = "10.98.0.1";

    /// Serves the kernel's exports there as well.
    pub(crate) fn start() -> Self {
        server::kernel();
        run("modprobe", &["veth"]);
        run("ip", &["netns", "add", "far"]);
        for words in [
            &format!("link add to-far type veth peer name home address {LINK}"),
            "link set home netns far",
            "address add 10.98.0.2/24 dev to-far",
            "link set to-far up",
            &format!("-n far address add {}/24 dev home", Self::ADDRESS),
            "-n far link set home up",
            "-n far link set lo up",
            &format!(
                "neighbor replace {} lladdr {LINK} dev to-far nud permanent",
                Self::ADDRESS
            ),
        ] {
            run("ip", &words.split(' ').collect::<Vec<_>>());
        }
        let log = Path::new("/tmp/far-server.log");
        let out = fs::File::create(log).unwrap();
        let first = Command::new("ip")
            .args(["netns", "exec", "far", "sh", "-c", BEGIN])
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let mut far = Self { first };
        let begin = Instant::now();
        loop {
            let said = fs::read_to_string(log).unwrap();
            if said.lines().any(|line| line == "begun") {
                return far;
            }
            let ended = far.first.try_wait().unwrap();
            assert!(
                ended.is_none() && begin.elapsed() < PATIENCE,
                "the far server does not begin ({ended:?}): {said}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Nobody hears from it any more.
    pub(crate) fn fall_silent(&self) {
        run("ip", &["-n", "far", "link", "set", "home", "down"]);
    }

    /// Starts the silent server anew: what it had in memory is lost.
    pub(crate) fn start_again(&self) {
        self.inside(&["rpc.nfsd", "0"]);
        self.inside(&["rpc.nfsd", "8"]);
    }

    /// It is heard again.
    pub(crate) fn speak(&self) {
        run("ip", &["-n", "far", "link", "set", "home", "up"]);
    }

    fn inside(&self, words: &[&str]) {
        let target = self.first.id().to_string();
        let mut all = vec!["--target", target.as_str(), "--net", "--mount"];
        all.extend(words);
        run("nsenter", &all);
    }
}

impl Drop for FarServer {
    fn drop(&mut self) {
        let target = self.first.id().to_string();
        let _ = Command::new("nsenter")
            .args(["--target", &target, "--net", "--mount", "rpc.nfsd", "0"])
            .status();
        // Its daemons are those that have its mounts.
        let own = fs::read_link(format!("/proc/{target}/ns/mnt")).ok();
        for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let space = fs::read_link(process.path().join("ns/mnt")).ok();
            let name = process.file_name().to_string_lossy().into_owned();
            if space.is_some() && space == own && name != target {
                let _ = Command::new("kill").args(["-9", &name]).status();
            }
        }
        let _ = self.first.kill();
        let _ = self.first.wait();
        let _ = Command::new("ip").args(["netns", "delete", "far"]).status();
    }
}
