//! A limit on how much is asked of an API server, for those who want one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The most that may be asked of an API server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cap {
    /// By and by.
    pub per_second: f64,
    /// At once.
    pub burst: u32,
}

/// Room for so many requests at once, that comes back with time; clones share it.
#[derive(Debug, Clone)]
pub struct Bucket(Arc<Mutex<Level>>);

#[derive(Debug)]
struct Level {
    every: Duration,
    burst: u32,
    /// When it would be full again.
    full_at: Option<Instant>,
}

impl Bucket {
    /// A full one.
    pub fn new(cap: Cap) -> Self {
        Self(Arc::new(Mutex::new(Level {
            every: Duration::from_secs_f64(1.0 / cap.per_second),
            burst: cap.burst,
            full_at: None,
        })))
    }

    /// Takes room for one request, and waits until it may go.
    pub async fn turn(&self) {
        let at = self.take(Instant::now());
        sleep_until(at).await;
    }

    fn take(&self, now: Instant) -> Instant {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = level.full_at.map_or(now, |at| at.max(now)) + level.every;
        level.full_at = Some(full);
        full.checked_sub(level.every * level.burst)
            .map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_its_pace() {
        let start = Instant::now();
        let bucket = Bucket::new(Cap {
            per_second: 10.0,
            burst: 3,
        });
        let waits: Vec<u128> = (0..6)
            .map(|_| (bucket.take(start) - start).as_millis())
            .collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        // After a rest there is room for a burst again, and for no more than that.
        let later = start + Duration::from_secs(60);
        let waits: Vec<u128> = (0..4)
            .map(|_| (bucket.take(later) - later).as_millis())
            .collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }
}
