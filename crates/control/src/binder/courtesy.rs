//! How provisioners are waited for.
//!
//! While a provisioner gets on, nobody needs to be told that claims wait for it. One of ours takes claims
//! by itself once it knows that the binder gives way, which spares the request that asks it; the binder
//! knows such a one by the intents that it leaves on claims. Nothing hangs on any of this but requests:
//! who shows no sign for a moment is asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::Key;
use tokio::time::Instant;

/// How long a provisioner may show no sign.
pub(super) const MOMENT: Duration = Duration::from_secs(1);

/// What was seen of provisioners. Lost in a crash, and learned again.
#[derive(Default)]
pub(super) struct Courtesy(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// Since when claims wait.
    waiting: BTreeMap<Key, Instant>,
    /// When a provisioner was last seen to get on.
    signs: BTreeMap<String, Instant>,
    /// Those that take claims without being asked.
    unasked: BTreeSet<String>,
}

/// What a claim's wait means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The provisioner will take the claim by itself, or isn't late with it yet: look again after this.
    Quiet {
        /// How long.
        rest: Duration,
        /// Whether it must be asked for that.
        ask: bool,
    },
    /// It shows no sign.
    Late,
}

impl Courtesy {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The provisioner left its intent on a claim: it is one of ours.
    pub(super) fn took(&self, provisioner: &str) {
        let mut seen = self.lock();
        seen.signs.insert(provisioner.to_owned(), Instant::now());
        if !seen.unasked.contains(provisioner) {
            seen.unasked.insert(provisioner.to_owned());
        }
    }

    /// The provisioner made a volume.
    pub(super) fn made(&self, provisioner: &str) {
        let mut seen = self.lock();
        seen.signs.insert(provisioner.to_owned(), Instant::now());
    }

    /// The claim waits for nobody any more.
    pub(super) fn over(&self, claim: &Key) {
        self.lock().waiting.remove(claim);
    }

    /// The claim waits for this provisioner.
    pub(super) fn waits(&self, claim: &Key, provisioner: &str) -> Wait {
        let now = Instant::now();
        let mut seen = self.lock();
        let since = *seen.waiting.entry(claim.clone()).or_insert(now);
        let sign = seen.signs.get(provisioner).copied().unwrap_or(since);
        let rest = MOMENT.saturating_sub(now - since.max(sign));
        if rest.is_zero() {
            seen.unasked.remove(provisioner);
            return Wait::Late;
        }
        let ask = !seen.unasked.contains(provisioner);
        Wait::Quiet { rest, ask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const HALF: Duration = Duration::from_millis(500);

    #[tokio::test(start_paused = true)]
    async fn a_provisioner_that_takes_claims_by_itself_is_asked_only_if_it_shows_no_sign() {
        let courtesy = Courtesy::default();
        let (one, other) = (Key::namespaced("n", "one"), Key::namespaced("n", "other"));
        let quiet = |rest, ask| Wait::Quiet { rest, ask };
        assert_eq!(courtesy.waits(&one, "d"), quiet(MOMENT, true));
        courtesy.took("d");
        assert_eq!(courtesy.waits(&one, "d"), quiet(MOMENT, false));
        advance(HALF).await;
        assert_eq!(courtesy.waits(&one, "d"), quiet(HALF, false));
        // It gets on: whoever stands behind is not late.
        courtesy.made("d");
        advance(HALF).await;
        assert_eq!(courtesy.waits(&one, "d"), quiet(HALF, false));
        advance(HALF).await;
        assert_eq!(courtesy.waits(&one, "d"), Wait::Late);
        // It may be another one by now.
        assert_eq!(courtesy.waits(&other, "d"), quiet(MOMENT, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_waits_again_is_not_late_at_once() {
        let courtesy = Courtesy::default();
        let claim = Key::namespaced("n", "one");
        courtesy.waits(&claim, "d");
        courtesy.over(&claim);
        advance(MOMENT * 2).await;
        assert_ne!(courtesy.waits(&claim, "d"), Wait::Late);
    }
}
