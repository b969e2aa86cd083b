//! A small pod scheduler that knows about volumes.
//!
//! A pod's turn: [`assign::decide`] picks a node that the pod and all its volumes can be
//! on, and the pod is *promised* to it, in memory ([`ledger`]). Then what its volumes need
//! is written (a volume reserved, a claim told its node); each is a write that binder and
//! provisioner act on. The turn ends there: when the claims are bound, their events bring
//! the next turn, which places the pod. A restart forgets promises but finds what was
//! written, and comes to the same node.
//!
//! Must never: promise one volume to two claims, or the same bytes to two; or place a pod
//! before every claim of it is fully bound.

pub mod assign;
pub mod filter;
pub mod hints;
pub mod ledger;
pub mod limits;
pub mod reason;
pub mod restrictions;
pub mod room;
pub mod score;
mod turns;
pub mod volume_binding;
pub mod waking;
pub mod zone;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trials;

pub use turns::start;

/// The scheduler's name: pods that name none, or this one, are its business.
pub const NAME: &str = "default-scheduler";
