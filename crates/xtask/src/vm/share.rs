//! A folder of this machine, as the guest sees it: read-only.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::fitness::VIRTIOFSD;

/// How long its server may take to listen.
const START: Duration = Duration::from_secs(20);

/// A shared folder; served until dropped.
pub(super) struct Share {
    server: Child,
    pub(super) socket: PathBuf,
}

impl Share {
    /// Serves a folder under a name. `scratch` has room for a socket and a mount point.
    pub(super) fn serve(folder: &Path, name: &str, scratch: &Path) -> Result<Self> {
        let socket = scratch.join(format!("{name}.sock"));
        let point = scratch.join(name);
        std::fs::create_dir(&point)?;
        // In mounts of its own: a bind that nobody can write through, gone with the server.
        let script = "mount --bind \"$1\" \"$2\" && mount -o remount,ro,bind \"$2\" && \
                      exec \"$3\" --socket-path=\"$4\" -o source=\"$2\" -o sandbox=chroot \
                      -o cache=always";
        let log = std::fs::File::create(scratch.join(format!("{name}.log")))?;
        let server = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "--kill-child",
                "--fork",
            ])
            .args(["/bin/sh", "-c", script, "share"])
            .args([folder, &point, Path::new(VIRTIOFSD), &socket])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("could not run unshare")?;
        let mut share = Self { server, socket };
        let begin = Instant::now();
        // There is no event for a socket that another process makes, but the folder is ours alone.
        while !share.socket.exists() {
            if let Some(status) = share.server.try_wait()? {
                let log = scratch.join(format!("{name}.log"));
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("{VIRTIOFSD} ended with {status}: {said}");
            }
            if begin.elapsed() > START {
                bail!("{VIRTIOFSD} did not listen within {} s", START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
