//! Which of many nodes takes a claim that any of them may have.
//!
//! Each waits for a time of its own before it takes the claim, so that they don't all try at
//! once; one that had the claim and gave it back, or has no room, waits longer. The claim's
//! version decides between two that try together.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{Claim, Key, Kind};
use orlop_runtime::Backoff;
use tokio::time::Instant;

struct Bid {
    uid: String,
    round: u32,
    due: Instant,
}

/// The claims that this node may take.
#[derive(Default)]
pub(super) struct Bids(Mutex<BTreeMap<Key, Bid>>);

impl Bids {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Bid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long this node must still wait before it may take the claim.
    pub(super) fn wait(&self, node: &str, claim: &Claim, waits: Backoff) -> Duration {
        let mut bids = self.lock();
        let known = bids.get(&claim.key());
        if let Some(bid) = known.filter(|bid| bid.uid == claim.metadata.uid) {
            return bid.due.saturating_duration_since(Instant::now());
        }
        let wait = turn(node, claim, 1, waits);
        bids.insert(claim.key(), bid(claim, 1, wait));
        wait
    }

    /// Begins another round; how long it takes.
    pub(super) fn again(&self, node: &str, claim: &Claim, waits: Backoff) -> Duration {
        let mut bids = self.lock();
        let round = bids.get(&claim.key()).map_or(1, |bid| bid.round) + 1;
        let wait = turn(node, claim, round, waits);
        bids.insert(claim.key(), bid(claim, round, wait));
        wait
    }

    pub(super) fn forget(&self, claim: &Key) {
        self.lock().remove(claim);
    }
}

fn bid(claim: &Claim, round: u32, wait: Duration) -> Bid {
    Bid {
        uid: claim.metadata.uid.clone(),
        round,
        due: Instant::now() + wait,
    }
}

/// A node's wait in a round: somewhere in the round, by node and claim.
fn turn(node: &str, claim: &Claim, round: u32, waits: Backoff) -> Duration {
    let whole = waits.after(round);
    let text = format!("{node} {} {round}", claim.metadata.uid);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let earlier = waits.after(round - 1).min(whole / 2);
    let share = (hash >> 40) as f64 / f64::from(1 << 24);
    earlier + (whole - earlier).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Backoff = Backoff {
        first: Duration::from_secs(20),
        most: Duration::from_secs(60),
    };

    fn claim(uid: &str) -> Claim {
        let mut claim = Claim::default();
        claim.metadata.uid = uid.into();
        claim
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_wait_for_different_times_and_then_may_take_the_claim() {
        let bids = Bids::default();
        let wait = bids.wait("n1", &claim("u"), WAITS);
        assert!(wait < WAITS.first);
        assert_ne!(wait, turn("n2", &claim("u"), 1, WAITS));
        tokio::time::advance(wait).await;
        assert_eq!(bids.wait("n1", &claim("u"), WAITS), Duration::ZERO);
        let anew = bids.wait("n1", &claim("another of that name"), WAITS);
        assert!(!anew.is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gave_a_claim_back_waits_longer() {
        let bids = Bids::default();
        bids.wait("n1", &claim("u"), WAITS);
        let second = bids.again("n1", &claim("u"), WAITS);
        assert!((20..=40).contains(&second.as_secs()), "{second:?}");
        for _ in 0..5 {
            let later = bids.again("n1", &claim("u"), WAITS);
            assert!(later <= WAITS.most && later.as_secs() >= 20, "{later:?}");
        }
    }
}
