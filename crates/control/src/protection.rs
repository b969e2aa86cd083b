//! Protection: a claim that a pod uses, a volume that a claim has, and a class of attributes that
//! one of them names outlive their own deletion.
//!
//! The protections are finalizers: put on while the object lives, taken off when it is
//! being deleted and nobody uses it any more.
//!
//! Must never: take one off on a cache's word. A pod may have been placed a moment ago.

pub mod attributes;
pub mod claim;
pub mod volume;
mod work;

#[cfg(test)]
mod tests;

pub use work::start;

/// What shall become of a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is as it should be.
    Keep,
    /// It is missing.
    Protect,
    /// It seems to have outlived its use; the API server must say so too.
    Confirm,
    /// It has outlived its use.
    Lift,
}
