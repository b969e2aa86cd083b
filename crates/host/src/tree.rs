//! Removing whole trees without ever removing what only happens to be mounted in them.
//!
//! Works by descriptor: a directory is entered only if it is on the same mount as the root that was
//! asked for, and links are removed, never followed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Why a tree could not be removed. What was removed until then stays removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveTreeError {
    /// Something is mounted in the tree; nothing behind it was touched.
    #[error("{} is a mount point; unmount it first", path.display())]
    MountPoint {
        /// Where.
        path: PathBuf,
    },
    /// The system refused.
    #[error("could not remove {}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Removes a directory and everything in it, staying on its own mount. Fine if it is not there.
///
/// A mount anywhere inside stops it with [`RemoveTreeError::MountPoint`] before anything behind
/// that mount is touched. The root itself may not be a mount point either.
pub fn remove_tree_one_fs(path: &Path) -> Result<(), RemoveTreeError> {
    let failed = |source: Errno| RemoveTreeError::Io {
        path: path.to_owned(),
        source: source.into(),
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(Errno::INVAL));
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    remove_entry(&parent, name.as_encoded_bytes(), path)
}

fn remove_entry(parent: &OwnedFd, name: &[u8], path: &Path) -> Result<(), RemoveTreeError> {
    let failed = |source: Errno| match source {
        Errno::XDEV | Errno::BUSY => RemoveTreeError::MountPoint {
            path: path.to_owned(),
        },
        source => RemoveTreeError::Io {
            path: path.to_owned(),
            source: source.into(),
        },
    };
    // Whatever it is, if it can be unlinked as a file then there is nothing below it.
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(failed(error)),
    }
    let directory = enter(parent, name).map_err(failed)?;
    for entry in children(&directory).map_err(failed)? {
        let below = path.join(OsStr::from_bytes(&entry));
        remove_entry(&directory, &entry, &below)?;
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Opens a child directory; `EXDEV` if it is on another mount, `ELOOP` if it is a link.
fn enter(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match rustix::fs::openat2(parent.as_fd(), name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
}

/// The names in a directory, all read before any is removed.
fn children(directory: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// How much room a tree takes on its disk, without what is mounted in it; a file with several names
/// counts once. What vanishes or can't be read meanwhile is left out: it is a tree that others
/// write to.
///
/// # Errors
/// If the tree itself can't be read.
pub fn disk_usage(path: &Path) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())?;
    let mut total = blocks(&rustix::fs::fstat(&root)?);
    let mut linked = std::collections::BTreeSet::new();
    // By path from the root and not by descriptor: however deep a tree is, few are open at once.
    let mut folders = vec![PathBuf::from(".")];
    while let Some(folder) = folders.pop() {
        let Ok(held) = enter(&root, folder.as_os_str().as_bytes()) else {
            continue;
        };
        for name in children(&held).unwrap_or_default() {
            let Ok(found) = rustix::fs::statat(&held, &*name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if found.st_nlink > 1
                && rustix::fs::FileType::from_raw_mode(found.st_mode)
                    != rustix::fs::FileType::Directory
                && !linked.insert((found.st_dev, found.st_ino))
            {
                continue;
            }
            if rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Directory
            {
                folders.push(folder.join(OsStr::from_bytes(&name)));
            }
            total += blocks(&found);
        }
    }
    Ok(total)
}

/// The kernel counts in units of 512 bytes, whatever the file system does.
fn blocks(found: &rustix::fs::Stat) -> u64 {
    u64::try_from(found.st_blocks).unwrap_or(0) * 512
}

#[cfg(test)]
mod tests;
