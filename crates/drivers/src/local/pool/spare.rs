//! Files with blocks of their own, for the records that must be written on a full disk.
//!
//! ```text
//! <pool>/spare/0 …    blanks, until a record could not be written in the usual way
//! ```
//!
//! A record is written over a spare file, which takes no new block, and the two change names. The old
//! record's file is a spare one from then on: so no block is ever free for others to take. There are
//! some, because a file system that never writes in place (btrfs) can use each only once: its spare
//! files are the exception that it knows.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use orlop_host::{allocate, durable};

use super::{FILE_MODE, make_directory};

/// More than any record has.
const BYTES: usize = 16 << 10;

/// How many there are.
const COUNT: usize = 8;

/// The spare files of a pool.
#[derive(Debug)]
pub(super) struct Spare {
    directory: PathBuf,
    /// Those that are not whole, as far as is known. One at a time may use them.
    lacking: Mutex<usize>,
}

impl Spare {
    pub(super) fn of(pool: &Path) -> Self {
        Self {
            directory: pool.join("spare"),
            lacking: Mutex::new(0),
        }
    }

    fn file(&self, number: usize) -> PathBuf {
        self.directory.join(number.to_string())
    }

    /// Makes all spare files, or makes them whole again. Without room for them the pool does without.
    pub(super) fn prepare(&self) {
        let mut lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        *lacking = COUNT;
        if let Err(error) = make_directory(&self.directory) {
            tracing::debug!(%error, "no room for spare files");
            return;
        }
        for number in 0..COUNT {
            match make_whole(&self.file(number)) {
                Ok(()) => *lacking -= 1,
                Err(error) => tracing::debug!(%error, "no room for a spare file"),
            }
        }
    }

    /// Makes those whole that were used: for when a record was written in the usual way.
    pub(super) fn replenish(&self) {
        let lacking = *self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        if lacking > 0 {
            self.prepare();
        }
    }

    /// Replaces a file that there is, on a full disk. It survives a power cut once this returns.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = Err(io::ErrorKind::StorageFull.into());
        for number in 0..COUNT {
            outcome = overwrite(&self.file(number), bytes)
                .and_then(|()| durable::exchange(&self.file(number), path));
            if outcome.is_ok() {
                *lacking += 1;
                break;
            }
        }
        outcome
    }
}

/// Makes a file of blanks, unless it is one.
fn make_whole(path: &Path) -> io::Result<()> {
    let whole = fs::metadata(path).is_ok_and(|it| it.len() == BYTES as u64 && has_room(&it, BYTES));
    if whole {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    allocate::write_in_place(&file);
    file.write_all_at(&[b' '; BYTES], 0)?;
    file.sync_all()
}

/// Writes over the blocks that a file has, and takes no other.
fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file: File = OpenOptions::new().write(true).open(path)?;
    let found = file.metadata()?;
    if !has_room(&found, bytes.len()) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    // Blanks behind the record mean nothing; to cut them off would give their blocks away.
    let mut content = bytes.to_vec();
    let length = usize::try_from(found.len()).unwrap_or(BYTES);
    content.resize(length.max(bytes.len()), b' ');
    file.write_all_at(&content, 0)?;
    file.sync_all()
}

fn has_room(file: &fs::Metadata, bytes: usize) -> bool {
    file.blocks().saturating_mul(512) >= bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_exchanged_for_a_spare_file_which_keeps_its_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let spare = Spare::of(folder.path());
        let record = folder.path().join("record");
        fs::write(&record, "\"old\"").unwrap();
        spare.prepare();
        spare.write(&record, b"\"new\"").unwrap();
        let read = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            serde_json::from_str::<String>(&text).unwrap()
        };
        assert_eq!(read(&record), "new");
        assert_eq!(read(&spare.file(0)), "old");
        // The old one serves as well, and is made whole when it can be.
        spare.write(&record, b"\"newer, and longer\"").unwrap();
        assert_eq!(read(&record), "newer, and longer");
        spare.replenish();
        for number in 0..COUNT {
            let found = fs::metadata(spare.file(number)).unwrap();
            assert_eq!(found.len(), BYTES as u64);
            assert!(has_room(&found, BYTES));
        }
    }

    #[test]
    fn a_record_that_does_not_fit_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let spare = Spare::of(folder.path());
        let record = folder.path().join("record");
        fs::write(&record, "old").unwrap();
        spare.prepare();
        let error = spare.write(&record, &vec![b'x'; 2 * BYTES]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&record).unwrap(), b"old");
    }
}
