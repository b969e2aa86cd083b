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
use orlop_model::pod::{PodVolume, RestartPolicy};
use orlop_model::{Key, Pod};
use orlop_runtime::{Cache, Clock, Cluster, Index, Joint, Outcome, Queue, Recorder};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use crate::layout::{Layout, PodUid};
use crate::plugins::{Flex, Shown, Sources};
use crate::runner::{ContainerId, Runner, RunningContainer};
use crate::volumes::Volumes;
use crate::workers::{ForPods, Workers};
use decide::{Asked, Life, Now, Step, Then, View, VolumesNow, decide};
pub(crate) use record::Place;
use record::{ContainerRecord, Record, State};

mod container;
mod containers;
mod decide;
mod leaving;
mod limits;
mod mounts;
mod presence;
mod record;
mod report;
mod set_up;
mod status;
mod take_down;
mod waiting;

/// What the pods' side needs.
pub(crate) struct Parts {
    pub(crate) address: String,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) api_server: Option<(String, u16)>,
    pub(crate) layout: Layout,
    pub(crate) cluster: Cluster,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) pods: Cache<Pod>,
    /// The node's pods, as they are.
    pub(crate) live: Joint<Pod>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) sources: Sources,
    pub(crate) flex: Arc<Flex>,
    pub(crate) workers: Workers,
    pub(crate) for_pods: ForPods,
    /// How long an operation on files may make no progress.
    pub(crate) patience: Duration,
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

/// A pod whose volumes are ready.
pub(crate) struct Placed {
    pub(crate) pod: Arc<Pod>,
    pub(crate) uid: PodUid,
    /// By their names in the pod.
    pub(crate) volumes: Vec<(String, Place)>,
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
        // Of pods that were about to be removed this would have gone with the rest.
        let known: Vec<PodUid> = self.records().keys().cloned().collect();
        for uid in known {
            if let Err(error) = self.parts.runner.stop_pod(&uid).await {
                let error = crate::words::chain(&error);
                warn!(pod_uid = %uid, error, "could not stop a pod's sandbox");
            }
        }
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
                Step::Rest => Some(self.rest(uid, pod.as_deref(), &view)),
                Step::Until(at) => Some(Outcome::After(until(view.now, at))),
                Step::FindOut => self.find_out(uid).await,
                Step::SetUpVolumes => match &pod {
                    Some(pod) => self.set_up(uid, pod).await,
                    None => Some(Outcome::Done),
                },
                Step::RenewTokens => {
                    match &pod {
                        Some(pod) => self.renew(uid, pod).await,
                        None => return Outcome::Done,
                    }
                    None
                }
                Step::MeasureVolumes => {
                    match &pod {
                        Some(pod) => self.measure(uid, pod).await,
                        None => return Outcome::Done,
                    }
                    None
                }
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
                Step::ReleaseVolumes => self.release(uid, pod.as_deref()).await,
                Step::RemoveFolder(then) => Some(self.remove(uid, pod.as_deref(), then).await),
            };
            if let Some(outcome) = settled {
                return self.report(uid, outcome).await;
            }
        }
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
            None => presence::life(record.gone_since, drain),
            // Too large: it ends at once, as the kubelet has it.
            Some(pod) if record.evicted.is_some() && drain.is_none() => {
                match life(pod, drain, now) {
                    Life::Wanted => Life::Ending {
                        deadline: now,
                        then: Then::Keep,
                    },
                    other @ (Life::Ending { .. } | Life::Missing) => other,
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
            renew_at: if record.stale.is_empty() {
                record.renew.values().min().copied()
            } else {
                Some(now)
            },
            measure_at: record.measure_at,
            now,
        })
    }

    /// A volume of a pod shows what is no more.
    pub(crate) fn went_stale(&self, shown: Shown) {
        let Shown { pod, volume } = shown;
        if let Some(record) = self.records().get_mut(&pod) {
            record.stale.insert(volume);
        }
        self.parts.queue.add(pod);
    }

    /// A pod has changed; its volumes may show what it was like.
    pub(crate) fn changed(&self, uid: &PodUid, old: &Pod, new: &Pod) {
        let containers = |pod: &Pod| -> Vec<_> {
            let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            all.map(|container| container.resources.clone()).collect()
        };
        let same = old.metadata.labels == new.metadata.labels
            && old.metadata.annotations == new.metadata.annotations
            && containers(old) == containers(new);
        if same {
            return;
        }
        let shows = |volume: &&PodVolume| {
            let projected = volume.projected.iter().flat_map(|source| &source.sources);
            let mut projected = projected.map(|source| source.downward_api.is_some());
            volume.downward_api.is_some() || projected.any(|is| is)
        };
        let volumes = new.spec.volumes.iter().filter(shows);
        if let Some(record) = self.records().get_mut(uid) {
            record
                .stale
                .extend(volumes.map(|volume| volume.name.clone()));
        }
    }

    /// The pods whose volumes are ready, with where these are.
    pub(crate) fn placed(&self) -> Vec<Placed> {
        let records = self.records();
        let ready = records
            .iter()
            .filter(|(_, record)| record.volumes_ready && !record.released);
        ready
            .filter_map(|(uid, record)| {
                let places = record.places.iter();
                Some(Placed {
                    pod: self.by_uid.get(uid.as_str()).into_iter().next()?,
                    uid: uid.clone(),
                    volumes: places
                        .map(|(name, at)| (name.clone(), at.clone()))
                        .collect(),
                })
            })
            .collect()
    }

    /// All that a pod has on this node.
    pub(crate) fn folder(&self, pod: &PodUid) -> PathBuf {
        self.parts.layout.pod(pod)
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
