//! What runs a pod's containers. The seam between the node's decisions and processes:
//! [`HostRunner`] runs them as host processes, simulation runs none.
//!
//! A runner keeps what it runs on record by itself: whatever was started is found again
//! by a later node role through [`Runner::attempts`] and [`Runner::adopt`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use orlop_host::sandbox::ContainerSpec;

use crate::layout::PodUid;
use crate::registration::Work;

mod host;

pub use host::HostRunner;

/// One attempt to run one container of one pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerId {
    /// The pod.
    pub pod: PodUid,
    /// The container's name.
    pub container: String,
    /// 0 for the first attempt.
    pub attempt: u32,
}

impl std::fmt::Display for ContainerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.pod, self.container, self.attempt)
    }
}

/// How a container ended, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// 128 + signal for a killed program.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// In one word.
    pub reason: String,
    /// For people; may be empty.
    pub message: String,
    /// When it was started, if it was.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Timestamp,
}

/// What is found of an attempt.
#[derive(Clone)]
pub enum Found {
    /// It runs.
    Running(Arc<dyn RunningContainer>),
    /// It ended, or could not be started.
    Ended(Finish),
    /// It was never started.
    Nothing,
}

/// A container that runs. Dropping it leaves it running.
pub trait RunningContainer: Send + Sync {
    /// Since when.
    fn started_at(&self) -> Timestamp;

    /// Waits until nothing of it is left.
    fn wait(&self) -> Work<'_, Finish>;

    /// Asks it to end.
    ///
    /// # Errors
    /// If it could not be asked.
    fn terminate(&self) -> Result<(), RunnerError>;

    /// Kills all of it.
    ///
    /// # Errors
    /// If it could not be killed.
    fn kill(&self) -> Result<(), RunnerError>;
}

/// Why a runner could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing} container {container}")]
pub struct RunnerError {
    /// What was tried.
    pub doing: &'static str,
    /// On which container, or in which pod.
    pub container: String,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Runs containers.
pub trait Runner: Send + Sync + 'static {
    /// Starts an attempt; one that was started before is found instead. A program that
    /// cannot be executed is [`Found::Ended`].
    fn start<'a>(
        &'a self,
        id: &'a ContainerId,
        spec: &'a ContainerSpec,
    ) -> Work<'a, Result<Found, RunnerError>>;

    /// Finds out what became of an attempt.
    fn adopt<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<Found, RunnerError>>;

    /// Forgets an attempt that has ended, its log included.
    fn remove<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<(), RunnerError>>;

    /// All attempts on record of a pod, by container.
    fn attempts(&self, pod: &PodUid) -> BTreeMap<String, BTreeSet<u32>>;
}
