//! What roles run on: one API server connection, one set of caches, one fate.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use orlop_model::ObjectRef;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument, info_span, warn};

use crate::{
    backoff::Backoff,
    cache::Cache,
    clock::Clock,
    cluster::Cluster,
    informers::Informers,
    library::Library,
    metrics::Metrics,
    panics::{Role, Told},
    recorder::Recorder,
};

/// Waits before a role that panicked runs again.
const REST: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_secs(300),
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
    told: Told,
}

impl Process {
    /// A process without roles.
    pub fn new(client: kube::Client, clock: Clock) -> Self {
        Self::measured(client, clock, Metrics::default())
    }

    /// A process without roles, which counts into metrics that outlive it.
    pub fn measured(client: kube::Client, clock: Clock, metrics: Metrics) -> Self {
        Self::made(client, clock, metrics, None)
    }

    /// A process without roles, in a program that has others: what they read in the same words is
    /// kept once.
    pub fn beside(client: kube::Client, clock: Clock, library: Library) -> Self {
        Self::made(client, clock, Metrics::default(), Some(library))
    }

    fn made(
        client: kube::Client,
        clock: Clock,
        metrics: Metrics,
        library: Option<Library>,
    ) -> Self {
        let cluster = Cluster::new(client);
        Self {
            informers: Informers::new(cluster.clone(), library),
            cluster,
            clock,
            metrics,
            tasks: Arc::default(),
            told: Told::default(),
        }
    }

    /// The cache of a kind; a shorthand.
    pub fn cache<K: orlop_model::Kind>(&self) -> Cache<K> {
        self.informers.of()
    }

    /// Runs a task of a role until it ends or the process is killed. A panic is reported
    /// and ends only this task.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let role = self.role(name);
        self.start(name, async move {
            let _ended = contained(&role, task).await;
        });
    }

    /// Runs a role until it ends or the process is killed. One that panics is reported, and
    /// runs again after a rest, which is the longer the sooner it panicked.
    pub fn keep<T>(&self, name: &'static str, role: impl Fn() -> T + Send + Sync + 'static)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let kept = self.role(name);
        self.start(name, async move {
            let mut panics = 0;
            loop {
                let began = Instant::now();
                if contained(&kept, role()).await {
                    return;
                }
                if began.elapsed() > REST.most {
                    panics = 0;
                }
                panics += 1;
                let rest = REST.after(panics);
                warn!(role = name, ?rest, "runs again after a rest");
                sleep(rest).await;
            }
        });
    }

    fn role(&self, name: &'static str) -> Role {
        Role {
            name,
            panics: self.metrics.panics.clone(),
            told: self.told.clone(),
        }
    }

    fn start(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task.instrument(info_span!("role", name)));
        self.tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(AbortOnDropHandle::new(handle));
    }

    /// Tells of panics by events at an object, in the name of a component. Once per process.
    pub fn tell_panics(&self, component: &str, about: ObjectRef) {
        if self.told.get().is_none() {
            let _told_already = self.told.set((self.recorder(component), about));
        }
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

/// Runs a task as part of a role; says whether it came to its end rather than to a panic.
async fn contained(role: &Role, task: impl Future<Output = ()>) -> bool {
    let task = role.clone().scope(task);
    match std::panic::AssertUnwindSafe(task).catch_unwind().await {
        Ok(()) => true,
        Err(panic) => {
            role.panicked("a task", &*panic);
            false
        }
    }
}

#[cfg(test)]
mod tests;
