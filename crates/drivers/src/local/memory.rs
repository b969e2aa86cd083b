//! What is remembered of pools outside of them: which one was in which folder, on what file system.
//!
//! A disk that is not mounted when the driver starts looks like an empty folder, and so does a new
//! pool. What is remembered tells them apart. It protects and is needed for nothing: where it cannot
//! be read or written, the driver says so and goes on as if it knew no pool.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_host::{durable, filesystem};
use serde::{Deserialize, Serialize};

/// For root alone, as the pools are.
const FILE_MODE: u32 = 0o600;

/// A pool as it was when it was last held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Known {
    /// Its marker.
    pub(super) pool: String,
    /// The file system that it was on.
    pub(super) file_system: u64,
}

impl Known {
    /// Whether a folder without a marker is where this pool's disk is to be mounted, rather than a
    /// folder that somebody emptied: that one would be on the file system that it was on.
    fn is_missing_from(&self, file_system: u64) -> bool {
        self.file_system != file_system
    }
}

/// The file, and what is in it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// None for a driver that remembers nothing.
    file: Option<PathBuf>,
    known: Mutex<Record>,
}

/// What the file holds: pools by their folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    pools: BTreeMap<PathBuf, Known>,
}

impl Memory {
    /// Reads what an earlier driver remembered.
    pub(super) fn open(file: Option<PathBuf>) -> Self {
        let known = file.as_deref().map_or_else(Record::default, |file| {
            read(file).unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(file = %file.display(), error, "which pools there were cannot be read");
                Record::default()
            })
        });
        Self {
            file,
            known: Mutex::new(known),
        }
    }

    /// The pool that is missing from a folder without a marker, and the file that says so.
    pub(super) fn missing_from(&self, folder: &Path) -> Option<(Known, PathBuf)> {
        let file = self.file.clone()?;
        let known = self.known().pools.get(folder).cloned()?;
        // The folder need not exist: what counts is where it would be.
        let here = folder
            .ancestors()
            .find_map(|folder| filesystem::id(folder).ok())?;
        known.is_missing_from(here).then_some((known, file))
    }

    /// Remembers that a pool is in a folder.
    pub(super) fn remember(&self, folder: &Path, pool: &str) {
        let Some(file) = &self.file else { return };
        let remembered = filesystem::id(folder).and_then(|file_system| {
            let known = Known {
                pool: pool.to_owned(),
                file_system,
            };
            let mut record = self.known();
            if record.pools.get(folder) == Some(&known) {
                return Ok(());
            }
            record.pools.insert(folder.to_owned(), known);
            durable::write_atomic(file, &serde_json::to_vec_pretty(&*record)?, FILE_MODE)
        });
        if let Err(error) = remembered {
            let error = &error as &dyn std::error::Error;
            let (file, pool) = (file.display(), folder.display());
            tracing::warn!(%file, %pool, error, "which pool is here cannot be written down");
        }
    }

    fn known(&self) -> MutexGuard<'_, Record> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: &Path) -> io::Result<Record> {
    match fs::read(file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(folder: &Path) -> Memory {
        Memory::open(Some(folder.join("pools.json")))
    }

    #[test]
    fn a_pool_is_missing_where_another_file_system_is_and_not_where_it_was_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let pool = folder.path().join("pool");
        fs::create_dir(&pool).unwrap();
        memory(folder.path()).remember(&pool, "1b0e4c2f");
        let again = memory(folder.path());
        assert_eq!(again.missing_from(&pool), None, "the same file system");
        assert_eq!(again.missing_from(folder.path()), None, "no pool was there");
        let mut record = read(&folder.path().join("pools.json")).unwrap();
        record.pools.get_mut(&pool).unwrap().file_system ^= 1;
        let file = folder.path().join("pools.json");
        fs::write(&file, serde_json::to_vec(&record).unwrap()).unwrap();
        // Whether or not there is a folder.
        for _ in 0..2 {
            let (known, at) = memory(folder.path()).missing_from(&pool).unwrap();
            assert_eq!((known.pool.as_str(), &at), ("1b0e4c2f", &file));
            let _ = fs::remove_dir(&pool);
        }
    }

    #[test]
    fn a_file_that_makes_no_sense_or_cannot_be_written_is_no_reason_to_stop() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pools.json");
        fs::write(&file, "{").unwrap();
        let damaged = memory(folder.path());
        assert_eq!(damaged.missing_from(folder.path()), None);
        damaged.remember(folder.path(), "1b0e4c2f");
        assert_eq!(read(&file).unwrap().pools.len(), 1);
        let nowhere = memory(&folder.path().join("none"));
        nowhere.remember(folder.path(), "1b0e4c2f");
        Memory::default().remember(folder.path(), "1b0e4c2f");
    }
}
