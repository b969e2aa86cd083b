//! The first process of a container: it enters the container's root, starts the
//! workload, passes signals on to it and reaps what it leaves behind.
//!
//! The workload is not pid 1 itself: the kernel withholds SIGTERM from a pid 1
//! that has not asked for it, and plain programs such as `sleep` would always
//! use up their whole grace period. When init ends, the kernel kills whatever is
//! left in the pid namespace.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::spec::ContainerSpec;
use super::state::{ExitReason, StateDir};
use super::sys::{self, Fork, Signals};
use super::{exec, root};

/// What init tells the shim, one JSON object per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The workload has been executed.
    Started,
    /// It could not be.
    Refused(Refusal),
    /// It ended.
    Ended { code: i32, signal: Option<i32> },
}

/// Why a container does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) code: i32,
    pub(super) reason: ExitReason,
    pub(super) message: String,
}

/// What the shim hands to init.
pub(super) struct Birth<'a> {
    pub(super) spec: &'a ContainerSpec,
    pub(super) state: &'a StateDir,
    pub(super) reports: File,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) signals: &'a Signals,
}

/// Runs as pid 1 of the container's namespace until the workload has ended.
/// The shim takes the exit for granted and the report for the truth.
pub(super) fn run(birth: Birth<'_>) -> io::Result<()> {
    let Birth {
        spec,
        state,
        mut reports,
        stdout,
        stderr,
        signals,
    } = birth;
    // Nobody may outlive the shim: without it there is no log and no exit record.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that took hold; then this fails, and so do we.
    reports.write_all(b"\n")?;
    if let Err(error) = root::enter(spec, state) {
        let refusal = Refusal {
            code: 128,
            reason: ExitReason::ContainerCannotRun,
            message: chain(&error),
        };
        return refuse(&mut reports, &stderr, refusal);
    }
    let (mut refused, telling) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map(|(from, to)| (File::from(from), File::from(to)))?;
    let workload = match sys::fork()? {
        Fork::Child => {
            drop(refused);
            let refusal = match settle(stdout, stderr) {
                Ok(()) => exec::become_program(spec),
                Err(error) => Refusal {
                    code: 126,
                    reason: ExitReason::StartError,
                    message: error.to_string(),
                },
            };
            let _shim_learns_of_the_exit_anyway = serde_json::to_writer(&telling, &refusal);
            std::process::exit(refusal.code);
        }
        Fork::Parent { child } => child,
    };
    drop(telling);
    let mut words = Vec::new();
    refused.read_to_end(&mut words)?;
    if let Ok(refusal) = serde_json::from_slice::<Refusal>(&words) {
        return refuse(&mut reports, &stderr, refusal);
    }
    drop((stdout, stderr));
    tell(&mut reports, &Report::Started)?;
    let ended = attend(workload, signals)?;
    tell(&mut reports, &ended)
}

/// Passes signals on and reaps, until the workload has ended.
fn attend(workload: Pid, signals: &Signals) -> io::Result<Report> {
    loop {
        let signal = signals.next()?;
        if signal != Signal::CHILD.as_raw() {
            if let Some(signal) = Signal::from_named_raw(signal) {
                let _it_may_have_ended = rustix::process::kill_process(workload, signal);
            }
            continue;
        }
        while let Some((pid, status)) = reap()? {
            if pid != workload {
                continue;
            }
            if let Some(code) = status.exit_status() {
                return Ok(Report::Ended { code, signal: None });
            }
            if let Some(signal) = status.terminating_signal() {
                return Ok(Report::Ended {
                    code: 128 + signal,
                    signal: Some(signal),
                });
            }
        }
    }
}

fn reap() -> io::Result<Option<(Pid, rustix::process::WaitStatus)>> {
    match rustix::process::wait(WaitOptions::NOHANG) {
        Err(rustix::io::Errno::CHILD) => Ok(None),
        other => Ok(other?),
    }
}

/// What every program expects to find at its start.
fn settle(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<()> {
    rustix::process::setsid()?;
    sys::restore_signals()?;
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(nothing)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    Ok(())
}

/// The log says it too: that is where people look first. Cut to what a pipe
/// takes in one piece, with room for the rest of the report.
fn refuse(reports: &mut File, stderr: &OwnedFd, mut refusal: Refusal) -> io::Result<()> {
    refusal.message = refusal.message.chars().take(1024).collect();
    let line = format!("orlop: {}\n", refusal.message);
    let _the_report_matters_more = rustix::io::write(stderr, line.as_bytes());
    tell(reports, &Report::Refused(refusal))
}

fn tell(reports: &mut File, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    reports.write_all(&line)
}

/// An error and its causes, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
