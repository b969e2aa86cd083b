//! Rings for all who listen, in the order in which they began to wait.
//!
//! A channel that keeps the newest value would do, but those of tokio wake in an order of chance. Who
//! learns of a change first often does the work, so that chance would be the simulation's, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// What is rung.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rings: AtomicU64,
    listeners: AtomicUsize,
    rung: Notify,
}

/// One who listens. Rings before it began don't concern it.
#[derive(Debug)]
pub struct Listener {
    bell: Arc<Bell>,
    heard: u64,
}

impl Bell {
    pub(super) fn listen(self: &Arc<Self>) -> Listener {
        self.listeners.fetch_add(1, Ordering::Relaxed);
        Listener {
            heard: self.rings.load(Ordering::Acquire),
            bell: Arc::clone(self),
        }
    }

    /// How many listen.
    pub(super) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Relaxed)
    }

    /// Wakes those who wait; who doesn't wait now won't wait the next time.
    pub(super) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        self.rung.notify_waiters();
    }
}

impl Listener {
    /// Takes note of what rang; answers whether anything did.
    pub fn note(&mut self) -> bool {
        let rings = self.bell.rings.load(Ordering::Acquire);
        std::mem::replace(&mut self.heard, rings) != rings
    }

    /// Waits for a ring that wasn't noted. Cancelling loses nothing.
    pub async fn rung(&mut self) {
        loop {
            // Made before the look: it hears of all that rings afterwards.
            let bell = Arc::clone(&self.bell);
            let rung = bell.rung.notified();
            if self.note() {
                return;
            }
            rung.await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.bell.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn all_who_wait_are_woken_in_the_order_in_which_they_came() {
        let (bell, order) = (Arc::new(Bell::default()), Arc::new(Mutex::new(Vec::new())));
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..40 {
            let (mut listener, order) = (bell.listen(), Arc::clone(&order));
            waiting.spawn(async move {
                listener.rung().await;
                order.lock().unwrap().push(number);
            });
        }
        tokio::task::yield_now().await;
        bell.ring();
        waiting.join_all().await;
        assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
        assert_eq!(bell.listeners(), 0);
    }

    #[tokio::test]
    async fn a_ring_between_two_waits_is_not_missed() {
        let bell = Arc::new(Bell::default());
        bell.ring();
        let mut listener = bell.listen();
        assert!(!listener.note(), "it rang before");
        bell.ring();
        listener.rung().await;
        assert!(!listener.note());
    }
}
