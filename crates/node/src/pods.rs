//! The pods of the node: from "placed here" to running, and back to nothing.
//!
//! One turn works on one pod: it looks, [`decide`](decide::decide)s, carries one step out
//! and looks again. A container that ends wakes its pod, and so does a volume that became
//! ready or went away; nobody looks without a reason.
//!
//! Pods are known by uid, never by name: a new pod may bear the name of one that is still
//! being taken down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orlop_model::pod::RestartPolicy;
use orlop_model::{Key, Kind as _, Pod};
use orlop_runtime::{
    Cache, Clock, Cluster, EventType, Index, Outcome, Patch, Preconditions, Queue, Recorder,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::layout::{Layout, PodUid};
use crate::runner::{ContainerId, Finish, Found, Runner, RunningContainer};
use crate::volumes::Volumes;
use crate::words::chain;
use decide::{Asked, Life, Now, Step, Then, View, VolumesNow, decide};
use record::{ContainerRecord, Place, Record, State};

mod container;
mod decide;
mod record;
mod set_up;
mod status;

/// How long a pod that vanished from the API server has to end by itself.
const VANISHED: SignedDuration = SignedDuration::from_secs(2);

/// What the pods' side needs.
pub(crate) struct Parts {
    pub(crate) address: String,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) layout: Layout,
    pub(crate) cluster: Cluster,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) pods: Cache<Pod>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) queue: Queue<PodUid>,
}

/// The pods of the node.
pub(crate) struct Pods {
    parts: Parts,
    by_uid: Index<Pod>,
    records: Mutex<BTreeMap<PodUid, Record>>,
    exits: mpsc::UnboundedSender<Watched>,
    drain: Mutex<Option<Drain>>,
    /// Counts turns, for those who wait until something is over.
    progress: watch::Sender<u64>,
}

/// A container whose end somebody must notice.
pub(crate) struct Watched {
    id: ContainerId,
    container: Arc<dyn RunningContainer>,
}

/// Everything shall stop.
#[derive(Debug, Clone, Copy)]
struct Drain {
    since: Timestamp,
    /// No pod gets more grace than this.
    longest: SignedDuration,
}

impl Pods {
    /// Starts from the pods that have a folder here.
    pub(crate) fn new(
        parts: Parts,
        found: BTreeSet<PodUid>,
    ) -> (Self, mpsc::UnboundedReceiver<Watched>) {
        let (exits, watched) = mpsc::unbounded_channel();
        let by_uid = parts
            .pods
            .index("uid", |pod| vec![pod.metadata.uid.clone()]);
        let pods = Self {
            parts,
            by_uid,
            records: Mutex::new(
                found
                    .into_iter()
                    .map(|uid| (uid, Record::default()))
                    .collect(),
            ),
            exits,
            drain: Mutex::new(None),
            progress: watch::Sender::new(0),
        };
        (pods, watched)
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<PodUid, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain(&self) -> Option<Drain> {
        *self.drain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a look at every pod that is known here.
    pub(crate) fn look_at_all(&self) {
        for uid in self.records().keys() {
            self.parts.queue.add(uid.clone());
        }
    }

    /// Stops every container and takes every volume away, and waits until that is done.
    /// The API server's objects stay as they are; nothing starts any more.
    pub(crate) async fn stop_all(&self, longest: Duration) {
        let drain = Drain {
            since: self.parts.clock.now(),
            longest: SignedDuration::try_from(longest).unwrap_or(SignedDuration::MAX),
        };
        *self.drain.lock().unwrap_or_else(PoisonError::into_inner) = Some(drain);
        let mut progress = self.progress.subscribe();
        self.look_at_all();
        self.parts.volumes.look_at_all(None);
        // The sender lives in `self`, so the wait can't fail.
        let _ = progress.wait_for(|_| self.is_stopped()).await;
    }

    fn is_stopped(&self) -> bool {
        let running = |record: &Record| {
            let mut containers = record.containers.values();
            !record.adopted || containers.any(|c| matches!(c.state, State::Running { .. }))
        };
        let pending = self
            .records()
            .values()
            .any(|record| running(record) || !record.released);
        !pending && self.parts.volumes.is_empty()
    }

    /// Tells those who wait that something may be over.
    pub(crate) fn progressed(&self) {
        self.progress.send_modify(|turns| *turns += 1);
    }

    /// One turn of one pod.
    pub(crate) async fn turn(&self, uid: PodUid) -> Outcome {
        let outcome = self.steps(&uid).await;
        self.progressed();
        outcome
    }

    async fn steps(&self, uid: &PodUid) -> Outcome {
        let unknown = !self.records().contains_key(uid);
        if unknown && self.by_uid.get(uid.as_str()).is_empty() {
            return Outcome::Done;
        }
        if let Err(trouble) = self.adopt(uid).await {
            warn!(pod_uid = %uid, trouble, "could not find a pod's containers");
            return Outcome::Retry;
        }
        loop {
            let pod = self.by_uid.get(uid.as_str()).into_iter().next();
            let Some(view) = self.look(uid, pod.as_deref()) else {
                return Outcome::Done;
            };
            let step = decide(&view);
            debug!(pod_uid = %uid, ?step, "pod");
            let settled = match step {
                Step::Rest => Some(Outcome::Done),
                Step::Until(at) => Some(Outcome::After(until(view.now, at))),
                Step::SetUpVolumes => match &pod {
                    Some(pod) => self.set_up(uid, pod).await,
                    None => Some(Outcome::Done),
                },
                Step::Start(name) => match &pod {
                    Some(pod) => self.start(uid, pod, &name).await,
                    None => Some(Outcome::Done),
                },
                Step::Terminate(names) => {
                    self.ask(uid, pod.as_deref(), &names, Asked::Terminate);
                    None
                }
                Step::Kill(names) => {
                    self.ask(uid, pod.as_deref(), &names, Asked::Kill);
                    None
                }
                Step::ReleaseVolumes => self.release(uid).await,
                Step::RemoveFolder(then) => Some(self.remove(uid, pod.as_deref(), then).await),
            };
            if let Some(outcome) = settled {
                return self.report(uid, outcome).await;
            }
        }
    }

    /// Looks for containers that an earlier node role started; once per pod.
    async fn adopt(&self, uid: &PodUid) -> Result<(), String> {
        if self.records().entry(uid.clone()).or_default().adopted {
            return Ok(());
        }
        let mut containers = BTreeMap::new();
        for (container, attempts) in self.parts.runner.attempts(uid) {
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
                        let state = State::Ended(finish);
                        containers.insert(
                            container,
                            ContainerRecord {
                                attempt: before,
                                state,
                                last: None,
                                streak: before,
                            },
                        );
                        continue;
                    }
                    _ => continue,
                },
            };
            containers.insert(
                container,
                ContainerRecord {
                    attempt,
                    state,
                    last,
                    streak: attempt,
                },
            );
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

    /// What is known of a pod now; `None` if there is nothing to know.
    fn look(&self, uid: &PodUid, pod: Option<&Pod>) -> Option<View> {
        let now = self.parts.clock.now();
        let drain = self.drain();
        let held = self.parts.volumes.holds(uid);
        let mut records = self.records();
        let record = records.get_mut(uid)?;
        record.seen_at.get_or_insert(now);
        let volumes = match (record.released, held, record.volumes_ready) {
            (true, true, _) => VolumesNow::Releasing,
            (true, false, _) => VolumesNow::Released,
            (false, _, true) => VolumesNow::Ready,
            (false, _, false) => VolumesNow::NotReady,
        };
        let life = match pod {
            None => {
                let since = *record.gone_since.get_or_insert(now);
                Life::Ending {
                    deadline: later(since, VANISHED),
                    then: Then::Remove,
                }
            }
            Some(pod) => life(pod, drain, now),
        };
        let of = |name: &String| {
            let now = record
                .containers
                .get(name)
                .map_or(Now::Absent, ContainerRecord::now);
            (name.clone(), now)
        };
        let (init, main) = match pod {
            Some(pod) => (
                pod.spec
                    .init_containers
                    .iter()
                    .map(|c| of(&c.name))
                    .collect(),
                pod.spec.containers.iter().map(|c| of(&c.name)).collect(),
            ),
            None => (Vec::new(), record.containers.keys().map(of).collect()),
        };
        let policy = pod
            .and_then(|pod| pod.spec.restart_policy)
            .unwrap_or(RestartPolicy::Always);
        Some(View {
            life,
            policy,
            init,
            main,
            volumes,
            now,
        })
    }

    /// Starts a container; the intent is on record with the runner before it runs.
    async fn start(&self, uid: &PodUid, pod: &Arc<Pod>, name: &str) -> Option<Outcome> {
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
        let describe = container::Describe {
            cluster: &self.parts.cluster,
            pod,
            container,
            volumes: &volumes,
            hidden: &self.parts.hidden,
        };
        let spec = match describe.spec().await {
            Ok(spec) => spec,
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
        let state = match self.parts.runner.start(&id, &spec).await {
            Ok(Found::Running(container)) => {
                self.say(pod, name, "Started", format!("Started container {name}"));
                self.watched(id.clone(), container)
            }
            Ok(Found::Ended(finish)) => {
                if finish.started_at.is_none() {
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

    fn ask(&self, uid: &PodUid, pod: Option<&Pod>, names: &[String], what: Asked) {
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
            let result = if what == Asked::Kill {
                running.kill()
            } else {
                running.terminate()
            };
            if let Err(error) = result {
                warn!(pod_uid = %uid, container = name, error = chain(&error), "could not signal a container");
            }
        }
    }

    async fn release(&self, uid: &PodUid) -> Option<Outcome> {
        self.parts.volumes.release(uid);
        let (layout, pod) = (self.parts.layout.clone(), uid.clone());
        let torn_down =
            tokio::task::spawn_blocking(move || crate::plugins::tear_down(&layout, &pod)).await;
        let failed = match torn_down {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = failed {
            warn!(pod_uid = %uid, error, "could not take a pod's volumes away");
            return Some(Outcome::Retry);
        }
        if let Some(record) = self.records().get_mut(uid) {
            record.released = true;
            record.volumes_ready = false;
        }
        None
    }

    /// Removes what is left of a pod, and the pod itself once nothing is left.
    async fn remove(&self, uid: &PodUid, pod: Option<&Pod>, then: Then) -> Outcome {
        // Its last status first: whoever watches the pod sees how it ended.
        if self.report(uid, Outcome::Done).await == Outcome::Retry {
            return Outcome::Retry;
        }
        for (container, attempts) in self.parts.runner.attempts(uid) {
            for attempt in attempts {
                let id = ContainerId {
                    pod: uid.clone(),
                    container: container.clone(),
                    attempt,
                };
                if let Err(error) = self.parts.runner.remove(&id).await {
                    warn!(container = %id, error = chain(&error), "could not remove a container");
                    return Outcome::Retry;
                }
            }
        }
        let folder = self.parts.layout.pod(uid);
        let removed =
            tokio::task::spawn_blocking(move || orlop_host::remove_tree_one_fs(&folder)).await;
        if let Ok(Err(error)) = removed {
            warn!(pod_uid = %uid, error = chain(&error), "could not remove a pod's folder");
            return Outcome::Retry;
        }
        if let (Some(pod), Then::RemoveAndDelete) = (pod, then) {
            let only_if = Preconditions {
                grace_period_seconds: Some(0),
                ..Preconditions::same_object(pod)
            };
            match self.parts.cluster.delete::<Pod>(&pod.key(), &only_if).await {
                Ok(()) => {}
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    warn!(pod = %pod.key(), error = error.chain(), "could not delete a pod for good");
                    return Outcome::Retry;
                }
            }
        }
        self.records().remove(uid);
        info!(pod_uid = %uid, "pod left the node");
        Outcome::Done
    }

    /// Makes the pod's status true, unless all is being stopped: then it stays as it is.
    async fn report(&self, uid: &PodUid, outcome: Outcome) -> Outcome {
        let pod = self.by_uid.get(uid.as_str()).into_iter().next();
        let (Some(pod), None) = (pod, self.drain()) else {
            return outcome;
        };
        let Some(view) = self.look(uid, Some(&pod)) else {
            return outcome;
        };
        let wanted = match self.records().get(uid) {
            Some(record) => status::status(&pod, uid, record, &view),
            None => return outcome,
        };
        if !status::differs(&pod, &wanted) {
            return outcome;
        }
        let mut body = json!({"metadata": {"uid": uid.as_str()}, "status": wanted});
        let address = &self.parts.address;
        body["status"]["hostIP"] = json!(address);
        body["status"]["hostIPs"] = json!([{"ip": address}]);
        if wanted
            .container_statuses
            .iter()
            .any(|container| container.state.running.is_some())
        {
            body["status"]["podIP"] = json!(address);
            body["status"]["podIPs"] = json!([{"ip": address}]);
        }
        match self
            .parts
            .cluster
            .patch_status::<Pod>(&pod.key(), &Patch::Strategic(body))
            .await
        {
            Ok(pod) => {
                self.parts.pods.absorb(pod);
                outcome
            }
            // Gone, or another pod of that name: the watch tells.
            Err(error) if error.is_not_found() || error.is_conflict() => outcome,
            Err(error) => {
                warn!(pod = %pod.key(), error = error.chain(), "could not write a pod's status");
                Outcome::Retry
            }
        }
    }

    fn trouble(&self, uid: &PodUid, pod: &Pod, reason: &str, message: String) {
        self.parts
            .recorder
            .say(pod, EventType::Warning, reason, message.clone());
        if let Some(record) = self.records().get_mut(uid) {
            record.trouble = Some(message);
        }
    }

    fn say(&self, pod: &Pod, container: &str, reason: &str, message: String) {
        self.say_of(pod, container, (EventType::Normal, reason), message);
    }

    fn say_warning(&self, pod: &Pod, container: &str, reason: &str, message: String) {
        self.say_of(pod, container, (EventType::Warning, reason), message);
    }

    fn say_of(
        &self,
        pod: &Pod,
        container: &str,
        (type_, reason): (EventType, &str),
        message: String,
    ) {
        let mut about = pod.reference();
        let list = if pod.spec.containers.iter().any(|c| c.name == container) {
            "containers"
        } else {
            "initContainers"
        };
        about.field_path = format!("spec.{list}{{{container}}}");
        self.parts.recorder.say_of(about, type_, reason, message);
    }

    /// The pods here that use a claim.
    pub(crate) fn users_of(index: &Index<Pod>, claim: &Key) -> Vec<PodUid> {
        index
            .get(&claim.to_string())
            .iter()
            .filter_map(|pod| PodUid::new(&pod.metadata.uid))
            .collect()
    }
}

/// Where in its life a pod on the API server is.
fn life(pod: &Pod, drain: Option<Drain>, now: Timestamp) -> Life {
    if let Some(deadline) = pod.metadata.deletion_timestamp {
        // A grace of zero means that it was deleted for good and something else holds it.
        let then = match pod.metadata.deletion_grace_period_seconds {
            Some(0) => Then::Remove,
            _ => Then::RemoveAndDelete,
        };
        if drain.is_none() {
            return Life::Ending { deadline, then };
        }
    }
    if let Some(drain) = drain {
        let grace = pod.spec.termination_grace_period_seconds.unwrap_or(30);
        let grace = SignedDuration::from_secs(grace).min(drain.longest);
        return Life::Ending {
            deadline: later(drain.since, grace),
            then: Then::Keep,
        };
    }
    if pod.is_finished() {
        return Life::Ending {
            deadline: now,
            then: Then::Keep,
        };
    }
    Life::Wanted
}

fn later(time: Timestamp, wait: SignedDuration) -> Timestamp {
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    at.duration_since(now).try_into().unwrap_or(Duration::ZERO)
}
