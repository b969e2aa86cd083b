//! Notices that something was mounted or unmounted, without looking again and again.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::folder_watch::registered;

/// The mount table of this process' mount namespace, watched.
#[derive(Debug)]
pub struct MountWatch {
    fd: AsyncFd<OwnedFd>,
}

impl MountWatch {
    /// Watches from now on. Must be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty())?;
        Ok(Self {
            fd: registered(fd, Interest::PRIORITY)?,
        })
    }

    /// Waits for a change since the last one that was told. Cancel-safe.
    pub async fn changed(&mut self) -> io::Result<()> {
        let mut ready = self.fd.ready(Interest::PRIORITY).await?;
        // The kernel tells of each change once; reading the table is the caller's.
        ready.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::testing::ScratchFs;

    #[tokio::test]
    async fn a_mount_and_its_end_are_told() {
        let mut watch = MountWatch::new().expect("a watch");
        let Some(scratch) = ScratchFs::new("ext4", 8 << 20) else {
            return;
        };
        let patience = Duration::from_secs(30);
        timeout(patience, watch.changed())
            .await
            .expect("told of the mount")
            .expect("a change");
        // Other tests mount, too: whoever is told looks at the table.
        drop(scratch);
        timeout(patience, watch.changed())
            .await
            .expect("told of its end")
            .expect("a change");
    }
}
