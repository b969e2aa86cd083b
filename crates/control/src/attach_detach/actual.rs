//! What stands: attachments, and what nodes say of their volumes.

use orlop_model::{CsiNode, Node, VolumeAttachment, network_disk, well_known};
use sha2::{Digest, Sha256};

use super::flex;

const CSI_PREFIX: &str = "kubernetes.io/csi/";

/// The name of the attachment of a volume to a node, by which its maker finds it again.
pub fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(handle);
    hash.update(driver);
    hash.update(node);
    let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    format!("csi-{hex}")
}

/// Whether an administrator vouches that the node is off.
pub fn is_off(node: &Node) -> bool {
    let mut taints = node.spec.taints.iter();
    taints.any(|t| t.key == well_known::OUT_OF_SERVICE)
}

/// Whether attaching is left to this controller. A node that does it itself is left alone.
pub fn is_managed(node: &Node) -> bool {
    let annotations = &node.metadata.annotations;
    annotations.contains_key(well_known::CONTROLLER_MANAGED_ATTACH)
}

/// Whether this controller made the attachment. Others' are left alone. The handle that it was named
/// after may be gone with its volume, or be another one by now, so the name's form has to do.
pub fn is_ours(attachment: &VolumeAttachment) -> bool {
    if attachment.spec.attacher == well_known::FLEX_ATTACHER {
        return flex::is_ours(attachment);
    }
    let hex = attachment.metadata.name.strip_prefix("csi-");
    hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether an attachment is of some storage that its volume names. One that somebody else made doesn't say
/// by its name: it is taken at its volume's word.
pub fn is_of(attachment: &VolumeAttachment, unique_name: &str) -> bool {
    !is_ours(attachment) || is_named_after(attachment, unique_name)
}

/// The name by which the node talks of an attached volume whose object is gone, or names other storage
/// by now: the one of its own lists that the attachment was named after.
pub fn listed_name(attachment: &VolumeAttachment, node: Option<&Node>) -> Option<String> {
    let status = &node?.status;
    let attached = status.volumes_attached.iter().map(|v| &v.name);
    let mut names = attached.chain(&status.volumes_in_use);
    names.find(|name| is_named_after(attachment, name)).cloned()
}

/// Whether an attachment was named after some storage.
pub fn is_named_after(attachment: &VolumeAttachment, unique_name: &str) -> bool {
    let node = &attachment.spec.node_name;
    let parts = parts(unique_name).filter(|(driver, _)| *driver == attachment.spec.attacher);
    parts.is_some_and(|(driver, handle)| {
        attachment.metadata.name == attachment_name(driver, handle, node)
    })
}

/// Whether a name in a node's lists is one of ours to keep.
pub fn is_served(name: &str) -> bool {
    name.starts_with(CSI_PREFIX) || network_disk::plugin(name).is_some()
}

/// Driver and handle of a unique name.
pub fn parts(unique_name: &str) -> Option<(&str, &str)> {
    unique_name.strip_prefix(CSI_PREFIX)?.split_once('^')
}

/// Whether a node can bear one more volume of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It can.
    Free,
    /// It has as many as it can bear.
    Full(usize),
    /// The driver isn't registered there, so nobody knows, and nobody could attach it.
    NoDriver,
}

/// Whether a node that has, or is about to have, so many can bear one more.
pub fn room(node: Option<&CsiNode>, driver: &str, there: usize) -> Room {
    let Some(entry) = node.and_then(|node| node.driver(driver)) else {
        return Room::NoDriver;
    };
    let limit = entry.allocatable.as_ref().and_then(|all| all.count);
    match limit.and_then(|limit| usize::try_from(limit).ok()) {
        Some(limit) if there >= limit => Room::Full(limit),
        _ => Room::Free,
    }
}
