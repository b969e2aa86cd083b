//! The NFS driver against real servers, in a guest: `cargo xtask vm test`.
//!
//! Outside of the guest every test says that it is skipped: nobody's kernel gets servers, exports and
//! network links from a test run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "guest/bench.rs"]
mod bench;
#[path = "guest/client.rs"]
mod client;
#[path = "guest/dead_server.rs"]
mod dead_server;
#[path = "guest/far_server.rs"]
mod far_server;
#[path = "guest/in_tree.rs"]
mod in_tree;
#[path = "guest/judges.rs"]
mod judges;
#[path = "guest/life.rs"]
mod life;
#[path = "guest/outage.rs"]
mod outage;
#[path = "guest/peer.rs"]
mod peer;
#[path = "guest/quota.rs"]
mod quota;
#[path = "guest/server.rs"]
mod server;
#[path = "guest/stack.rs"]
mod stack;
mod support;
#[path = "guest/trouble.rs"]
mod trouble;
#[path = "guest/two_nodes.rs"]
mod two_nodes;

/// Whether this is the guest; says so if not.
fn is_guest() -> bool {
    let guest = std::env::var_os("ORLOP_GUEST").is_some() && std::process::id() > 1;
    if !guest {
        eprintln!("skipped: needs a kernel of its own; run cargo xtask vm test");
    }
    guest
}

/// Leaves a test that is not in the guest.
#[macro_export]
macro_rules! in_guest {
    () => {
        if !$crate::is_guest() {
            return;
        }
    };
}
