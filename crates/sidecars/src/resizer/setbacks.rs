//! What the driver said last, per claim: remembered, never relied on. A restart forgets it,
//! and then takes the outcome of what is on record for unknown.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_csi::{CallError, Retry};
use orlop_model::{Claim, Key, Kind};
use tokio::time::Instant;
use tonic::Code;

/// What a failure says about the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing is under way.
    Final,
    /// Nothing is under way, and won't be while the volume is used.
    InUse,
    /// Nothing is under way, and this goal won't be reached.
    Infeasible,
}

impl Verdict {
    /// What a driver's failure says; `None` if the goal may yet be reached.
    pub(super) fn of(error: &CallError) -> Option<Self> {
        match error.retry {
            Retry::Uncertain => None,
            Retry::Infeasible => Some(Self::Infeasible),
            Retry::Final if error.code == Code::FailedPrecondition => Some(Self::InUse),
            Retry::Final => Some(Self::Final),
        }
    }
}

/// A failure, as a decision sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setback<Goal> {
    /// What was gone for.
    pub(super) goal: Goal,
    pub(super) verdict: Verdict,
    /// How long an infeasible goal must still rest.
    pub(super) rest: Duration,
}

struct Remembered<Goal> {
    /// A claim of the same name may come later.
    uid: String,
    goal: Goal,
    verdict: Verdict,
    until: Instant,
    words: String,
}

/// The last failure of each claim.
pub(super) struct Setbacks<Goal> {
    all: Mutex<BTreeMap<Key, Remembered<Goal>>>,
}

impl<Goal> Default for Setbacks<Goal> {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
        }
    }
}

impl<Goal: Clone + PartialEq> Setbacks<Goal> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Remembered<Goal>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last failure of a claim.
    pub(super) fn of(&self, claim: &Claim) -> Option<Setback<Goal>> {
        let all = self.lock();
        let last = all.get(&claim.key())?;
        (last.uid == claim.metadata.uid).then(|| Setback {
            goal: last.goal.clone(),
            verdict: last.verdict,
            rest: last.until.saturating_duration_since(Instant::now()),
        })
    }

    /// Remembers a failure; `false` if the very same was remembered already.
    pub(super) fn remember(
        &self,
        claim: &Claim,
        goal: Goal,
        verdict: Verdict,
        rest: Duration,
        words: &str,
    ) -> bool {
        let new = Remembered {
            uid: claim.metadata.uid.clone(),
            goal,
            verdict,
            until: Instant::now() + rest,
            words: words.to_owned(),
        };
        let same = |old: &Remembered<Goal>| {
            old.uid == new.uid
                && old.goal == new.goal
                && old.verdict == new.verdict
                && old.words == new.words
        };
        let mut all = self.lock();
        let news = !all.get(&claim.key()).is_some_and(same);
        all.insert(claim.key(), new);
        news
    }

    /// The last failure says nothing any more.
    pub(super) fn forget(&self, claim: &Key) {
        self.lock().remove(claim);
    }
}
