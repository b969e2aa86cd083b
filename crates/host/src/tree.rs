//! Removing whole trees without ever removing what only happens to be mounted in them.
//!
//! Works by descriptor: a directory is entered only if it is on the same mount as the root that was
//! asked for, and links are removed, never followed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags};
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
    remove_root(&parent, name.as_encoded_bytes(), path)
}

/// How deep a removal goes before it takes what is below to the top. A tree may be deeper than any
/// stack, and than descriptors can be open: whoever made it may have wanted just that.
const DEEPEST: u32 = 64;

/// How many names of a directory are held in memory at once.
const AT_ONCE: usize = 4096;

fn failed(path: &Path) -> impl Fn(Errno) -> RemoveTreeError {
    move |source| match source {
        Errno::XDEV | Errno::BUSY => RemoveTreeError::MountPoint {
            path: path.to_owned(),
        },
        source => RemoveTreeError::Io {
            path: path.to_owned(),
            source: source.into(),
        },
    }
}

fn remove_root(parent: &OwnedFd, name: &[u8], path: &Path) -> Result<(), RemoveTreeError> {
    if unlinked(parent, name).map_err(failed(path))? {
        return Ok(());
    }
    let root = enter(parent, name).map_err(failed(path))?;
    let mut removal = Removal {
        root: &root,
        moved: 0,
    };
    loop {
        let before = removal.moved;
        removal.empty(&root, path, 0)?;
        // What was taken to the top is emptied as the rest is, until nothing is left of it.
        if removal.moved == before {
            break;
        }
    }
    removed(parent, name).map_err(failed(path))
}

/// Whether something was removed that has nothing below it, whatever it was.
fn unlinked(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<bool> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(error) => Err(error),
    }
}

fn removed(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

struct Removal<'a> {
    root: &'a OwnedFd,
    /// Directories that were taken to the top so far.
    moved: u64,
}

impl Removal<'_> {
    fn empty(
        &mut self,
        directory: &OwnedFd,
        path: &Path,
        depth: u32,
    ) -> Result<(), RemoveTreeError> {
        loop {
            let names = children(directory, AT_ONCE).map_err(failed(path))?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                let below = path.join(OsStr::from_bytes(&name));
                self.entry(directory, &name, (&below, depth))?;
            }
        }
    }

    fn entry(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        (path, depth): (&Path, u32),
    ) -> Result<(), RemoveTreeError> {
        if unlinked(parent, name).map_err(failed(path))? {
            return Ok(());
        }
        let directory = enter(parent, name).map_err(failed(path))?;
        if depth >= DEEPEST {
            return self.take_up(parent, name).map_err(failed(path));
        }
        self.empty(&directory, path, depth + 1)?;
        removed(parent, name).map_err(failed(path))
    }

    /// Takes a directory to the top, under a name that nobody has.
    fn take_up(&mut self, parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        loop {
            self.moved += 1;
            let new = format!(".deep-{}", self.moved);
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(parent, name, self.root, &*new, flags) {
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
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

/// The first names in a directory, read before any is removed.
fn children(directory: &OwnedFd, most: usize) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
        if names.len() >= most {
            break;
        }
    }
    Ok(names)
}

/// What a tree takes of its disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Room.
    pub bytes: u64,
    /// Files, folders and all else, the tree itself among them.
    pub inodes: u64,
}

/// How long a path may become before a walk holds its end and begins a new one: a tree may be deeper
/// than any path is long.
const LONGEST: usize = 1024;

/// How much a tree takes of its disk, without what is mounted in it; a file with several names
/// counts once. What vanishes or can't be read meanwhile is left out: it is a tree that others
/// write to. `seen` counts on while it goes on.
///
/// # Errors
/// If the tree itself can't be read.
pub fn disk_usage(path: &Path, seen: &AtomicU64) -> io::Result<Taken> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())?;
    let mut total = Taken {
        bytes: blocks(&rustix::fs::fstat(&root)?),
        inodes: 1,
    };
    let mut linked = std::collections::BTreeSet::new();
    // By path and not by descriptor: however wide a tree is, few are open at once.
    let mut folders = vec![(Rc::new(root), PathBuf::from("."))];
    while let Some((from, folder)) = folders.pop() {
        let Ok(held) = enter(&from, folder.as_os_str().as_bytes()) else {
            continue;
        };
        let Ok(entries) = Dir::read_from(&held) else {
            continue;
        };
        let held = Rc::new(held);
        // One by one: there may be more names than memory has room for.
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            seen.fetch_add(1, Ordering::Relaxed);
            let Ok(found) = rustix::fs::statat(&*held, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
            let is_folder = kind == rustix::fs::FileType::Directory;
            if found.st_nlink > 1 && !is_folder && !linked.insert((found.st_dev, found.st_ino)) {
                continue;
            }
            if is_folder {
                let below = folder.join(OsStr::from_bytes(name.to_bytes()));
                folders.push(if below.as_os_str().len() > LONGEST {
                    let name = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
                    (held.clone(), name)
                } else {
                    (from.clone(), below)
                });
            }
            total.bytes += blocks(&found);
            total.inodes += 1;
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
