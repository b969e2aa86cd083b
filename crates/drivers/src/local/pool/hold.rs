//! Holding a pool: nobody else may have it, and it must still be the one that was taken.
//!
//! A file system can be unmounted under a pool. Then an empty directory is where the pool was, and
//! nothing may be made or missed there: every use asks first whether this is still the directory
//! that was locked. When the file system is mounted again it is another mount but the same pool,
//! which its `pool.json` tells.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_host::{Lock, durable};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{FILE_MODE, Found, OpenError, StoreError, to_json};

/// A directory that is ours.
#[derive(Debug)]
pub(super) struct Hold {
    pool: String,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    directory: Identity,
    _lock: Lock,
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(directory: &Path) -> io::Result<Self> {
        let found = fs::metadata(directory)?;
        Ok(Self(found.dev(), found.ino()))
    }
}

/// Whether a pool is there.
#[derive(Debug)]
pub(in crate::local) enum Presence {
    /// As ever.
    There,
    /// Not now.
    Gone,
    /// It was gone, and this is what it holds now.
    Back(Vec<Found>),
}

/// `pool.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marker {
    pool: String,
}

impl Hold {
    /// Locks a directory and gives it its marker, if it has none yet.
    pub(super) fn take(directory: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        };
        let lock = lock(directory)?;
        let pool = match marker(directory) {
            Some(pool) => pool,
            None => {
                let pool = Uuid::new_v4().to_string();
                let path = directory.join("pool.json");
                durable::write_atomic(&path, &to_json(&Marker { pool: pool.clone() }), FILE_MODE)
                    .map_err(failed)?;
                pool
            }
        };
        let taken = Taken {
            directory: Identity::of(directory).map_err(failed)?,
            _lock: lock,
        };
        Ok(Self {
            pool,
            taken: Mutex::new(taken),
        })
    }

    /// Refuses unless the directory is the one that was taken.
    pub(super) fn check(&self, directory: &Path) -> Result<(), StoreError> {
        match Identity::of(directory) {
            Ok(found) if found == self.taken().directory => Ok(()),
            Ok(_) => Err(StoreError::Gone(directory.to_owned())),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    Err(StoreError::Gone(directory.to_owned()))
                }
                _ => Err(StoreError::at("look at the pool")(error)),
            },
        }
    }

    /// Looks whether the pool is there, and takes it again if it came back.
    pub(super) fn presence(
        &self,
        directory: &Path,
        read: impl FnOnce() -> Result<Vec<Found>, OpenError>,
    ) -> Presence {
        if self.check(directory).is_ok() {
            return Presence::There;
        }
        if marker(directory).as_ref() != Some(&self.pool) {
            return Presence::Gone;
        }
        let mut taken = self.taken();
        let again = Identity::of(directory).ok().zip(lock(directory).ok());
        let Some((identity, lock)) = again else {
            return Presence::Gone;
        };
        match read() {
            Ok(found) => {
                *taken = Taken {
                    directory: identity,
                    _lock: lock,
                };
                tracing::info!(pool = %directory.display(), "the pool is back");
                Presence::Back(found)
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(pool = %directory.display(), error, "the pool is back, unreadable");
                Presence::Gone
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(directory: &Path) -> Result<Lock, OpenError> {
    Lock::try_acquire(&directory.join("lock")).map_err(|source| OpenError::Locked {
        pool: directory.to_owned(),
        source,
    })
}

fn marker(directory: &Path) -> Option<String> {
    let bytes = fs::read(directory.join("pool.json")).ok()?;
    Some(serde_json::from_slice::<Marker>(&bytes).ok()?.pool)
}
