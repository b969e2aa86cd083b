//! A container of the runtime's that runs, and asking it to end.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tonic::Code;
use tracing::warn;

use super::super::{ContainerId, Finish, RunnerError, RunningContainer};
use super::{CriRunner, api, wait};
use crate::registration::Work;

/// A container of the runtime's that runs.
pub(super) struct CriContainer {
    pub(super) runner: CriRunner,
    pub(super) id: ContainerId,
    /// The runtime's name for it.
    pub(super) container: String,
    pub(super) started_at: Timestamp,
    /// A stop that is under way.
    pub(super) stopping: Mutex<Option<JoinHandle<()>>>,
}

impl CriContainer {
    fn stop(&self, grace: Duration) {
        let stop = self.runner.ask_to_stop(&self.container, grace);
        let mut stopping = self
            .stopping
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(earlier) = stopping.replace(stop) {
            earlier.abort();
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
    fn ask_to_stop(&self, container: &str, grace: Duration) -> JoinHandle<()> {
        let request = api::StopContainerRequest {
            container_id: container.to_owned(),
            timeout: i64::try_from(grace.as_secs()).unwrap_or(i64::MAX),
        };
        let mut runtime = self.runtime();
        tokio::spawn(async move {
            match runtime.stop_container(request).await {
                Ok(_) => {}
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => warn!(error = status.message(), "could not stop a container"),
            }
        })
    }
}
