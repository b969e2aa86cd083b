//! Removing a tree on a share that others see.

use std::ffi::OsStr;
use std::io;
use std::time::Instant;

use orlop_host::Folder;

use super::Pulse;

/// How it is done.
pub(super) struct Removal<'a> {
    pub(super) pulse: &'a Pulse<'a>,
    /// When to stop: [`io::ErrorKind::TimedOut`].
    pub(super) until: Option<Instant>,
}

/// Removes an entry and all below it. What is gone already is fine.
pub(super) fn remove(parent: &Folder, name: &OsStr, how: &Removal<'_>) -> io::Result<()> {
    if how.until.is_some_and(|until| Instant::now() >= until) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    how.pulse.file();
    match parent.remove_file(name) {
        Ok(_) => return Ok(()),
        // Servers differ in how they say that it is a directory.
        Err(error) if matches!(error.kind(), io::ErrorKind::IsADirectory) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let folder = parent.look(name)?;
            if folder.is_none_or(|entry| entry.kind != orlop_host::folder::EntryKind::Folder) {
                return Err(error);
            }
        }
        Err(error) => return Err(error),
    }
    let folder = match parent.enter(name) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut opened = false;
    for entry in folder.names()? {
        match remove(&folder, &entry, how) {
            // Whoever we are on the server, we may own a folder that we cannot write to.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !opened => {
                opened = true;
                folder.set_mode(0o700)?;
                remove(&folder, &entry, how)?;
            }
            other => other?,
        }
    }
    parent.remove_empty(name).map(drop)
}
