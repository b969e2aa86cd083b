//! The shell of DaemonSets: looks, decides, and carries out.

use std::time::Duration;

use orlop_model::{ControllerRevision, DaemonSet, Key, Kind, Node, Pod, well_known};
use orlop_runtime::{
    ApiError, Cache, Change, Clock, Cluster, EventType, Patch, Preconditions, Process, Queue,
    Recorder, work,
};
use serde_json::{Value, json};

use super::{COMPONENT, Step, View, decide};
use crate::{
    children::{Children, Tie, tie},
    history::{self, History},
    turn,
};

#[derive(Clone)]
struct DaemonSets {
    cluster: Cluster,
    clock: Clock,
    recorder: Recorder,
    queue: Queue<Key>,
    sets: Cache<DaemonSet>,
    nodes: Cache<Node>,
    pods: Children<Pod>,
    revisions: Children<ControllerRevision>,
    history: History,
}

/// Starts the role.
pub fn start(process: &Process) {
    let revisions = Children::of(process);
    let role = DaemonSets {
        cluster: process.cluster.clone(),
        clock: process.clock,
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        sets: process.cache(),
        nodes: process.cache(),
        pods: Children::of(process),
        history: History {
            cluster: process.cluster.clone(),
            revisions: revisions.all.clone(),
        },
        revisions,
    };
    process.spawn("daemon-sets", role.run());
}

impl DaemonSets {
    async fn run(self) {
        self.sets.synced().await;
        self.nodes.synced().await;
        self.pods.all.synced().await;
        self.revisions.all.synced().await;
        let queue = self.queue.clone();
        self.sets.subscribe(move |change| {
            if let Change::Applied { new, .. } = change {
                queue.add(new.key());
            }
        });
        let role = self.clone();
        self.pods
            .all
            .subscribe(move |change| role.pod_changed(change));
        let role = self.clone();
        self.nodes.subscribe(move |change| {
            // A node's heartbeat concerns nobody here.
            let same = matches!(change, Change::Applied { old: Some(old), new }
                if old.metadata.labels == new.metadata.labels && old.spec == new.spec);
            if !same {
                for set in role.sets.all() {
                    role.queue.add(set.key());
                }
            }
        });
        let queue = self.queue.clone();
        work(queue, turn::AT_ONCE, async |key| {
            turn::outcome(self.turn(&key).await)
        })
        .await;
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.object();
        let namespace = &pod.metadata.namespace;
        match pod.metadata.controller() {
            Some(owner) if owner.kind == DaemonSet::KIND => {
                self.queue.add(Key::namespaced(namespace, &owner.name));
            }
            Some(_) => {}
            None => {
                for set in self.sets.all() {
                    let same = set.metadata.namespace == *namespace;
                    let tie = tie(&set.metadata, &set.spec.selector, &pod.metadata);
                    if same && tie == Tie::Orphan {
                        self.queue.add(set.key());
                    }
                }
            }
        }
    }

    async fn turn(&self, key: &Key) -> Result<Option<Duration>, ApiError> {
        let Some(set) = self.sets.get(key) else {
            return Ok(None);
        };
        if set.metadata.is_deleting() {
            return Ok(None);
        }
        let selector = &set.spec.selector;
        let pods = self.pods.gather(&*set, selector, |_| true).await?;
        let revisions = self.revisions.gather(&*set, selector, |_| true).await?;
        let collisions = set.status.collision_count.unwrap_or(0);
        let (present, collisions) = self
            .history
            .record(&*set, &set.spec.template, (&revisions, collisions))
            .await?;
        let taken = |name: &str| {
            let key = Key::namespaced(&set.metadata.namespace, name);
            self.pods.all.get(&key).is_some()
        };
        let decision = decide(&View {
            set: &set,
            hash: history::hash(&present),
            collisions,
            pods: &pods,
            nodes: &self.nodes.all(),
            taken: &taken,
            now: self.clock.now(),
        });
        let done = self.carry_out(&set, decision.steps).await;
        if decision.status != set.status {
            let patch = Patch::merge_on(&*set, json!({ "status": whole(&decision.status) }));
            let reported = self.cluster.patch_status(key, &patch).await?;
            self.sets.absorb(reported);
        }
        done?;
        let needed = |revision: &ControllerRevision| {
            let mut marks = pods
                .iter()
                .filter_map(|pod| pod.metadata.labels.get(well_known::REVISION_HASH));
            revision.metadata.name == present.metadata.name
                || marks.any(|mark| mark == history::hash(revision))
        };
        let limit = set.spec.revision_history_limit;
        for spare in history::surplus(&revisions, limit, needed) {
            self.history.forget(spare).await?;
        }
        Ok(decision.again)
    }

    async fn carry_out(&self, set: &DaemonSet, steps: Vec<Step>) -> Result<(), ApiError> {
        for step in steps {
            match step {
                Step::CreatePod(pod) => match self.cluster.create_json::<Pod>(&pod).await {
                    Ok(made) => {
                        let text = format!("Created pod: {}", made.metadata.name);
                        self.pods.all.absorb(made);
                        self.recorder
                            .say(set, EventType::Normal, "SuccessfulCreate", text);
                    }
                    Err(error) => {
                        if !error.is_already_exists() {
                            let text = format!("Error creating: {}", error.refusal);
                            self.recorder
                                .say(set, EventType::Warning, "FailedCreate", text);
                        }
                        return Err(error);
                    }
                },
                Step::DeletePod(pod) => {
                    let same = Preconditions::same_object(&*pod);
                    self.cluster.delete::<Pod>(&pod.key(), &same).await?;
                    let text = format!("Deleted pod: {}", pod.metadata.name);
                    self.recorder
                        .say(set, EventType::Normal, "SuccessfulDelete", text);
                }
            }
        }
        Ok(())
    }
}

/// A status that leaves nothing of the one before: what is zero is taken away.
fn whole(status: &orlop_model::workload::DaemonSetStatus) -> Value {
    let mut all = json!({
        "updatedNumberScheduled": null, "numberAvailable": null, "numberUnavailable": null,
    });
    if let (Some(all), Ok(Value::Object(said))) =
        (all.as_object_mut(), serde_json::to_value(status))
    {
        all.extend(said);
    }
    all
}
