//! Mount namespaces of single threads.
//!
//! A thread that leaves for mounts of its own leaves nothing behind: what it mounts there is gone
//! when it ends, however it ends. What others take away is gone for it, too.

use std::fs::File;
use std::io;

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// The mounts that a thread sees.
#[derive(Debug)]
pub struct MountSpace(File);

impl MountSpace {
    /// Those that the calling thread sees.
    pub fn current() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/mnt").map(Self)
    }

    /// Lets the calling thread see them, and have a working folder and root of its own.
    pub fn enter(&self) -> io::Result<()> {
        Ok(rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&self.0),
            Some(LinkNameSpaceType::Mount),
        )?)
    }
}

/// Gives the calling thread a copy of all mounts. What it does to them nobody else sees; what others
/// unmount goes from the copy as well, which else would hold their disks and shares until it ends.
#[expect(unsafe_code, reason = "rustix leaves it to its callers what is shared")]
pub fn leave() -> io::Result<()> {
    // SAFETY: mounts, root and working folder are no longer shared with the other threads;
    // descriptors and memory are.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    crate::mount::make_downstream("/")
}
