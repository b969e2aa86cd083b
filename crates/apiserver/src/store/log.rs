//! The store's files: a base of all objects at one revision, and behind it the groups that
//! were committed since.
//!
//! What is found after a crash is exactly the acknowledged groups and at most the one group
//! whose acknowledgement was lost. There is one file at a time. It is named for its base's
//! revision, and a new one takes its place by a rename once all of it is on the medium.

use std::io;
use std::sync::Arc;

use super::appended::{Appended, provide};
use super::batch::Batch;
use super::contents::{name_of, read, revision_of};
use super::fresh::{UNFINISHED, Whole, write_new};
use super::medium::Folder;
use super::object::MalformedObject;
use super::record::{self, FORMAT};
use super::state::State;

/// A file is written anew when its groups outweigh its base, and this much at least.
const REWRITE_BYTES: u64 = 8 << 20;
/// What a file must get shorter by when there is no room, to be written anew.
const GAIN: u64 = 256 << 10;
/// The room for the next file is made in steps of this.
const STEP: u64 = 1 << 20;

/// Why the store's files can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file can't be read or written.
    #[error("could not read or write {name}")]
    File {
        /// The file.
        name: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A newer program wrote it.
    #[error(
        "{name} has format {found}, this program reads formats up to {FORMAT}; use the version that wrote it or a newer one"
    )]
    Format {
        /// The file.
        name: String,
        /// The format found.
        found: u32,
    },
    /// It changed on the medium after it was written.
    #[error(
        "{name} is damaged at byte {at}, and what follows can't be trusted: the disk lost or changed what was written; move the store's folder away and make a new one with 'orlop apiserver restore' from a backup"
    )]
    Damaged {
        /// The file.
        name: String,
        /// Where the first bad byte is, or the record that holds it begins.
        at: u64,
    },
    /// An object can't be read although its bytes are as they were written.
    #[error(
        "{name} holds {key} in a form that can't be read; move the store's folder away and make a new one with 'orlop apiserver restore' from a backup"
    )]
    Object {
        /// The file.
        name: String,
        /// The object.
        key: String,
        /// What is wrong with it.
        #[source]
        source: MalformedObject,
    },
}

/// The file that commits go to.
#[derive(Debug)]
pub(super) struct Log {
    folder: Arc<dyn Folder>,
    name: String,
    file: Appended,
    /// How long the file is, all of it acknowledged.
    length: u64,
    /// From which length on it is to be written anew.
    rewrite_at: u64,
    /// What it must get shorter by when there is no room, to be written anew.
    rewrite_for: u64,
    /// How much room for the next file was asked for.
    spare: u64,
    buffer: Vec<u8>,
}

/// Why a commit didn't happen.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommitError {
    /// Nothing of it is in the file. The next one may succeed.
    #[error("{0}")]
    Undone(io::Error),
    /// Nobody knows what of it is on the medium.
    #[error("{0}")]
    Uncertain(io::Error),
}

impl Log {
    /// Opens the newest file of the folder, or makes the first one.
    pub(super) fn open(folder: &Arc<dyn Folder>) -> Result<(Self, State), LogError> {
        let failed = |name: &str| {
            let name = name.to_owned();
            move |source| LogError::File { name, source }
        };
        let names = folder.list().map_err(failed("the store's folder"))?;
        let newest = names.iter().filter_map(|name| revision_of(name)).max();
        let log = match newest {
            None => {
                let state = State::new(1);
                let log = write_new(folder, 1, &[])?;
                let log = log.complete(&**folder, &[])?.install(folder)?;
                (log, state)
            }
            Some(revision) => {
                let name = name_of(revision);
                let contents = read(&**folder, &name)?;
                let state = contents.state(&name)?;
                if contents.dropped > 0 {
                    tracing::warn!(
                        file = name,
                        at = contents.length,
                        bytes = contents.dropped,
                        revision = contents.revision,
                        "the store's last record is not whole and is dropped: a crash cut a write \
                         short that nobody was told of. If there was no crash, the disk has lost \
                         what was acknowledged: compare the objects with a backup"
                    );
                }
                let zeros = contents.dropped == 0;
                let file = Appended::open(&**folder, &name, contents.length, zeros);
                let file = file.map_err(failed(&name))?;
                let log = Self::of(folder, (name, file), contents.length, contents.base);
                (log, state)
            }
        };
        // What a crash left: files that were never finished, or that a newer one replaced.
        for name in names.iter().filter(|name| **name != log.0.name) {
            if revision_of(name).is_some() || name.ends_with(UNFINISHED) {
                match folder.remove(name) {
                    // One of a first start that was cut short became the first file just now.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.map_err(failed(name))?,
                }
            }
        }
        Ok(log)
    }

    /// A file that is in place.
    pub(super) fn of(
        folder: &Arc<dyn Folder>,
        (name, file): (String, Appended),
        length: u64,
        base: u64,
    ) -> Self {
        Self {
            folder: Arc::clone(folder),
            name,
            file,
            length,
            rewrite_at: outweighed(base),
            rewrite_for: GAIN,
            spare: 0,
            buffer: Vec::new(),
        }
    }

    /// Sees to room for so many bytes, and for a few deletions after them.
    pub(super) fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }

    /// Whether the file can be written: a zero behind its end is no record.
    pub(super) fn probe(&mut self) -> io::Result<()> {
        self.spare = 0;
        // For more than the next write alone, or it would be full again at once.
        self.file.reserve(GAIN)?;
        self.file.touch()
    }

    /// Keeps room for a file of all objects, so that on a full disk it can be written anew.
    pub(super) fn keep_spare(&mut self, weight: u64) {
        if !self.wants_spare(weight) {
            return;
        }
        // Tried once for each step, whatever comes of it.
        let wanted = spare(weight);
        self.spare = wanted;
        if let Err(error) = provide(&*self.folder, wanted) {
            tracing::debug!(%error, bytes = wanted, "there is no room for a spare file");
        }
    }

    /// Whether there is to be more room for a file of all objects than was asked for.
    pub(super) fn wants_spare(&self, weight: u64) -> bool {
        spare(weight) > self.spare
    }

    /// Writes a group and waits until it is on the medium.
    pub(super) fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        self.buffer.clear();
        record::group(&mut self.buffer, batch);
        if let Err(error) = self.file.append(&self.buffer) {
            // A full disk, most likely. Whatever of it got there must go before the next.
            return Err(match self.file.truncate(self.length) {
                Ok(()) => CommitError::Undone(error),
                Err(_) => CommitError::Uncertain(error),
            });
        }
        // After a failed flush the kernel may have forgotten what it couldn't write.
        self.file.sync().map_err(CommitError::Uncertain)?;
        self.length += self.buffer.len() as u64;
        Ok(())
    }

    /// The group that was written last, as it stands in the file.
    pub(super) fn last_group(&self) -> &[u8] {
        &self.buffer
    }

    /// Whether the groups outweigh the base, or whether there is room to be gained that is needed.
    pub(super) fn wants_rewriting(&self, weight: u64, full: bool) -> bool {
        self.length > self.rewrite_at || full && self.length >= weight + self.rewrite_for
    }

    /// Puts off what failed until there is something to be gained by another try: each one writes
    /// all objects, and on a full disk takes the last room from the writes themselves.
    pub(super) fn postpone_rewriting(&mut self, weight: u64) {
        self.rewrite_at = self.length + REWRITE_BYTES / 8;
        self.rewrite_for = self.length.saturating_sub(weight) + GAIN;
    }

    pub(super) fn folder(&self) -> &Arc<dyn Folder> {
        &self.folder
    }

    /// Goes on with a new file that has everything.
    pub(super) fn replace(&mut self, whole: Whole) -> Result<(), LogError> {
        let old = std::mem::replace(self, whole.install(&Arc::clone(&self.folder))?);
        // The old one would be removed at the next start too.
        if let Err(error) = self.folder.remove(&old.name) {
            tracing::debug!(%error, name = old.name, "could not remove the store's old file");
        }
        Ok(())
    }
}

/// The length of a file from which on its groups outweigh its base.
fn outweighed(base: u64) -> u64 {
    base + REWRITE_BYTES.max(base)
}

/// How much room to keep for a file of all objects.
fn spare(weight: u64) -> u64 {
    (weight + STEP / 2).next_multiple_of(STEP)
}
