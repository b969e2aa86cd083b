//! The store's file: a redb database of all current objects and the newest revision.
//!
//! One transaction holds one group of writes with the revision they end at, so what is
//! found after a crash is exactly the acknowledged groups and at most the one group whose
//! acknowledgement was lost.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::Key;
use super::batch::Batch;
use super::object::{MalformedObject, Stored};
use super::state::State;

/// The format this program writes. A reader refuses any other.
const FORMAT: u64 = 1;

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// Why the store's file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file can't be created or its mode can't be set.
    #[error("could not create {}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("{} is in use by another process; stop that one first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The database can't be opened or read.
    #[error("could not read the store at {}; restore it from a backup or remove it to start empty", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What the database said.
        #[source]
        source: redb::Error,
    },
    /// The file was written by another version.
    #[error("{} has format {found}, this program reads format {FORMAT}; use the version that wrote it", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u64,
    },
    /// A record is damaged.
    #[error("the store at {} is damaged at {key}; restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The record's key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: MalformedObject,
    },
}

#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
}

impl Disk {
    /// Opens or creates the file and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, State), OpenError> {
        let create = |source| OpenError::Create {
            path: path.to_owned(),
            source,
        };
        let database_failed = |source: redb::Error| OpenError::Database {
            path: path.to_owned(),
            source,
        };
        // Created with its mode, so that there is no moment at which others may read it.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(create)?;
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(create)?;
        drop(file);
        let database = match Database::create(path) {
            Ok(database) => database,
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => {
                return Err(OpenError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(other) => return Err(database_failed(other.into())),
        };
        Self::read(database, path)
    }

    /// Reads all of a database.
    pub(super) fn read(database: Database, path: &Path) -> Result<(Self, State), OpenError> {
        let failed = |source: redb::Error| OpenError::Database {
            path: path.to_owned(),
            source,
        };
        let disk = Self { database };
        if let Some(found) = disk.prepare().map_err(failed)? {
            return Err(OpenError::Format {
                path: path.to_owned(),
                found,
            });
        }
        let state = disk.load(path)?;
        Ok((disk, state))
    }

    /// Makes the tables; returns the format if it is a foreign one.
    fn prepare(&self) -> Result<Option<u64>, redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut numbers = transaction.open_table(NUMBERS)?;
            let found = numbers.get("format")?.map(|format| format.value());
            match found {
                Some(FORMAT) => {}
                Some(other) => return Ok(Some(other)),
                None => {
                    numbers.insert("format", FORMAT)?;
                    // Revision 0 means "any" to clients, so the first one is 1.
                    numbers.insert("revision", 1)?;
                }
            }
            transaction.open_table(OBJECTS)?;
        }
        transaction.commit()?;
        Ok(None)
    }

    fn load(&self, path: &Path) -> Result<State, OpenError> {
        let failed = |source: redb::Error| OpenError::Database {
            path: path.to_owned(),
            source,
        };
        let read = || -> Result<_, redb::Error> {
            let transaction = self.database.begin_read()?;
            let revision = transaction.open_table(NUMBERS)?.get("revision")?;
            let revision = revision.map_or(1, |revision| revision.value());
            Ok((transaction.open_table(OBJECTS)?, revision))
        };
        let (objects, revision) = read().map_err(failed)?;
        let mut state = State::new(revision);
        for entry in objects.iter().map_err(|source| failed(source.into()))? {
            let (key, record) = entry.map_err(|source| failed(source.into()))?;
            let damaged = |source| OpenError::Damaged {
                path: path.to_owned(),
                key: key.value().replace('\0', "/"),
                source,
            };
            let object = Stored::from_disk(record.value()).map_err(damaged)?;
            let key = Key::from_disk(key.value())
                .ok_or(MalformedObject::Record)
                .map_err(damaged)?;
            state.load(&key, object);
        }
        Ok(state)
    }

    /// Writes a batch and waits until it is on the medium.
    pub(super) fn commit(&self, batch: &Batch) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for event in batch.events() {
                let key = event.key.to_disk();
                if event.deleted {
                    objects.remove(key.as_str())?;
                } else {
                    objects.insert(key.as_str(), event.object.to_disk().as_slice())?;
                }
            }
            transaction
                .open_table(NUMBERS)?
                .insert("revision", batch.revision())?;
        }
        transaction.commit()?;
        Ok(())
    }
}
