//! Generic ephemeral volumes: claims that are made for a pod and go with it.
//!
//! The claim's name follows from pod and volume, and the pod owns it, so that a restart
//! finds what it made. Where nobody collects what a gone pod owned, this role does.
//!
//! Must never: use or delete a claim that was not made for the very pod.

use std::sync::Arc;

use orlop_model::{
    Claim, Key, Kind, Meta, OwnerReference, Pod,
    pod::{self, PodVolume},
};
use orlop_runtime::{
    ApiError, Cache, Change, Cluster, EventType, Index, Outcome, Preconditions, Process, Queue,
    Recorder, work,
};
use tracing::{debug, info};

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

/// The pod that a claim was made for: its key and uid.
pub fn maker(claim: &Claim) -> Option<(Key, &str)> {
    let owner = claim.metadata.controller()?;
    let is_pod = owner.kind == Pod::KIND && owner.api_version == Pod::api_version();
    is_pod.then(|| {
        let key = Key::namespaced(&claim.metadata.namespace, &owner.name);
        (key, owner.uid.as_str())
    })
}

fn made_for(claim: &Claim) -> Vec<String> {
    maker(claim)
        .map(|(key, _)| key.to_string())
        .into_iter()
        .collect()
}

#[derive(Clone)]
struct Ephemeral {
    cluster: Cluster,
    recorder: Recorder,
    queue: Queue<Key>,
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    claims_by_pod: Index<Claim>,
    pods_by_claim: Index<Pod>,
}

/// Starts the role.
pub fn start(process: &Process) {
    let claims = process.cache::<Claim>();
    let pods = process.cache::<Pod>();
    let role = Ephemeral {
        cluster: process.cluster.clone(),
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        claims_by_pod: claims.index("ephemeral/made-for", made_for),
        pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
        pods,
        claims,
    };
    process.spawn("ephemeral", role.run());
}

impl Ephemeral {
    async fn run(self) {
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
            let claim = change.object();
            if let Some((pod, _)) = maker(claim) {
                role.queue.add(pod);
            }
            // Somebody else's claim may have stood in a pod's way.
            if matches!(change, Change::Deleted(_)) {
                for pod in role.pods_by_claim.get(&claim.key().to_string()) {
                    role.queue.add(pod.key());
                }
            }
        });
        let queue = self.queue.clone();
        work(queue, AT_ONCE, |key| self.turn(key)).await;
    }

    async fn turn(&self, key: Key) -> Outcome {
        let result = match self.collect(&key).await {
            Ok(()) => self.make(&key).await,
            Err(error) => Err(error),
        };
        result.map_or_else(|error| turn::retry(&error), |()| Outcome::Done)
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
                    let made = self.cluster.create(&*claim).await?;
                    debug!(pod = %key, claim = %made.key(), "claim made for a pod");
                    self.claims.absorb(made);
                }
            }
        }
        Ok(())
    }

    /// Deletes what was made for a pod that is gone; the API server must say that it is.
    async fn collect(&self, key: &Key) -> Result<(), ApiError> {
        let uid_now = self.pods.get(key).map(|pod| pod.metadata.uid.clone());
        let orphans: Vec<Arc<Claim>> = self
            .claims_by_pod
            .get(&key.to_string())
            .into_iter()
            .filter(|claim| !claim.metadata.is_deleting())
            .filter(|claim| maker(claim).is_some_and(|(_, uid)| uid_now.as_deref() != Some(uid)))
            .collect();
        if orphans.is_empty() {
            return Ok(());
        }
        let live = self.cluster.get::<Pod>(key).await?;
        for claim in orphans {
            if live.as_ref().is_some_and(|pod| is_made_for(&claim, pod)) {
                continue;
            }
            let only_if = Preconditions::same_object(&*claim);
            self.cluster.delete::<Claim>(&claim.key(), &only_if).await?;
            info!(claim = %claim.key(), "claim of a gone pod deleted");
        }
        Ok(())
    }
}
