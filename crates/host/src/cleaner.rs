//! Running a command of the administrator's that cleans a disk.
//!
//! Arguments as they are, no shell. It dies with the thread that started it; if it is stopped,
//! what it started ends with it. Otherwise that may live on: whatever descriptor it is given is
//! inherited by those, too, and tells by a lock that they are there.

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::scrub::Go;

/// How often a command that says nothing is asked for: nobody waits longer for its end.
const ASKED: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// How often one is looked at that has closed its output.
const CLOSED: Duration = Duration::from_millis(20);
/// What prints without ever ending a line must not fill our memory.
const LONGEST: usize = 4096;

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
    /// Runs it to its end, and tells each line that it prints. Asks often whether it shall go on,
    /// also while it prints nothing, and ends it with all that it started if not. `held` stays
    /// open in it and in whatever it starts.
    #[expect(
        unsafe_code,
        reason = "pre_exec is the only way to bind a child's life to ours"
    )]
    pub fn run(
        &self,
        held: impl AsFd,
        mut told: impl FnMut(&str) -> Go,
        asked: impl Fn() -> Go,
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
        // A group of its own, which can be ended as one.
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes system calls that are async-signal-safe
        // and allocates nothing; `held` is borrowed for longer than the fork takes.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
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
        let child = child.map_err(|source| CleanerError::Start {
            program: program.clone(),
            source,
        })?;
        // It has our ends of the pipe: with them gone, the pipe ends with the child's.
        drop(command);
        let mut running = Running { child, reader };
        let mut last = String::new();
        let status = running.run_out(asked, |line| {
            line.clone_into(&mut last);
            told(line)
        })?;
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

struct Running {
    child: Child,
    reader: PipeReader,
}

impl Running {
    /// How it ended. If that is not by itself, it is ended, also where nobody hears of it any more.
    fn run_out(
        &mut self,
        asked: impl Fn() -> Go,
        told: impl FnMut(&str) -> Go,
    ) -> Result<ExitStatus, CleanerError> {
        match self.follow(asked, told) {
            Ok(Some(status)) => Ok(status),
            unfinished => {
                self.end().map_err(CleanerError::Lost)?;
                Err(unfinished.map_or_else(CleanerError::Lost, |_| CleanerError::Stopped))
            }
        }
    }

    /// How it ended; none if it shall not go on.
    fn follow(
        &mut self,
        asked: impl Fn() -> Go,
        mut told: impl FnMut(&str) -> Go,
    ) -> io::Result<Option<ExitStatus>> {
        let mut said = Vec::new();
        let mut piece = [0; LONGEST];
        loop {
            if asked() == Go::Stop {
                return Ok(None);
            }
            let mut waited = [PollFd::new(&self.reader, PollFlags::IN)];
            match poll(&mut waited, Some(&ASKED)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let read = self.reader.read(&mut piece)?;
            said.extend_from_slice(&piece[..read]);
            while let Some(line) = next_line(&mut said, read == 0) {
                if told(&line) == Go::Stop {
                    return Ok(None);
                }
            }
            if read == 0 {
                break;
            }
        }
        // It may run on without its output.
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if asked() == Go::Stop {
                return Ok(None);
            }
            sleep(CLOSED);
        }
    }

    /// Ends it, and what it started. That it was not waited for yet keeps its id its own.
    fn end(&mut self) -> io::Result<()> {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            match kill_process_group(group, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.child.wait().map(drop)
    }
}

/// Takes the first line of what was said; the rest too, if no more comes or it is too long.
fn next_line(said: &mut Vec<u8>, over: bool) -> Option<String> {
    let end = said.iter().take(LONGEST).position(|byte| *byte == b'\n');
    let length = match end {
        Some(end) => end + 1,
        None if said.is_empty() || (said.len() < LONGEST && !over) => return None,
        None => said.len().min(LONGEST),
    };
    let line: Vec<u8> = said.drain(..length).collect();
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
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
        let told = |line: &str| {
            told.push(line.to_owned());
            Go::On
        };
        cleaner.run(&held, told, || Go::On)
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
        let told = |line: &str| {
            line.clone_into(&mut pid);
            Go::Stop
        };
        let stopped = cleaner.run(&held, told, || Go::On);
        assert!(matches!(stopped, Err(CleanerError::Stopped)), "{stopped:?}");
        assert!(!std::path::Path::new("/proc").join(pid).exists());
    }

    #[test]
    fn one_that_nobody_hears_any_more_is_ended() {
        let mut command = Command::new("sleep");
        let child = command.arg("60").process_group(0).spawn().expect("it ran");
        // That can't be read.
        let folder = std::fs::File::open("/").expect("a folder");
        let reader = PipeReader::from(std::os::fd::OwnedFd::from(folder));
        let mut running = Running { child, reader };
        let lost = running.run_out(|| Go::On, |_| Go::On);
        assert!(matches!(lost, Err(CleanerError::Lost(_))), "{lost:?}");
        let ended = running.child.try_wait().expect("a child");
        if ended.is_none() {
            running.end().expect("ended");
        }
        assert!(ended.is_some(), "it runs on");
    }

    #[test]
    fn one_that_says_nothing_is_ended_with_what_it_started() {
        let silent = "sleep 60 & echo $!; exec sleep 60";
        let closed = "sleep 60 >/dev/null 2>&1 & echo $!; exec sleep 60 >/dev/null 2>&1";
        for script in [silent, closed] {
            let argv = ["/bin/sh", "-c", script].map(str::to_owned);
            let cleaner = Cleaner {
                argv: &argv,
                environment: &[],
            };
            let held = tempfile::tempfile().expect("a file");
            let pid = std::cell::RefCell::new(String::new());
            let told = |line: &str| {
                pid.replace(line.to_owned());
                Go::On
            };
            let started = std::time::Instant::now();
            let asked = || match pid.borrow().is_empty() {
                true => Go::On,
                false => Go::Stop,
            };
            let stopped = cleaner.run(&held, told, asked);
            assert!(matches!(stopped, Err(CleanerError::Stopped)), "{stopped:?}");
            assert!(started.elapsed() < Duration::from_secs(10), "at once");
            let stat = format!("/proc/{}/stat", pid.borrow());
            let gone = || {
                let stat = std::fs::read_to_string(&stat);
                stat.map_or(true, |stat| stat.contains(") Z "))
            };
            let deadline = std::time::Instant::now() + Duration::from_secs(10);
            while !gone() && std::time::Instant::now() < deadline {
                sleep(CLOSED);
            }
            assert!(gone(), "{script}");
        }
    }

    #[test]
    fn lines_are_told_as_they_were_printed() {
        let mut told = Vec::new();
        let print = "printf 'one\\ntwo'; sleep 0.1; printf ' more\\n\\nlast'";
        run(&["/bin/sh", "-c", print], &mut told).expect("it ran");
        assert_eq!(told, ["one", "two more", "", "last"]);
        let mut told = Vec::new();
        let print = "head -c 10000 /dev/zero | tr '\\0' x";
        run(&["/bin/sh", "-c", print], &mut told).expect("it ran");
        let lengths: Vec<usize> = told.iter().map(String::len).collect();
        assert_eq!(lengths, [4096, 4096, 1808]);
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
        cleaner.run(&held, |_| Go::On, || Go::On).expect("it ran");
        drop(held);
        let other = file.reopen().expect("the file");
        rustix::fs::flock(&other, alone).expect_err("still locked");
        rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).expect("in the end");
    }
}
