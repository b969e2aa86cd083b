//! What stands: attachments, and what nodes say of their volumes.

use orlop_model::{Node, Volume, VolumeAttachment, well_known};
use sha2::{Digest, Sha256};

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

/// Whether this controller made the attachment. Others' are left alone.
pub fn is_ours(attachment: &VolumeAttachment, volume: Option<&Volume>) -> bool {
    let name = &attachment.metadata.name;
    let spec = &attachment.spec;
    match volume.and_then(|v| v.spec.csi.as_ref()) {
        Some(csi) => *name == attachment_name(&spec.attacher, &csi.volume_handle, &spec.node_name),
        // The volume is gone, and with it the handle: the name's form has to do.
        None => name
            .strip_prefix("csi-")
            .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit())),
    }
}

/// The name by which the node talks of the attached volume. If the volume's object is
/// gone, the node's own lists are searched for the one that the attachment was named after.
pub fn unique_name(
    attachment: &VolumeAttachment,
    volume: Option<&Volume>,
    node: Option<&Node>,
) -> Option<String> {
    if let Some(name) = volume.and_then(Volume::unique_name) {
        return Some(name);
    }
    let status = &node?.status;
    let attached = status.volumes_attached.iter().map(|v| &v.name);
    let mut names = attached.chain(&status.volumes_in_use);
    names
        .find(|name| {
            let parts = name
                .strip_prefix(CSI_PREFIX)
                .and_then(|n| n.split_once('^'));
            parts.is_some_and(|(driver, handle)| {
                let node = &attachment.spec.node_name;
                attachment.metadata.name == attachment_name(driver, handle, node)
            })
        })
        .cloned()
}

/// Whether a name in a node's lists is one of ours to keep.
pub fn is_csi(name: &str) -> bool {
    name.starts_with(CSI_PREFIX)
}
