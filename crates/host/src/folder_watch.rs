//! Notices what comes into a folder and what leaves it, without looking again and again.
//!
//! The kernel tells names, and nothing more: what a name stands for may have changed again by
//! the time it is told. Whoever watches must look for itself, and look at the whole folder once
//! at the start and whenever [`FolderEvent::Overrun`] says that something was missed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Something happened in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderEvent {
    /// A name came in, by creation or by a rename; or, for a watch on contents or modes, was written to
    /// or has another mode.
    Came(OsString),
    /// A name went away.
    Left(OsString),
    /// Events were lost: look at everything.
    Overrun,
    /// The folder itself is gone; nothing more will be told.
    Gone,
}

/// A watched folder.
#[derive(Debug)]
pub struct FolderWatch {
    fd: AsyncFd<OwnedFd>,
    pending: std::collections::VecDeque<FolderEvent>,
}

impl FolderWatch {
    /// Watches names from now on. Must be called within a tokio runtime.
    pub fn new(folder: &Path) -> io::Result<Self> {
        Self::watching(folder, WatchFlags::empty())
    }

    /// Watches names and what is written into the files. Must be called within a tokio runtime.
    pub fn on_contents(folder: &Path) -> io::Result<Self> {
        Self::watching(folder, WatchFlags::MODIFY)
    }

    /// Watches names and who may do what with the files. Must be called within a tokio runtime.
    pub fn on_modes(folder: &Path) -> io::Result<Self> {
        Self::watching(folder, WatchFlags::ATTRIB)
    }

    fn watching(folder: &Path, more: WatchFlags) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | more;
        inotify::add_watch(&fd, folder, events)?;
        Ok(Self {
            fd: registered(fd, Interest::READABLE)?,
            pending: std::collections::VecDeque::new(),
        })
    }

    /// The next event. Cancel-safe.
    pub async fn next(&mut self) -> io::Result<FolderEvent> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(event);
            }
            let mut ready = self.fd.readable().await?;
            let pending = &mut self.pending;
            // Emptied in one go: only `WOULDBLOCK` may clear the readiness.
            let _told_below = ready.try_io(|fd| drain(fd.get_ref(), pending));
        }
    }
}

fn drain(fd: &OwnedFd, pending: &mut std::collections::VecDeque<FolderEvent>) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(fd, &mut buffer);
    let touched = ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::MODIFY | ReadFlags::ATTRIB;
    loop {
        let event = reader.next()?;
        let name =
            || OsStr::from_bytes(event.file_name().unwrap_or_default().to_bytes()).to_owned();
        let flags = event.events();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            pending.push_back(FolderEvent::Overrun);
        } else if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            pending.push_back(FolderEvent::Gone);
        } else if event.file_name().is_some() && flags.intersects(touched) {
            pending.push_back(FolderEvent::Came(name()));
        } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            pending.push_back(FolderEvent::Left(name()));
        }
    }
}

#[expect(unsafe_code, reason = "registering a descriptor has no safe form")]
pub(crate) fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names the same open descriptor for as long as it lives, and the AsyncFd
    // takes it off the runtime's list before it drops it.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(registered?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn names_are_told_in_the_order_they_come_and_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut watch = FolderWatch::new(folder.path()).expect("a watch");
        std::fs::write(folder.path().join("a"), "").expect("a file");
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).expect("renamed");
        std::fs::remove_file(folder.path().join("b")).expect("removed");
        let mut told = Vec::new();
        for _ in 0..4 {
            let next = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
            told.push(next.expect("in time").expect("an event"));
        }
        let came = |name: &str| FolderEvent::Came(name.into());
        let left = |name: &str| FolderEvent::Left(name.into());
        assert_eq!(told, [came("a"), left("a"), came("b"), left("b")]);
    }

    #[tokio::test]
    async fn another_mode_is_told_to_who_asks_for_that() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a"), "").expect("a file");
        let mut watch = FolderWatch::on_modes(folder.path()).expect("a watch");
        let runs = std::fs::Permissions::from_mode(0o755);
        // The folder's own mode is nobody's name.
        std::fs::set_permissions(folder.path(), runs.clone()).expect("a mode");
        std::fs::set_permissions(folder.path().join("a"), runs).expect("a mode");
        let next = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
        let came = FolderEvent::Came("a".into());
        assert_eq!(next.expect("in time").expect("an event"), came);
    }

    #[tokio::test]
    async fn the_end_of_the_folder_is_told() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("x");
        std::fs::create_dir(&folder).expect("a folder");
        let mut watch = FolderWatch::new(&folder).expect("a watch");
        std::fs::remove_dir(&folder).expect("removed");
        let next = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
        assert_eq!(next.expect("in time").expect("an event"), FolderEvent::Gone);
    }
}
