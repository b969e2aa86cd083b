//! Removing trees on a share that others see.
//!
//! The client does one thing at a time in a folder, and waits for the server's word each time. So
//! folders are shared out among threads, however the tree is shaped.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use orlop_host::Folder;
use orlop_host::folder::EntryKind;

use super::Pulse;
use super::delete::is_full;
use crate::nfs::record::digest;

/// How many threads remove beside the first: as many as a server has by default.
const HELP: usize = 15;

/// How deep a removal goes before it takes what is below to the top of the trash. A tree may be deeper
/// than any stack, and than descriptors can be open: whoever made it may have wanted just that.
const DEEPEST: usize = 64;

/// How something leaves its place for one that is less deep; what it is called there, if it was there.
type Aside<'a> = dyn Fn(&Folder, &OsStr) -> io::Result<Option<OsString>> + Sync + 'a;

/// A removal.
pub(super) struct Removal<'a> {
    pulse: &'a Pulse<'a>,
    aside: &'a Aside<'a>,
    /// When to stop: [`io::ErrorKind::TimedOut`].
    until: Option<Instant>,
    /// How many threads are not there yet.
    spare: AtomicUsize,
    /// What was too deep, and was put aside.
    moved: Mutex<Vec<OsString>>,
}

impl<'a> Removal<'a> {
    pub(super) fn new(pulse: &'a Pulse<'a>, aside: &'a Aside<'a>, until: Option<Instant>) -> Self {
        Self {
            pulse,
            aside,
            until,
            spare: AtomicUsize::new(HELP),
            moved: Mutex::default(),
        }
    }

    /// What is to be removed besides, since it was asked last.
    pub(super) fn moved(&self) -> Vec<OsString> {
        std::mem::take(&mut self.moved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes an entry and all below it. What is gone already is fine.
    pub(super) fn remove(&self, parent: &Folder, name: &OsStr) -> io::Result<()> {
        match self.file(parent, name)? {
            true => Ok(()),
            false => self.folder(parent, name, 0),
        }
    }

    /// Removes what is no folder; `false` if it is one.
    fn file(&self, parent: &Folder, name: &OsStr) -> io::Result<bool> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.pulse.file();
        match parent.remove_file(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(false),
            // Servers differ in how they say that it is a directory.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                match parent.look(name)? {
                    Some(entry) if entry.kind == EntryKind::Folder => Ok(false),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn folder(&self, parent: &Folder, name: &OsStr, depth: usize) -> io::Result<()> {
        if depth >= DEEPEST {
            let moved = (self.aside)(parent, name)?;
            let mut all = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(moved);
            return Ok(());
        }
        let folder = match parent.enter(name) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match self.empty(&folder, depth) {
            Ok(()) => {}
            // Somebody else removes it as well, and was quicker.
            Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => {}
            Err(error) => return Err(error),
        }
        parent.remove_empty(name).map(drop)
    }

    /// Removes what is in a folder, piece by piece: each is read from the beginning, so that it does not
    /// matter where a server goes on in a folder that has changed.
    fn empty(&self, folder: &Folder, depth: usize) -> io::Result<()> {
        let mut opened = false;
        loop {
            let piece = folder.piece()?;
            let mut below = Vec::new();
            for entry in piece.names {
                let mut file = self.file(folder, &entry);
                // Whoever we are on the server, we may own a folder that we cannot write to.
                if !opened && is_denied(&file) {
                    opened = true;
                    folder.set_mode(0o700)?;
                    file = self.file(folder, &entry);
                }
                if !file? {
                    below.push(entry);
                }
            }
            self.share_out(folder, &below, depth + 1)?;
            if piece.whole {
                return Ok(());
            }
        }
    }

    /// Removes folders, with as much help as there is.
    fn share_out(&self, parent: &Folder, folders: &[OsString], depth: usize) -> io::Result<()> {
        let next = AtomicUsize::new(0);
        let some = || -> io::Result<()> {
            while let Some(name) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.folder(parent, name, depth)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let mut helpers = Vec::new();
            while helpers.len() + 1 < folders.len() && self.hire() {
                helpers.push(scope.spawn(|| {
                    let done = some();
                    self.spare.fetch_add(1, Ordering::Relaxed);
                    done
                }));
            }
            let mut done = some();
            for helper in helpers {
                let helped = helper.join();
                done = done.and(helped.unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
            }
            done
        })
    }

    fn hire(&self) -> bool {
        let less = |spare: usize| spare.checked_sub(1);
        self.spare
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}

/// What a folder is called beside its place while it is removed there.
fn hidden(name: &str) -> String {
    format!(".orlop-gone-{}", digest(name))
}

/// Whether a removal beside a folder's place was begun, and nobody came to the end of it.
pub(super) fn is_begun(parent: &Folder, name: &str) -> io::Result<bool> {
    Ok(parent.look(hidden(name))?.is_some())
}

/// Removes a folder without any room of our own. It leaves its name first: whoever just copies it must
/// not take what is left of it for all of it.
pub(super) fn remove_in_place(pulse: &Pulse<'_>, parent: &Folder, name: &str) -> io::Result<()> {
    let hidden = hidden(name);
    // What an attempt before this one has left.
    remove_here(pulse, parent, &hidden)?;
    match parent.rename(name, parent, &hidden) {
        Ok(()) => remove_here(pulse, parent, &hidden),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // The folder that it is in may have no room for another name.
        Err(error) if is_full(&error) => remove_here(pulse, parent, name),
        Err(error) => Err(error),
    }
}

/// Removes a folder where it is: what is too deep in it comes to its top.
fn remove_here(pulse: &Pulse<'_>, parent: &Folder, name: &str) -> io::Result<()> {
    let top = match parent.enter(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        held => held?,
    };
    let count = AtomicUsize::new(0);
    let aside = |from: &Folder, name: &OsStr| loop {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let place = OsString::from(format!(".orlop-deep-{number}"));
        match from.rename(name, &top, &place) {
            Ok(()) => return Ok(Some(place)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // Somebody left it: an attempt before this one, or a user who likes the name.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(error),
        }
    };
    let removal = Removal::new(pulse, &aside, None);
    loop {
        match removal.remove(parent, OsStr::new(name)) {
            // What has come to the top since it was read.
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && !removal.moved().is_empty() => {}
            other => return other,
        }
    }
}

fn is_denied<T>(outcome: &io::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.kind() == io::ErrorKind::PermissionDenied)
}
