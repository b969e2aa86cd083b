//! Disks that nodes reach by themselves, over iSCSI or Fibre Channel: attached is what a node is told
//! to have, and nothing else. The node's list is the record, so there are no VolumeAttachments; what
//! stands is shown to the decisions as if there were.

use orlop_model::{
    Key, Meta, Node, Volume, VolumeAttachment, attachment::AttachmentStatus, flex, migration,
    network_disk, pod::PodVolume,
};

use super::actual;

/// A node's word for a disk, in the form of an attachment. Its name and uid say which.
pub fn standing(unique_name: &str, node: &str) -> VolumeAttachment {
    let name = format!("{unique_name}@{node}");
    let mut made = VolumeAttachment {
        metadata: Meta {
            uid: name.clone(),
            ..Meta::named(&Key::cluster(name))
        },
        status: AttachmentStatus {
            attached: true,
            ..AttachmentStatus::default()
        },
        ..VolumeAttachment::default()
    };
    let plugin = network_disk::plugin(unique_name).unwrap_or_default();
    plugin.clone_into(&mut made.spec.attacher);
    node.clone_into(&mut made.spec.node_name);
    made
}

/// Whether an attachment was made by [`standing`]: no object has a uid that is its name.
pub fn is_standing(attachment: &VolumeAttachment) -> bool {
    attachment.metadata.uid == attachment.metadata.name
}

/// Whether an attachment is a node's word only, and no object.
pub fn is_word(attachment: &VolumeAttachment) -> bool {
    network_disk::PLUGINS.contains(&attachment.spec.attacher.as_str())
}

/// The disks that a node was told to have, and those that it uses, each once.
pub fn on_node(node: &Node) -> Vec<String> {
    let told = node.status.volumes_attached.iter().map(|v| &v.name);
    let all = told.chain(&node.status.volumes_in_use);
    let disks = all.filter(|name| network_disk::plugin(name).is_some());
    let mut disks: Vec<String> = disks.cloned().collect();
    disks.sort();
    disks.dedup();
    disks
}

/// Whether a node was told to have a disk.
pub fn is_told(node: &Node, unique_name: &str) -> bool {
    let mut told = node.status.volumes_attached.iter();
    told.any(|volume| volume.name == unique_name)
}

/// Whether a node may have a disk. One that uses it without having been told only waits for it, if a pod
/// there wants it: kubelets say so first. What one says to use that is off doesn't count.
pub fn holds(node: &Node, unique_name: &str, wanted: bool) -> bool {
    let counts = !wanted && !actual::is_off(node);
    let mut used = node.status.volumes_in_use.iter();
    is_told(node, unique_name) || (counts && used.any(|name| name == unique_name))
}

/// A pod's own volume that is attached: of a plugin whose place a driver took, such a disk, or of a
/// FlexVolume driver.
pub fn own(volume: &PodVolume, namespace: &str) -> Option<Volume> {
    let old = migration::inline(volume, namespace).ok().flatten();
    old.or_else(|| network_disk::inline(volume))
        .or_else(|| flex::inline(volume))
}
