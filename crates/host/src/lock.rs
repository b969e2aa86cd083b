//! One owner per directory: an advisory lock file that says who holds it.
//!
//! The kernel drops the lock when its holder dies, however it dies; the file itself stays, because
//! removing it would let a third process lock a new file of the same name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

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
    fn presence(self) -> Presence {
        let Self::Process(pid) = self else {
            return Presence::Here;
        };
        match i32::try_from(pid).ok().and_then(Pid::from_raw) {
            Some(pid) => Presence::of(pid),
            None => Presence::Here,
        }
    }
}

/// What there is of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// It runs.
    Here,
    /// It is about to be gone: a thread of it may still wait for the disk.
    Ending(Pid),
    /// Nothing.
    Gone,
}

impl Presence {
    fn of(pid: Pid) -> Self {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero()));
        match (read("stat"), read("status")) {
            (Ok(stat), Ok(status)) if is_ending(&stat, &status) => Self::Ending(pid),
            (Ok(_), Ok(_)) => Self::Here,
            _ if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) => Self::Gone,
            _ => Self::Here,
        }
    }

    /// Waits until nothing is left of a process that is ending, and not longer than this.
    fn wait_out(self, patience: Duration) {
        let Self::Ending(pid) = self else { return };
        // Readable once the last of its threads has let go of everything.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        let Ok(patience) = Timespec::try_from(patience) else {
            return;
        };
        let mut end = [PollFd::new(&process, PollFlags::IN)];
        // A signal may cut it short; whoever waits looks again.
        let _ = poll(&mut end, Some(&patience));
    }
}

/// Whether a process is over, on its way out, or was killed and has not noticed yet.
fn is_ending(stat: &str, status: &str) -> bool {
    /// `PF_EXITING` of the kernel, which it doesn't export.
    const EXITING: u32 = 0x4;
    const KILLED: u64 = 1 << (9 - 1);
    // The state follows the name, which stands in brackets and may itself hold any.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let state = fields
        .first()
        .is_some_and(|state| matches!(*state, "Z" | "X"));
    let flags = fields.get(6).and_then(|flags| flags.parse::<u32>().ok());
    let exiting = flags.is_some_and(|flags| flags & EXITING != 0);
    let killed = status.lines().any(|line| {
        let pending = line
            .strip_prefix("SigPnd:")
            .or_else(|| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        pending.is_some_and(|mask| mask & KILLED != 0)
    });
    state || exiting || killed
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
    ///
    /// Of a holder that was killed nothing is left when this returns: what else it had (other
    /// locks, sockets) is free, too.
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
        let end = Instant::now() + REMAINS;
        loop {
            let free = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(Errno::WOULDBLOCK) => false,
                Err(error) => return Err(failed(error.into())),
            };
            let holder = holder(&mut file);
            let rest = end.saturating_duration_since(Instant::now());
            match holder.presence() {
                Presence::Ending(pid) if !rest.is_zero() && pid != rustix::process::getpid() => {
                    Presence::Ending(pid).wait_out(if free { rest } else { rest.min(LOOK * 20) });
                    if free {
                        break;
                    }
                    // Something else has a copy if it is still held.
                    std::thread::sleep(LOOK);
                }
                _ if free => break,
                // A child that it was just starting has a copy.
                Presence::Gone | Presence::Ending(_) if !rest.is_zero() => std::thread::sleep(LOOK),
                _ => {
                    let path = path.to_owned();
                    return Err(LockError::Held { path, holder });
                }
            }
        }
        match sign(&mut file) {
            // It is held all the same; only its name is missing, on a disk without any room.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(failed(error)),
            _ => Ok(Self { file }),
        }
    }
}

/// How long the lock of a process that was killed may outlive it: a child that it was just starting
/// holds a copy until it executes its program or is killed as well.
const REMAINS: Duration = Duration::from_secs(10);

/// How often to look whether it is gone; the kernel has no event for it that cannot block for good.
const LOOK: Duration = Duration::from_millis(5);

/// Writes over what is there, which needs no room.
fn sign(file: &mut File) -> io::Result<()> {
    let name = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(name.as_bytes())?;
    file.set_len(name.len() as u64)
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
    fn a_process_is_ending_when_it_is_over_exits_or_was_killed() {
        let stat = |state: &str, flags: u32| format!("7 (a ) b) {state} 1 7 7 0 -1 {flags} 0 0");
        let status =
            |own: &str, shared: &str| format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\n");
        let (none, kill, term) = ("0000000000000000", "0000000000000100", "0000000000004000");
        for (state, flags, own, shared, ending) in [
            ("S", 0x40_0040, none, none, false),
            ("S", 0x40_0040, none, term, false),
            ("Z", 0x40_0040, none, none, true),
            ("D", 0x40_0044, none, none, true),
            ("D", 0x40_0040, none, kill, true),
            ("R", 0x40_0040, kill, none, true),
        ] {
            let found = is_ending(&stat(state, flags), &status(own, shared));
            assert_eq!(found, ending, "{state} {flags:x} {own} {shared}");
        }
    }

    #[test]
    fn of_a_holder_that_is_killed_nothing_is_left_when_its_lock_is_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let script = "exec 9<>\"$0\"; flock 9; echo $$ >&9; echo held; exec sleep 60";
        for _ in 0..20 {
            let mut holder = std::process::Command::new("/bin/sh")
                .args(["-c", script])
                .arg(&path)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = [0; 5];
            let held = holder.stdout.take().unwrap().read_exact(&mut said);
            let seen = Lock::try_acquire(&path);
            holder.kill().unwrap();
            let taken = Lock::try_acquire(&path);
            let over = holder.try_wait();
            holder.wait().unwrap();
            held.unwrap();
            assert!(matches!(seen, Err(LockError::Held { .. })), "{seen:?}");
            taken.unwrap();
            assert!(over.unwrap().is_some(), "it was not over yet");
        }
    }

    #[test]
    fn a_missing_directory_is_not_taken_for_a_held_lock() {
        let error = Lock::try_acquire(Path::new("/nonexistent/lock")).unwrap_err();
        assert!(matches!(error, LockError::Io { .. }));
    }
}
