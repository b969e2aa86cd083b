//! What is taken: by pods on nodes, and by pods that were promised a node.
//!
//! Kept in memory as pods come and go, so that placing one pod doesn't cost a look at all
//! the others. It may be lost at any time: pods tell again where they are, and a promise
//! that is forgotten is made again from what was written for it.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::{Key, Kind, Pod};
use tokio::time::Instant;

use crate::{
    filter::{Amounts, Tally},
    volume_binding::{Plan, Supply},
};

/// A node, promised to a pod until the pod is placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Promise {
    /// The very pod.
    pub uid: String,
    /// The node.
    pub node: String,
    /// What its late claims get there.
    pub plan: Plan,
    /// Claims that were told their node. One of them without it was told to look elsewhere.
    pub told: BTreeSet<Key>,
    /// Whether the API server accepted the placement.
    pub placed: bool,
    /// When it was made.
    pub since: Instant,
}

#[derive(Debug)]
struct Seat {
    node: String,
    amounts: Amounts,
}

/// A volume that was made, while the driver has yet to tell how much is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Its class.
    pub class: String,
    /// Where it was made.
    pub node: String,
    /// Its size.
    pub bytes: i64,
    /// The version at which it was there.
    pub revision: u64,
    /// Who tells nothing for so long has nothing to tell.
    pub until: Instant,
}

/// What is taken.
#[derive(Debug, Default)]
pub struct Ledger {
    seats: BTreeMap<Key, Seat>,
    tallies: BTreeMap<String, Tally>,
    promises: BTreeMap<Key, Promise>,
    promised_volumes: BTreeMap<String, Key>,
    settled: Vec<Settled>,
    /// How often what a pod was promised came to nothing, by its uid.
    setbacks: BTreeMap<Key, (String, u32)>,
}

impl Ledger {
    /// Takes in what a pod is now. Answers with a promise that nobody wants kept any more.
    pub fn see(&mut self, pod: &Pod) -> Option<Promise> {
        let key = pod.key();
        let ending = pod.metadata.is_deleting();
        // One that is accepted is kept until the watch tells of it.
        let void =
            |promise: &Promise| promise.uid != pod.metadata.uid || (ending && !promise.placed);
        if pod.is_finished() {
            return self.forget(&key);
        }
        if pod.is_placed() {
            // It was kept.
            self.break_promise(&key);
            self.setbacks.remove(&key);
            self.seat(&key, pod.spec.node_name.clone(), Amounts::of_pod(pod));
        } else if self.promises.get(&key).is_some_and(void) {
            return self.forget(&key);
        }
        None
    }

    /// What a pod was promised came to nothing. Answers with how often that has happened to it.
    pub fn note_setback(&mut self, pod: &Pod) -> u32 {
        let uid = &pod.metadata.uid;
        let (of, count) = self.setbacks.entry(pod.key()).or_default();
        if of != uid {
            uid.clone_into(of);
            *count = 0;
        }
        *count += 1;
        *count
    }

    /// The pod is gone. Answers with what it was promised.
    pub fn forget(&mut self, key: &Key) -> Option<Promise> {
        self.setbacks.remove(key);
        let promise = self.break_promise(key);
        self.unseat(key);
        promise
    }

    /// Promises a node to a pod.
    pub fn promise(&mut self, pod: &Pod, node: String, plan: Plan) {
        let key = pod.key();
        self.break_promise(&key);
        for (_, supply) in &plan {
            if let Supply::Reserve(volume) = supply {
                let name = volume.metadata.name.clone();
                self.promised_volumes
                    .entry(name)
                    .or_insert_with(|| key.clone());
            }
        }
        self.seat(&key, node.clone(), Amounts::of_pod(pod));
        let promise = Promise {
            uid: pod.metadata.uid.clone(),
            node,
            plan,
            told: BTreeSet::new(),
            placed: false,
            since: Instant::now(),
        };
        self.promises.insert(key, promise);
    }

    /// Takes a promise back.
    pub fn break_promise(&mut self, key: &Key) -> Option<Promise> {
        let promise = self.promises.remove(key)?;
        self.promised_volumes.retain(|_, holder| holder != key);
        self.unseat(key);
        Some(promise)
    }

    /// What a pod was promised.
    pub fn promised(&self, key: &Key) -> Option<&Promise> {
        self.promises.get(key)
    }

    /// A claim of the pod was told its node.
    pub fn note_told(&mut self, pod: &Key, claim: &Key) {
        if let Some(promise) = self.promises.get_mut(pod) {
            promise.told.insert(claim.clone());
        }
    }

    /// The API server accepted the pod's placement.
    pub fn note_placed(&mut self, pod: &Key) {
        if let Some(promise) = self.promises.get_mut(pod) {
            promise.placed = true;
        }
    }

    /// Whether a volume is promised to another pod.
    pub fn is_promised_to_another(&self, volume: &str, pod: &Key) -> bool {
        self.promised_volumes.get(volume).is_some_and(|p| p != pod)
    }

    /// Where, and how, a claim will be bound, as promised to another pod that uses it.
    pub fn promised_claim(&self, claim: &Key, users: &[Key]) -> Option<(String, Supply)> {
        users.iter().find_map(|user| {
            let promise = self.promises.get(user)?;
            let (_, supply) = promise.plan.iter().find(|(key, _)| key == claim)?;
            Some((promise.node.clone(), supply.clone()))
        })
    }

    /// The pods that were promised this node.
    pub fn promised_to(&self, node: &str) -> Vec<Key> {
        let on = self.promises.iter().filter(|(_, p)| p.node == node);
        on.map(|(key, _)| key.clone()).collect()
    }

    /// The claims that a volume is to be made for, where that was promised.
    pub fn to_provision(&self) -> impl Iterator<Item = (&str, &Key)> {
        self.promises.values().flat_map(|promise| {
            let made = promise.plan.iter();
            let made = made.filter(|(_, supply)| *supply == Supply::Provision);
            made.map(|(claim, _)| (promise.node.as_str(), claim))
        })
    }

    /// A volume was made.
    pub fn settle(&mut self, made: Settled) {
        self.settled.push(made);
    }

    /// The volumes of a class that were made lately.
    pub fn settled(&mut self, class: &str, now: Instant) -> Vec<Settled> {
        self.settled.retain(|made| made.until > now);
        let of_class = self.settled.iter().filter(|made| made.class == class);
        of_class.cloned().collect()
    }

    /// What is taken on a node.
    pub fn tally(&self, node: &str) -> Tally {
        self.tallies.get(node).cloned().unwrap_or_default()
    }

    fn seat(&mut self, key: &Key, node: String, amounts: Amounts) {
        self.unseat(key);
        let tally = self.tallies.entry(node.clone()).or_default();
        tally.pods += 1;
        tally.amounts.add(&amounts);
        self.seats.insert(key.clone(), Seat { node, amounts });
    }

    fn unseat(&mut self, key: &Key) {
        let Some(seat) = self.seats.remove(key) else {
            return;
        };
        if let Some(tally) = self.tallies.get_mut(&seat.node) {
            tally.pods -= 1;
            tally.amounts.subtract(&seat.amounts);
            if tally.pods == 0 {
                self.tallies.remove(&seat.node);
            }
        }
    }
}
