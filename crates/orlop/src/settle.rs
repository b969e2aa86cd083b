//! What a process needs for its start or for its work only, and lets go of once that is over.

use std::time::Duration;

use tracing::debug;

/// Lets go of the memory that only the start needed, after so long; never ends.
pub(crate) async fn down_after(start: Duration) {
    tokio::time::sleep(start).await;
    down();
    std::future::pending().await
}

/// How long the last words about a piece of work may take: they need the program, too.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The same, and again each time that work is over; never ends.
pub(crate) async fn down_after_all(start: Duration, work_is_over: impl AsyncFn()) {
    tokio::time::sleep(start).await;
    loop {
        down();
        work_is_over().await;
        // Of work that is over soon after, the last is waited for.
        while tokio::time::timeout(LAST_WORDS, work_is_over())
            .await
            .is_ok()
        {}
    }
}

fn down() {
    orlop_host::memory::give_back_free();
    if let Err(error) = orlop_host::memory::let_go_of_code() {
        debug!(%error, "the program's pages stay in memory");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_ends_in_quick_succession_is_settled_once() {
        let begin = tokio::time::Instant::now();
        let ends = AtomicUsize::new(0);
        // Five ends, a second apart; then nothing more.
        let over = async || match ends.fetch_add(1, Ordering::Relaxed) {
            0..5 => tokio::time::sleep(Duration::from_secs(1)).await,
            _ => std::future::pending().await,
        };
        let settled = down_after_all(Duration::from_secs(5), over);
        let waited = tokio::time::timeout(Duration::from_secs(60), settled).await;
        assert!(waited.is_err() && begin.elapsed() >= Duration::from_secs(60));
        // One more for the window that nothing ended in, and one that waits for the next.
        assert_eq!(ends.load(Ordering::Relaxed), 7);
    }
}
