//! What placed pods want attached.

use std::{collections::BTreeMap, sync::Arc};

use orlop_model::{
    Claim, Kind, Node, Pod, Volume, VolumeAttachment,
    attachment::AttachmentSource,
    meta::{Key, Meta},
};

use super::{actual, flex};

/// A pod that wants a volume on its node.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The volume, in its driver's words.
    pub volume: Arc<Volume>,
    /// Whether it is the pod's own, so that there is no object of it.
    pub inline: bool,
}

/// The pods that want a volume, by node.
pub type Wishes = BTreeMap<String, Vec<Wish>>;

impl Wish {
    /// The attachment that grants it.
    pub fn attachment(&self) -> Option<VolumeAttachment> {
        let node = &self.pod.spec.node_name;
        if self.volume.spec.flex_volume.is_some() {
            let object = (!self.inline).then_some(&*self.volume.metadata.name);
            return Some(flex::record(&self.volume.unique_name()?, node, object));
        }
        let csi = self.volume.spec.csi.as_ref()?;
        let name = actual::attachment_name(&csi.driver, &csi.volume_handle, node);
        let mut made = VolumeAttachment {
            metadata: Meta::named(&Key::cluster(name)),
            ..VolumeAttachment::default()
        };
        made.spec.attacher.clone_from(&csi.driver);
        made.spec.node_name.clone_from(node);
        made.spec.source = match self.inline {
            true => AttachmentSource {
                inline_volume_spec: Some(Box::new(self.volume.spec.clone())),
                ..AttachmentSource::default()
            },
            false => AttachmentSource {
                persistent_volume_name: Some(self.volume.metadata.name.clone()),
                ..AttachmentSource::default()
            },
        };
        Some(made)
    }
}

/// Whether the pod wants its volumes on its node. One that is being deleted does until its
/// containers have ended: its processes may still write. An administrator's word that the
/// node is off ends that early.
pub fn wants(pod: &Pod, node: Option<&Node>) -> bool {
    let off = node.is_some_and(actual::is_off);
    pod.is_placed() && !pod.has_ended() && !(off && pod.metadata.is_deleting())
}

/// Whether claim and volume are each other's, so that the claim's pods want this volume.
pub fn is_bound(claim: &Claim, volume: &Volume) -> bool {
    claim.is_fully_bound()
        && claim.spec.volume_name == volume.metadata.name
        && volume
            .spec
            .claim_ref
            .as_ref()
            .is_some_and(|owner| owner.uid == claim.metadata.uid && owner.key() == claim.key())
}
