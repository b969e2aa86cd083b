//! Containers as host processes.

use std::error::Error;
use std::sync::Arc;

use jiff::Timestamp;
use orlop_host::sandbox::{
    Adopted, Ended, Exit, ExitReason, Launcher, Running, ShimCommand, StateDir,
};
use tracing::error;

use super::{Attempts, ContainerId, Finish, Found, Launch, Runner, RunnerError, RunningContainer};
use crate::layout::{Layout, PodUid};
use crate::registration::Work;
use crate::words::chain;

/// Runs containers as host processes, with their state in the node's folder.
#[derive(Debug, Clone)]
pub struct HostRunner {
    layout: Layout,
    launcher: Launcher,
}

impl HostRunner {
    /// A runner with its state below the node's folder.
    pub fn new(layout: Layout, shim: ShimCommand) -> Self {
        Self {
            layout,
            launcher: Launcher::new(shim),
        }
    }

    fn dir(&self, id: &ContainerId) -> StateDir {
        StateDir::at(self.layout.attempt(&id.pod, &id.container, id.attempt))
    }
}

impl Runner for HostRunner {
    fn start<'a>(
        &'a self,
        id: &'a ContainerId,
        launch: &'a Launch,
    ) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(async move {
            let adopted = self.launcher.start(&self.dir(id), &launch.spec).await;
            adopted
                .map(|adopted| found(id, adopted))
                .map_err(|source| failed("start", id, source))
        })
    }

    fn adopt<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(async move {
            let adopted = self.launcher.adopt(&self.dir(id)).await;
            adopted
                .map(|adopted| found(id, adopted))
                .map_err(|source| failed("find", id, source))
        })
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(async move {
            let removed = self.launcher.remove(&self.dir(id)).await;
            removed.map_err(|source| failed("remove", id, source))
        })
    }

    fn attempts<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<Attempts, RunnerError>> {
        Box::pin(std::future::ready(Ok(self.on_record(pod))))
    }
}

impl HostRunner {
    fn on_record(&self, pod: &PodUid) -> Attempts {
        let names = |folder| {
            std::fs::read_dir(folder)
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        };
        let folder = self.layout.containers(pod);
        names(folder.clone())
            .map(|container| {
                let attempts = names(folder.join(&container)).filter_map(|name| name.parse().ok());
                let attempts = attempts.collect();
                (container, attempts)
            })
            .collect()
    }
}

fn failed(
    doing: &'static str,
    id: &ContainerId,
    source: impl Error + Send + Sync + 'static,
) -> RunnerError {
    RunnerError {
        doing,
        container: id.to_string(),
        source: Box::new(source),
    }
}

fn found(id: &ContainerId, adopted: Adopted) -> Found {
    match adopted {
        Adopted::Running(running) => Found::Running(Arc::new(HostContainer {
            id: id.clone(),
            running,
        })),
        Adopted::Exited(exit) => Found::Ended(finish(exit)),
        Adopted::Lost => Found::Ended(lost(None)),
        Adopted::NeverStarted => Found::Nothing,
    }
}

/// The code of a container that could not be started, whatever a shell would say.
const NOT_STARTED: i32 = 128;

fn finish(exit: Exit) -> Finish {
    Finish {
        code: match exit.reason {
            ExitReason::StartError => NOT_STARTED,
            _ => exit.code,
        },
        signal: exit.signal,
        reason: exit.reason.as_str().to_owned(),
        message: exit.message,
        started_at: exit.started_at,
        finished_at: exit.finished_at,
    }
}

/// The kubelet's words for a container that is gone without a trace.
fn lost(started_at: Option<Timestamp>) -> Finish {
    Finish {
        code: 137,
        signal: None,
        reason: "ContainerStatusUnknown".to_owned(),
        message: "The container could not be located when the pod was terminated".to_owned(),
        started_at,
        finished_at: Timestamp::now(),
    }
}

struct HostContainer {
    id: ContainerId,
    running: Running,
}

impl RunningContainer for HostContainer {
    fn started_at(&self) -> Timestamp {
        self.running.started_at()
    }

    fn wait(&self) -> Work<'_, Finish> {
        Box::pin(async move {
            match self.running.wait().await {
                Ok(Ended::Exited(exit)) => finish(exit),
                Ok(Ended::Lost) => lost(Some(self.running.started_at())),
                Err(failure) => {
                    error!(container = %self.id, error = chain(&failure), "could not learn how a container ended");
                    lost(Some(self.running.started_at()))
                }
            }
        })
    }

    fn terminate(&self) -> Result<(), RunnerError> {
        self.running
            .terminate()
            .map_err(|source| failed("stop", &self.id, source))
    }

    fn kill(&self) -> Result<(), RunnerError> {
        self.running
            .kill()
            .map_err(|source| failed("kill", &self.id, source))
    }
}
