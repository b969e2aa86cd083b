//! Which of the disks that were found become volumes, and what the volumes look like.

use std::collections::BTreeMap;

use orlop_model::{
    Kind, Node, OwnerReference, Quantity, ReclaimPolicy, Resources, StorageClass, Volume,
    VolumeMode,
    selector::{NodeSelector, NodeSelectorTerm, Requirement},
    volume::{LocalSource, VolumeNodeAffinity, VolumeSpec},
    well_known,
};

use crate::{
    config::{ClassConfig, Config},
    disks::{Found, What},
    identity::Identity,
};

/// What is known when disks are judged.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What is configured.
    pub config: &'a Config,
    /// The class's part of it.
    pub class: &'a ClassConfig,
    /// The class itself.
    pub storage_class: &'a StorageClass,
    /// The node.
    pub node: &'a Node,
    /// Who we are.
    pub identity: &'a Identity,
    /// The volumes of this node's disks, whoever made them, by path.
    pub taken: &'a BTreeMap<String, String>,
}

/// What becomes of something that was found.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// A volume.
    Offer(Box<Volume>),
    /// A volume stands for it already.
    Known,
    /// It can't be offered.
    Wrong(Wrong),
}

/// Why something can't be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It can't be looked at.
    #[error("{path} can't be looked at: {why}")]
    Unreadable {
        /// Where.
        path: String,
        /// Why.
        why: String,
    },
    /// Nothing is mounted there.
    #[error(
        "{path} is a folder that nothing is mounted at; mount a disk there, or bind-mount the \
         folder onto itself to offer it as it is"
    )]
    NotMounted {
        /// Where.
        path: String,
    },
    /// It is a file or the like.
    #[error("{path} is neither a mounted file system nor a block device")]
    NoDisk {
        /// Where.
        path: String,
    },
    /// Files, where devices are asked for.
    #[error("{path} has files, and the class offers block devices: volumeMode is Block")]
    Files {
        /// Where.
        path: String,
    },
    /// It is there and isn't.
    #[error(
        "{path} has a size of 0: a drive without its medium, or a file system that is no disk's; put a \
         disk there, or keep it out by namePattern"
    )]
    Empty {
        /// Where.
        path: String,
    },
    /// It is offered by another name.
    #[error(
        "{path} is not offered: it is the disk that is at {other}, too{}; take one of them away",
        volume.as_ref().map(|volume| format!(", of which there is volume {volume}")).unwrap_or_default()
    )]
    Same {
        /// Where.
        path: String,
        /// The name that counts.
        other: String,
        /// The volume that stands for the disk already.
        volume: Option<String>,
    },
    /// It is in use, or the API server takes no volume of it.
    #[error("{path} is not offered: {why}")]
    Refused {
        /// Where.
        path: String,
        /// Why.
        why: String,
    },
}

/// Why a class's disks can't be offered at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadClass {
    /// There is none.
    #[error("StorageClass {0} does not exist; create it, or take it out of storageClassMap")]
    Missing(String),
    /// Volumes of it would be recycled.
    #[error("StorageClass {0} has reclaimPolicy Recycle; use Delete or Retain")]
    Recycle(String),
    /// The node can't be told from others.
    #[error("node {0} has no label kubernetes.io/hostname, which local volumes are bound by")]
    NoHostname(String),
}

/// Whether a class's disks can be offered.
///
/// # Errors
/// They can't.
pub fn check<'a>(
    name: &str,
    class: Option<&'a StorageClass>,
    node: &Node,
) -> Result<&'a StorageClass, BadClass> {
    if !node.metadata.labels.contains_key(well_known::HOSTNAME) {
        return Err(BadClass::NoHostname(node.metadata.name.clone()));
    }
    let class = class.ok_or_else(|| BadClass::Missing(name.to_owned()))?;
    match class.reclaim_policy {
        Some(ReclaimPolicy::Recycle) => Err(BadClass::Recycle(name.to_owned())),
        // What is unknown is kept, as with Retain.
        Some(ReclaimPolicy::Delete | ReclaimPolicy::Retain | ReclaimPolicy::Unknown) | None => {
            Ok(class)
        }
    }
}

/// Judges what was found.
pub fn judge(found: &Found, facts: &Facts<'_>) -> Verdict {
    let path = facts.class.host_dir.join(&found.file);
    let path = path.to_string_lossy().into_owned();
    // Whatever is there now: as long as the volume is, its disk is nobody else's.
    if facts.taken.contains_key(&path) {
        return Verdict::Known;
    }
    match &found.what {
        Err(why) => Verdict::Wrong(Wrong::Unreadable {
            path,
            why: why.clone(),
        }),
        Ok(What::Folder) => Verdict::Wrong(Wrong::NotMounted { path }),
        Ok(What::Other) => Verdict::Wrong(Wrong::NoDisk { path }),
        Ok(What::Device { bytes: 0 } | What::Mount { bytes: 0 }) => {
            Verdict::Wrong(Wrong::Empty { path })
        }
        Ok(What::Mount { .. }) if facts.class.volume_mode == VolumeMode::Block => {
            Verdict::Wrong(Wrong::Files { path })
        }
        Ok(What::Device { bytes }) => {
            Verdict::Offer(Box::new(offer(&found.file, path, *bytes, facts)))
        }
        Ok(What::Mount { bytes }) => {
            let mut volume = offer(&found.file, path, *bytes, facts);
            let annotations = &mut volume.metadata.annotations;
            annotations.insert(well_known::LOCAL_MOUNT_POINT.to_owned(), "true".to_owned());
            Verdict::Offer(Box::new(volume))
        }
    }
}

fn offer(file: &str, path: String, bytes: u64, facts: &Facts<'_>) -> Volume {
    let class = &facts.storage_class.metadata.name;
    let mut volume = Volume::default();
    let meta = &mut volume.metadata;
    meta.name = name(file, &facts.node.metadata.name, class);
    for label in &facts.config.node_labels {
        if let Some(value) = facts.node.metadata.labels.get(label) {
            meta.labels.insert(label.clone(), value.clone());
        }
    }
    meta.labels.extend(facts.config.labels.clone());
    let maker = facts.identity.name();
    meta.annotations
        .insert(well_known::PROVISIONED_BY.to_owned(), maker);
    meta.finalizers.push(well_known::LOCAL_UNCLEAN.to_owned());
    if facts.config.owned_by_node {
        meta.owner_references.push(OwnerReference {
            api_version: Node::api_version(),
            kind: Node::KIND.to_owned(),
            name: facts.node.metadata.name.clone(),
            uid: facts.node.metadata.uid.clone(),
            ..OwnerReference::default()
        });
    }
    let bytes = i64::try_from(round_down(bytes)).unwrap_or(i64::MAX);
    volume.spec = VolumeSpec {
        capacity: Resources::of_storage(Quantity::bytes(bytes)),
        access_modes: vec![facts.class.access_mode],
        persistent_volume_reclaim_policy: Some(
            facts
                .storage_class
                .reclaim_policy
                .unwrap_or(ReclaimPolicy::Delete),
        ),
        storage_class_name: class.clone(),
        mount_options: facts.storage_class.mount_options.clone(),
        volume_mode: Some(facts.class.volume_mode),
        node_affinity: Some(affinity(facts)),
        local: Some(LocalSource {
            path,
            fs_type: facts.class.fs_type.clone(),
        }),
        ..VolumeSpec::default()
    };
    volume
}

/// This node by its name; and by its uid, unless it goes by the name only.
fn affinity(facts: &Facts<'_>) -> VolumeNodeAffinity {
    let is = |key: &str, value: String| Requirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: vec![value],
    };
    let node = &facts.node.metadata;
    let host = node.labels.get(well_known::HOSTNAME).cloned();
    let mut here = vec![is(well_known::HOSTNAME, host.unwrap_or_default())];
    if !facts.config.by_name_only {
        here.push(is(well_known::LOCAL_NODE_UID, node.uid.clone()));
    }
    let mut terms = vec![NodeSelectorTerm {
        match_expressions: here,
        ..NodeSelectorTerm::default()
    }];
    terms.extend(facts.class.selector.iter().cloned());
    VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: terms,
        }),
    }
}

/// The original's name for the volume of a disk: FNV-1a of file, node and class.
pub fn name(file: &str, node: &str, class: &str) -> String {
    let bytes = [file, node, class].into_iter().flat_map(str::bytes);
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("local-pv-{hash:x}")
}

/// Whole GiB if that is ten or more, else whole MiB, else as it is: people read it.
pub fn round_down(bytes: u64) -> u64 {
    let units = [1 << 30, 1 << 20];
    let unit = units.into_iter().find(|unit| bytes / unit >= 10);
    unit.map_or(bytes, |unit: u64| bytes / unit * unit)
}

#[cfg(test)]
mod tests;
