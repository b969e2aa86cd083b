//! VolumeSnapshot, VolumeSnapshotContent and VolumeSnapshotClass.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    access::VolumeMode,
    kind::kind,
    meta::{Key, Meta, ObjectRef},
    quantity::Quantity,
    well_known,
};

/// A user's request for a snapshot of a claim, or for one that exists already.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshot {
    /// Metadata.
    pub metadata: Meta,
    /// What is asked for.
    pub spec: SnapshotSpec,
    /// What became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SnapshotStatus>,
}
kind!(
    VolumeSnapshot,
    "snapshot.storage.k8s.io",
    "v1",
    "VolumeSnapshot",
    "volumesnapshots",
    Namespaced
);

/// What a snapshot shall be.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSpec {
    /// Where it comes from.
    pub source: SnapshotSource,
    /// How it is made; `None` asks for the driver's default class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// Where a snapshot comes from: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSource {
    /// The claim to be cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// The content that exists already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

/// What became of a snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatus {
    /// The content that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Timestamp>,
    /// Whether volumes can be made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The least size of a volume made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// The group snapshot that it is a member of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_name: Option<String>,
}

/// The last failure of a snapshot, in words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotError {
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// What.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl VolumeSnapshot {
    /// The name of the content that is made for it.
    pub fn content_name(&self) -> String {
        format!("snapcontent-{}", self.metadata.uid)
    }

    /// The content that it is bound to.
    pub fn bound_content(&self) -> Option<&str> {
        let status = self.status.as_ref()?;
        let name = status.bound_volume_snapshot_content_name.as_deref()?;
        (!name.is_empty()).then_some(name)
    }

    /// Whether volumes can be made from it.
    pub fn is_ready(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.ready_to_use == Some(true))
    }

    /// Whether it is cut.
    pub fn is_created(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.creation_time.is_some())
    }

    /// The last failure's words.
    pub fn error_message(&self) -> Option<&str> {
        self.status.as_ref()?.error.as_ref()?.message.as_deref()
    }

    /// The group snapshot that made it, by its owner reference.
    pub fn group_owner(&self) -> Option<&str> {
        let mut owners = self.metadata.owner_references.iter();
        owners
            .find(|owner| {
                owner.kind == "VolumeGroupSnapshot"
                    && owner.api_version.split('/').next() == Some("groupsnapshot.storage.k8s.io")
            })
            .map(|owner| owner.name.as_str())
    }
}

/// A snapshot as the cluster knows it, the other half of a [`VolumeSnapshot`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshotContent {
    /// Metadata.
    pub metadata: Meta,
    /// What it is.
    pub spec: ContentSpec,
    /// What the driver says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ContentStatus>,
}
kind!(
    VolumeSnapshotContent,
    "snapshot.storage.k8s.io",
    "v1",
    "VolumeSnapshotContent",
    "volumesnapshotcontents",
    Cluster
);

/// What a content is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSpec {
    /// The snapshot that it belongs to; without a uid until they are bound.
    pub volume_snapshot_ref: ObjectRef,
    /// What happens to the driver's snapshot when the content goes.
    pub deletion_policy: DeletionPolicy,
    /// The driver's name.
    pub driver: String,
    /// How it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// Where it comes from.
    pub source: ContentSource,
    /// What the cut volume was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<VolumeMode>,
}

/// Where a content comes from: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSource {
    /// The volume to be cut, the driver's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
    /// The snapshot that exists already, the driver's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
}

/// What happens to the driver's snapshot when its object goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// It is deleted.
    Delete,
    /// It is kept. What is not known to be deleted is kept.
    #[default]
    Retain,
}

/// What the driver says of a content.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentStatus {
    /// The snapshot's id, the driver's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// When it was cut, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// The least size of a volume made from it, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// Whether volumes can be made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// The group that it is a member of, the driver's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
}

impl VolumeSnapshotContent {
    /// Whether it and the snapshot belong to each other, uid included.
    pub fn is_bound_to(&self, snapshot: &VolumeSnapshot) -> bool {
        let (owner, meta) = (&self.spec.volume_snapshot_ref, &snapshot.metadata);
        owner.name == meta.name && owner.namespace == meta.namespace && owner.uid == meta.uid
    }

    /// Whether it may be bound to the snapshot: by name, and by uid unless a person wrote none.
    pub fn may_bind_to(&self, snapshot: &VolumeSnapshot) -> bool {
        let (owner, meta) = (&self.spec.volume_snapshot_ref, &snapshot.metadata);
        owner.name == meta.name
            && owner.namespace == meta.namespace
            && (owner.uid.is_empty() || owner.uid == meta.uid)
    }

    /// The snapshot that it belongs to.
    pub fn owner(&self) -> Key {
        self.spec.volume_snapshot_ref.key()
    }

    /// Whether volumes can be made from it.
    pub fn is_ready(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.ready_to_use == Some(true))
    }

    /// The driver's id of it, once known.
    pub fn handle(&self) -> Option<&str> {
        self.status.as_ref()?.snapshot_handle.as_deref()
    }

    /// The group that it is a member of, the driver's word.
    pub fn group_handle(&self) -> Option<&str> {
        self.status
            .as_ref()?
            .volume_group_snapshot_handle
            .as_deref()
    }

    /// Whether it was made as a member of a group: the driver makes and deletes it with the group.
    pub fn is_group_member(&self) -> bool {
        self.metadata
            .annotation(well_known::GROUP_SNAPSHOT_HANDLE)
            .is_some()
    }

    /// The last failure's words.
    pub fn error_message(&self) -> Option<&str> {
        self.status.as_ref()?.error.as_ref()?.message.as_deref()
    }
}

/// How snapshots of a class are made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotClass {
    /// Metadata.
    pub metadata: Meta,
    /// Who makes them.
    pub driver: String,
    /// The maker's parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// What happens to the driver's snapshot when its object goes.
    pub deletion_policy: DeletionPolicy,
}
kind!(
    VolumeSnapshotClass,
    "snapshot.storage.k8s.io",
    "v1",
    "VolumeSnapshotClass",
    "volumesnapshotclasses",
    Cluster
);

impl VolumeSnapshotClass {
    /// Whether this class is marked as its driver's default.
    pub fn is_default(&self) -> bool {
        self.metadata
            .annotation(well_known::IS_DEFAULT_SNAPSHOT_CLASS)
            == Some("true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_content_that_names_no_uid_may_be_bound_but_is_not() {
        let mut snapshot = VolumeSnapshot::default();
        snapshot.metadata.name = "cut".into();
        snapshot.metadata.namespace = "a".into();
        snapshot.metadata.uid = "u".into();
        let mut content = VolumeSnapshotContent::default();
        content.spec.volume_snapshot_ref.name = "cut".into();
        content.spec.volume_snapshot_ref.namespace = "a".into();
        assert!(content.may_bind_to(&snapshot) && !content.is_bound_to(&snapshot));
        content.spec.volume_snapshot_ref.uid = "u".into();
        assert!(content.may_bind_to(&snapshot) && content.is_bound_to(&snapshot));
        content.spec.volume_snapshot_ref.uid = "other".into();
        assert!(!content.may_bind_to(&snapshot));
    }

    #[test]
    fn what_the_originals_write_is_read() {
        let content = VolumeSnapshotContent::decode(
            br#"{"metadata":{"name":"c"},"spec":{"deletionPolicy":"Delete","driver":"d",
            "source":{"volumeHandle":"v"},"sourceVolumeMode":"Filesystem",
            "volumeSnapshotRef":{"kind":"VolumeSnapshot","name":"s","namespace":"n","uid":"u"}},
            "status":{"creationTime":1700000000000000000,"readyToUse":true,"restoreSize":1024,
            "snapshotHandle":"h"}}"#,
        );
        let content = content.expect("it is read");
        assert!(content.is_ready() && content.handle() == Some("h"));
        assert_eq!(content.spec.deletion_policy, DeletionPolicy::Delete);
        let snapshot = VolumeSnapshot::decode(
            br#"{"metadata":{"name":"s"},"spec":{"source":{"persistentVolumeClaimName":"p"}},
            "status":{"boundVolumeSnapshotContentName":"c","creationTime":"2024-01-01T00:00:00Z",
            "readyToUse":false,"restoreSize":"1Gi","error":{"message":"m","time":"2024-01-01T00:00:00Z"}}}"#,
        );
        let snapshot = snapshot.expect("it is read");
        assert!(snapshot.is_created() && !snapshot.is_ready());
        assert_eq!(snapshot.error_message(), Some("m"));
        assert_eq!(snapshot.bound_content(), Some("c"));
    }
}
