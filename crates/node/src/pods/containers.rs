//! A pod's containers: found again, started, asked to end, and their end noticed.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_model::{Kind as _, Pod};
use orlop_runtime::{EventType, Outcome};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::container::Describe;
use super::decide::Asked;
use super::record::{ContainerRecord, Place, State};
use super::{Pods, Watched};
use crate::layout::PodUid;
use crate::runner::{ContainerId, Finish, Found, RunningContainer, Tell};
use crate::words::chain;

impl Pods {
    /// Looks for containers that an earlier node role started; once per pod.
    pub(super) async fn adopt(&self, uid: &PodUid) -> Result<(), String> {
        if self.records().entry(uid.clone()).or_default().adopted {
            return Ok(());
        }
        let mut containers = BTreeMap::new();
        let known = self.parts.runner.attempts(uid).await;
        for (container, attempts) in known.map_err(|error| chain(&error))? {
            let mut newest = attempts.iter().rev();
            let Some(attempt) = newest.next().copied() else {
                continue;
            };
            let id = |attempt| ContainerId {
                pod: uid.clone(),
                container: container.clone(),
                attempt,
            };
            let adopt = async |id: &ContainerId| {
                self.parts
                    .runner
                    .adopt(id)
                    .await
                    .map_err(|error| chain(&error))
            };
            let last = match newest.next() {
                Some(before) => match adopt(&id(*before)).await? {
                    Found::Ended(finish) => Some(finish),
                    Found::Running(_) | Found::Nothing => None,
                },
                None => None,
            };
            let state = match adopt(&id(attempt)).await? {
                Found::Running(container) => self.watched(id(attempt), container),
                Found::Ended(finish) => State::Ended(finish),
                // Announced but never run: as if it had never been.
                Found::Nothing => match (attempt.checked_sub(1), last) {
                    (Some(before), Some(finish)) => {
                        let record = ContainerRecord::found(before, State::Ended(finish), None);
                        containers.insert(container, record);
                        continue;
                    }
                    _ => continue,
                },
            };
            containers.insert(container, ContainerRecord::found(attempt, state, last));
        }
        let mut records = self.records();
        let record = records.entry(uid.clone()).or_default();
        record.containers = containers;
        record.adopted = true;
        Ok(())
    }

    fn watched(&self, id: ContainerId, container: Arc<dyn RunningContainer>) -> State {
        let watched = Watched {
            id,
            container: container.clone(),
        };
        let _the_watcher_ends_with_the_node = self.exits.send(watched);
        State::Running {
            container,
            asked: Asked::Nothing,
        }
    }

    /// Notices containers that end, for ever.
    pub(crate) async fn watch_exits(
        self: Arc<Self>,
        mut watched: mpsc::UnboundedReceiver<Watched>,
    ) {
        let mut waits = JoinSet::new();
        loop {
            tokio::select! {
                Some(Watched { id, container }) = watched.recv() => {
                    waits.spawn(async move { (id, container.wait().await) });
                }
                Some(ended) = waits.join_next() => {
                    if let Ok((id, finish)) = ended {
                        self.ended(&id, finish);
                    }
                }
            }
        }
    }

    fn ended(&self, id: &ContainerId, finish: Finish) {
        info!(container = %id, code = finish.code, reason = finish.reason, "container ended");
        if let Some(record) = self.records().get_mut(&id.pod)
            && let Some(container) = record.containers.get_mut(&id.container)
            && container.attempt == id.attempt
        {
            container.state = State::Ended(finish);
        }
        self.parts.queue.add(id.pod.clone());
    }

    /// Starts a container; the intent is on record with the runner before it runs.
    pub(super) async fn start(&self, uid: &PodUid, pod: &Arc<Pod>, name: &str) -> Option<Outcome> {
        let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let container = containers
            .into_iter()
            .find(|container| container.name == name)?;
        let (attempt, places) = {
            let records = self.records();
            let record = records.get(uid)?;
            let attempt = record
                .containers
                .get(name)
                .map_or(0, |container| container.attempt + 1);
            (attempt, record.places.clone())
        };
        let volumes = places
            .into_iter()
            .map(|(name, place)| match place {
                Place::At(path) => (name, path),
                Place::Csi { volume, .. } => (name, self.parts.volumes.pod_path(&volume, uid)),
            })
            .collect();
        let describe = Describe {
            cluster: &self.parts.cluster,
            facts: &self.parts.sources.facts,
            pod,
            container,
            volumes: &volumes,
            hidden: &self.parts.hidden,
            api_server: self.parts.api_server.as_ref(),
            needs_command: self.parts.runner.needs_command(),
        };
        let launch = match describe.launch().await {
            Ok(launch) => launch,
            Err(error) => {
                self.trouble(uid, pod, "Failed", format!("Error: {}", chain(&error)));
                return Some(Outcome::Retry);
            }
        };
        let id = ContainerId {
            pod: uid.clone(),
            container: name.to_owned(),
            attempt,
        };
        let created = || self.say(pod, name, "Created", format!("Created container: {name}"));
        let started = || self.say(pod, name, "Started", format!("Started container {name}"));
        let state = match self.parts.runner.start(&id, &launch).await {
            Ok(Found::Running(container)) => {
                created();
                started();
                self.watched(id.clone(), container)
            }
            Ok(Found::Ended(finish)) => {
                created();
                if finish.started_at.is_some() {
                    started();
                } else {
                    self.say_warning(pod, name, "Failed", format!("Error: {}", finish.message));
                }
                State::Ended(finish)
            }
            Ok(Found::Nothing) => return Some(Outcome::Retry),
            Err(error) => {
                self.trouble(uid, pod, "Failed", format!("Error: {}", chain(&error)));
                return Some(Outcome::Retry);
            }
        };
        {
            let mut records = self.records();
            let record = records.get_mut(uid)?;
            record.trouble = None;
            let next = match record.containers.get(name) {
                Some(before) => before.next(state),
                None => ContainerRecord {
                    attempt,
                    state,
                    last: None,
                    streak: 0,
                },
            };
            record.containers.insert(name.to_owned(), next);
        }
        // The last two attempts are kept: one for the state, one for its history.
        if let Some(old) = attempt.checked_sub(2) {
            let old = ContainerId { attempt: old, ..id };
            if let Err(error) = self.parts.runner.remove(&old).await {
                warn!(container = %old, error = chain(&error), "could not remove an old attempt");
            }
        }
        None
    }

    pub(super) fn ask(&self, uid: &PodUid, pod: Option<&Pod>, names: &[String], what: Asked) {
        for name in names {
            let running = match self
                .records()
                .get_mut(uid)
                .and_then(|r| r.containers.get_mut(name))
            {
                Some(ContainerRecord {
                    state: State::Running { container, asked },
                    ..
                }) => {
                    *asked = what;
                    container.clone()
                }
                _ => continue,
            };
            if let (Some(pod), Asked::Terminate) = (pod, what) {
                self.say(pod, name, "Killing", format!("Stopping container {name}"));
            }
            let tell = pod.map(|pod| self.stays(pod, name));
            if let Some(tell) = &tell {
                running.when_it_does_not_end(tell.clone());
            }
            let result = if what == Asked::Kill {
                running.kill()
            } else {
                running.terminate()
            };
            if let Err(error) = result {
                let error = chain(&error);
                warn!(pod_uid = %uid, container = name, error, "could not signal a container");
                if let Some(tell) = tell {
                    tell(&error);
                }
            }
        }
    }

    /// Tells the pod, in the kubelet's words, why a container of it does not end.
    fn stays(&self, pod: &Pod, container: &str) -> Tell {
        let (recorder, about) = (self.parts.recorder.clone(), pod.reference());
        let container = container.to_owned();
        Arc::new(move |why: &str| {
            let message = format!(
                "error killing pod: failed to \"KillContainer\" for {container:?} with \
                 KillContainerError: {why:?}"
            );
            let (warning, reason) = (EventType::Warning, "FailedKillPod");
            recorder.say_of(about.clone(), warning, reason, message);
        })
    }
}
