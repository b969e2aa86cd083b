//! The shell of Deployments: looks, decides, and carries out.

use std::{sync::Arc, time::Duration};

use orlop_model::{Deployment, Key, Kind, Pod, ReplicaSet, well_known};
use orlop_runtime::{
    ApiError, Cache, Change, Clock, Cluster, EventType, Patch, Preconditions, Process, Queue,
    Recorder, work,
};
use serde_json::{Value, json};
use tracing::debug;

use super::{COMPONENT, Step, View, decide, decide::is_present};
use crate::{
    children::{Children, Tie, tie},
    turn,
};

#[derive(Clone)]
struct Deployments {
    cluster: Cluster,
    clock: Clock,
    recorder: Recorder,
    queue: Queue<Key>,
    deployments: Cache<Deployment>,
    sets: Children<ReplicaSet>,
    pods: Children<Pod>,
}

/// Starts the role.
pub fn start(process: &Process) {
    let role = Deployments {
        cluster: process.cluster.clone(),
        clock: process.clock,
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        deployments: process.cache(),
        sets: Children::of(process),
        pods: Children::of(process),
    };
    process.spawn("deployments", role.run());
}

impl Deployments {
    async fn run(self) {
        self.deployments.synced().await;
        self.sets.all.synced().await;
        self.pods.all.synced().await;
        let queue = self.queue.clone();
        self.deployments.subscribe(move |change| {
            if let Change::Applied { new, .. } = change {
                queue.add(new.key());
            }
        });
        let role = self.clone();
        self.sets
            .all
            .subscribe(move |change| role.set_changed(change));
        let role = self.clone();
        self.pods.all.subscribe(move |change| {
            // Only who waits for the last old pod to go wants to know.
            if let Change::Deleted(pod) = change
                && let Some(owner) = pod.metadata.controller()
                && owner.kind == ReplicaSet::KIND
            {
                let key = Key::namespaced(&pod.metadata.namespace, &owner.name);
                if let Some(set) = role.sets.all.get(&key) {
                    role.owner_of(&set);
                }
            }
        });
        let queue = self.queue.clone();
        work(queue, turn::AT_ONCE, async |key| {
            turn::outcome(self.turn(&key).await)
        })
        .await;
    }

    fn owner_of(&self, set: &ReplicaSet) {
        if let Some(owner) = set.metadata.controller()
            && owner.kind == Deployment::KIND
        {
            let key = Key::namespaced(&set.metadata.namespace, &owner.name);
            self.queue.add(key);
        }
    }

    fn set_changed(&self, change: &Change<'_, ReplicaSet>) {
        let set = change.object();
        if set.metadata.controller().is_some() {
            return self.owner_of(set);
        }
        for deployment in self.deployments.all() {
            let same = deployment.metadata.namespace == set.metadata.namespace;
            let selector = &deployment.spec.selector;
            if same && tie(&deployment.metadata, selector, &set.metadata) == Tie::Orphan {
                self.queue.add(deployment.key());
            }
        }
    }

    async fn turn(&self, key: &Key) -> Result<Option<Duration>, ApiError> {
        let Some(deployment) = self.deployments.get(key) else {
            return Ok(None);
        };
        if deployment.metadata.is_deleting() {
            return Ok(None);
        }
        let selector = &deployment.spec.selector;
        let sets = self.sets.gather(&*deployment, selector, |_| true).await?;
        let runs = |set: &&Arc<ReplicaSet>| {
            let pods = self.pods.owned_by(&set.metadata.uid);
            pods.iter().any(|pod| !pod.is_finished())
        };
        let running = sets.iter().filter(runs);
        let running: Vec<String> = running.map(|set| set.metadata.uid.clone()).collect();
        let decision = decide(&View {
            deployment: &deployment,
            sets: &sets,
            running: &running,
            now: self.clock.now_seconds(),
        });
        self.carry_out(&deployment, decision.steps).await?;
        let mut body = json!({});
        if decision.status != deployment.status {
            body["status"] = whole(&decision.status);
        }
        let own = deployment
            .metadata
            .annotation(well_known::DEPLOYMENT_REVISION);
        if let Some(revision) = decision.revision.filter(|new| own != Some(new.as_str())) {
            body["metadata"]["annotations"][well_known::DEPLOYMENT_REVISION] = revision.into();
        }
        if body != json!({}) {
            let patch = Patch::merge_on(&*deployment, body);
            let reported = self.cluster.patch_status(key, &patch).await?;
            self.deployments.absorb(reported);
        }
        Ok(decision.again)
    }

    async fn carry_out(&self, deployment: &Deployment, steps: Vec<Step>) -> Result<(), ApiError> {
        for step in steps {
            match step {
                Step::Create { set, size } => self.create(deployment, &set, size).await?,
                Step::Refresh { set, annotations } => {
                    let body = json!({
                        "metadata": { "annotations": annotations },
                        "spec": { "minReadySeconds": deployment.spec.min_ready_seconds },
                    });
                    self.change(&set, body).await?;
                }
                Step::Scale {
                    set,
                    from,
                    to,
                    annotations,
                } => {
                    let body = json!({
                        "metadata": { "annotations": annotations },
                        "spec": { "replicas": to },
                    });
                    self.change(&set, body).await?;
                    if from != to {
                        let name = &set.metadata.name;
                        self.scaled(deployment, name, (from, to));
                    }
                }
                Step::Delete(set) => {
                    let unchanged = Preconditions::unchanged(&*set);
                    let key = set.key();
                    self.cluster.delete::<ReplicaSet>(&key, &unchanged).await?;
                    debug!(set = %set.key(), "an old ReplicaSet was forgotten");
                }
            }
        }
        Ok(())
    }

    async fn change(&self, set: &ReplicaSet, body: Value) -> Result<(), ApiError> {
        let patch = Patch::merge_on(set, body);
        let changed = self.cluster.patch(&set.key(), &patch).await?;
        self.sets.all.absorb(changed);
        Ok(())
    }

    async fn create(
        &self,
        deployment: &Deployment,
        set: &Value,
        size: i32,
    ) -> Result<(), ApiError> {
        let error = match self.cluster.create_json::<ReplicaSet>(set).await {
            Ok(made) => {
                if size > 0 {
                    self.scaled(deployment, &made.metadata.name, (0, size));
                }
                self.sets.all.absorb(made);
                return Ok(());
            }
            Err(error) => error,
        };
        if !error.is_already_exists() {
            let name = set["metadata"]["name"].as_str().unwrap_or_default();
            let text = format!(
                "Failed to create new replica set {name:?}: {}",
                error.refusal
            );
            self.recorder.say(
                deployment,
                EventType::Warning,
                "ReplicaSetCreateError",
                text,
            );
            return Err(error);
        }
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        let key = Key::namespaced(&deployment.metadata.namespace, name);
        let there: Option<ReplicaSet> = self.cluster.get(&key).await?;
        let Some(there) = there else {
            return Err(error);
        };
        let controller = there.metadata.controller().map(|owner| &owner.uid);
        if controller == Some(&deployment.metadata.uid) && is_present(deployment, &there) {
            // An earlier request of ours, whose answer was lost.
            self.sets.all.absorb(there);
            return Ok(());
        }
        // The name is another's: the next one is drawn with another salt.
        let collisions = deployment.status.collision_count.unwrap_or(0) + 1;
        let body = json!({ "status": { "collisionCount": collisions } });
        let patch = Patch::merge_on(deployment, body);
        let counted = self.cluster.patch_status(&deployment.key(), &patch).await?;
        self.deployments.absorb(counted);
        Err(error)
    }

    fn scaled(&self, deployment: &Deployment, set: &str, (from, to): (i32, i32)) {
        let way = if from < to { "up" } else { "down" };
        let text = format!("Scaled {way} replica set {set} from {from} to {to}");
        self.recorder
            .say(deployment, EventType::Normal, "ScalingReplicaSet", text);
    }
}

/// A status that leaves nothing of the one before: what is zero is taken away.
fn whole(status: &orlop_model::workload::DeploymentStatus) -> Value {
    let mut all = json!({
        "replicas": null, "updatedReplicas": null, "readyReplicas": null,
        "availableReplicas": null, "unavailableReplicas": null, "conditions": null,
    });
    if let (Some(all), Ok(Value::Object(said))) =
        (all.as_object_mut(), serde_json::to_value(status))
    {
        all.extend(said);
    }
    all
}
