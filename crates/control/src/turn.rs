//! What a turn's failure means for its key.

use std::time::Duration;

use orlop_runtime::{ApiError, Backoff, Outcome, Refusal};
use tracing::{debug, warn};

/// Short at first: the usual failure is a view that was a moment behind.
pub(crate) fn backoff() -> Backoff {
    Backoff {
        first: Duration::from_millis(25),
        most: Duration::from_secs(60),
    }
}

/// Every failed turn is tried again with a fresh look; only unexpected failures are news.
pub(crate) fn retry(error: &ApiError) -> Outcome {
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
