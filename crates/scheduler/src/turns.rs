//! The scheduler's shell: wakes, looks, asks `decide`, and carries the answer out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{
    Claim, CsiDriver, CsiNode, CsiStorageCapacity, Key, Kind, Node, Pod, StorageClass, Volume,
    VolumeAttachment, matching, pod, well_known,
};
use orlop_runtime::{
    ApiError, Backoff, Cache, Clock, Cluster, EventType, Index, Outcome, Patch, Process, Queue,
    Recorder, work,
};
use serde_json::json;
use tracing::{debug, warn};

mod look;
mod watching;

use crate::{
    NAME,
    assign::{self, Decision, Step},
    hints,
    ledger::Ledger,
    reason::Refusal,
    waking::{News, Refused},
};

/// How many pods are worked on at once. Decisions are made one at a time all the same;
/// it is their writes that overlap.
const AT_ONCE: usize = 16;
/// The original's: a pod that failed is tried again after one to ten seconds.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_secs(10),
};
/// After a write that came too late: the watch is about to tell.
const SOON: Duration = Duration::from_millis(50);
/// How long a volume that was made is taken off what its driver tells to be left, unless the
/// driver tells anew, which sidecars do right after they made one.
const HOLD: Duration = Duration::from_secs(10);

/// How long the volumes of a pod may take to be bound before its events say for what it waits.
const QUIET: Duration = Duration::from_secs(10);

/// How long the volumes of a pod may take to be bound: the original's bindTimeoutSeconds.
const BINDING: Duration = Duration::from_secs(600);

/// What keeps a pod waiting is said again after so long: API servers keep events for an hour.
const REMINDER: Duration = Duration::from_secs(30 * 60);

/// What needs a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Pod(Key),
    /// Room of a class that was held back for volumes just made, and is no more.
    Room(String),
}

#[derive(Clone)]
struct Scheduler {
    cluster: Cluster,
    clock: Clock,
    recorder: Recorder,
    queue: Queue<Item>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    classes: Cache<StorageClass>,
    drivers: Cache<CsiDriver>,
    csi_nodes: Cache<CsiNode>,
    capacities: Cache<CsiStorageCapacity>,
    attachments: Cache<VolumeAttachment>,
    pods_by_claim: Index<Pod>,
    claims_under_way: Index<Claim>,
    pods_by_node: Index<Pod>,
    free_volumes: Index<Volume>,
    claimed_volumes: Index<Volume>,
    capacities_by_class: Index<CsiStorageCapacity>,
    attachments_by_node: Index<VolumeAttachment>,
    ledger: Arc<Mutex<Ledger>>,
    refused: Arc<Mutex<BTreeMap<Key, Refused>>>,
}

fn class_of(capacity: &CsiStorageCapacity) -> Vec<String> {
    vec![capacity.storage_class_name.clone()]
}

/// The class of a claim that was told its node, and isn't bound.
fn under_way(claim: &Claim) -> Vec<String> {
    let told = claim.selected_node().is_some() && !claim.is_fully_bound();
    claim
        .class()
        .filter(|_| told)
        .map(str::to_owned)
        .into_iter()
        .collect()
}

fn node_of(attachment: &VolumeAttachment) -> Vec<String> {
    vec![attachment.spec.node_name.clone()]
}

/// Starts the scheduler.
pub fn start(process: &Process) {
    let pods = process.cache::<Pod>();
    let claims = process.cache::<Claim>();
    let volumes = process.cache::<Volume>();
    let capacities = process.cache::<CsiStorageCapacity>();
    let attachments = process.cache::<VolumeAttachment>();
    let scheduler = Scheduler {
        cluster: process.cluster.clone(),
        clock: process.clock,
        recorder: process.recorder(NAME),
        queue: Queue::new(BACKOFF),
        nodes: process.cache(),
        claims_under_way: claims.index("scheduler/under-way", under_way),
        claims,
        classes: process.cache(),
        drivers: process.cache(),
        csi_nodes: process.cache(),
        pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
        pods_by_node: pods.index(pod::BY_NODE, pod::node_used),
        free_volumes: volumes.index(matching::FREE, matching::free_shelf),
        claimed_volumes: volumes.index(matching::BY_CLAIMANT, matching::claimant),
        capacities_by_class: capacities.index("scheduler/class", class_of),
        attachments_by_node: attachments.index("scheduler/node", node_of),
        ledger: Arc::default(),
        refused: Arc::default(),
        pods,
        volumes,
        capacities,
        attachments,
    };
    process.spawn("scheduler", scheduler.run());
}

impl Scheduler {
    async fn run(self) {
        self.pods.synced().await;
        self.nodes.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.drivers.synced().await;
        self.csi_nodes.synced().await;
        self.capacities.synced().await;
        self.attachments.synced().await;
        // What an earlier scheduler began is finished first: nobody else gets the rest of it.
        for pod in self.pods.all() {
            if assign::is_ours(&pod) && self.began(&pod) {
                self.queue.add(Item::Pod(pod.key()));
            }
        }
        self.subscribe();
        let queue = self.queue.clone();
        work(queue, AT_ONCE, |item| self.turn(item)).await;
    }

    /// Whether something was written for a pod's claims.
    fn began(&self, pod: &Pod) -> bool {
        pod.claims().any(|(_, key)| {
            let claim = self.claims.get(&key);
            let told = claim.is_some_and(|c| c.is_fully_bound() || c.selected_node().is_some());
            told || !self.claimed_volumes.get(&key.to_string()).is_empty()
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self, item: Item) -> Outcome {
        match item {
            Item::Room(class) => {
                self.tell(Some(News::Room(&class)));
                Outcome::Done
            }
            Item::Pod(key) => match self.pod_turn(&key).await {
                Ok(outcome) => outcome,
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    debug!(pod = %key, error = error.chain(), "the view was behind");
                    Outcome::After(SOON)
                }
                Err(error) => {
                    warn!(pod = %key, error = error.chain(), "a pod could not be placed yet");
                    Outcome::Retry
                }
            },
        }
    }

    async fn pod_turn(&self, key: &Key) -> Result<Outcome, ApiError> {
        let Some(pod) = self.pods.get(key) else {
            return Ok(Outcome::Done);
        };
        // Before the look: what changes during it must bring another.
        self.refused()
            .insert(key.clone(), Refused::looking(pod.clone()));
        // No await until a promise stands: another pod's turn must see it.
        let mut view = self.view(&pod);
        let mut decision = assign::decide(&view);
        if let Decision::Promise { node, plan } = decision {
            self.ledger().promise(&pod, node, plan);
            view = self.view(&pod);
            decision = assign::decide(&view);
        }
        debug!(pod = %key, ?decision, "decided");
        match &decision {
            Decision::Refuse(refusal) => {
                let refused = Refused::of(&view, refusal);
                self.refused().insert(key.clone(), refused);
            }
            _ => {
                self.refused().remove(key);
            }
        }
        match decision {
            Decision::Leave => Ok(Outcome::Done),
            Decision::Promise { .. } | Decision::Reconsider => {
                self.break_promise(&pod);
                Ok(Outcome::Retry)
            }
            Decision::GiveUp(setback) => {
                self.break_promise(&pod);
                self.say_failed(&pod, &setback.to_string());
                // The turns between two setbacks went well, so that the queue doesn't count these.
                let setbacks = self.ledger().note_setback(&pod);
                Ok(Outcome::After(BACKOFF.after(setbacks)))
            }
            Decision::Refuse(refusal) => {
                let mut message = refusal.message(self.nodes.len());
                if let Refusal::Claims(unready) = &refusal {
                    message.extend(hints::of_claims(&view.claims, unready));
                }
                self.refuse(&pod, &message).await?;
                Ok(Outcome::After(REMINDER))
            }
            Decision::Prepare { node, steps } => {
                for step in steps {
                    self.prepare(&pod, &node, step).await?;
                }
                let waited = self.ledger().promised(key).map(|p| p.since.elapsed());
                let waited = waited.unwrap_or_default();
                let late = waited >= QUIET;
                if late && let Some(message) = hints::awaited(&view.claims, &node) {
                    let reason = "WaitForVolumes";
                    self.recorder.say(&*pod, EventType::Normal, reason, message);
                }
                let next = if late { BINDING } else { QUIET };
                let rest = next.saturating_sub(waited);
                self.queue.add_after(Item::Pod(key.clone()), rest);
                Ok(Outcome::Done)
            }
            Decision::Place { node } => {
                self.place(&pod, &node).await?;
                Ok(Outcome::Done)
            }
        }
    }

    /// What the pod was promised is there for others again.
    fn break_promise(&self, pod: &Pod) {
        let broken = self.ledger().break_promise(&pod.key());
        if let Some(promise) = broken {
            self.tell_left(pod, Some(&promise));
        }
    }

    async fn prepare(&self, pod: &Pod, node: &str, step: Step) -> Result<(), ApiError> {
        match step {
            Step::ReserveVolume { claim, volume } => {
                let mut body = json!({"spec": {"claimRef": claim.reference()}});
                if volume.spec.claim_ref.is_none() {
                    body["metadata"]["annotations"][well_known::BOUND_BY_CONTROLLER] = json!("yes");
                }
                let patch = Patch::merge_on(&*volume, body);
                let answer = self.cluster.patch(&volume.key(), &patch).await?;
                self.volumes.absorb(answer);
            }
            Step::SelectNode { claim } => {
                let body = json!({
                    "metadata": {"annotations": {well_known::SELECTED_NODE: node}}
                });
                let patch = Patch::merge_on(&*claim, body);
                let answer = self.cluster.patch(&claim.key(), &patch).await?;
                self.ledger().note_told(&pod.key(), &claim.key());
                self.claims.absorb(answer);
            }
        }
        Ok(())
    }

    async fn place(&self, pod: &Pod, node: &str) -> Result<(), ApiError> {
        let key = pod.key();
        let placed = self.cluster.bind_pod(&key, &pod.metadata.uid, node).await;
        match placed {
            Ok(()) => {
                self.ledger().note_placed(&key);
                let message = format!("Successfully assigned {key} to {node}");
                self.recorder
                    .say(pod, EventType::Normal, "Scheduled", message);
                Ok(())
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                let live = self.cluster.get::<Pod>(&key).await?;
                let waits = live.is_some_and(|live| {
                    let same = live.metadata.uid == pod.metadata.uid;
                    same && !live.is_placed() && !live.metadata.is_deleting()
                });
                if waits {
                    // Others were in the way; nothing tells when they are done.
                    return Err(error);
                }
                // Placed already, or gone: the watch will tell which.
                self.ledger().note_placed(&key);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn say_failed(&self, pod: &Pod, message: &str) {
        self.recorder
            .say(pod, EventType::Warning, "FailedScheduling", message);
    }

    async fn refuse(&self, pod: &Pod, message: &str) -> Result<(), ApiError> {
        self.say_failed(pod, message);
        let mut conditions = pod.status.conditions.iter();
        let now = conditions.find(|c| c.type_ == "PodScheduled");
        if now.is_some_and(|c| c.reason == "Unschedulable" && c.message == message) {
            return Ok(());
        }
        let since = now.filter(|c| c.status == "False");
        let since = since.and_then(|c| c.last_transition_time);
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastTransitionTime": since.unwrap_or_else(|| self.clock.now_seconds()),
            }]},
        }));
        let answer = self.cluster.patch_status(&pod.key(), &patch).await?;
        self.pods.absorb(answer);
        Ok(())
    }
}
