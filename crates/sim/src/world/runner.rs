//! Containers that are only pretended: they run until they are asked to end.
//!
//! As real ones they outlive the node role that started them; the next one finds them.
//! The witness is told when a pod's processes run, so that it can tell when something is
//! taken away from under them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use orlop_node::{
    Attempts, ContainerId, Finish, Found, Launch, PodUid, Runner, RunnerError, RunningContainer,
    Work,
};
use orlop_runtime::Clock;
use tokio::sync::watch;

use crate::witness::Witness;

/// How long a container takes to end after it was asked to.
const LAST_BREATH: Duration = Duration::from_millis(700);

/// A container of this name does its work and ends well.
const SCRUBBER: &str = "pv-recycler";
/// How long that takes.
const SCRUBBING: Duration = Duration::from_secs(3);

/// The containers of one node.
#[derive(Clone)]
pub(super) struct FakeRunner {
    clock: Clock,
    witness: Witness,
    containers: Arc<Mutex<BTreeMap<ContainerId, Arc<FakeContainer>>>>,
}

impl FakeRunner {
    pub(super) fn new(clock: Clock, witness: Witness) -> Self {
        Self {
            clock,
            witness,
            containers: Arc::default(),
        }
    }

    fn containers(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Arc<FakeContainer>>> {
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// All containers end at once, and nothing is left of them.
    pub(super) fn go_dark(&self) {
        for (_, container) in std::mem::take(&mut *self.containers()) {
            end(&container, Some(9));
        }
    }

    fn find(&self, id: &ContainerId) -> Found {
        match self.containers().get(id) {
            None => Found::Nothing,
            Some(container) => match &*container.finish.borrow() {
                Some(finish) => Found::Ended(finish.clone()),
                None => Found::Running(Arc::clone(container) as Arc<dyn RunningContainer>),
            },
        }
    }
}

impl Runner for FakeRunner {
    fn start<'a>(
        &'a self,
        id: &'a ContainerId,
        _: &'a Launch,
    ) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(async move {
            if let Found::Nothing = self.find(id) {
                let container = FakeContainer {
                    pod: id.pod.clone(),
                    clock: self.clock,
                    witness: self.witness.clone(),
                    started_at: self.clock.now_seconds(),
                    finish: Arc::new(watch::Sender::new(None)),
                };
                self.witness.before_start(id.pod.as_str());
                self.witness.pod_runs(id.pod.as_str(), true);
                if id.container == SCRUBBER {
                    let scrubber = container.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(SCRUBBING).await;
                        end(&scrubber, None);
                    });
                }
                self.containers().insert(id.clone(), Arc::new(container));
            }
            Ok(self.find(id))
        })
    }

    fn adopt<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(async move { Ok(self.find(id)) })
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(async move {
            self.containers().remove(id);
            Ok(())
        })
    }

    fn attempts<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<Attempts, RunnerError>> {
        let mut attempts = Attempts::new();
        for id in self.containers().keys().filter(|id| id.pod == *pod) {
            attempts
                .entry(id.container.clone())
                .or_default()
                .insert(id.attempt);
        }
        Box::pin(std::future::ready(Ok(attempts)))
    }
}

#[derive(Clone)]
struct FakeContainer {
    pod: PodUid,
    clock: Clock,
    witness: Witness,
    started_at: Timestamp,
    finish: Arc<watch::Sender<Option<Finish>>>,
}

/// The first end counts.
fn end(container: &FakeContainer, signal: Option<i32>) {
    let finish = Finish {
        code: signal.map_or(0, |signal| 128 + signal),
        signal,
        reason: signal.map_or("Completed", |_| "Error").to_owned(),
        message: String::new(),
        started_at: Some(container.started_at),
        finished_at: container.clock.now_seconds(),
    };
    container.finish.send_if_modified(|ended| {
        let first = ended.is_none();
        ended.get_or_insert(finish);
        first
    });
    container.witness.pod_runs(container.pod.as_str(), false);
}

impl RunningContainer for FakeContainer {
    fn started_at(&self) -> Timestamp {
        self.started_at
    }

    fn wait(&self) -> Work<'_, Finish> {
        let mut ended = self.finish.subscribe();
        Box::pin(async move {
            let ended = ended
                .wait_for(Option::is_some)
                .await
                .expect("the container is borrowed");
            ended.clone().expect("it was waited for")
        })
    }

    fn terminate(&self) -> Result<(), RunnerError> {
        let dying = self.clone();
        // A task of its own: it ends whatever becomes of who asked for it.
        tokio::spawn(async move {
            tokio::time::sleep(LAST_BREATH).await;
            end(&dying, Some(15));
        });
        Ok(())
    }

    fn kill(&self) -> Result<(), RunnerError> {
        end(self, Some(9));
        Ok(())
    }
}
