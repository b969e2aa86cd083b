//! Whether a pod is there, asked of the API server itself where that matters.
//!
//! The watch may be behind, most of all after a restart. A pod that it doesn't show yet would be
//! ended for nothing; one that it still shows may have been deleted, and replaced on another node,
//! since. So who is missing is asked for, once for all, before anything is taken from it, and who is
//! to begin before its first container starts.

use jiff::{SignedDuration, Timestamp};
use orlop_model::{Kind as _, Pod};
use orlop_runtime::Outcome;
use tracing::warn;

use super::decide::{Life, Then};
use super::record::Record;
use super::{Drain, Pods, later};
use crate::layout::PodUid;

/// How long a pod that vanished from the API server has to end by itself.
const VANISHED: SignedDuration = SignedDuration::from_secs(2);

/// Where in its life a pod is that the watch doesn't show. Pure.
pub(super) fn life(gone_since: Option<Timestamp>, drain: Option<Drain>) -> Life {
    match (gone_since, drain) {
        (Some(since), _) => Life::Ending {
            deadline: later(since, VANISHED),
            then: Then::Remove,
        },
        // It ends whether it is gone or not, and nobody waits for an API server that may have
        // ended already. What is left of it the next node role decides.
        (None, Some(drain)) => Life::Ending {
            deadline: later(drain.since, VANISHED.min(drain.longest)),
            then: Then::Keep,
        },
        (None, None) => Life::Missing,
    }
}

/// What the API server says of a pod that is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    Gone,
    /// It could not be asked, or says what the watch will tell.
    Unclear,
}

impl Pods {
    /// Asks whether a pod whose containers never ran is there, once in its life here.
    pub(super) async fn presence(&self, uid: &PodUid, pod: &Pod) -> Presence {
        let begun = |record: &Record| record.confirmed || !record.containers.is_empty();
        if self.records().get(uid).is_some_and(begun) {
            return Presence::There;
        }
        let found = match self.parts.cluster.get::<Pod>(&pod.key()).await {
            Ok(found) => found.filter(|found| found.metadata.uid == uid.as_str()),
            Err(error) => {
                warn!(pod = %pod.key(), error = error.chain(), "could not ask whether a pod is there");
                return Presence::Unclear;
            }
        };
        let Some(found) = found else {
            self.parts.pods.end(pod);
            self.note_gone(uid);
            return Presence::Gone;
        };
        if found.metadata.is_deleting() {
            return Presence::Unclear;
        }
        self.parts.pods.absorb(found);
        if let Some(record) = self.records().get_mut(uid) {
            record.confirmed = true;
        }
        Presence::There
    }

    fn note_gone(&self, uid: &PodUid) {
        let now = self.parts.clock.now();
        if let Some(record) = self.records().get_mut(uid) {
            record.gone_since.get_or_insert(now);
        }
    }

    /// Asks whether a pod is gone, and notes what comes out. `None` when that is known.
    pub(super) async fn find_out(&self, uid: &PodUid) -> Option<Outcome> {
        let all = match self.parts.live.list(None).await {
            Ok(all) => all,
            Err(error) => {
                let error = error.chain();
                warn!(pod_uid = %uid, error, "could not ask whether a pod is gone");
                return Some(Outcome::Retry);
            }
        };
        match all.iter().find(|pod| pod.metadata.uid == uid.as_str()) {
            Some(pod) => {
                self.parts.pods.absorb(pod.clone());
                // A cache doesn't take every pod ahead of the watch: one that ends may be gone by now.
                let shown = !self.by_uid.get(uid.as_str()).is_empty();
                (!shown).then_some(Outcome::Retry)
            }
            None => {
                // Nor does a watch that is behind bring it back.
                self.parts.pods.end_of(uid.as_str());
                self.note_gone(uid);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: fn(i64) -> Timestamp = |s| Timestamp::from_second(s).expect("a time");

    #[test]
    fn a_missing_pod_ends_when_it_is_known_to_be_gone_or_all_shall_stop() {
        let drain = |longest| {
            Some(Drain {
                since: T(100),
                longest: SignedDuration::from_secs(longest),
            })
        };
        let ending = |deadline, then| Life::Ending {
            deadline: T(deadline),
            then,
        };
        for (gone_since, drain, life_then) in [
            (None, None, Life::Missing),
            (Some(T(50)), None, ending(52, Then::Remove)),
            (Some(T(50)), drain(30), ending(52, Then::Remove)),
            (None, drain(30), ending(102, Then::Keep)),
            (None, drain(1), ending(101, Then::Keep)),
        ] {
            assert_eq!(
                life(gone_since, drain),
                life_then,
                "{gone_since:?} {drain:?}"
            );
        }
    }
}
