//! The shell of ReplicaSets: looks, decides, and carries out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_model::{Key, Kind, Pod, ReplicaSet};
use orlop_runtime::{
    ApiError, Cache, Change, Clock, Cluster, EventType, Patch, Preconditions, Process, Queue,
    Recorder, work,
};
use serde_json::{Value, json};

use super::{COMPONENT, Step, View, decide};
use crate::{
    children::{Children, Tie, tie},
    conditions, turn,
};

/// The condition of a set whose pods can't be made or deleted.
pub(super) const FAILURE: &str = "ReplicaFailure";

#[derive(Clone)]
struct ReplicaSets {
    cluster: Cluster,
    clock: Clock,
    recorder: Recorder,
    queue: Queue<Key>,
    sets: Cache<ReplicaSet>,
    pods: Children<Pod>,
    /// By set, the uids of pods whose deletion was asked for and isn't in the cache yet.
    going: Arc<Mutex<BTreeMap<Key, BTreeSet<String>>>>,
}

/// Starts the role.
pub fn start(process: &Process) {
    let role = ReplicaSets {
        cluster: process.cluster.clone(),
        clock: process.clock,
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        sets: process.cache(),
        pods: Children::of(process),
        going: Arc::default(),
    };
    process.spawn("replica-sets", role.run());
}

impl ReplicaSets {
    async fn run(self) {
        self.sets.synced().await;
        self.pods.all.synced().await;
        let role = self.clone();
        self.sets.subscribe(move |change| match change {
            Change::Applied { new, .. } => role.queue.add(new.key()),
            Change::Deleted(set) => {
                role.with_going(|going| going.remove(&set.key()));
            }
        });
        let role = self.clone();
        self.pods
            .all
            .subscribe(move |change| role.pod_changed(change));
        let queue = self.queue.clone();
        work(queue, turn::AT_ONCE, async |key| {
            turn::outcome(self.turn(&key).await)
        })
        .await;
    }

    fn with_going<R>(&self, act: impl FnOnce(&mut BTreeMap<Key, BTreeSet<String>>) -> R) -> R {
        act(&mut self.going.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.object();
        let namespace = &pod.metadata.namespace;
        match pod.metadata.controller() {
            Some(owner) if owner.kind == ReplicaSet::KIND => {
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
        let alive = |pod: &Pod| !pod.is_finished();
        let pods = self.pods.gather(&*set, &set.spec.selector, alive).await?;
        let going = self.with_going(|all| {
            let going = all.entry(key.clone()).or_default();
            going.retain(|uid| {
                let mut pods = pods.iter();
                pods.any(|pod| pod.metadata.uid == *uid && !pod.metadata.is_deleting())
            });
            going.clone()
        });
        let taken = |name: &str| {
            let key = Key::namespaced(&set.metadata.namespace, name);
            self.pods.all.get(&key).is_some()
        };
        let mut decision = decide(&View {
            set: &set,
            pods: &pods,
            going: &going,
            taken: &taken,
            now: self.clock.now(),
        });
        let done = self.carry_out(&set, decision.steps).await;
        if let Err(error) = &done
            && !error.is_conflict()
            && !error.is_already_exists()
            && !error.is_not_found()
        {
            let said = ("FailedCreate", error.refusal.to_string());
            let now = self.clock.now_seconds();
            let failure = conditions::found(FAILURE, "True", said, now);
            decision.status.conditions = set.status.conditions.clone();
            conditions::set(&mut decision.status.conditions, failure);
        }
        if decision.status != set.status && !set.metadata.is_deleting() {
            let patch = Patch::merge_on(&*set, json!({ "status": whole(&decision.status) }));
            let reported = self.cluster.patch_status(key, &patch).await?;
            self.sets.absorb(reported);
        }
        done?;
        Ok(decision.again)
    }

    async fn carry_out(&self, set: &ReplicaSet, steps: Vec<Step>) -> Result<(), ApiError> {
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
                    self.with_going(|all| {
                        let going = all.entry(set.key()).or_default();
                        going.insert(pod.metadata.uid.clone())
                    });
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
fn whole(status: &orlop_model::workload::ReplicaSetStatus) -> Value {
    let mut all = json!({
        "fullyLabeledReplicas": null, "readyReplicas": null, "availableReplicas": null,
        "conditions": null,
    });
    if let (Some(all), Ok(Value::Object(said))) =
        (all.as_object_mut(), serde_json::to_value(status))
    {
        all.extend(said);
    }
    all
}
