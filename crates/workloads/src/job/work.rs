//! The shell of Jobs: looks, decides, and carries out.

use std::{sync::Arc, time::Duration};

use orlop_model::{Job, Key, Kind, Pod};
use orlop_runtime::{
    ApiError, Cache, Clock, Cluster, EventType, Patch, Preconditions, Process, Queue, Recorder,
    without_finalizer, work,
};
use serde_json::{Value, json};

use super::{COMPONENT, Step, TRACKING, View, decide};
use crate::{children::Children, turn};

#[derive(Clone)]
struct Jobs {
    cluster: Cluster,
    clock: Clock,
    recorder: Recorder,
    queue: Queue<Key>,
    jobs: Cache<Job>,
    pods: Children<Pod>,
}

/// Starts the role.
pub fn start(process: &Process) {
    let role = Jobs {
        cluster: process.cluster.clone(),
        clock: process.clock,
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        jobs: process.cache(),
        pods: Children::of(process),
    };
    process.spawn("jobs", role.run());
}

impl Jobs {
    async fn run(self) {
        self.jobs.synced().await;
        self.pods.all.synced().await;
        let queue = self.queue.clone();
        self.jobs
            .subscribe(move |change| queue.add(change.object().key()));
        let queue = self.queue.clone();
        self.pods.all.subscribe(move |change| {
            let pod = change.object();
            if let Some(owner) = pod.metadata.controller()
                && owner.kind == Job::KIND
            {
                queue.add(Key::namespaced(&pod.metadata.namespace, &owner.name));
            }
        });
        let queue = self.queue.clone();
        work(queue, turn::AT_ONCE, async |key| {
            turn::outcome(self.turn(&key).await)
        })
        .await;
    }

    async fn turn(&self, key: &Key) -> Result<Option<Duration>, ApiError> {
        self.let_orphans_go(key).await?;
        let Some(job) = self.jobs.get(key) else {
            return Ok(None);
        };
        if job.metadata.is_deleting() {
            return Ok(None);
        }
        if job.spec.completion_mode.as_deref() == Some("Indexed") {
            let text = "Indexed jobs are not run here; use completionMode: NonIndexed";
            self.recorder
                .say(&*job, EventType::Warning, "Unsupported", text);
            return Ok(None);
        }
        let fits = |pod: &Pod| !pod.is_finished();
        let pods = self.pods.gather(&*job, &job.spec.selector, fits).await?;
        let taken = |name: &str| {
            let key = Key::namespaced(&job.metadata.namespace, name);
            self.pods.all.get(&key).is_some()
        };
        let decision = decide(&View {
            job: &job,
            pods: &pods,
            taken: &taken,
            now: self.clock.now_seconds(),
        });
        // What is noted there must stand before a pod is let go.
        if decision.status != job.status {
            let patch = Patch::merge_on(&*job, json!({ "status": whole(&decision.status) }));
            let reported = self.cluster.patch_status(key, &patch).await?;
            self.jobs.absorb(reported);
        }
        if let Some((reason, message)) = decision.news {
            let type_ = match reason {
                "Completed" => EventType::Normal,
                _ => EventType::Warning,
            };
            self.recorder.say(&*job, type_, reason, message);
        }
        for step in decision.steps {
            self.carry_out(&job, step).await?;
        }
        Ok(decision.again)
    }

    /// Pods whose job is gone or going need not be counted.
    async fn let_orphans_go(&self, key: &Key) -> Result<(), ApiError> {
        let job = self.jobs.get(key).filter(|job| !job.metadata.is_deleting());
        for pod in self.pods.all.all() {
            let owner = pod.metadata.controller().filter(|owner| {
                owner.kind == Job::KIND
                    && owner.name == key.name
                    && pod.metadata.namespace == key.namespace
            });
            let Some(owner) = owner else { continue };
            let theirs = job
                .as_ref()
                .is_some_and(|job| job.metadata.uid == owner.uid);
            if theirs || !pod.metadata.has_finalizer(TRACKING) {
                continue;
            }
            // The cache of jobs may be behind that of pods.
            let live: Option<Job> = self.cluster.get(key).await?;
            let gone = live
                .is_none_or(|live| live.metadata.uid != owner.uid || live.metadata.is_deleting());
            if gone {
                self.let_go(&pod).await?;
            }
        }
        Ok(())
    }

    async fn let_go(&self, pod: &Arc<Pod>) -> Result<(), ApiError> {
        let Some(patch) = without_finalizer(&**pod, TRACKING) else {
            return Ok(());
        };
        match self.cluster.patch::<Pod>(&pod.key(), &patch).await {
            Ok(free) => {
                self.pods.all.absorb(free);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn carry_out(&self, job: &Job, step: Step) -> Result<(), ApiError> {
        match step {
            Step::LetGo(pod) => self.let_go(&pod).await,
            Step::CreatePod(pod) => match self.cluster.create_json::<Pod>(&pod).await {
                Ok(made) => {
                    let text = format!("Created pod: {}", made.metadata.name);
                    self.pods.all.absorb(made);
                    self.recorder
                        .say(job, EventType::Normal, "SuccessfulCreate", text);
                    Ok(())
                }
                Err(error) => {
                    if !error.is_already_exists() {
                        let text = format!("Error creating: {}", error.refusal);
                        self.recorder
                            .say(job, EventType::Warning, "FailedCreate", text);
                    }
                    Err(error)
                }
            },
            Step::DeletePod(pod) => {
                let same = Preconditions::same_object(&*pod);
                self.cluster.delete::<Pod>(&pod.key(), &same).await?;
                let text = format!("Deleted pod: {}", pod.metadata.name);
                self.recorder
                    .say(job, EventType::Normal, "SuccessfulDelete", text);
                Ok(())
            }
            Step::DeleteJob => {
                let unchanged = Preconditions::unchanged(job);
                self.cluster.delete::<Job>(&job.key(), &unchanged).await
            }
        }
    }
}

/// A status that leaves nothing of the one before: what is zero is taken away.
fn whole(status: &orlop_model::workload::JobStatus) -> Value {
    let mut all = json!({
        "conditions": null, "startTime": null, "completionTime": null, "active": null,
        "succeeded": null, "failed": null,
    });
    if let (Some(all), Ok(Value::Object(said))) =
        (all.as_object_mut(), serde_json::to_value(status))
    {
        all.extend(said);
    }
    all
}
