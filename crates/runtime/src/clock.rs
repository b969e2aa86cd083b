//! Wall-clock time as an input.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time. A simulated clock follows tokio's clock, which tests pause and
/// move, so that a run is the same every time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    simulated: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self { simulated: None }
    }

    /// A clock that starts at `start` and follows tokio's.
    pub fn simulated(start: Timestamp) -> Self {
        Self {
            simulated: Some((start, Instant::now())),
        }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        match self.simulated {
            None => Timestamp::now(),
            Some((start, since)) => {
                let elapsed = SignedDuration::try_from(since.elapsed()).unwrap_or_default();
                start.checked_add(elapsed).unwrap_or(start)
            }
        }
    }

    /// Now, to the second, as Kubernetes writes most times.
    pub fn now_seconds(&self) -> Timestamp {
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}
