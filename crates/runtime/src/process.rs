//! What roles run on: one API server connection, one set of caches, one fate.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use futures::FutureExt;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument, error, info_span};

use crate::{
    cache::Cache, clock::Clock, cluster::Cluster, informers::Informers, metrics::Metrics,
    recorder::Recorder,
};

/// A process, or in simulation what could be one: its roles share caches and die together
/// when [`Process::kill`] is called.
#[derive(Clone)]
pub struct Process {
    /// The API server.
    pub cluster: Cluster,
    /// The shared caches.
    pub informers: Informers,
    /// The time.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Metrics,
    tasks: Arc<Mutex<Vec<AbortOnDropHandle<()>>>>,
}

impl Process {
    /// A process without roles.
    pub fn new(client: kube::Client, clock: Clock) -> Self {
        let cluster = Cluster::new(client);
        Self {
            informers: Informers::new(cluster.clone()),
            cluster,
            clock,
            metrics: Metrics::default(),
            tasks: Arc::default(),
        }
    }

    /// The cache of a kind; a shorthand.
    pub fn cache<K: orlop_model::Kind>(&self) -> Cache<K> {
        self.informers.of()
    }

    /// Runs a task of a role until it ends or the process is killed. A panic is reported
    /// and ends only this task.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let guarded = async move {
            if std::panic::AssertUnwindSafe(task)
                .catch_unwind()
                .await
                .is_err()
            {
                error!(task = name, "a task panicked and has ended");
            }
        };
        let handle = tokio::spawn(guarded.instrument(info_span!("role", name)));
        self.tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(AbortOnDropHandle::new(handle));
    }

    /// A recorder of events in the name of a component.
    pub fn recorder(&self, component: &str) -> Recorder {
        let (recorder, writer) = Recorder::new(self.cluster.clone(), self.clock, component);
        self.spawn("events", writer);
        recorder
    }

    /// Ends every task at its next await, as a crash would.
    pub fn kill(&self) {
        self.tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clear();
        self.informers.stop();
    }
}
