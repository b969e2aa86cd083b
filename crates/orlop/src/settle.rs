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
        quiet(LAST_WORDS, &work_is_over).await;
    }
}

/// Waits until work is over, and none was over for so long.
async fn quiet(window: Duration, work_is_over: impl AsyncFn()) {
    work_is_over().await;
    while tokio::time::timeout(window, work_is_over()).await.is_ok() {}
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

    #[tokio::test]
    async fn of_work_that_is_over_soon_after_another_the_last_is_waited_for() {
        let ends = AtomicUsize::new(0);
        let over = async || match ends.fetch_add(1, Ordering::Relaxed) {
            0..5 => {}
            _ => std::future::pending().await,
        };
        quiet(Duration::from_millis(1), over).await;
        // Five that came, and one that did not.
        assert_eq!(ends.load(Ordering::Relaxed), 6);
    }
}
