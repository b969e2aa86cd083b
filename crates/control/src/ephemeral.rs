//! Generic ephemeral volumes: claims that are made for a pod and go with it.
//!
//! The claim's name follows from pod and volume, and the pod owns it, so that a restart
//! finds what it made. When the pod goes, the API's garbage collector takes the claim.
//!
//! Must never: give a pod a claim that was not made for the very pod.

use orlop_model::{
    Claim, Key, Kind, Meta, OwnerReference, Pod,
    pod::{self, PodVolume},
};
use orlop_runtime::{
    ApiError, Cache, Change, Cluster, EventType, Index, Outcome, Process, Queue, Recorder, work,
};
use prometheus_client::metrics::counter::Counter;
use tracing::debug;

use crate::{protection::claim::is_made_for, turn};

#[cfg(test)]
mod tests;

/// The component that this role's events name.
pub const COMPONENT: &str = "ephemeral_volume";

/// How many pods are worked on at once.
const AT_ONCE: usize = 5;

/// What a pod's volume needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Its claim is there.
    Keep,
    /// Its claim must be made.
    Create(Box<Claim>),
    /// A claim of that name is there, and it isn't the pod's.
    NotOurs(String),
}

/// Decides about one ephemeral volume of a living pod, given the claim of its name.
pub fn decide(pod: &Pod, volume: &PodVolume, existing: Option<&Claim>) -> Decision {
    let template = volume
        .ephemeral
        .as_ref()
        .and_then(|e| e.volume_claim_template.as_ref());
    let Some(template) = template else {
        return Decision::Keep;
    };
    let name = format!("{}-{}", pod.metadata.name, volume.name);
    match existing {
        Some(claim) if is_made_for(claim, pod) => Decision::Keep,
        Some(claim) => Decision::NotOurs(format!(
            "ephemeral volume {}: PVC {} was not created for pod {} (pod is not owner)",
            volume.name,
            claim.key(),
            pod.key(),
        )),
        None => Decision::Create(Box::new(Claim {
            metadata: Meta {
                labels: template.metadata.labels.clone(),
                annotations: template.metadata.annotations.clone(),
                owner_references: vec![OwnerReference {
                    api_version: Pod::api_version(),
                    kind: Pod::KIND.to_owned(),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                    controller: Some(true),
                    block_owner_deletion: Some(true),
                }],
                ..Meta::named(&Key::namespaced(&pod.metadata.namespace, name))
            },
            spec: template.spec.clone(),
            ..Claim::default()
        })),
    }
}

#[derive(Clone)]
struct Ephemeral {
    cluster: Cluster,
    recorder: Recorder,
    queue: Queue<Key>,
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    pods_by_claim: Index<Pod>,
    created: Counter,
    failed: Counter,
}

/// Starts the role.
pub fn start(process: &Process) {
    start_with(process, AT_ONCE);
}

/// Starts the role, working on so many pods at once.
pub fn start_with(process: &Process, at_once: usize) {
    let claims = process.cache::<Claim>();
    let (created, failed) = (Counter::default(), Counter::default());
    let mut registry = process.metrics.registry();
    registry.register(
        "ephemeral_volume_controller_create",
        "Number of PersistentVolumeClaim creation requests",
        created.clone(),
    );
    registry.register(
        "ephemeral_volume_controller_create_failures",
        "Number of PersistentVolumeClaim creation requests that failed",
        failed.clone(),
    );
    drop(registry);
    let pods = process.cache::<Pod>();
    let role = Ephemeral {
        cluster: process.cluster.clone(),
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
        pods,
        claims,
        created,
        failed,
    };
    process.spawn("ephemeral", role.run(at_once));
}

impl Ephemeral {
    async fn run(self, at_once: usize) {
        self.pods.synced().await;
        self.claims.synced().await;
        let queue = self.queue.clone();
        self.pods.subscribe(move |change| {
            let pod = change.object();
            let first = matches!(
                change,
                Change::Applied { old: None, .. } | Change::Deleted(_)
            );
            if first && pod.spec.volumes.iter().any(|v| v.ephemeral.is_some()) {
                queue.add(pod.key());
            }
        });
        let role = self.clone();
        self.claims.subscribe(move |change| {
            // It may have stood in a pod's way, or a pod misses it now.
            if matches!(change, Change::Deleted(_)) {
                for pod in role.pods_by_claim.get(&change.object().key().to_string()) {
                    role.queue.add(pod.key());
                }
            }
        });
        let queue = self.queue.clone();
        work(queue, at_once, |key| self.turn(key)).await;
    }

    async fn turn(&self, key: Key) -> Outcome {
        let made = self.make(&key).await;
        made.map_or_else(|error| turn::retry(&error), |()| Outcome::Done)
    }

    async fn make(&self, key: &Key) -> Result<(), ApiError> {
        let Some(pod) = self.pods.get(key) else {
            return Ok(());
        };
        if pod.metadata.is_deleting() {
            return Ok(());
        }
        for (volume, claim) in pod.claims() {
            match decide(&pod, volume, self.claims.get(&claim).as_deref()) {
                Decision::Keep => {}
                Decision::NotOurs(message) => {
                    self.recorder
                        .say(&*pod, EventType::Warning, "FailedBinding", message);
                }
                Decision::Create(claim) => {
                    self.created.inc();
                    let made = self.cluster.create(&*claim).await;
                    let made = made.inspect_err(|_| _ = self.failed.inc())?;
                    debug!(pod = %key, claim = %made.key(), "claim made for a pod");
                    self.claims.absorb(made);
                }
            }
        }
        Ok(())
    }
}
