//! Emptying a file system that somebody else filled, without leaving it.
//!
//! Whoever filled it may have nested folders deeper than any stack or path: folders are moved up
//! before they are emptied, so that none is ever more than one level below the root. Links are
//! removed, never followed; what is mounted inside stops it. What stays, the root and ext4's
//! `lost+found`, loses owner, mode and extended attributes: also these carry words from one
//! tenant to the next.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

mod marks;

/// ext4 keeps it, and fsck wants it; only what is in it goes.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// What the folders that stay are made: as a new file system has them.
const ROOT: Mode = Mode::from_raw_mode(0o755);
const FOUND: Mode = Mode::from_raw_mode(0o700);

/// Why a file system could not be emptied. What was removed until then stays removed.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    /// Something is mounted in it; nothing behind it was touched.
    #[error("something is mounted in it, at or below {}; unmount it first", path.display())]
    MountPoint {
        /// Where, as far as is known.
        path: PathBuf,
    },
    /// Another process is at it.
    #[error("another process is emptying it")]
    Busy,
    /// It was told to stop.
    #[error("it was stopped")]
    Stopped,
    /// The system refused.
    #[error("could not clear {}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Go on.
    On,
    /// Leave the rest.
    Stop,
}

/// A folder that nobody else empties while this lives, which may be the root of a mount.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
    path: PathBuf,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl Folder {
    /// Takes a folder, unless another process has it.
    pub fn take(path: &Path) -> Result<Self, ScrubError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = path.to_owned();
        let folder = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(root) => Self { root, path },
            Err(error) => {
                let source = error.into();
                return Err(ScrubError::Io { path, source });
            }
        };
        match rustix::fs::flock(&folder.root, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(folder),
            Err(Errno::AGAIN) => Err(ScrubError::Busy),
            Err(error) => Err(folder.failed(b"", error)),
        }
    }

    /// Removes everything in it, and what was said of it, and stays on its mount. Tells after each entry how many were
    /// removed.
    pub fn empty(&self, mut told: impl FnMut(u64) -> Go) -> Result<(), ScrubError> {
        let root = &self.root;
        let mut removed = 0;
        let mut count = || {
            removed += 1;
            match told(removed) {
                Go::On => Ok(()),
                Go::Stop => Err(ScrubError::Stopped),
            }
        };
        let mut moved = 0;
        loop {
            let names = children(root).map_err(|e| self.failed(b"", e))?;
            let mut left = false;
            for name in names {
                if name == LOST_AND_FOUND && is_empty(root, &name) {
                    continue;
                }
                left = true;
                match rustix::fs::unlinkat(root, &name[..], AtFlags::empty()) {
                    Ok(()) => count()?,
                    Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR | Errno::PERM) => {
                        self.raise(&name, (&mut moved, &mut count))?;
                    }
                    Err(error) => return Err(self.failed(&name, error)),
                }
            }
            if !left {
                if let Ok(found) = enter(root.as_fd(), LOST_AND_FOUND) {
                    marks::clear(&found, FOUND).map_err(|e| self.failed(LOST_AND_FOUND, e))?;
                }
                marks::clear(root, ROOT).map_err(|e| self.failed(b"", e))?;
                return rustix::fs::syncfs(root).map_err(|e| self.failed(b"", e));
            }
        }
    }

    /// Empties a folder in the root: files are removed, folders become the root's. Then removes it.
    fn raise(
        &self,
        name: &[u8],
        (moved, count): (&mut u64, &mut impl FnMut() -> Result<(), ScrubError>),
    ) -> Result<(), ScrubError> {
        let root = &self.root;
        let failed = |error| self.failed(name, error);
        let folder = enter(root.as_fd(), name).map_err(failed)?;
        for child in children(&folder).map_err(failed)? {
            match rustix::fs::unlinkat(&folder, &child[..], AtFlags::empty()) {
                Ok(()) => count()?,
                Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => {
                    match rustix::fs::unlinkat(&folder, &child[..], AtFlags::REMOVEDIR) {
                        Ok(()) | Err(Errno::NOENT) => count()?,
                        Err(Errno::NOTEMPTY | Errno::EXIST) => {
                            move_up((&folder, &child), root, moved).map_err(failed)?;
                        }
                        Err(error) => return Err(failed(error)),
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        if name == LOST_AND_FOUND {
            return Ok(());
        }
        match rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR) {
            Ok(()) => count(),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn failed(&self, name: &[u8], error: Errno) -> ScrubError {
        let path = self.path.join(OsStr::from_bytes(name));
        match error {
            Errno::XDEV | Errno::BUSY => ScrubError::MountPoint { path },
            error => ScrubError::Io {
                path,
                source: error.into(),
            },
        }
    }
}

/// Gives a folder a name in the root that nothing there has.
fn move_up(
    (folder, child): (&OwnedFd, &[u8]),
    root: &OwnedFd,
    moved: &mut u64,
) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        let name = format!(".scrub-{moved}");
        match rustix::fs::renameat_with(folder, child, root, &*name, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}

/// Opens a folder; `EXDEV` if it is on another mount, `ELOOP` if it is a link.
fn enter(parent: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
}

fn is_empty(root: &OwnedFd, name: &[u8]) -> bool {
    enter(root.as_fd(), name)
        .and_then(|folder| children(&folder))
        .is_ok_and(|names| names.is_empty())
}

fn children(folder: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
