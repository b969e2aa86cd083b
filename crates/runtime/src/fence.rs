//! Until when a process that works by a lease may send requests.
//!
//! Whoever was paused learns from nobody that another leads by now: the first that it would do on waking
//! is what it was about to do. So each request is held against the clock before it is sent. Time goes on
//! for a process that is stopped.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// What all that send requests for one process share.
#[derive(Clone, Default)]
pub(crate) struct Fence {
    /// None for one that works by no lease, or doesn't work yet.
    until: Arc<Mutex<Option<Instant>>>,
}

impl Fence {
    /// The lease is held, and lets us work until then.
    pub(crate) fn move_to(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Whether a request may be sent at this moment.
    pub(crate) fn is_open(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| Instant::now() < until)
    }
}
