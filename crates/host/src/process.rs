//! The end of a process that is nobody's child here, and how many files this one may have open.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::folder_watch::registered;

/// A process, held so that no other can take its number unnoticed.
#[derive(Debug)]
pub struct Watched {
    fd: AsyncFd<OwnedFd>,
}

impl Watched {
    /// The process that has this number now. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If there is none.
    pub fn new(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self {
            fd: registered(fd, Interest::READABLE)?,
        })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If the kernel can't tell.
    pub async fn ended(&self) -> io::Result<()> {
        self.fd.readable().await.map(drop)
    }
}

/// Lets this process have as many files open as anybody allows it.
///
/// # Errors
/// If the kernel refuses.
pub fn open_as_many_files_as_allowed() -> io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    Ok(rustix::process::setrlimit(Resource::Nofile, all)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_told() {
        let mut child = tokio::process::Command::new("sleep")
            .arg("0.3")
            .spawn()
            .expect("a process");
        let pid = i32::try_from(child.id().expect("it runs")).expect("a number");
        let watched = Watched::new(pid).expect("it runs");
        let told = tokio::time::timeout(Duration::from_secs(20), watched.ended());
        told.await.expect("in time").expect("told");
        child.wait().await.expect("it ended");
        assert!(Watched::new(0).is_err());
    }
}
