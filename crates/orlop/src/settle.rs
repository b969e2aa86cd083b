//! What a process needs for its start or for its work only, and lets go of once that is over.

use std::time::Duration;

use tracing::debug;

/// Lets go of the memory that only the start needed, after so long; never ends.
pub(crate) async fn down_after(start: Duration) {
    tokio::time::sleep(start).await;
    down();
    std::future::pending().await
}

/// The same, and again each time that work is over; never ends.
pub(crate) async fn down_after_all(start: Duration, work_is_over: impl AsyncFn()) {
    tokio::time::sleep(start).await;
    loop {
        down();
        work_is_over().await;
    }
}

fn down() {
    orlop_host::memory::give_back_free();
    if let Err(error) = orlop_host::memory::let_go_of_code() {
        debug!(%error, "the program's pages stay in memory");
    }
}
