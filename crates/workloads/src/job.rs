//! Jobs: pods that run until so many of them have succeeded.
//!
//! A pod that ended is counted exactly once, whatever crashes and whoever deletes it: a
//! finalizer holds it until its uid stands in the job's status, and it is counted when the
//! finalizer is gone. Indexed jobs are not run; an event says so.

mod decide;
#[cfg(test)]
mod tests;
mod work;

pub use decide::{Decision, Step, View, decide};
pub use work::start;

/// The component that this role's events name.
pub const COMPONENT: &str = "job-controller";

/// Finalizer: holds a pod until it is counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
