//! Compares what is said to be attached with the driver's own list.
//!
//! Somebody may have detached a volume at the backend. It is then attached again, as its
//! VolumeAttachment asks. The other way round nothing is done: what is attached without a
//! VolumeAttachment that says so isn't ours to judge.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_csi::Driver;
use orlop_model::{
    Volume, VolumeAttachment, migration, volume::CsiSource, well_known::ATTACHMENT_NODE_ID,
};
use orlop_runtime::Cache;
use tokio::time::sleep;
use tracing::warn;

use super::lanes::Lanes;
use crate::{
    listing::{self, ListError},
    words::words,
};

/// Nodes by the volume that is attached to them, in the driver's words.
type Listed = BTreeMap<String, BTreeSet<String>>;

/// The attachments that the driver's list misses; clones share them.
#[derive(Clone, Default)]
pub(super) struct Astray(Arc<Mutex<BTreeSet<String>>>);

impl Astray {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.lock().contains(name)
    }

    /// It is attached, or gone.
    pub(super) fn found(&self, name: &str) {
        self.lock().remove(name);
    }
}

/// What lists are compared with.
pub(super) struct Reconciler {
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) attachments: Cache<VolumeAttachment>,
    pub(super) volumes: Cache<Volume>,
    pub(super) astray: Astray,
    pub(super) every: Duration,
    pub(super) max_entries: i32,
}

impl Reconciler {
    pub(super) async fn run(&self, wake: &Lanes) {
        if self.every.is_zero() {
            return;
        }
        loop {
            // No event tells of what happens at the backend.
            sleep(self.every).await;
            let attached = self.attached();
            if attached.is_empty() {
                continue;
            }
            match self.list().await {
                Ok(listed) => self.compare(&attached, &listed, wake),
                Err(error) => {
                    let error = words(&error);
                    warn!(error, "what is attached can't be compared");
                }
            }
        }
    }

    /// Attachments of ours that say that they are attached.
    fn attached(&self) -> Vec<Arc<VolumeAttachment>> {
        let mut all = self.attachments.all();
        all.retain(|a| a.spec.attacher == self.name && settled(a));
        all
    }

    fn compare(&self, before: &[Arc<VolumeAttachment>], listed: &Listed, wake: &Lanes) {
        for attachment in before {
            let name = &attachment.metadata.name;
            // One that changed while the list was made may be in it as it was.
            let now = self.attachments.named(name);
            let volume = self.volumes.named(attachment.volume_name());
            let volume = volume.map(migration::in_the_drivers_words);
            if now.is_some_and(|now| now.metadata.uid == attachment.metadata.uid && settled(&now))
                && is_astray(attachment, volume.as_deref(), listed)
            {
                warn!(
                    attachment = name,
                    node = attachment.spec.node_name,
                    "the driver does not list it as attached; it is attached again"
                );
                self.astray.lock().insert(name.clone());
                wake.add(attachment);
            }
        }
    }

    async fn list(&self) -> Result<Listed, ListError> {
        let mut listed = Listed::new();
        for entry in listing::volumes(&self.driver, self.max_entries).await? {
            let id = entry.volume.unwrap_or_default().volume_id;
            let nodes = entry.status.unwrap_or_default().published_node_ids;
            listed.entry(id).or_default().extend(nodes);
        }
        Ok(listed)
    }
}

fn settled(attachment: &VolumeAttachment) -> bool {
    attachment.status.attached && !attachment.metadata.is_deleting()
}

fn is_astray(attachment: &VolumeAttachment, volume: Option<&Volume>, listed: &Listed) -> bool {
    let inline = attachment.spec.source.inline_volume_spec.as_deref();
    let spec = inline.or(volume.map(|v| &v.spec));
    let csi: Option<&CsiSource> = spec.and_then(|s| s.csi.as_ref());
    let node = attachment.metadata.annotation(ATTACHMENT_NODE_ID);
    match (csi, node) {
        (Some(csi), Some(node)) => {
            // What a plugin didn't tell of a volume's place, its node does.
            let id = migration::repaired_handle(&csi.driver, &csi.volume_handle, node);
            let id = id.as_deref().unwrap_or(&csi.volume_handle);
            let nodes = listed.get(id);
            !nodes.is_some_and(|nodes| nodes.contains(node))
        }
        // Nothing to compare by.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use orlop_model::migration::source::GceDiskSource;

    use super::*;

    #[test]
    fn an_attachment_is_astray_if_its_node_is_not_among_the_volumes() {
        let mut volume = Volume::default();
        volume.spec.csi = Some(CsiSource {
            volume_handle: "h".into(),
            ..CsiSource::default()
        });
        let mut attachment = VolumeAttachment::default();
        let listed = |nodes: &[&str]| {
            let nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
            Listed::from([("h".to_owned(), nodes)])
        };
        let astray = |attachment: &VolumeAttachment, listed: &Listed| {
            is_astray(attachment, Some(&volume), listed)
        };
        assert!(!astray(&attachment, &listed(&[])), "its node is not known");
        let id = (ATTACHMENT_NODE_ID.to_owned(), "i1".to_owned());
        attachment.metadata.annotations = [id].into();
        assert!(!astray(&attachment, &listed(&["i1", "i2"])));
        assert!(astray(&attachment, &listed(&["i2"])));
        assert!(astray(&attachment, &listed(&[])));
        assert!(
            astray(&attachment, &Listed::new()),
            "not even the volume is there"
        );
        assert!(
            !is_astray(&attachment, None, &listed(&[])),
            "nothing to compare by"
        );
    }

    #[test]
    fn a_volume_of_a_plugin_is_found_under_the_id_that_its_driver_lists() {
        let mut volume = Volume::default();
        volume.spec.gce_persistent_disk = Some(Box::new(GceDiskSource {
            pd_name: "pd".into(),
            ..GceDiskSource::default()
        }));
        let volume = migration::in_the_drivers_words(volume.into());
        let mut attachment = VolumeAttachment::default();
        let node = "projects/p/zones/z/instances/i".to_owned();
        attachment.metadata.annotations = [(ATTACHMENT_NODE_ID.to_owned(), node.clone())].into();
        let full = "projects/p/zones/z/disks/pd".to_owned();
        let listed = Listed::from([(full, [node].into())]);
        assert!(!is_astray(&attachment, Some(&volume), &listed));
        assert!(is_astray(&attachment, Some(&volume), &Listed::new()));
    }
}
