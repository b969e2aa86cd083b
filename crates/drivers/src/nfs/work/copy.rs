//! Copying a tree: bytes, owners, permissions, times, links.
//!
//! Others may change it meanwhile. What goes away is left out, and what takes another's name is looked
//! at again, so that nothing is copied but what was seen to be a file.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use orlop_host::Folder;
use orlop_host::folder::{self, Entry, EntryKind};

use super::Pulse;
use super::steady::Steady;

/// How much is asked of a server at once, so that it can be seen to go on.
const AT_ONCE: usize = 16 << 20;

/// How deep a tree may be: each level has descriptors open, and processes have not many more of them
/// everywhere. A snapshot has the same bound, so that what was packed can be restored and copied.
pub(super) const DEEPEST: usize = 1000;

/// How often a name is looked at that is something else whenever it is to be opened.
pub(super) const LOOKS: usize = 20;

/// A copy under way.
struct Copy<'a> {
    root: &'a Folder,
    pulse: &'a Pulse<'a>,
    /// Files with several names, by their number: where the copy has its first.
    linked: HashMap<u64, PathBuf>,
    /// The folder that is copied, below the root.
    at: PathBuf,
    /// Those on the way to it.
    levels: Vec<Level>,
}

/// A folder that is half copied.
struct Level {
    from: Folder,
    to: Folder,
    /// As it was at the beginning: it may go away before its copy is complete.
    looks: Entry,
    names: std::vec::IntoIter<OsString>,
}

/// Copies what is in one folder into another, which is empty, and dresses that alike.
pub(super) fn copy(from: &Folder, to: &Folder, pulse: &Pulse<'_>) -> io::Result<()> {
    let mut copy = Copy {
        root: to,
        pulse,
        linked: HashMap::new(),
        at: PathBuf::new(),
        levels: Vec::new(),
    };
    let mut level = Level::begin(from.again()?, to.again()?, from.itself()?)?;
    loop {
        let Some(name) = level.names.next() else {
            dress(&level.to, &level.looks)?;
            let Some(above) = copy.levels.pop() else {
                return Ok(());
            };
            copy.at.pop();
            level = above;
            continue;
        };
        if let Some(below) = copy.entry(&level, &name)? {
            if copy.levels.len() + 1 >= DEEPEST {
                return Err(too_deep());
            }
            copy.at.push(&name);
            copy.levels.push(std::mem::replace(&mut level, below));
        }
    }
}

impl Level {
    fn begin(from: Folder, to: Folder, looks: Entry) -> io::Result<Self> {
        let names = seen(from.names())?.unwrap_or_default().into_iter();
        Ok(Self {
            from,
            to,
            looks,
            names,
        })
    }
}

impl Copy<'_> {
    /// Copies what has a name, if there still is something; a folder is only begun.
    fn entry(&mut self, level: &Level, name: &OsString) -> io::Result<Option<Level>> {
        self.pulse.file();
        for _ in 0..LOOKS {
            let Some(entry) = seen(level.from.look(name))?.flatten() else {
                return Ok(None);
            };
            if entry.kind == EntryKind::Folder {
                let below = level.from.enter(name);
                let below = below.and_then(|below| Ok((below.itself()?, below)));
                if let Some((looks, below)) = seen(below)? {
                    return Level::begin(below, level.to.make(name, 0o700)?, looks).map(Some);
                }
            } else if self.no_folder(level, name, &entry)? {
                return Ok(None);
            }
        }
        Err(restless(&self.at.join(name)))
    }

    /// Copies what is no folder; `false` if it is something else by now.
    fn no_folder(&mut self, level: &Level, name: &OsString, entry: &Entry) -> io::Result<bool> {
        let Level { from, to, .. } = level;
        match entry.kind {
            EntryKind::File if self.second_name(to, name, entry)? => {}
            EntryKind::File => {
                let Some(file) = seen(from.read_seen(name, entry))?.flatten() else {
                    return Ok(false);
                };
                let copy = to.create(name, 0o600)?;
                match self.bytes(&file, &copy) {
                    Ok(()) => {}
                    // A server that forgets a removed file does so while it is read.
                    Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => {
                        drop(copy);
                        to.remove_file(name)?;
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
                tolerate(folder::dress(&copy, entry))?;
                if entry.names > 1 {
                    self.linked.insert(entry.inode, self.at.join(name));
                }
            }
            EntryKind::Link => {
                let Some(target) = seen(from.read_link(name))? else {
                    return Ok(false);
                };
                to.make_link(name, &target)?;
                tolerate(to.set_owner(name, entry.uid, entry.gid))?;
                to.set_modified(name, entry.modified)?;
            }
            EntryKind::Pipe => {
                to.make_pipe(name, entry.mode)?;
                tolerate(to.dress_pipe(name, entry))?;
            }
            // Sockets and devices are the node's, not the volume's.
            EntryKind::Folder | EntryKind::Other => {}
        }
        Ok(true)
    }

    /// Gives a file of the copy a second name; `false` if there is none that it could be.
    fn second_name(&self, to: &Folder, name: &OsString, entry: &Entry) -> io::Result<bool> {
        match self.linked.get(&entry.inode).filter(|_| entry.names > 1) {
            Some(first) => add_name(self.root, first, to, name),
            None => Ok(false),
        }
    }

    /// By the server itself where it can, which is within one share by version 4.2.
    fn bytes(&self, from: &File, to: &File) -> io::Result<()> {
        let mut steady = Steady::new(to, self.pulse);
        let mut first = true;
        loop {
            match folder::copy_some(from, to, AT_ONCE) {
                Ok(0) if first => return through_here(from, steady),
                // Where the server can't, the kernel may have copied by itself, and writes later.
                Ok(0) => return steady.finish(),
                Ok(length) => steady.wrote(length)?,
                Err(error) if first && cannot(&error) => return through_here(from, steady),
                Err(error) => return Err(error),
            }
            first = false;
        }
    }
}

fn through_here(mut from: &File, mut to: Steady<'_>) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer)? {
            0 => return to.finish(),
            length => to.write_all(&buffer[..length])?,
        }
    }
}

/// Gives a file, by its path below a folder, a second name elsewhere; `false` if its file system has no
/// such names, or no more of them.
pub(super) fn add_name(root: &Folder, first: &Path, to: &Folder, name: &OsStr) -> io::Result<bool> {
    let parent = match first.parent().filter(|path| !path.as_os_str().is_empty()) {
        None => root.again()?,
        Some(parent) => root.enter(parent)?,
    };
    match to.add_name(name, &parent, first.file_name().unwrap_or_default()) {
        Ok(()) => Ok(true),
        Err(error) if has_no_second_names(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Not every server's file system has second names.
pub(super) fn has_no_second_names(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), Unsupported | PermissionDenied | TooManyLinks)
}

/// What was found, if it is still what it was: gone, a link or a file where a folder was, a file where a
/// link was, are what a tree in motion has.
pub(super) fn seen<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    const ELOOP: i32 = 40;
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, StaleNetworkFileHandle};
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(ELOOP) => Ok(None),
        Err(error) => match error.kind() {
            NotFound | NotADirectory | StaleNetworkFileHandle => Ok(None),
            InvalidInput if error.raw_os_error().is_some() => Ok(None),
            _ => Err(error),
        },
    }
}

/// A name at which there was something else each time.
pub(super) fn restless(path: &Path) -> io::Error {
    let told = format!("{} is replaced all the time", path.display());
    io::Error::other(told)
}

pub(super) fn too_deep() -> io::Error {
    io::Error::other(format!("it has more than {DEEPEST} levels of folders"))
}

fn cannot(error: &io::Error) -> bool {
    // Between file systems, or by a server, that cannot.
    const EXDEV: i32 = 18;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    matches!(
        error.raw_os_error(),
        Some(EXDEV | EINVAL | ENOSYS | EOPNOTSUPP)
    )
}

/// Owner, permissions and time of a folder whose content is complete.
pub(super) fn dress(folder: &Folder, entry: &Entry) -> io::Result<()> {
    tolerate(folder.set_own_owner(entry.uid, entry.gid))?;
    tolerate(folder.set_mode(entry.mode))?;
    tolerate(folder.set_own_modified(entry.modified))
}

/// A server that maps root to nobody lets us give nothing away; the data is there all the same.
pub(super) fn tolerate(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}
