//! One owner per directory: an advisory lock file that says who holds it.
//!
//! The kernel drops the lock when its holder dies, however it dies; the file itself stays, because
//! removing it would let a third process lock a new file of the same name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is just starting has a copy of the
        // descriptor until it executes its program.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
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

impl Holder {
    /// Whether the process is known, and known to be gone.
    fn is_dead(self) -> bool {
        let Self::Process(pid) = self else {
            return false;
        };
        let Some(pid) = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        else {
            return false;
        };
        rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) || is_ending(pid)
    }
}

/// Whether a process was killed but is not quite gone: a thread of it may still wait for the disk.
fn is_ending(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The state follows the name, which stands in brackets and may itself hold any.
    stat.is_ok_and(|stat| {
        let state = stat.rsplit(')').next().unwrap_or_default();
        matches!(state.trim_start().chars().next(), Some('Z' | 'X'))
    })
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
    /// Takes the lock if it is free; waits only for the remains of a dead holder, and not long.
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
        let mut patience = REMAINS;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(failed(error.into())),
            }
            let holder = holder(&mut file);
            if !holder.is_dead() || patience.is_zero() {
                return Err(LockError::Held {
                    path: path.to_owned(),
                    holder,
                });
            }
            std::thread::sleep(LOOK);
            patience = patience.saturating_sub(LOOK);
        }
        sign(&mut file).map_err(failed)?;
        Ok(Self { file })
    }
}

/// How long the lock of a process that was killed may outlive it: a child that it was just starting
/// holds a copy until it executes its program or is killed as well.
const REMAINS: Duration = Duration::from_secs(10);

/// How often to look whether it is gone; the kernel has no event for it that cannot block for good.
const LOOK: Duration = Duration::from_millis(5);

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let _ = file.rewind();
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
    fn the_remains_of_a_dead_holder_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        // A copy of the lock that stays for a moment, signed by a process that is gone.
        let mut gone = std::process::Command::new("/usr/bin/true").spawn().unwrap();
        let pid = gone.id();
        gone.wait().unwrap();
        let held = Lock::try_acquire(&path).unwrap();
        std::fs::write(&path, pid.to_string()).unwrap();
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(held);
        });
        Lock::try_acquire(&path).unwrap();
        release.join().unwrap();
    }

    #[test]
    fn a_missing_directory_is_not_taken_for_a_held_lock() {
        let error = Lock::try_acquire(Path::new("/nonexistent/lock")).unwrap_err();
        assert!(matches!(error, LockError::Io { .. }));
    }
}
