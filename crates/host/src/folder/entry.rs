//! What an entry of a folder is, and how it looks.

use std::fs::File;
use std::io;

use rustix::fs::{FileType, Gid, Mode, Timespec, Timestamps, UTIME_NOW, Uid};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Folder,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A device or a socket.
    Other,
}

/// An entry of a folder, as it was when looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Permissions and the three special bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes of a file.
    pub size: u64,
    /// Last change of the content: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// How many names it has.
    pub names: u64,
    /// Its number on its file system.
    pub inode: u64,
}

/// Gives an open file its owner, permissions and time.
pub fn dress(file: &File, entry: &Entry) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    rustix::fs::fchown(file, Some(uid), Some(gid))?;
    // After the owner: changing that drops the special bits.
    rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode))?;
    rustix::fs::futimens(file, &times(entry.modified))?;
    Ok(())
}

/// Notes that a file is changed now, by the clock of whoever keeps it, and tells that time in seconds.
pub fn touch(file: &File) -> io::Result<i64> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let now = Timestamps {
        last_access: now,
        last_modification: now,
    };
    rustix::fs::futimens(file, &now)?;
    Ok(rustix::fs::fstat(file)?.st_mtime)
}

pub(super) fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let at = Timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(nanoseconds),
    };
    Timestamps {
        last_access: at,
        last_modification: at,
    }
}

pub(super) fn of(stat: &rustix::fs::Stat) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => EntryKind::Folder,
        FileType::RegularFile => EntryKind::File,
        FileType::Symlink => EntryKind::Link,
        FileType::Fifo => EntryKind::Pipe,
        _ => EntryKind::Other,
    };
    Entry {
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        modified: (
            stat.st_mtime,
            u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        ),
        names: stat.st_nlink,
        inode: stat.st_ino,
    }
}
