//! Running a command of the administrator's that cleans a disk.
//!
//! Arguments as they are, no shell. It dies with the thread that started it. What it started in
//! its turn may live on: whatever descriptor it is given is inherited by those, too, and tells by a
//! lock that they are there.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::scrub::Go;

/// A command, and what it is told.
#[derive(Debug)]
pub struct Cleaner<'a> {
    /// The program, by its absolute path, and its arguments.
    pub argv: &'a [String],
    /// What it finds in its environment besides `PATH`.
    pub environment: &'a [(&'a str, &'a OsStr)],
}

/// Why it did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CleanerError {
    /// There is no program.
    #[error("the command is empty")]
    Empty,
    /// It could not be started.
    #[error("could not start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ran and said no.
    #[error("{} failed with {status}: {said}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// Its exit code or signal, in words.
        status: String,
        /// The last line that it printed.
        said: String,
    },
    /// It was told to stop, and is no more.
    #[error("it was stopped")]
    Stopped,
    /// What it printed could not be read.
    #[error("lost touch with the command")]
    Lost(#[source] io::Error),
}

impl Cleaner<'_> {
    /// Runs it to its end, and tells each line that it prints; it is ended if it shall not go on. `held` stays open in it and in
    /// whatever it starts.
    #[expect(
        unsafe_code,
        reason = "pre_exec is the only way to bind a child's life to ours"
    )]
    pub fn run(
        &self,
        held: impl AsFd,
        mut told: impl FnMut(&str) -> Go,
    ) -> Result<(), CleanerError> {
        let (program, arguments) = self.argv.split_first().ok_or(CleanerError::Empty)?;
        let program = PathBuf::from(program);
        let parent = rustix::process::getpid();
        let (reader, writer) = io::pipe().map_err(CleanerError::Lost)?;
        let errors = writer.try_clone().map_err(CleanerError::Lost)?;
        let held = held.as_fd().as_raw_fd();
        let mut command = Command::new(&program);
        command.args(arguments).env_clear().current_dir("/");
        command.env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        command.envs(self.environment.iter().copied());
        command.stdin(Stdio::null()).stdout(writer).stderr(errors);
        // SAFETY: between fork and exec the closure makes system calls that are async-signal-safe
        // and allocates nothing; `held` is borrowed for longer than the fork takes.
        unsafe {
            command.pre_exec(move || {
                let kill = rustix::process::Signal::KILL;
                rustix::process::set_parent_process_death_signal(Some(kill))?;
                if rustix::process::getppid() != Some(parent) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                if libc::fcntl(held, libc::F_SETFD, 0) == -1 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn();
        let mut child = child.map_err(|source| CleanerError::Start {
            program: program.clone(),
            source,
        })?;
        // It has our ends of the pipe: with them gone, the pipe ends with the child's.
        drop(command);
        let mut last = String::new();
        let mut lines = BufReader::new(reader);
        loop {
            let mut line = Vec::new();
            // What prints without ever ending a line must not fill our memory.
            let read = lines.by_ref().take(4096).read_until(b'\n', &mut line);
            match read {
                Ok(0) => break,
                Ok(_) => {
                    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if told(&line) == Go::Stop {
                        child.kill().map_err(CleanerError::Lost)?;
                        child.wait().map_err(CleanerError::Lost)?;
                        return Err(CleanerError::Stopped);
                    }
                    last = line;
                }
                Err(error) => return Err(CleanerError::Lost(error)),
            }
        }
        let status = child.wait().map_err(CleanerError::Lost)?;
        match status.success() {
            true => Ok(()),
            false => Err(CleanerError::Failed {
                program,
                status: status.to_string(),
                said: last,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str], told: &mut Vec<String>) -> Result<(), CleanerError> {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        let cleaner = Cleaner {
            argv: &argv,
            environment: &[("LOCAL_PV_BLKDEVICE", OsStr::new("/dev/x y"))],
        };
        let held = tempfile::tempfile().expect("a file");
        cleaner.run(&held, |line| {
            told.push(line.to_owned());
            Go::On
        })
    }

    #[test]
    fn arguments_and_environment_arrive_as_they_are() {
        let mut told = Vec::new();
        let print = "printf '%s\\n' \"$0\" \"$LOCAL_PV_BLKDEVICE\"; echo oops >&2";
        run(&["/bin/sh", "-c", print, "a; b $(c)"], &mut told).expect("it ran");
        assert_eq!(told, ["a; b $(c)", "/dev/x y", "oops"]);
    }

    #[test]
    fn a_failure_tells_the_last_words() {
        let error = run(
            &["/bin/sh", "-c", "echo no such disk; exit 3"],
            &mut Vec::new(),
        );
        let error = error.expect_err("it failed").to_string();
        assert_eq!(error, "/bin/sh failed with exit status: 3: no such disk");
        let error = run(&["/no/such/program"], &mut Vec::new()).expect_err("it failed");
        assert_eq!(error.to_string(), "could not start /no/such/program");
    }

    #[test]
    fn one_that_is_told_to_stop_is_no_more() {
        let argv = ["/bin/sh", "-c", "echo $$; exec sleep 60"].map(str::to_owned);
        let cleaner = Cleaner {
            argv: &argv,
            environment: &[],
        };
        let held = tempfile::tempfile().expect("a file");
        let mut pid = String::new();
        let stopped = cleaner.run(&held, |line| {
            line.clone_into(&mut pid);
            Go::Stop
        });
        assert!(matches!(stopped, Err(CleanerError::Stopped)), "{stopped:?}");
        assert!(!std::path::Path::new("/proc").join(pid).exists());
    }

    #[test]
    fn a_descendant_that_lives_on_holds_the_lock() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let held = file.reopen().expect("the file");
        let alone = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&held, alone).expect("a lock");
        // Its output goes elsewhere: the command is over before what it started is.
        let argv = ["/bin/sh", "-c", "sleep 2 >/dev/null 2>&1 &"].map(str::to_owned);
        let cleaner = Cleaner {
            argv: &argv,
            environment: &[],
        };
        cleaner.run(&held, |_| Go::On).expect("it ran");
        drop(held);
        let other = file.reopen().expect("the file");
        rustix::fs::flock(&other, alone).expect_err("still locked");
        rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).expect("in the end");
    }
}
