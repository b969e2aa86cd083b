//! Holding a pool: nobody else may have it, and it must still be the one that was taken.
//!
//! ```text
//!          the disk went, is read-only or fails
//!   Taken ------------------------------------> Away
//!     ^                                           |
//!     +-------------------------------------------+
//!        it is there, works, and is the same pool
//! ```
//!
//! A file system can be unmounted under a pool. Then an empty directory is where the pool was, and
//! nothing may be made or missed there: every use asks first whether this is still the directory
//! that was locked. When the file system is mounted again it is another mount but the same pool,
//! which its `pool.json` tells. A pool that is away is not locked, so that its disk can be unmounted.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_host::{Lock, durable};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::is_trouble;
use super::{FILE_MODE, Found, OpenError, StoreError, to_json};
use crate::local::ids::PoolTag;
use crate::local::snapshot::{GroupId, SnapshotId};
use crate::local::volume::VolumeId;

/// A directory that is ours, as long as it is there.
#[derive(Debug)]
pub(super) struct Hold {
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Taken(Taken),
    Away {
        /// Which pool it is, if it was ever seen.
        pool: Option<String>,
        why: Why,
    },
}

#[derive(Debug)]
struct Taken {
    pool: String,
    directory: Identity,
    _lock: Lock,
}

/// Why a pool is away.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// Another directory, or none, is in its place.
    Gone,
    /// It was away from the start, which this file knows.
    Missing(PathBuf),
    /// Its marker is lost, and nothing in it tells which pool it is.
    Nameless,
    /// The system says this of its disk.
    Trouble(i32),
}

impl Why {
    /// Why a directory that could not be opened is away, if it may be another time.
    fn of_open(error: &OpenError) -> Option<Self> {
        match error {
            OpenError::Nameless(_) => Some(Self::Nameless),
            other => other.trouble().and_then(Self::of),
        }
    }

    fn of(error: &io::Error) -> Option<Self> {
        let code = error.raw_os_error()?;
        is_trouble(error).then_some(Self::Trouble(code))
    }

    fn error(&self, directory: &Path) -> StoreError {
        match self {
            Self::Gone => StoreError::Gone(directory.to_owned()),
            Self::Missing(memory) => StoreError::Missing {
                pool: directory.to_owned(),
                memory: memory.clone(),
            },
            Self::Nameless => StoreError::Nameless(directory.to_owned()),
            Self::Trouble(code) => {
                StoreError::at("use the pool")(io::Error::from_raw_os_error(*code))
            }
        }
    }
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
    Away,
    /// It was away, and this is what it holds now.
    Back(Vec<Found>),
}

/// `pool.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marker {
    pool: String,
}

impl Taken {
    /// Locks a directory and gives it its marker, if it has none yet.
    fn take(directory: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        };
        let lock =
            Lock::try_acquire(&directory.join("lock")).map_err(|source| OpenError::Locked {
                pool: directory.to_owned(),
                source,
            })?;
        let pool = match marker(directory).map_err(failed)? {
            Some(pool) => pool,
            None => {
                let new = Uuid::new_v4().to_string();
                let pool = match tags_within(directory).map_err(failed)?.as_slice() {
                    [] => new,
                    // Its marker was lost. What is in it says which pool it is.
                    [tag] => {
                        tracing::warn!(pool = %directory.display(), %tag, "pool.json is written anew");
                        tag.marker(&new)
                    }
                    [_, _, ..] => return Err(OpenError::Nameless(directory.to_owned())),
                };
                let path = directory.join("pool.json");
                durable::write_atomic(&path, &to_json(&Marker { pool: pool.clone() }), FILE_MODE)
                    .map_err(failed)?;
                pool
            }
        };
        Ok(Self {
            pool,
            directory: Identity::of(directory).map_err(failed)?,
            _lock: lock,
        })
    }

    /// Why it is to be given up, if it is.
    fn look(&self, directory: &Path) -> Option<Why> {
        match self.is_at(directory) {
            Err(why) => Some(why),
            // A file system that has shut down, or became read-only, refuses already this.
            Ok(()) => OpenOptions::new()
                .write(true)
                .open(directory.join("lock"))
                .err()
                .as_ref()
                .and_then(Why::of),
        }
    }

    fn is_at(&self, directory: &Path) -> Result<(), Why> {
        match Identity::of(directory) {
            Ok(found) if found == self.directory => Ok(()),
            Ok(_) => Err(Why::Gone),
            Err(error) => Err(Why::of(&error).unwrap_or(Why::Gone)),
        }
    }
}

impl Hold {
    /// Takes a directory. One whose disk does not work now is away from the start.
    pub(super) fn take(directory: &Path) -> Result<Self, OpenError> {
        let state = match Taken::take(directory) {
            Ok(taken) => State::Taken(taken),
            Err(error) => match Why::of_open(&error) {
                None => return Err(error),
                Some(why) => {
                    tell(directory, &why);
                    State::Away {
                        pool: marker(directory).ok().flatten(),
                        why,
                    }
                }
            },
        };
        Ok(Self {
            state: Mutex::new(state),
        })
    }

    /// A pool that is known and not there.
    pub(super) fn missing(directory: &Path, pool: String, memory: PathBuf) -> Self {
        let (pool, why) = (Some(pool), Why::Missing(memory));
        tell(directory, &why);
        Self {
            state: Mutex::new(State::Away { pool, why }),
        }
    }

    /// Gives a directory up whose disk does not work.
    pub(super) fn give_up(&self, directory: &Path, error: &io::Error) {
        let Some(why) = Why::of(error) else { return };
        let mut state = self.state();
        if let State::Taken(taken) = &*state {
            tell(directory, &why);
            let pool = Some(taken.pool.clone());
            *state = State::Away { pool, why };
        }
    }

    /// Whether the pool is held now.
    pub(super) fn is_held(&self) -> bool {
        matches!(&*self.state(), State::Taken(_))
    }

    /// Which pool it is, if that was ever seen.
    pub(super) fn pool(&self) -> Option<String> {
        match &*self.state() {
            State::Taken(taken) => Some(taken.pool.clone()),
            State::Away { pool, .. } => pool.clone(),
        }
    }

    /// Refuses unless the directory is the one that was taken.
    pub(super) fn check(&self, directory: &Path) -> Result<(), StoreError> {
        match &*self.state() {
            State::Taken(taken) => taken.is_at(directory),
            State::Away { why, .. } => Err(why.clone()),
        }
        .map_err(|why| why.error(directory))
    }

    /// Looks whether the pool is there and works, and takes it again if it came back.
    ///
    /// Another pool is taken in its place only if it is `vacant`: if nothing is in it that we know of.
    pub(super) fn presence(
        &self,
        directory: &Path,
        vacant: bool,
        read: impl FnOnce() -> Result<Vec<Found>, OpenError>,
    ) -> Presence {
        let mut state = self.state();
        if let State::Taken(taken) = &*state {
            let Some(why) = taken.look(directory) else {
                return Presence::There;
            };
            tell(directory, &why);
            let pool = Some(taken.pool.clone());
            *state = State::Away { pool, why };
        }
        let State::Away { pool, why } = &mut *state else {
            return Presence::There;
        };
        match (&*pool, marker(directory)) {
            // Never seen, so that whatever is there is what was meant.
            (None, _) => {}
            (Some(known), Ok(Some(found))) if *known == found || vacant => {}
            (Some(_), Err(error)) => {
                *why = Why::of(&error).unwrap_or(Why::Gone);
                return Presence::Away;
            }
            (Some(_), Ok(None)) if matches!(why, Why::Missing(_)) => return Presence::Away,
            // Another pool, or a bare mount point.
            (Some(_), Ok(_)) => {
                *why = Why::Gone;
                return Presence::Away;
            }
        }
        let taken = Taken::take(directory).and_then(|taken| Ok((taken, read()?)));
        match taken {
            Ok((taken, found)) => {
                tracing::info!(pool = %directory.display(), "the pool is there again");
                *state = State::Taken(taken);
                Presence::Back(found)
            }
            Err(error) => {
                match Why::of_open(&error) {
                    Some(trouble) => *why = trouble,
                    None => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(pool = %directory.display(), error, "the pool is away");
                    }
                }
                Presence::Away
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(directory: &Path, why: &Why) {
    let error = why.error(directory);
    let error = &error as &dyn std::error::Error;
    tracing::error!(pool = %directory.display(), error, "the pool cannot be used");
}

/// Which pool a directory is, if it is one.
pub(super) fn marker(directory: &Path) -> io::Result<Option<String>> {
    match fs::read(directory.join("pool.json")) {
        Ok(bytes) => Ok(serde_json::from_slice::<Marker>(&bytes)
            .ok()
            .map(|marker| marker.pool)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The pools that the ids of what is in a directory name. More than one if somebody moved things.
fn tags_within(directory: &Path) -> io::Result<Vec<PoolTag>> {
    let mut tags = Vec::new();
    for part in ["volumes", "snapshots", "groups"] {
        let entries = match fs::read_dir(directory.join(part)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            tags.extend(VolumeId::parse(name).and_then(|id| id.pool()));
            tags.extend(SnapshotId::parse(name).and_then(|id| id.pool()));
            tags.extend(GroupId::parse(name).and_then(|id| id.pool()));
        }
    }
    tags.sort();
    tags.dedup();
    Ok(tags)
}
