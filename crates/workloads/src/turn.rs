//! What a turn's failure means for its key.

use std::time::Duration;

use orlop_runtime::{ApiError, Backoff, Outcome, Refusal};
use tracing::{debug, warn};

/// How many objects of a kind are worked on at once.
pub(crate) const AT_ONCE: usize = 5;

/// Short at first: the usual failure is a view that was a moment behind.
pub(crate) fn backoff() -> Backoff {
    Backoff {
        first: Duration::from_millis(25),
        most: Duration::from_secs(60),
    }
}

/// What follows from a turn: another after a while, if it asked for one, or after a failure.
pub(crate) fn outcome(turn: Result<Option<Duration>, ApiError>) -> Outcome {
    let error = match turn {
        Ok(None) => return Outcome::Done,
        Ok(Some(after)) => return Outcome::After(after),
        Err(error) => error,
    };
    match &error.refusal {
        Refusal::Conflict(_) | Refusal::NotFound(_) | Refusal::AlreadyExists(_) => {
            debug!(error = error.chain(), "the view was behind; looking again");
            Outcome::Retry
        }
        Refusal::Busy {
            after: Some(after), ..
        } => Outcome::After(*after),
        Refusal::Busy { after: None, .. }
        | Refusal::Expired(_)
        | Refusal::Deposed
        | Refusal::Refused { .. }
        | Refusal::Lost(_)
        | Refusal::Unreadable(_) => {
            warn!(
                error = error.chain(),
                "a turn failed; it will be tried again"
            );
            Outcome::Retry
        }
    }
}

/// The sooner of two times to look again.
pub(crate) fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
