//! What a process needs for its start only, and lets go of once that is over.

use std::time::Duration;

use tracing::debug;

/// Lets go of the memory that only the start needed, after so long; never ends.
pub(crate) async fn down_after(start: Duration) {
    tokio::time::sleep(start).await;
    if let Err(error) = orlop_host::memory::let_go_of_code() {
        debug!(%error, "the program's pages stay in memory");
    }
    std::future::pending().await
}
