//! ReplicaSets: so many pods of one template, which of them doesn't matter.
//!
//! A pod's name is drawn from the set's uid and a number (see `names`), so that a request
//! whose answer was lost makes no second pod. A pod that was deleted counts as going from
//! then on, though the cache may not show it yet.

mod decide;
#[cfg(test)]
mod tests;
mod work;

pub use decide::{Decision, Step, View, decide};
pub use work::start;

/// The component that this role's events name.
pub const COMPONENT: &str = "replicaset-controller";
