//! One owner per directory: an advisory lock file that says who holds it.
//!
//! The kernel drops the lock when its holder dies, however it dies; the file itself stays, because
//! removing it would let a third process lock a new file of the same name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a lock could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process, or another part of this one, has it.
    #[error("{} is held by {holder}; stop it first", path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Who wrote itself into the file.
        holder: Holder,
    },
    /// The file could not be opened, locked or written.
    #[error("could not lock {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Who holds a lock, as far as the file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The process with this number.
    Process(u32),
    /// Somebody who has not written a number yet.
    Unknown,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Unknown => write!(f, "another process"),
        }
    }
}

impl Lock {
    /// Takes the lock if it is free; never waits.
    pub fn try_acquire(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LockError::Held {
                    path: path.to_owned(),
                    holder: holder(&mut file),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        sign(&mut file).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    match Read::by_ref(file).take(32).read_to_string(&mut text) {
        Ok(_) => text.trim().parse().map_or(Holder::Unknown, Holder::Process),
        Err(_) => Holder::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_taker_is_told_who_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::try_acquire(&path).unwrap();
        match Lock::try_acquire(&path).unwrap_err() {
            LockError::Held { holder, .. } => {
                assert_eq!(holder, Holder::Process(std::process::id()));
            }
            other => panic!("{other}"),
        }
        drop(held);
        Lock::try_acquire(&path).unwrap();
    }

    #[test]
    fn a_missing_directory_is_not_taken_for_a_held_lock() {
        let error = Lock::try_acquire(Path::new("/nonexistent/lock")).unwrap_err();
        assert!(matches!(error, LockError::Io { .. }));
    }
}
