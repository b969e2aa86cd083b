//! What runs a pod's containers. The seam between the node's decisions and processes:
//! [`HostRunner`] runs them as host processes, simulation runs none.
//!
//! A runner keeps what it runs on record by itself: whatever was started is found again
//! by a later node role through [`Runner::attempts`] and [`Runner::adopt`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use orlop_host::sandbox::ContainerSpec;
use tokio::sync::watch;

use crate::layout::PodUid;
use crate::registration::Work;

mod cri;
mod host;

pub use cri::CriRunner;
pub use host::HostRunner;

/// What shall run, for any runner.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The container as it is without an image.
    pub spec: ContainerSpec,
    /// What comes from an image, and how it is had.
    pub image: Image,
    /// The pod.
    pub pod: PodName,
}

/// A container's image.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// The program, in the place of the image's own.
    pub command: Vec<String>,
    /// Its arguments, in the place of the image's own.
    pub args: Vec<String>,
    /// When it is fetched.
    pub pull: Pull,
    /// Whether the pod says which user runs; the image does if not.
    pub says_user: bool,
}

/// When an image is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pull {
    /// If it isn't there.
    #[default]
    IfNotPresent,
    /// Before every start.
    Always,
    /// By others.
    Never,
}

/// What a pod is called.
#[derive(Debug, Clone, Default)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The attempts of a pod, by container.
pub type Attempts = BTreeMap<String, BTreeSet<u32>>;

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

/// Told why a container could not be made to end, for people.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// A container that runs. Dropping it leaves it running.
pub trait RunningContainer: Send + Sync {
    /// Since when.
    fn started_at(&self) -> Timestamp;

    /// Waits until nothing of it is left.
    fn wait(&self) -> Work<'_, Finish>;

    /// Says whom to tell if what is asked of it fails later, and is tried again.
    fn when_it_does_not_end(&self, _tell: Tell) {}

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
        launch: &'a Launch,
    ) -> Work<'a, Result<Found, RunnerError>>;

    /// Counts how often the runtime was away and is back; none if it can't be away.
    fn returns(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Whether a container has to say which program it runs.
    fn needs_command(&self) -> bool {
        true
    }

    /// Finds out what became of an attempt.
    fn adopt<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<Found, RunnerError>>;

    /// Forgets an attempt that has ended, its log included.
    fn remove<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<(), RunnerError>>;

    /// All attempts on record of a pod, by container.
    fn attempts<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<Attempts, RunnerError>>;

    /// Makes sure that nothing runs of a pod whose containers on record have ended: one whose start
    /// was given up may have come to run all the same.
    fn end_pod<'a>(&'a self, _pod: &'a PodUid) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Stops what a pod's containers share, once they have ended.
    fn stop_pod<'a>(&'a self, _pod: &'a PodUid) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Stops and forgets what a pod's containers shared, once they are removed.
    fn remove_pod<'a>(&'a self, _pod: &'a PodUid) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
