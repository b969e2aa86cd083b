//! StatefulSets: pods with a number each, which come and go in order and keep their claims.
//!
//! A pod and its claims are named by their number, so that no crash and no repetition makes
//! two of one. Claims come before their pod. What becomes of claims when their pod is one too
//! many, or when the set goes, stands on the claims as owners: the API's garbage collector
//! acts on it, also while nobody runs this.

mod claims;
mod decide;
mod identity;
#[cfg(test)]
mod tests;
mod work;

pub use decide::{Decision, Revision, Step, View, decide};
pub use work::start;

/// The component that this role's events name.
pub const COMPONENT: &str = "statefulset-controller";
