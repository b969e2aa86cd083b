//! Copying a tree: bytes, owners, permissions, times, links.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use orlop_host::Folder;
use orlop_host::folder::{self, Entry, EntryKind};

use super::Pulse;

/// How much is asked of a server at once, so that it can be seen to go on.
const AT_ONCE: usize = 16 << 20;

/// A copy under way.
struct Copy<'a> {
    root: &'a Folder,
    pulse: &'a Pulse<'a>,
    /// Files with several names, by their number: where the copy has its first.
    linked: HashMap<u64, PathBuf>,
}

/// Copies what is in one folder into another, which is empty, and dresses that alike.
pub(super) fn copy(from: &Folder, to: &Folder, pulse: &Pulse<'_>) -> io::Result<()> {
    let mut copy = Copy {
        root: to,
        pulse,
        linked: HashMap::new(),
    };
    copy.tree(from, to, Path::new(""))?;
    dress(to, &from.itself()?)
}

impl Copy<'_> {
    fn tree(&mut self, from: &Folder, to: &Folder, at: &Path) -> io::Result<()> {
        for name in from.names()? {
            let Some(entry) = from.look(&name)? else {
                continue;
            };
            self.pulse.file();
            match entry.kind {
                EntryKind::Folder => {
                    let below = to.make(&name, 0o700)?;
                    self.tree(&from.enter(&name)?, &below, &at.join(&name))?;
                    dress(&below, &entry)?;
                }
                EntryKind::File if entry.names > 1 && self.linked.contains_key(&entry.inode) => {
                    let first = &self.linked[&entry.inode];
                    let parent = match first.parent().filter(|path| !path.as_os_str().is_empty()) {
                        None => self.root.again()?,
                        Some(parent) => self.root.enter(parent)?,
                    };
                    to.add_name(&name, &parent, first.file_name().unwrap_or_default())?;
                }
                EntryKind::File => {
                    let copy = to.create(&name, 0o600)?;
                    self.bytes(&from.read(&name)?, &copy)?;
                    tolerate(folder::dress(&copy, &entry))?;
                    if entry.names > 1 {
                        self.linked.insert(entry.inode, at.join(&name));
                    }
                }
                EntryKind::Link => {
                    to.make_link(&name, &from.read_link(&name)?)?;
                    tolerate(to.set_owner(&name, entry.uid, entry.gid))?;
                    to.set_modified(&name, entry.modified)?;
                }
                EntryKind::Pipe => {
                    to.make_pipe(&name, entry.mode)?;
                    tolerate(to.set_owner(&name, entry.uid, entry.gid))?;
                }
                // Sockets and devices are the node's, not the volume's.
                EntryKind::Other => {}
            }
        }
        Ok(())
    }

    /// By the server itself where it can, which is within one share by version 4.2.
    fn bytes(&self, from: &File, to: &File) -> io::Result<()> {
        let mut first = true;
        loop {
            match folder::copy_some(from, to, AT_ONCE) {
                Ok(0) if first => return self.through_here(from, to),
                Ok(0) => return Ok(()),
                Ok(_) => self.pulse.beat(),
                Err(error) if first && cannot(&error) => return self.through_here(from, to),
                Err(error) => return Err(error),
            }
            first = false;
        }
    }

    fn through_here(&self, mut from: &File, mut to: &File) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok(()),
                length => to.write_all(&buffer[..length])?,
            }
            self.pulse.beat();
        }
    }
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
