//! Which claims pods use. Only drivers that grow volumes offline want to know, so the pods
//! are watched from the first such question on, and not before.

use orlop_model::{Key, Pod, pod};
use orlop_runtime::{Cache, Change, Index, Process, Queue};
use tokio::sync::OnceCell;

/// The users of claims.
pub(super) struct Users {
    process: Process,
    queue: Queue<Key>,
    by_claim: OnceCell<Index<Pod>>,
}

impl Users {
    pub(super) fn new(process: &Process, queue: Queue<Key>) -> Self {
        Self {
            process: process.clone(),
            queue,
            by_claim: OnceCell::new(),
        }
    }

    /// Whether a pod on a node uses the claim and has not ended. One that ended keeps its
    /// volume mounted for a while at most; the driver says so if that matters.
    pub(super) async fn any(&self, claim: &Key) -> bool {
        let by_claim = self.by_claim.get_or_init(|| self.watch()).await;
        by_claim.get(&claim.to_string()).iter().any(|pod| uses(pod))
    }

    async fn watch(&self) -> Index<Pod> {
        let pods: Cache<Pod> = self.process.cache();
        let by_claim = pods.index(pod::BY_CLAIM, pod::claims_used);
        let queue = self.queue.clone();
        pods.subscribe(move |change| {
            let (was, is, pod) = match change {
                Change::Applied { old, new } => (old.is_some_and(|old| uses(old)), uses(new), new),
                Change::Deleted(pod) => (uses(pod), false, pod),
            };
            if was && !is {
                for (_, claim) in pod.claims() {
                    queue.add(claim);
                }
            }
        });
        pods.synced().await;
        by_claim
    }
}

fn uses(pod: &Pod) -> bool {
    pod.is_placed() && !pod.is_finished()
}
