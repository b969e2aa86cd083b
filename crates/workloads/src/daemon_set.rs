//! DaemonSets: one pod on every node that its template fits.
//!
//! A pod's name follows from the set's uid and the node, so that a request whose answer was
//! lost makes no second pod on a node. Placing is the scheduler's work: the pod says by its
//! affinity which node it is for.

mod decide;
#[cfg(test)]
mod tests;
mod work;

pub use decide::{Decision, Step, View, decide};
pub use work::start;

/// The component that this role's events name.
pub const COMPONENT: &str = "daemonset-controller";
