//! The shell of StatefulSets: looks, decides, and carries out.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use orlop_model::{Claim, ControllerRevision, Key, Kind, Pod, StatefulSet, well_known};
use orlop_runtime::{
    ApiError, Cache, Change, Clock, Cluster, EventType, Patch, Preconditions, Process, Queue,
    Recorder, work,
};
use serde_json::{Value, json};
use tracing::debug;

use super::{COMPONENT, Revision, Step, View, claims::range, decide, identity};
use crate::{
    children::{Children, Tie, tie},
    history::{self, History},
    turn,
};

#[derive(Clone)]
struct StatefulSets {
    cluster: Cluster,
    clock: Clock,
    recorder: Recorder,
    queue: Queue<Key>,
    sets: Cache<StatefulSet>,
    pods: Children<Pod>,
    claims: Cache<Claim>,
    revisions: Children<ControllerRevision>,
    history: History,
}

/// Starts the role.
pub fn start(process: &Process) {
    let revisions = Children::of(process);
    let role = StatefulSets {
        cluster: process.cluster.clone(),
        clock: process.clock,
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        sets: process.cache(),
        pods: Children::of(process),
        claims: process.cache(),
        history: History {
            cluster: process.cluster.clone(),
            revisions: revisions.all.clone(),
        },
        revisions,
    };
    process.spawn("stateful-sets", role.run());
}

impl StatefulSets {
    async fn run(self) {
        self.sets.synced().await;
        self.pods.all.synced().await;
        self.claims.synced().await;
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
        self.claims
            .subscribe(move |change| role.claim_changed(change));
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
            Some(owner) if owner.kind == StatefulSet::KIND => {
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

    /// A claim that went may have stood in a pod's way.
    fn claim_changed(&self, change: &Change<'_, Claim>) {
        let Change::Deleted(claim) = change else {
            return;
        };
        for set in self.sets.all() {
            let same = set.metadata.namespace == claim.metadata.namespace;
            if same && identity::has_claim(&set, &claim.metadata.name) {
                self.queue.add(set.key());
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
        let is_member = |pod: &Pod| identity::ordinal(&set, &pod.metadata.name).is_some();
        let pods = self.pods.gather(&*set, selector, is_member).await?;
        let revisions = self.revisions.gather(&*set, selector, |_| true).await?;
        let collisions = set.status.collision_count.unwrap_or(0);
        let (update, collisions) = self
            .history
            .record(&*set, &set.spec.template, (&revisions, collisions))
            .await?;
        let current = revisions
            .iter()
            .find(|revision| revision.metadata.name == set.status.current_revision)
            .unwrap_or(&update);
        let claims = self.claims_of(&set, &pods);
        let view = View {
            set: &set,
            current: &named(current),
            update: &named(&update),
            collisions,
            pods: &pods,
            claims: &claims,
            now: self.clock.now(),
        };
        let decision = decide(&view);
        let done = self.carry_out(&set, decision.steps).await;
        if decision.status != set.status {
            let patch = Patch::merge_on(&*set, json!({ "status": whole(&decision.status) }));
            let reported = self.cluster.patch_status(key, &patch).await?;
            self.sets.absorb(reported);
        }
        done?;
        let needed = |revision: &ControllerRevision| {
            let name = &revision.metadata.name;
            let marked =
                |pod: &Arc<Pod>| pod.metadata.labels.get(well_known::REVISION_HASH) == Some(name);
            *name == update.metadata.name
                || *name == current.metadata.name
                || pods.iter().any(marked)
        };
        let limit = set.spec.revision_history_limit;
        for spare in history::surplus(&revisions, limit, needed) {
            self.history.forget(spare).await?;
        }
        Ok(decision.again)
    }

    /// The claims of the pods that are or shall be there.
    fn claims_of(&self, set: &StatefulSet, pods: &[Arc<Pod>]) -> BTreeMap<String, Arc<Claim>> {
        let there = pods
            .iter()
            .filter_map(|pod| identity::ordinal(set, &pod.metadata.name));
        let ordinals: Vec<i32> = there.chain(range(set)).collect();
        let names = identity::templates(set).flat_map(|(template, _)| {
            let name = move |ordinal: &i32| identity::claim_name(set, template, *ordinal);
            ordinals.iter().map(name)
        });
        let get = |name: String| {
            let key = Key::namespaced(&set.metadata.namespace, &name);
            Some((name, self.claims.get(&key)?))
        };
        names.filter_map(get).collect()
    }

    async fn carry_out(&self, set: &StatefulSet, steps: Vec<Step>) -> Result<(), ApiError> {
        for step in steps {
            match step {
                Step::CreateClaim { claim, pod } => self.create_claim(set, &claim, &pod).await?,
                Step::CreatePod(pod) => self.create_pod(set, &pod).await?,
                Step::Refuse { pod, why } => self.refused(set, ("Create", &pod), &why),
                Step::DeletePod(pod) => self.delete_pod(set, &pod).await?,
                Step::LabelPod(pod, labels) => {
                    let labels: BTreeMap<_, _> = labels.into_iter().collect();
                    let patch = Patch::merge_on(&*pod, json!({"metadata": {"labels": labels}}));
                    let labelled = self.cluster.patch(&pod.key(), &patch).await?;
                    self.pods.all.absorb(labelled);
                    self.succeeded(set, "Update", &pod.metadata.name);
                }
                Step::SetOwners(claim, owners) => {
                    let body = json!({"metadata": {"ownerReferences": owners}});
                    let patch = Patch::merge_on(&*claim, body);
                    let owned = self.cluster.patch(&claim.key(), &patch).await?;
                    self.claims.absorb(owned);
                }
            }
        }
        Ok(())
    }

    async fn create_claim(
        &self,
        set: &StatefulSet,
        claim: &Value,
        pod: &str,
    ) -> Result<(), ApiError> {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        let set_name = &set.metadata.name;
        match self.cluster.create_json::<Claim>(claim).await {
            Ok(made) => {
                debug!(claim = %made.key(), set = %set.key(), "claim made for a pod");
                self.claims.absorb(made);
                let text =
                    format!("create Claim {name} Pod {pod} in StatefulSet {set_name} success");
                self.recorder
                    .say(set, EventType::Normal, "SuccessfulCreate", text);
                Ok(())
            }
            // Ours from before, or a user's, made for the pod ahead of time.
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => {
                let text = format!(
                    "create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: {}",
                    error.refusal
                );
                self.recorder
                    .say(set, EventType::Warning, "FailedCreate", text);
                Err(error)
            }
        }
    }

    async fn create_pod(&self, set: &StatefulSet, pod: &Value) -> Result<(), ApiError> {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        match self.cluster.create_json::<Pod>(pod).await {
            Ok(made) => {
                self.pods.all.absorb(made);
                self.succeeded(set, "Create", name);
                Ok(())
            }
            Err(error) => {
                let key = Key::namespaced(&set.metadata.namespace, name);
                let ours = self.pods.all.get(&key).is_none_or(|pod| {
                    pod.metadata.controller().map(|owner| &owner.uid) == Some(&set.metadata.uid)
                });
                // Our own from before, which the cache will show.
                if !(error.is_already_exists() && ours) {
                    self.refused(set, ("Create", name), &error.refusal.to_string());
                }
                Err(error)
            }
        }
    }

    async fn delete_pod(&self, set: &StatefulSet, pod: &Arc<Pod>) -> Result<(), ApiError> {
        let same = Preconditions::same_object(&**pod);
        let deleted = self.cluster.delete::<Pod>(&pod.key(), &same).await;
        match &deleted {
            Ok(()) => self.succeeded(set, "Delete", &pod.metadata.name),
            Err(error) => {
                let why = error.refusal.to_string();
                self.refused(set, ("Delete", &pod.metadata.name), &why);
            }
        }
        deleted
    }

    fn succeeded(&self, set: &StatefulSet, verb: &str, pod: &str) {
        let text = format!(
            "{} Pod {pod} in StatefulSet {} successful",
            verb.to_lowercase(),
            set.metadata.name
        );
        let reason = format!("Successful{verb}");
        self.recorder.say(set, EventType::Normal, &reason, text);
    }

    fn refused(&self, set: &StatefulSet, (verb, pod): (&str, &str), why: &str) {
        let text = format!(
            "{} Pod {pod} in StatefulSet {} failed error: {why}",
            verb.to_lowercase(),
            set.metadata.name
        );
        let reason = format!("Failed{verb}");
        self.recorder.say(set, EventType::Warning, &reason, text);
    }
}

fn named(revision: &Arc<ControllerRevision>) -> Revision {
    Revision {
        name: revision.metadata.name.clone(),
        template: history::template(revision),
    }
}

/// A status that leaves nothing of the one before: what is zero is taken away.
fn whole(status: &orlop_model::workload::StatefulSetStatus) -> Value {
    let mut all = json!({
        "readyReplicas": null, "currentReplicas": null, "updatedReplicas": null,
    });
    if let (Some(all), Ok(Value::Object(said))) =
        (all.as_object_mut(), serde_json::to_value(status))
    {
        all.extend(said);
    }
    all
}
