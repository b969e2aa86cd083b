//! A container of the runtime's that runs, and asking it to end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use orlop_runtime::Backoff;
use tokio::task::JoinHandle;
use tonic::Code;
use tracing::warn;

use super::super::{ContainerId, Finish, RunnerError, RunningContainer, Tell};
use super::{CriRunner, api, wait};
use crate::registration::Work;

/// How soon a runtime is asked again that did not stop a container, unless it comes back earlier.
const AGAIN: Backoff = Backoff {
    first: Duration::from_millis(100),
    most: Duration::from_secs(10),
};

/// A container of the runtime's that runs.
pub(super) struct CriContainer {
    pub(super) runner: CriRunner,
    pub(super) id: ContainerId,
    /// The runtime's name for it.
    pub(super) container: String,
    pub(super) started_at: Timestamp,
    pub(super) stopping: Mutex<Stopping>,
}

/// A stop that is under way.
#[derive(Default)]
pub(super) struct Stopping {
    task: Option<JoinHandle<()>>,
    /// Who is told that it fails.
    tell: Option<Tell>,
}

impl CriContainer {
    fn stopping(&self) -> MutexGuard<'_, Stopping> {
        self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self, grace: Duration) {
        let mut stopping = self.stopping();
        let tell = stopping.tell.clone();
        let stop = self.runner.stop_container(&self.container, grace, tell);
        if let Some(earlier) = stopping.task.replace(tokio::spawn(stop)) {
            earlier.abort();
        }
    }
}

impl Drop for CriContainer {
    fn drop(&mut self) {
        if let Some(task) = self.stopping().task.take() {
            task.abort();
        }
    }
}

impl RunningContainer for CriContainer {
    fn started_at(&self) -> Timestamp {
        self.started_at
    }

    fn wait(&self) -> Work<'_, Finish> {
        Box::pin(wait::ended(self))
    }

    fn when_it_does_not_end(&self, tell: Tell) {
        self.stopping().tell = Some(tell);
    }

    fn terminate(&self) -> Result<(), RunnerError> {
        // The pod's own deadline comes as a kill.
        self.stop(Duration::from_hours(24));
        Ok(())
    }

    fn kill(&self) -> Result<(), RunnerError> {
        self.stop(Duration::ZERO);
        Ok(())
    }
}

impl CriRunner {
    /// Asks until the runtime has done it: nobody else would ask once more.
    fn stop_container(
        &self,
        container: &str,
        grace: Duration,
        tell: Option<Tell>,
    ) -> impl Future<Output = ()> + use<> {
        let request = api::StopContainerRequest {
            container_id: container.to_owned(),
            timeout: i64::try_from(grace.as_secs()).unwrap_or(i64::MAX),
        };
        let (mut runtime, mut back) = (self.runtime(), self.back.clone());
        async move {
            let mut failures = 0;
            let mut told = None;
            loop {
                back.mark_unchanged();
                let why = match runtime.stop_container(request.clone()).await {
                    Ok(_) => return,
                    Err(status) if status.code() == Code::NotFound => return,
                    Err(status) => status.message().to_owned(),
                };
                if told.as_ref() != Some(&why) {
                    let container = &request.container_id;
                    warn!(container, error = why, "could not stop a container");
                    if let Some(tell) = &tell {
                        tell(&why);
                    }
                    told = Some(why);
                }
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(AGAIN.after(failures)) => {}
                    Ok(()) = back.changed() => failures = 0,
                }
            }
        }
    }
}
