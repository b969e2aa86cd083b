//! How long to wait before the next try.

use std::time::Duration;

/// Doubles from `first` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub most: Duration,
}

impl Backoff {
    /// The wait after so many failures in a row (1 for the first).
    pub fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

impl Default for Backoff {
    /// The kubelet's and the binder's: half a second to about two minutes.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            most: Duration::from_secs(122),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            most: Duration::from_secs(10),
        };
        let waits: Vec<u64> = (1..=6).map(|n| backoff.after(n).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff.after(u32::MAX), Duration::from_secs(10));
    }
}
