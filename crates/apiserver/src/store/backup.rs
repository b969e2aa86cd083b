//! A backup is a file of the store with its base alone; a store is made from one.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Key;
use super::contents;
use super::fresh;
use super::log::LogError;
use super::medium::{Directory, Folder};
use super::object::Stored;

/// How far a restored store's revision is ahead of the backup's, so that no revision that a
/// client has seen since the backup comes back with another meaning.
pub const REVISION_GAP: u64 = 1_000_000_000;

/// What a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The revision.
    pub revision: u64,
    /// How many objects.
    pub objects: usize,
}

/// Why there is no backup, or no store made from one.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file can't be read or written.
    #[error("could not access {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no store in the folder.
    #[error("there is no store in {}", path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has a store already.
    #[error("{} has a store already; move it away first, or restore into another folder", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The store or the backup can't be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The folder or the file.
        path: PathBuf,
        /// Why.
        #[source]
        source: LogError,
    },
}

/// Writes what a store holds to a new file. The store may be in use: its file only grows,
/// and what is on its way into it when this is called is not in the backup.
pub fn backup(store: &Path, to: &Path) -> Result<Summary, BackupError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::File { path, source }
    };
    let unreadable = |source| BackupError::Read {
        path: store.to_owned(),
        source,
    };
    if !store.is_dir() {
        let path = store.to_owned();
        return Err(BackupError::NoStore { path });
    }
    let folder = Directory::open(store.to_owned()).map_err(failed(store))?;
    let held = loop {
        let newest = contents::newest(&folder).map_err(failed(store))?;
        let Some(name) = newest else {
            let path = store.to_owned();
            return Err(BackupError::NoStore { path });
        };
        match contents::read(&folder, &name) {
            // A newer one has taken its place meanwhile.
            Err(LogError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => break other.map_err(unreadable)?,
        }
    };
    let objects: Vec<(Key, Arc<Stored>)> = held
        .parsed(&store.display().to_string())
        .map_err(unreadable)?
        .into_iter()
        .map(|(key, object)| (key, Arc::new(object)))
        .collect();
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(to)?;
        fresh::write_base(held.revision, &objects, |bytes| file.write_all(bytes))?;
        file.sync_all()
    };
    write().map_err(failed(to))?;
    Ok(Summary {
        revision: held.revision,
        objects: objects.len(),
    })
}

/// Makes a store from a backup in a folder that has none.
pub fn restore(from: &Path, store: &Path) -> Result<Summary, BackupError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::File { path, source }
    };
    let unreadable = |source| BackupError::Read {
        path: from.to_owned(),
        source,
    };
    let file = File::open(from).map_err(failed(from))?;
    let name = from.display().to_string();
    let held = contents::read_frames(BufReader::new(file), &name).map_err(unreadable)?;
    // A copy of a store's file may end with a write that was cut short; a backup doesn't.
    if held.dropped > 0 && held.base == held.length {
        let at = held.length;
        return Err(unreadable(LogError::Damaged { name, at }));
    }
    let objects = held.parsed(&name).map_err(unreadable)?;
    let objects: Vec<(Key, Arc<Stored>)> = objects
        .into_iter()
        .map(|(key, object)| (key, Arc::new(object)))
        .collect();
    let folder = Directory::open(store.to_owned()).map_err(failed(store))?;
    if contents::newest(&folder).map_err(failed(store))?.is_some() {
        let path = store.to_owned();
        return Err(BackupError::Occupied { path });
    }
    let revision = held.revision + REVISION_GAP;
    let folder: Arc<dyn Folder> = Arc::new(folder);
    fresh::write_new(&folder, revision, &objects)
        .and_then(|fresh| fresh.complete(&*folder, &[]))
        .and_then(|whole| whole.install(&folder))
        .map_err(|source| BackupError::Read {
            path: store.to_owned(),
            source,
        })?;
    Ok(Summary {
        revision,
        objects: objects.len(),
    })
}
