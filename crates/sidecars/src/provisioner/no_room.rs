//! Claims that found no room, and where: remembered, never relied on.
//!
//! A claim that waits for its pod is given back to the scheduler when the driver has no room for
//! it at the chosen node. If every node is full the scheduler comes back soon, and would for ever.
//! So a place that had no room is asked again only after a wait, which doubles from time to time;
//! a place that was not asked yet is asked at once. Whatever may mean more room ends all waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{Claim, Key, Kind, StorageClass};
use orlop_runtime::Backoff;
use tokio::{sync::Notify, time::Instant};

use super::{claims::asks_the_same, topology::Segment};

/// How long a claim is kept at a node that it waits for. Its pod can't go elsewhere meanwhile.
const KEPT: Duration = Duration::from_secs(60);

/// By which the teller of capacity lets the provisioner know that there is more of it; clones
/// share it.
#[derive(Debug, Clone, Default)]
pub struct MoreRoom(Arc<Notify>);

impl MoreRoom {
    /// There may be more room than there was.
    pub(crate) fn tell(&self) {
        self.0.notify_one();
    }

    /// Waits for it to be told.
    pub(super) async fn told(&self) {
        self.0.notified().await;
    }
}

/// What becomes of a claim whose node was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The driver is asked.
    Ask,
    /// It had no room there a short while ago: wait this long.
    Wait(Duration),
    /// It had none, and the claim has been kept for long enough: let the scheduler choose again.
    GiveBack,
}

/// The tries of one claim.
struct Tries {
    /// What was asked for. Something else is another matter.
    claim: Claim,
    class_uid: String,
    /// Where there was no room.
    places: BTreeSet<Segment>,
    failures: u32,
    until: Instant,
    /// Since when it is kept at its node.
    kept: Option<Instant>,
}

/// Claims that found no room.
pub(super) struct NoRoom {
    retry: Backoff,
    all: Mutex<BTreeMap<Key, Tries>>,
}

impl NoRoom {
    pub(super) fn new(retry: Backoff) -> Self {
        Self {
            retry,
            all: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Tries>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do with a claim that was given to a node of this place.
    pub(super) fn next(&self, claim: &Claim, class: &StorageClass, place: &Segment) -> Next {
        let now = Instant::now();
        let mut all = self.lock();
        let Some(tries) = all.get_mut(&claim.key()) else {
            return Next::Ask;
        };
        let left = tries.until.saturating_duration_since(now);
        let same = tries.is_about(claim, class) && tries.places.contains(place);
        if !same || left.is_zero() {
            tries.kept = None;
            return Next::Ask;
        }
        let kept = *tries.kept.get_or_insert(now);
        match KEPT.saturating_sub(now.duration_since(kept)) {
            Duration::ZERO => {
                tries.kept = None;
                Next::GiveBack
            }
            rest => Next::Wait(rest.min(left)),
        }
    }

    /// The driver has no room for a claim at this place.
    pub(super) fn refused(&self, claim: &Claim, class: &StorageClass, place: &Segment) {
        let mut all = self.lock();
        let known = all.remove(&claim.key());
        let mut tries = known
            .filter(|tries| tries.is_about(claim, class))
            .unwrap_or_else(|| Tries {
                claim: claim.clone(),
                class_uid: class.metadata.uid.clone(),
                places: BTreeSet::new(),
                failures: 0,
                until: Instant::now(),
                kept: None,
            });
        tries.places.insert(place.clone());
        tries.failures = tries.failures.saturating_add(1);
        tries.until = Instant::now() + self.retry.after(tries.failures);
        tries.kept = None;
        all.insert(claim.key(), tries);
    }

    /// A claim has its volume, or none is wanted any more.
    pub(super) fn forget(&self, claim: &Key) {
        self.lock().remove(claim);
    }

    /// There may be room now where there was none: every place is asked once more. Gives the
    /// claims that wait for it.
    pub(super) fn hope(&self) -> Vec<Key> {
        let mut all = self.lock();
        for tries in all.values_mut() {
            tries.places.clear();
        }
        all.keys().cloned().collect()
    }
}

impl Tries {
    fn is_about(&self, claim: &Claim, class: &StorageClass) -> bool {
        self.class_uid == class.metadata.uid && asks_the_same(&self.claim, claim)
    }
}

#[cfg(test)]
mod tests;
