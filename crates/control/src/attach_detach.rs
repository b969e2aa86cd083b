//! Attach-detach: which nodes a volume is attached to.
//!
//! Wanted is what placed pods want ([`desired`]); what stands is told by VolumeAttachments
//! and by the nodes' status ([`actual`]); [`decide`] is the difference. Two kinds of turn:
//! one per volume, which asks for attachments, and one per node, which tells the node what
//! is attached and gives back what nobody wants. A node's turns never overlap, so nothing
//! is told to be attached while it is being given back.
//!
//! The handshake with the node: the node writes *in use* and then reads *attached*; this
//! role takes a volume out of *attached* and then reads *in use*. Whoever is second sees
//! the other's word, so a volume is never detached under a mount.
//!
//! Must never: attach a volume of one node to a second one while the first may have it;
//! detach what a node uses, however long it takes, unless an administrator says that the
//! node is off.

pub mod actual;
pub mod decide;
pub mod desired;
mod work;

#[cfg(test)]
mod tests;

pub use work::start;

/// The component that attach-detach's events name.
pub const COMPONENT: &str = "attachdetach-controller";
