//! The shim: one small process per container that outlives the node role.
//!
//! It stays in the host's namespaces, writes the log and, when the last process
//! of the container is gone, the exit record. It decides nothing about the
//! container: SIGTERM is passed on, SIGUSR1 kills. If it dies itself, the kernel
//! kills the container.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use super::init::{self, Birth, Report, chain};
use super::log::{Log, Stream};
use super::state::{
    Exit, ExitReason, Inhabitants, Moment, ProcessId, StateDir, StateError, boot_id,
};
use super::sys::{self, Fork, Signals};

/// Asks the shim to kill the container now; see the launcher.
pub(super) const KILL_NOW: Signal = Signal::USR1;

/// What the shim and init wait for. SIGINT and SIGHUP are passed on as SIGTERM
/// is; nobody sends them but a person.
const SIGNALS: [Signal; 5] = [
    Signal::CHILD,
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    KILL_NOW,
];

/// How much of each output is read between two looks at the signals: a container
/// that never stops writing must not keep its own end from being heard.
const ROUND: usize = 64 * 1024;

/// How much of each output is read once the container is dead. More than any pipe
/// holds; only somebody outside who was handed the pipe could go on for ever.
const REMAINDER: usize = 16 * 1024 * 1024;

/// Why a shim could not start its container.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("a shim must be a process of its own with one thread, and this one has {threads}")]
    Threads { threads: usize },
    #[error("a container already runs from {0}")]
    Inhabited(String),
    #[error("nothing was asked to run from {0}")]
    NoSpec(String),
    #[error("a container already ran from {0}; each attempt needs a folder of its own")]
    Used(String),
    #[error("could not read or write the container's state")]
    State(#[from] StateError),
    #[error("could not {step}")]
    Step {
        step: &'static str,
        #[source]
        source: io::Error,
    },
}

fn step<T, E: Into<io::Error>>(step: &'static str, result: Result<T, E>) -> Result<T, ShimError> {
    result.map_err(|e| ShimError::Step {
        step,
        source: e.into(),
    })
}

/// The whole life of a shim. Call it first thing in a fresh process: it forks,
/// and it refuses to do so beside other threads. Returns in the launching
/// process once the workload runs or cannot run, and in the shim at its end.
pub fn shim_main(state_dir: &Path) -> ExitCode {
    match launch(&StateDir::at(state_dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_listens = writeln!(io::stderr(), "{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn launch(state: &StateDir) -> Result<(), ShimError> {
    let threads = step("count threads", std::fs::read_dir("/proc/self/task"))?.count();
    if threads != 1 {
        return Err(ShimError::Threads { threads });
    }
    let name = || state.path().display().to_string();
    // Held until the last of shim and init is gone; descriptors opened by us
    // close on exec, so the workload does not hold it.
    let lock = state
        .try_lock()?
        .ok_or_else(|| ShimError::Inhabited(name()))?;
    let spec = state.spec()?.ok_or_else(|| ShimError::NoSpec(name()))?;
    if state.inhabitants()?.is_some() || state.exit()?.is_some() {
        return Err(ShimError::Used(name()));
    }
    state.reserve()?;
    let (ready, readiness) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    if let Fork::Parent { .. } = step("fork", sys::fork())? {
        drop((readiness, lock));
        // Ends when the shim has said so, or is dead; either way the state
        // folder tells the launcher more.
        let _end_of_file = File::from(ready).read_to_end(&mut Vec::new());
        return Ok(());
    }
    drop(ready);
    step("leave the session", rustix::process::setsid())?;
    step("leave the folder", std::env::set_current_dir("/"))?;
    let signals = step("block signals", Signals::block(&SIGNALS))?;
    let log = step("open the log", Log::open(&state.log()))?;
    let (reports, reporting) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    let (stdout, to_stdout) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    let (stderr, to_stderr) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    step("take a pid namespace", sys::unshare(UnshareFlags::NEWPID))?;
    let child = match step("fork", sys::fork())? {
        Fork::Child => {
            drop((readiness, reports, stdout, stderr, log));
            let_go_of_terminal()?;
            let birth = Birth {
                spec: &spec,
                state,
                reports: reporting.into(),
                stdout: to_stdout,
                stderr: to_stderr,
                signals: &signals,
            };
            return step("attend to the container", init::run(birth));
        }
        Fork::Parent { child } => child,
    };
    drop((reporting, to_stdout, to_stderr, lock_in_init_too(lock)));
    announce(state, child)?;
    let_go_of_terminal()?;
    let outputs = Outputs {
        reports,
        stdout,
        stderr,
    };
    Shim {
        state,
        signals,
        outputs,
        log,
        init: child,
        readiness: Some(readiness),
        report: None,
        started: None,
    }
    .attend()
}

/// The lock is one open file, shared by shim and init: it stays locked until
/// both have closed it. The shim keeps it by leaking it until it exits.
fn lock_in_init_too(lock: File) {
    std::mem::forget(lock);
}

fn announce(state: &StateDir, init: Pid) -> Result<(), ShimError> {
    let who = Inhabitants {
        boot_id: step("read the boot id", boot_id())?,
        shim: step("look at itself", ProcessId::of(rustix::process::getpid()))?,
        init: step("look at init", ProcessId::of(init))?,
        launched_at: Moment(Timestamp::now()),
    };
    Ok(state.write_inhabitants(&who)?)
}

/// The launcher reads our standard error to its end: nobody may keep it open.
fn let_go_of_terminal() -> Result<(), ShimError> {
    let nothing = step(
        "open /dev/null",
        File::options().read(true).write(true).open("/dev/null"),
    )?;
    step(
        "let go of the terminal",
        rustix::stdio::dup2_stdin(&nothing),
    )?;
    step(
        "let go of the terminal",
        rustix::stdio::dup2_stdout(&nothing),
    )?;
    step(
        "let go of the terminal",
        rustix::stdio::dup2_stderr(&nothing),
    )
}

/// What the container says.
struct Outputs {
    reports: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

struct Shim<'a> {
    state: &'a StateDir,
    signals: Signals,
    outputs: Outputs,
    log: Log,
    init: Pid,
    /// Closed as soon as the launching process need not wait any more.
    readiness: Option<OwnedFd>,
    report: Option<Report>,
    started: Option<Timestamp>,
}

/// What to do after a look at the signals.
enum Next {
    Continue,
    End { init_signal: Option<i32> },
}

impl Shim<'_> {
    fn attend(mut self) -> Result<(), ShimError> {
        for fd in [
            &self.outputs.reports,
            &self.outputs.stdout,
            &self.outputs.stderr,
        ] {
            step("read without waiting", ioctl_fionbio(fd, true))?;
        }
        let mut open = [true; 3];
        loop {
            let mut watched = vec![PollFd::new(&self.signals, PollFlags::IN)];
            let outputs = [
                &self.outputs.reports,
                &self.outputs.stdout,
                &self.outputs.stderr,
            ];
            watched.extend(
                outputs
                    .iter()
                    .zip(open)
                    .filter(|(_, open)| *open)
                    .map(|(fd, _)| PollFd::new(*fd, PollFlags::IN)),
            );
            match poll(&mut watched, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return step("wait", Err(e)),
            }
            let signalled = watched[0].revents().contains(PollFlags::IN);
            drop(watched);
            if signalled && let Next::End { init_signal } = self.hear()? {
                // Everything of the container is dead: what it wrote is in the pipes.
                self.drain(REMAINDER)?;
                return self.record(init_signal);
            }
            open = self.drain(ROUND)?;
        }
    }

    /// Reads what there is, up to a limit for each output; tells which outputs may
    /// still say something.
    fn drain(&mut self, limit: usize) -> Result<[bool; 3], ShimError> {
        let mut words = Vec::new();
        let reports = read_some(&self.outputs.reports, limit, |bytes| {
            words.extend_from_slice(bytes)
        });
        for line in words
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            if let Ok(report) = serde_json::from_slice(line) {
                self.note(report)?;
            }
        }
        let log = &mut self.log;
        let stdout = read_some(&self.outputs.stdout, limit, |bytes| {
            log.take(Stream::Stdout, bytes, Timestamp::now())
        });
        let stderr = read_some(&self.outputs.stderr, limit, |bytes| {
            log.take(Stream::Stderr, bytes, Timestamp::now())
        });
        Ok([reports, stdout, stderr])
    }

    /// Reports are shorter than a pipe's atomic write, so a line comes whole.
    fn note(&mut self, report: Report) -> Result<(), ShimError> {
        if report == Report::Started {
            let now = Timestamp::now();
            self.started = Some(now);
            self.state.write_started(Moment(now))?;
            self.readiness = None;
        } else {
            self.report = Some(report);
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Next, ShimError> {
        let signal = step("read a signal", self.signals.next())?;
        if signal == Signal::CHILD.as_raw() {
            let status = step(
                "wait for init",
                rustix::process::waitpid(Some(self.init), WaitOptions::NOHANG),
            )?;
            return Ok(match status {
                Some((_, status)) if status.exited() || status.signaled() => Next::End {
                    init_signal: status.terminating_signal(),
                },
                _ => Next::Continue,
            });
        }
        let pass_on = if signal == KILL_NOW.as_raw() {
            Signal::KILL
        } else {
            Signal::TERM
        };
        let _it_may_have_ended = rustix::process::kill_process(self.init, pass_on);
        Ok(Next::Continue)
    }

    fn record(mut self, init_signal: Option<i32>) -> Result<(), ShimError> {
        let finished_at = Timestamp::now();
        self.log.finish(finished_at);
        let (code, signal, reason, message) = verdict(self.report.take(), init_signal);
        let exit = Exit {
            code,
            signal,
            reason,
            message,
            started_at: self.started,
            finished_at,
        };
        Ok(self.state.write_exit(&exit)?)
    }
}

/// How a container ended, from what init said and how init itself ended.
fn verdict(
    report: Option<Report>,
    init_signal: Option<i32>,
) -> (i32, Option<i32>, ExitReason, String) {
    match report {
        Some(Report::Ended {
            code: 0,
            signal: None,
        }) => (0, None, ExitReason::Completed, String::new()),
        Some(Report::Ended { code, signal }) => (code, signal, ExitReason::Error, String::new()),
        Some(Report::Refused(refusal)) => (refusal.code, None, refusal.reason, refusal.message),
        // Killed as a whole, before init could say anything.
        Some(Report::Started) | None => {
            let signal = init_signal.unwrap_or(Signal::KILL.as_raw());
            (128 + signal, Some(signal), ExitReason::Error, String::new())
        }
    }
}

/// Reads until there is nothing more for now, or the limit is reached; false at
/// the end of it all.
fn read_some(from: &OwnedFd, limit: usize, mut take: impl FnMut(&[u8])) -> bool {
    let mut buffer = [0u8; 16 * 1024];
    let mut taken = 0;
    while taken < limit {
        match rustix::io::read(from, &mut buffer) {
            Ok(0) => return false,
            Ok(length) => {
                take(&buffer[..length]);
                taken += length;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_container_reports_the_signal() {
        assert_eq!(
            verdict(None, Some(9)),
            (137, Some(9), ExitReason::Error, String::new())
        );
        let ended = Report::Ended {
            code: 143,
            signal: Some(15),
        };
        assert_eq!(verdict(Some(ended), None).0, 143);
    }

    #[test]
    fn only_exit_code_zero_is_completed() {
        let ended = |code| Some(Report::Ended { code, signal: None });
        assert_eq!(verdict(ended(0), None).2, ExitReason::Completed);
        assert_eq!(verdict(ended(1), None).2, ExitReason::Error);
    }
}
