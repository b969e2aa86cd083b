//! Deployments: pods that are all alike, replaced step by step when their template changes.
//!
//! A deployment owns one ReplicaSet per template that it had; it moves pods from one to the
//! other by changing their numbers, never touching a pod itself. A ReplicaSet's name follows
//! from its template, so that there is one of each.

mod decide;
mod progress;
mod scale;
#[cfg(test)]
mod tests;
mod work;

pub use decide::{Decision, Step, View, decide};
pub use work::start;

/// The component that this role's events name.
pub const COMPONENT: &str = "deployment-controller";
