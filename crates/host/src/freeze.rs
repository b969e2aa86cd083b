//! Mounted file systems held still while something is done with their devices.
//!
//! A frozen file system holds up everybody who writes to it, so it must thaw whatever becomes of
//! us: a keeper, a process of its own, thaws when our end of a pipe is closed, which the kernel
//! does for us when we are killed. It also thaws when the time is up, and then [`Frozen::thaw`]
//! says so, because what was done meanwhile is worth nothing.

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

mod kernel;

/// File systems that are frozen until this is dropped, or the time is up, or this process ends.
#[derive(Debug)]
pub struct Frozen {
    frozen: Vec<File>,
    keeper: Keeper,
}

/// Why file systems could not be frozen. None is, then.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// There is no keeper to thaw them.
    #[error("could not start the process that thaws the file systems")]
    Keeper(#[source] io::Error),
    /// One is frozen already, by somebody else.
    #[error("file system number {} is frozen by somebody else; thaw it", index + 1)]
    Taken {
        /// Which of those given.
        index: usize,
    },
    /// One cannot be.
    #[error("could not freeze file system number {}", index + 1)]
    Refused {
        /// Which of those given.
        index: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why a freeze was not what it should have been.
#[derive(Debug, thiserror::Error)]
pub enum ThawError {
    /// It was over before its end: the time was up, or somebody else thawed.
    #[error("the file system thawed before the work was done")]
    Early,
    /// The kernel refused.
    #[error("could not thaw the file system")]
    Refused(#[source] io::Error),
}

impl Frozen {
    /// Freezes the file systems that these descriptors are on, for no longer than `limit`.
    ///
    /// Each once: one of two that are the same is refused as [`FreezeError::Taken`]. What they
    /// have in memory is on their devices when this returns.
    pub fn freeze(file_systems: Vec<File>, limit: Duration) -> Result<Self, FreezeError> {
        for file in &file_systems {
            // Most of the writing out, while others can still write. Freezing does the rest.
            let _ = rustix::fs::syncfs(file);
        }
        let keeper = Keeper::start(&file_systems, limit).map_err(FreezeError::Keeper)?;
        let mut done = Self {
            frozen: Vec::with_capacity(file_systems.len()),
            keeper,
        };
        let mut first_error = Ok(());
        let outcomes = freeze_together(&file_systems);
        for (index, (file, outcome)) in file_systems.into_iter().zip(outcomes).enumerate() {
            let error = match outcome {
                Ok(()) => {
                    done.frozen.push(file);
                    continue;
                }
                Err(Errno::BUSY) => FreezeError::Taken { index },
                Err(error) => {
                    let source = error.into();
                    FreezeError::Refused { index, source }
                }
            };
            first_error = first_error.and(Err(error));
        }
        first_error.map(|()| done)
    }

    /// Lets all of them go on. An error means that they were not frozen all the time.
    pub fn thaw(mut self) -> Result<(), ThawError> {
        self.thaw_all()
    }

    fn thaw_all(&mut self) -> Result<(), ThawError> {
        let mut outcome = Ok(());
        for file in self.frozen.drain(..) {
            match kernel::thaw(&file) {
                Ok(()) => {}
                Err(Errno::INVAL) => outcome = Err(ThawError::Early),
                Err(error) => outcome = Err(ThawError::Refused(error.into())),
            }
        }
        self.keeper.dismiss();
        outcome
    }
}

/// Freezes all of them at the same time: the kernel waits for tens of milliseconds at each, mostly for
/// its other processors, and the first must not be held up for what the last takes.
fn freeze_together(file_systems: &[File]) -> Vec<Result<(), Errno>> {
    match file_systems {
        [one] => vec![kernel::freeze(one)],
        many => std::thread::scope(|scope| {
            let threads: Vec<_> = many
                .iter()
                .map(|file| scope.spawn(|| kernel::freeze(file)))
                .collect();
            let join = |it: std::thread::ScopedJoinHandle<'_, _>| it.join();
            let joined = threads.into_iter().map(join);
            joined.map(|it| it.unwrap_or(Err(Errno::IO))).collect()
        }),
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Whoever wants to know has called `thaw`.
        let _ = self.thaw_all();
    }
}

/// Thaws a file system that a process before this one froze and could not thaw.
///
/// Fine if it is not frozen.
pub fn thaw_leftover(file: &File) -> io::Result<()> {
    match kernel::thaw(file) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The process that thaws if we cannot.
#[derive(Debug)]
struct Keeper {
    pid: Option<Pid>,
    /// A byte sends the keeper home; the end of the pipe makes it thaw.
    pipe: PipeWriter,
}

impl Keeper {
    fn start(file_systems: &[File], limit: Duration) -> io::Result<Self> {
        let (read, write) = io::pipe()?;
        let read = OwnedFd::from(read);
        let watched: Vec<_> = file_systems.iter().map(AsRawFd::as_raw_fd).collect();
        let pid = kernel::fork_keeper(read.as_raw_fd(), &watched, limit)?;
        Ok(Self {
            pid: Some(pid),
            pipe: write,
        })
    }

    fn dismiss(&mut self) {
        let Some(pid) = self.pid.take() else { return };
        let _gone_already = self.pipe.write_all(&[1]);
        while let Err(Errno::INTR) = rustix::process::waitpid(Some(pid), WaitOptions::empty()) {}
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.dismiss();
    }
}

#[cfg(test)]
mod tests;
