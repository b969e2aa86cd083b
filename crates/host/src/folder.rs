//! A folder that is held, and work on what is below it by descriptor.
//!
//! For trees that others write to as well: no link is followed, nothing is reached on another mount
//! and nothing above. Every operation names one entry of a held folder; deeper paths are walked by
//! the kernel in one go and checked by it on the way.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RawDir, ResolveFlags, StatxFlags, Uid,
};
use rustix::io::Errno;

use crate::filesystem::{self, Usage};

mod entry;

use entry::times;
pub use entry::{Entry, EntryKind, dress, touch};

const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
const SAME_MOUNT: ResolveFlags = INSIDE.union(ResolveFlags::NO_XDEV);
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Without opening it, for which one need not be allowed to read it.
const HELD: OFlags = DIRECTORY.union(OFlags::PATH);

/// Bytes of a [`Piece`] as the kernel tells it: some two thousand short names.
const PIECE: usize = 64 << 10;

/// The longest path that the kernel walks in one go, with room to spare.
const LONGEST: usize = 3500;

/// A directory that is held open.
#[derive(Debug)]
pub struct Folder(OwnedFd);

/// The first names of a folder.
#[derive(Debug)]
pub struct Piece {
    /// The names.
    pub names: Vec<OsString>,
    /// Whether there are no others.
    pub whole: bool,
}

impl Folder {
    /// Holds a directory; links in the path are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// Holds a directory that one may not be allowed to read: its names can't be told. Links in the path
    /// are followed.
    pub fn hold(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// A directory below, on the same mount and without a link on the way.
    pub fn enter(&self, below: impl AsRef<Path>) -> io::Result<Self> {
        self.walk(below.as_ref(), DIRECTORY, SAME_MOUNT)
    }

    /// A directory below, as a server has it now: a client of NFS answers for up to a minute from what it
    /// was told about a folder, unless that is asked for anew.
    pub fn enter_anew(&self, below: impl AsRef<Path>) -> io::Result<Self> {
        let below = below.as_ref();
        plain(below)?;
        let mut at = self.again()?;
        for part in below.components() {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            rustix::fs::statx(&at.0, c"", flags, StatxFlags::CTIME)?;
            at = at.enter(part)?;
        }
        Ok(at)
    }

    /// Holds a directory below, without a link on the way, though it may be on another mount, and one may
    /// not be allowed to read it.
    pub fn hold_across_mounts(&self, below: impl AsRef<Path>) -> io::Result<Self> {
        self.walk(below.as_ref(), HELD, INSIDE)
    }

    fn walk(&self, below: &Path, how: OFlags, resolve: ResolveFlags) -> io::Result<Self> {
        plain(below)?;
        let open = |from: &Self, path: &Path| -> io::Result<Self> {
            Ok(Self(openat2(from.as_fd(), path, how, resolve)?))
        };
        if below.as_os_str().len() <= LONGEST {
            return open(self, below);
        }
        // Trees are deeper than paths are long; each piece is walked under the same rules.
        let (mut at, mut piece) = (self.again()?, PathBuf::new());
        for part in below.components() {
            if piece.as_os_str().len() + part.as_os_str().len() >= LONGEST {
                at = open(&at, &piece)?;
                piece.clear();
            }
            piece.push(part);
        }
        open(&at, &piece)
    }

    /// The same directory once more.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Makes a directory below and those on the way, where they are missing, and holds it.
    pub fn make(&self, below: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        let below = below.as_ref();
        plain(below)?;
        let mut at = self.again()?;
        for part in below.components() {
            match rustix::fs::mkdirat(&at.0, part.as_os_str(), Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            at = at.enter(part)?;
        }
        Ok(at)
    }

    /// The names in it, all read at once: in their order, and each once. A server whose folder changes
    /// meanwhile may tell one twice.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The first names in it, read by one call. A client of NFS is told about the entries themselves
    /// only by the first call on a directory, however much that asks for: what it learned so needs not
    /// be looked up one by one.
    pub fn piece(&self) -> io::Result<Piece> {
        let own = rustix::fs::openat(&self.0, c".", DIRECTORY, Mode::empty())?;
        let mut buffer = Vec::with_capacity(PIECE);
        let mut entries = RawDir::new(own, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        let whole = match entries.next() {
            None => true,
            Some(more) => more.map(|_| false)?,
        };
        Ok(Piece { names, whole })
    }

    /// What has this name; a link is looked at, not followed.
    pub fn look(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Entry>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statat(&self.0, single(name.as_ref())?, flags) {
            Ok(stat) => Ok(Some(entry::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The folder itself.
    pub fn itself(&self) -> io::Result<Entry> {
        Ok(entry::of(&rustix::fs::fstat(&self.0)?))
    }

    /// Opens a regular file for reading. Never waits for the other end of a pipe.
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.file(name.as_ref(), flags, 0)
    }

    /// Opens for reading the very file that was looked at; none if this name has gone since, or is
    /// something else by now: a device, say, whose bytes are not the folder's.
    pub fn read_seen(&self, name: impl AsRef<OsStr>, seen: &Entry) -> io::Result<Option<File>> {
        // The walk stays on one mount, so that a number is enough to know it by.
        let same = |now: &Entry| now.kind == EntryKind::File && now.inode == seen.inode;
        let name = name.as_ref();
        match self.read(name) {
            Ok(file) => {
                let now = entry::of(&rustix::fs::fstat(&file)?);
                Ok(same(&now).then_some(file))
            }
            // There are as many ways to be refused as there are other things that it may be now.
            Err(error) => match self.look(name)? {
                Some(now) if same(&now) => Err(error),
                _ => Ok(None),
            },
        }
    }

    /// Gives a named pipe its owner, permissions and time.
    pub fn dress_pipe(&self, name: impl AsRef<OsStr>, looks: &Entry) -> io::Result<()> {
        let pipe = self.read(name)?;
        match entry::of(&rustix::fs::fstat(&pipe)?).kind {
            EntryKind::Pipe => dress(&pipe, looks),
            _ => Err(Errno::STALE.into()),
        }
    }

    /// Makes a regular file that is not there yet.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.file(name.as_ref(), flags | OFlags::CLOEXEC, mode)
    }

    fn file(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let name = single(name)?;
        let mode = Mode::from_raw_mode(mode);
        let file = rustix::fs::openat2(&self.0, name, flags, mode, SAME_MOUNT)?;
        Ok(File::from(file))
    }

    /// Where a link points to.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(&self.0, single(name.as_ref())?, Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, name: impl AsRef<OsStr>, target: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(
            target,
            &self.0,
            single(name.as_ref())?,
        )?)
    }

    /// Makes a named pipe.
    pub fn make_pipe(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
        let (name, mode) = (single(name.as_ref())?, Mode::from_raw_mode(mode));
        Ok(rustix::fs::mknodat(&self.0, name, FileType::Fifo, mode, 0)?)
    }

    /// Gives a file of `from` a second name here.
    pub fn add_name(
        &self,
        name: impl AsRef<OsStr>,
        from: &Folder,
        old: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (name, old) = (single(name.as_ref())?, single(old.as_ref())?);
        Ok(rustix::fs::linkat(
            &from.0,
            old,
            &self.0,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Moves an entry to another folder of the same file system.
    pub fn rename(
        &self,
        name: impl AsRef<OsStr>,
        to: &Folder,
        new: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (name, new) = (single(name.as_ref())?, single(new.as_ref())?);
        Ok(rustix::fs::renameat(&self.0, name, &to.0, new)?)
    }

    /// Removes anything that is no directory; `false` if nothing has this name.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        gone(rustix::fs::unlinkat(
            &self.0,
            single(name.as_ref())?,
            AtFlags::empty(),
        ))
    }

    /// Removes an empty directory; `false` if nothing has this name.
    pub fn remove_empty(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        gone(rustix::fs::unlinkat(
            &self.0,
            single(name.as_ref())?,
            AtFlags::REMOVEDIR,
        ))
    }

    /// Sets the folder's own permissions.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match rustix::fs::fchmod(&self.0, mode) {
            // It is held, and not open.
            Err(Errno::BADF) => Ok(rustix::fs::chmodat(&self.0, c".", mode, AtFlags::empty())?),
            other => Ok(other?),
        }
    }

    /// Gives an entry, not what it points to, to an owner and a group.
    pub fn set_owner(&self, name: impl AsRef<OsStr>, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let name = single(name.as_ref())?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(
            &self.0,
            name,
            Some(uid),
            Some(gid),
            flags,
        )?)
    }

    /// Gives the folder itself to an owner and a group.
    pub fn set_own_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::fchown(&self.0, Some(uid), Some(gid))?)
    }

    /// Sets when an entry was changed last.
    pub fn set_modified(&self, name: impl AsRef<OsStr>, at: (i64, u32)) -> io::Result<()> {
        let name = single(name.as_ref())?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(&self.0, name, &times(at), flags)?)
    }

    /// Sets when the folder itself was changed last.
    pub fn set_own_modified(&self, at: (i64, u32)) -> io::Result<()> {
        Ok(rustix::fs::futimens(&self.0, &times(at))?)
    }

    /// Measures the file system that it is on.
    pub fn usage(&self) -> io::Result<Usage> {
        filesystem::usage_of(&self.0)
    }
}

/// Copies up to `most` bytes from where both files are; 0 at the end. The file system, or its
/// server, copies by itself where it can.
pub fn copy_some(from: &File, to: &File, most: usize) -> io::Result<usize> {
    Ok(rustix::fs::copy_file_range(from, None, to, None, most)?)
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn gone(outcome: Result<(), Errno>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// One component, so that no operation reaches further than its folder.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    if crate::place::is_plain_name(name) {
        Ok(name)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not the name of an entry",
        ))
    }
}

fn plain(path: &Path) -> io::Result<()> {
    let mut parts = path.components().peekable();
    let named = parts.peek().is_some();
    if named && parts.all(|part| matches!(part, Component::Normal(_))) {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a path below a folder",
        ))
    }
}

/// `openat2`, repeated while the kernel says that a rename raced with it.
fn openat2(
    folder: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    for _ in 0..128 {
        match rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests;
