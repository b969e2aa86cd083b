//! By what names storage goes: those of its volumes, and those of attachments that were named after it.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::VolumeAttachment;

use crate::attach_detach::actual;

/// The volumes of each storage that is wanted or attached, by its unique name. More than one object may name
/// the same storage; an index of all objects would cost far more.
#[derive(Default)]
pub(super) struct Names {
    volumes: BTreeMap<String, BTreeSet<String>>,
    /// Attachments whose volumes no longer tell their storage, by name. It is looked for once among all that
    /// is known, and from then on whenever some becomes known.
    orphans: BTreeMap<String, Orphan>,
}

struct Orphan {
    attachment: VolumeAttachment,
    storage: Option<String>,
}

impl Names {
    /// Takes note of some storage, and gives the names of its volumes.
    pub(super) fn note(&mut self, unique: &str) -> &mut BTreeSet<String> {
        if !self.volumes.contains_key(unique) {
            let lost = self.orphans.values_mut().filter(|o| o.storage.is_none());
            for orphan in lost {
                if actual::is_named_after(&orphan.attachment, unique) {
                    orphan.storage = Some(unique.to_owned());
                }
            }
        }
        self.volumes.entry(unique.to_owned()).or_default()
    }

    pub(super) fn forget(&mut self, unique: &str) {
        self.volumes.remove(unique);
    }

    /// The names of the volumes of some storage.
    pub(super) fn of(&self, unique: &str) -> BTreeSet<String> {
        self.volumes.get(unique).cloned().unwrap_or_default()
    }

    /// All storage from some name on.
    pub(super) fn from(&self, first: &str) -> impl Iterator<Item = &String> {
        let from = self.volumes.range(first.to_owned()..);
        from.map(|(unique, _)| unique)
    }

    /// The storage that an attachment of ours was named after, if that is known.
    pub(super) fn storage_of_orphan(&mut self, attachment: &VolumeAttachment) -> Option<String> {
        let name = &attachment.metadata.name;
        if let Some(orphan) = self.orphans.get(name) {
            return orphan.storage.clone();
        }
        let mut all = self.volumes.keys();
        let storage = all.find(|unique| actual::is_named_after(attachment, unique));
        let orphan = Orphan {
            attachment: attachment.clone(),
            storage: storage.cloned(),
        };
        self.orphans.insert(name.clone(), orphan);
        self.orphans.get(name)?.storage.clone()
    }

    /// An attachment is gone.
    pub(super) fn gone(&mut self, attachment: &VolumeAttachment) {
        self.orphans.remove(&attachment.metadata.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "kubernetes.io/csi/d^h-a";

    fn attachment() -> VolumeAttachment {
        let mut made = VolumeAttachment::default();
        made.metadata.name = actual::attachment_name("d", "h-a", "n1");
        made.spec.attacher = "d".to_owned();
        made.spec.node_name = "n1".to_owned();
        made
    }

    #[test]
    fn an_attachments_storage_is_found_whether_it_is_named_before_or_after() {
        let (mut before, mut after) = (Names::default(), Names::default());
        before.note(A);
        assert_eq!(after.storage_of_orphan(&attachment()), None);
        after.note("kubernetes.io/csi/d^h-b");
        assert_eq!(after.storage_of_orphan(&attachment()), None);
        after.note(A);
        for mut names in [before, after] {
            assert_eq!(names.storage_of_orphan(&attachment()).as_deref(), Some(A));
            // That it was named so stays true.
            names.forget(A);
            assert_eq!(names.storage_of_orphan(&attachment()).as_deref(), Some(A));
            names.gone(&attachment());
            assert!(names.orphans.is_empty());
        }
    }
}
