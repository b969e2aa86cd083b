//! Protection's shell.

use orlop_model::{Claim, Key, Kind, Pod, Volume, well_known};
use orlop_runtime::{
    ApiError, Cache, Cluster, Index, Joint, Outcome, Patch, Process, Queue, letting_go,
    with_finalizer, without_finalizer, work,
};
use tracing::debug;

use super::{Decision, attributes, claim, volume};
use crate::{Evidence, turn};

/// How many objects are worked on at once.
const AT_ONCE: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Claim(Key),
    Volume(String),
}

#[derive(Clone)]
struct Protection {
    cluster: Cluster,
    queue: Queue<Item>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    pods: Cache<Pod>,
    pods_by_claim: Index<Pod>,
    /// A namespace's pods as they are, for many claims at once.
    users: Joint<Pod>,
}

/// Starts the protection of claims, volumes and classes of attributes.
pub fn start(process: &Process) {
    attributes::start(process);
    let pods = process.cache::<Pod>();
    let role = Protection {
        cluster: process.cluster.clone(),
        queue: Queue::new(turn::backoff()),
        claims: process.cache(),
        volumes: process.cache(),
        pods_by_claim: pods.index(orlop_model::pod::BY_CLAIM, orlop_model::pod::claims_used),
        pods,
        users: Joint::new(process.cluster.clone()),
    };
    process.spawn("protection", role.run());
}

impl Protection {
    async fn run(self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.pods.synced().await;
        let queue = self.queue.clone();
        self.claims.subscribe(move |change| {
            let claim = change.object();
            queue.add(Item::Claim(claim.key()));
            // A claim that goes frees its volume.
            if !claim.spec.volume_name.is_empty() {
                queue.add(Item::Volume(claim.spec.volume_name.clone()));
            }
        });
        let queue = self.queue.clone();
        self.volumes.subscribe(move |change| {
            queue.add(Item::Volume(change.object().metadata.name.clone()))
        });
        let role = self.clone();
        self.pods.subscribe(move |change| {
            for (_, key) in change.object().claims() {
                let deleting = |c: &Claim| c.metadata.is_deleting();
                if role.claims.get(&key).is_some_and(|c| deleting(&c)) {
                    role.queue.add(Item::Claim(key));
                }
            }
        });
        let queue = self.queue.clone();
        work(queue, AT_ONCE, |item| self.turn(item)).await;
    }

    async fn turn(&self, item: Item) -> Outcome {
        let result = match &item {
            Item::Claim(key) => self.claim_turn(key).await,
            Item::Volume(name) => self.volume_turn(name).await,
        };
        result.map_or_else(|error| turn::retry(&error), |()| Outcome::Done)
    }

    async fn claim_turn(&self, key: &Key) -> Result<(), ApiError> {
        let Some(claim) = self.claims.get(key) else {
            return Ok(());
        };
        let pods = self.pods_by_claim.get(&key.to_string());
        let mut decision = claim::decide(&claim, pods.iter().map(|p| &**p), Evidence::Cached);
        if decision == Decision::Confirm {
            let pods = self.users.list(Some(&key.namespace)).await?;
            decision = claim::decide(&claim, &*pods, Evidence::Live);
        }
        debug!(claim = %key, ?decision, "decided");
        self.carry_out(&self.claims, &*claim, decision, well_known::PVC_PROTECTION)
            .await
    }

    async fn volume_turn(&self, name: &str) -> Result<(), ApiError> {
        let Some(volume) = self.volumes.named(name) else {
            return Ok(());
        };
        let named = volume.spec.claim_ref.clone().unwrap_or_default();
        let same = |claim: &Claim| claim.metadata.uid == named.uid;
        let owner = self.claims.get(&named.key()).filter(|c| same(c));
        let mut decision = volume::decide(&volume, owner.as_deref(), Evidence::Cached);
        if decision == Decision::Confirm {
            let mut owner = None;
            if !named.name.is_empty() && !self.claims.saw_end_of(&named.uid) {
                let found = self.cluster.get::<Claim>(&named.key()).await?;
                owner = found.filter(|c| same(c));
            }
            decision = volume::decide(&volume, owner.as_ref(), Evidence::Live);
        }
        debug!(volume = name, ?decision, "decided");
        self.carry_out(&self.volumes, &*volume, decision, well_known::PV_PROTECTION)
            .await
    }

    async fn carry_out<K: Kind>(
        &self,
        cache: &Cache<K>,
        seen: &K,
        decision: Decision,
        finalizer: &str,
    ) -> Result<(), ApiError> {
        let patch: Option<Patch> = match decision {
            Decision::Keep | Decision::Confirm => None,
            Decision::Protect => with_finalizer(seen, finalizer),
            // Others let go of a volume at the same time, and what is deleted is never used again.
            Decision::Lift if finalizer == well_known::PV_PROTECTION => {
                letting_go(seen, &[finalizer])
            }
            Decision::Lift => without_finalizer(seen, finalizer),
        };
        if let Some(patch) = patch {
            let answer: K = self.cluster.patch(&seen.key(), &patch).await?;
            cache.absorb_or_end(answer);
        }
        Ok(())
    }
}
