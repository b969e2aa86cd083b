//! Programs that a scenario starts inside the cluster.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{process::Command, sync::watch};

use super::{Stage, lock};

/// How long a program may take to end when asked to.
const GRACE: Duration = Duration::from_secs(10);

/// A program that a scenario started.
pub(crate) struct Program {
    pub(super) name: String,
    pub(super) log: PathBuf,
    pid: Pid,
    /// Its end was asked for, or awaited.
    may_end: AtomicBool,
    ended: watch::Receiver<Option<ExitStatus>>,
}

impl Stage {
    /// Starts a program; its output goes to the log `STAGE-NAME`. Until the scenario ends it must
    /// not die.
    pub(crate) fn start<A: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Arc<Program>> {
        self.start_with(name, program, arguments, &[])
    }

    /// Starts a program with further environment variables.
    pub(crate) fn start_with<A: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, OsString)],
    ) -> Result<Arc<Program>> {
        let log = self.cluster.log(&format!("{}-{name}", self.name));
        let output = File::options().append(true).create(true).open(&log)?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .env_remove("KUBECONFIG")
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (tell, ended) = watch::channel(None);
        let program = Arc::new(Program {
            name: name.to_owned(),
            log,
            pid: pid.context("the program has no process")?,
            may_end: AtomicBool::new(false),
            ended,
        });
        lock(&self.programs).push(Arc::clone(&program));
        let (watched, death) = (Arc::clone(&program), self.death.clone());
        tokio::spawn(async move {
            let status = child.wait().await.unwrap_or_default();
            tell.send_replace(Some(status));
            if !watched.may_end.load(Ordering::SeqCst) {
                death.send_if_modified(|first| {
                    first.get_or_insert_with(|| format!("{} died ({status})", watched.name));
                    true
                });
            }
        });
        Ok(program)
    }

    /// Ends all programs, the youngest first.
    pub(super) async fn end_programs(&self) -> Result<()> {
        let programs = std::mem::take(&mut *lock(&self.programs));
        for program in programs.iter().rev() {
            program.end().await?;
        }
        Ok(())
    }
}

impl Program {
    /// Its process.
    pub(crate) fn process(&self) -> Pid {
        self.pid
    }

    /// Ends it, and waits until it is gone.
    pub(crate) async fn end(&self) -> Result<()> {
        self.may_end.store(true, Ordering::SeqCst);
        for signal in [Signal::TERM, Signal::KILL] {
            if self.ended.borrow().is_none() {
                // It may have ended since; then there is nothing to signal.
                let _ = kill_process(self.pid, signal);
            }
            let mut ended = self.ended.clone();
            if tokio::time::timeout(GRACE, ended.wait_for(Option::is_some))
                .await
                .is_ok()
            {
                return Ok(());
            }
        }
        bail!("{} does not end", self.name)
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub(crate) async fn kill(&self) -> Result<()> {
        self.may_end.store(true, Ordering::SeqCst);
        let _ = kill_process(self.pid, Signal::KILL);
        self.end().await
    }

    /// Waits until it ends by itself; answers with how.
    pub(crate) async fn finished(&self, bound: Duration) -> Result<ExitStatus> {
        self.may_end.store(true, Ordering::SeqCst);
        let mut ended = self.ended.clone();
        let status = tokio::time::timeout(bound, ended.wait_for(Option::is_some)).await;
        match status {
            Ok(Ok(status)) => Ok(status.unwrap_or_default()),
            _ => bail!("{} did not end within {} s", self.name, bound.as_secs()),
        }
    }

    /// What it has written so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}
