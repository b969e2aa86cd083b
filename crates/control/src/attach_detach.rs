//! Attach-detach: which nodes a volume is attached to.
//!
//! Wanted is what placed pods want ([`desired`]); what stands is told by VolumeAttachments
//! and by the nodes' status ([`actual`]); [`decide`] is the difference. Two kinds of turn:
//! one per storage, which asks for attachments, and one per node, which tells the node what
//! is attached and gives back what nobody wants. A node's turns never overlap, so nothing
//! is told to be attached while it is being given back; those of one storage don't either,
//! whatever objects name it, so that two objects of one disk never bring it to two nodes.
//!
//! Disks over iSCSI and Fibre Channel are attached by nobody, but kubelets wait to be told of them:
//! for these a node's list is all there is ([`by_word`]).
//!
//! Of FlexVolumes it is the attacher as well, and calls their drivers itself ([`flex`]).
//!
//! The handshake with the node: the node writes *in use* and then reads *attached*; this
//! role takes a volume out of *attached* and then reads *in use*. Whoever is second sees
//! the other's word, so a volume is never detached under a mount.
//!
//! Must never: attach a volume of one node to a second one while the first may have it;
//! bring more volumes to a node than its driver can bear; touch what a node attaches itself;
//! detach what a node uses, however long it takes, unless an administrator says that the
//! node is off, or asked for [`Config::force_detach_after`].

use std::{sync::Arc, time::Duration};

pub mod actual;
pub mod by_word;
pub mod decide;
pub mod desired;
pub mod flex;
mod metrics;
mod work;

#[cfg(test)]
mod tests;

pub use work::{start, start_forcing, start_with};

/// The component that attach-detach's events name.
pub const COMPONENT: &str = "attachdetach-controller";

/// How long kube-controller-manager waits before it detaches under a node that isn't well.
pub const FORCE_DETACH_AFTER: Duration = Duration::from_secs(6 * 60);

/// What can be chosen.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// After how long a volume that nobody wants is detached though its node, which isn't
    /// ready, says that it uses it; never if `None`. A node that is only out of reach may
    /// still write.
    pub force_detach_after: Option<Duration>,
    /// The FlexVolume drivers that are called; without, such volumes are nobody's.
    pub flex: Option<Arc<dyn flex::FlexDrivers>>,
}
