//! Tells of bound claims whether pods use them: the condition `Unused`, by which people find storage
//! that nobody needs any more.
//!
//! That a claim is used is told at once where the opposite is said of it. All else can wait a
//! moment, since pods that are made anew, and claims whose pods are on their way, would otherwise
//! cost two writes for nothing; the condition's time is when it began.
//!
//! Must never: be what anybody relies on. It is told by the caches alone and put right when they
//! show more; what may be deleted is decided by `protection`, which asks the API server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use orlop_model::{Claim, ClaimPhase, Key, Kind, Pod, claim::UNUSED, pod};
use orlop_runtime::{
    ApiError, Cache, Change, Clock, Cluster, Index, Outcome, Patch, Process, Queue, work,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::debug;

use crate::{protection::claim::is_made_for, turn};

#[cfg(test)]
mod tests;

/// How many claims are worked on at once.
const AT_ONCE: usize = 4;
/// How long a claim must have been used, or not, before that is told.
const REST: Duration = Duration::from_secs(10);

/// What is to be told of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing, or nothing new.
    Leave,
    /// Whether it is unused, at once: the opposite is said of it.
    Correct {
        /// What is so.
        unused: bool,
    },
    /// Whether it is unused, if it stays so.
    Tell {
        /// What is so.
        unused: bool,
    },
}

/// Decides what is told of a claim that pods use, or don't.
pub fn decide(claim: &Claim, used: bool) -> Decision {
    // Before, it is the binder's; afterwards nobody looks for it.
    if claim.phase() != ClaimPhase::Bound || claim.metadata.is_deleting() {
        return Decision::Leave;
    }
    match (claim.status.unused, used) {
        (Some(true), false) | (Some(false), true) => Decision::Leave,
        (Some(true), true) => Decision::Correct { unused: false },
        (Some(false), false) => Decision::Tell { unused: true },
        (None, used) => Decision::Tell { unused: !used },
    }
}

/// Whether the pod uses the claim or will: also one without a node counts, but none that is over.
pub fn uses(pod: &Pod, claim: &Claim) -> bool {
    let key = claim.key();
    !pod.has_ended()
        && pod.claims().any(|(volume, used)| {
            used == key && (volume.persistent_volume_claim.is_some() || is_made_for(claim, pod))
        })
}

/// The condition, as kube-controller-manager writes it.
fn condition(unused: bool, since: Timestamp) -> Value {
    let (status, reason, message) = match unused {
        true => (
            "True",
            "NoPodsUsingPVC",
            "No pods are currently referencing this PVC",
        ),
        false => (
            "False",
            "PodUsingPVC",
            "A pod is currently referencing this PVC",
        ),
    };
    json!({
        "type": UNUSED, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    })
}

/// What is so of a claim and not told yet, and since when. A restart begins anew.
struct Untold {
    unused: bool,
    from: Instant,
    since: Timestamp,
}

#[derive(Clone)]
struct Unused {
    cluster: Cluster,
    clock: Clock,
    queue: Queue<Key>,
    claims: Cache<Claim>,
    pods: Cache<Pod>,
    pods_by_claim: Index<Pod>,
    untold: Arc<Mutex<BTreeMap<Key, Untold>>>,
}

/// Starts the role.
pub fn start(process: &Process) {
    let pods = process.cache::<Pod>();
    let role = Unused {
        cluster: process.cluster.clone(),
        clock: process.clock,
        queue: Queue::new(turn::backoff()),
        claims: process.cache(),
        pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
        pods,
        untold: Arc::default(),
    };
    process.spawn("unused", role.run());
}

impl Unused {
    async fn run(self) {
        self.claims.synced().await;
        self.pods.synced().await;
        let role = self.clone();
        self.claims.subscribe(move |change| {
            let claim = change.object();
            match change {
                Change::Applied { .. } if claim.phase() == ClaimPhase::Bound => {
                    role.queue.add(claim.key());
                }
                Change::Applied { .. } => {}
                Change::Deleted(_) => drop(role.untold().remove(&claim.key())),
            }
        });
        let role = self.clone();
        self.pods.subscribe(move |change| role.pod_changed(change));
        let queue = self.queue.clone();
        work(queue, AT_ONCE, |key| self.turn(key)).await;
    }

    fn untold(&self) -> MutexGuard<'_, BTreeMap<Key, Untold>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.object();
        let old = match change {
            Change::Applied { old, .. } => *old,
            Change::Deleted(_) => None,
        };
        if old.is_some_and(|old| old.has_ended() == pod.has_ended()) {
            return;
        }
        for (_, claim) in pod.claims() {
            self.queue.add(claim);
        }
    }

    async fn turn(&self, key: Key) -> Outcome {
        self.look(&key)
            .await
            .unwrap_or_else(|error| turn::retry(&error))
    }

    async fn look(&self, key: &Key) -> Result<Outcome, ApiError> {
        let Some(claim) = self.claims.get(key) else {
            return Ok(Outcome::Done);
        };
        let pods = self.pods_by_claim.get(&key.to_string());
        let used = pods.iter().any(|pod| uses(pod, &claim));
        let (unused, rest) = match decide(&claim, used) {
            Decision::Leave => {
                self.untold().remove(key);
                return Ok(Outcome::Done);
            }
            Decision::Correct { unused } => (unused, Duration::ZERO),
            Decision::Tell { unused } => (unused, REST),
        };
        let (from, since) = self.note(key, unused);
        let left = rest.saturating_sub(from.elapsed());
        if !left.is_zero() {
            return Ok(Outcome::After(left));
        }
        debug!(claim = %key, unused, "told");
        let body = json!({"status": {"conditions": [condition(unused, since)]}});
        let patch = Patch::strategic_on(&*claim, body);
        let told: Claim = self.cluster.patch_status(key, &patch).await?;
        self.untold().remove(key);
        self.claims.absorb(told);
        Ok(Outcome::Done)
    }

    /// Since when it is so.
    fn note(&self, key: &Key, unused: bool) -> (Instant, Timestamp) {
        let begins = || Untold {
            unused,
            from: Instant::now(),
            since: self.clock.now_seconds(),
        };
        let mut all = self.untold();
        let untold = all.entry(key.clone()).or_insert_with(begins);
        if untold.unused != unused {
            *untold = begins();
        }
        (untold.from, untold.since)
    }
}
