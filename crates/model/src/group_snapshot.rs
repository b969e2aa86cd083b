//! VolumeGroupSnapshot, VolumeGroupSnapshotContent and VolumeGroupSnapshotClass.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    kind::kind,
    meta::{Key, Meta, ObjectRef, OwnerReference},
    selector::LabelSelector,
    snapshot::{DeletionPolicy, SnapshotError},
    well_known,
};

/// A user's request for snapshots of several claims, cut at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshot {
    /// Metadata.
    pub metadata: Meta,
    /// What is asked for.
    pub spec: GroupSnapshotSpec,
    /// What became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<GroupSnapshotStatus>,
}
kind!(
    VolumeGroupSnapshot,
    "groupsnapshot.storage.k8s.io",
    "v1",
    "VolumeGroupSnapshot",
    "volumegroupsnapshots",
    Namespaced
);

/// What a group snapshot shall be.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSnapshotSpec {
    /// Where it comes from.
    pub source: GroupSnapshotSource,
    /// How it is made; `None` asks for the driver's default class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
}

/// Where a group snapshot comes from: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSnapshotSource {
    /// The claims to be cut, by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The content that exists already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_content_name: Option<String>,
}

/// What became of a group snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSnapshotStatus {
    /// The content that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_group_snapshot_content_name: Option<String>,
    /// When it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Timestamp>,
    /// Whether volumes can be made from all its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

impl VolumeGroupSnapshot {
    /// The name of the content that is made for it.
    pub fn content_name(&self) -> String {
        format!("groupsnapcontent-{}", self.metadata.uid)
    }

    /// The content that it is bound to.
    pub fn bound_content(&self) -> Option<&str> {
        let status = self.status.as_ref()?;
        let name = status.bound_volume_group_snapshot_content_name.as_deref()?;
        (!name.is_empty()).then_some(name)
    }

    /// Whether volumes can be made from all its members.
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

    /// The reference by which a member belongs to it.
    pub fn as_owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: <Self as crate::Kind>::api_version(),
            kind: <Self as crate::Kind>::KIND.to_owned(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            controller: None,
            block_owner_deletion: None,
        }
    }
}

/// A group snapshot as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshotContent {
    /// Metadata.
    pub metadata: Meta,
    /// What it is.
    pub spec: GroupContentSpec,
    /// What the driver says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<GroupContentStatus>,
}
kind!(
    VolumeGroupSnapshotContent,
    "groupsnapshot.storage.k8s.io",
    "v1",
    "VolumeGroupSnapshotContent",
    "volumegroupsnapshotcontents",
    Cluster
);

/// What a group's content is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupContentSpec {
    /// The group snapshot that it belongs to; without a uid until they are bound.
    pub volume_group_snapshot_ref: ObjectRef,
    /// What happens to the driver's snapshots when the content goes.
    pub deletion_policy: DeletionPolicy,
    /// The driver's name.
    pub driver: String,
    /// How it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
    /// Where it comes from.
    pub source: GroupContentSource,
}

/// Where a group's content comes from: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupContentSource {
    /// The volumes to be cut, the driver's words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_handles: Vec<String>,
    /// The group that exists already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_snapshot_handles: Option<GroupHandles>,
}

/// A group that exists already, the driver's words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupHandles {
    /// The group.
    pub volume_group_snapshot_handle: String,
    /// Its members.
    pub volume_snapshot_handles: Vec<String>,
}

/// What the driver says of a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupContentStatus {
    /// The group's id, the driver's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
    /// When it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Timestamp>,
    /// Whether volumes can be made from all its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// The members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_snapshot_info_list: Vec<MemberInfo>,
}

/// What the driver says of a group's member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberInfo {
    /// The volume that was cut.
    pub volume_handle: String,
    /// The snapshot.
    pub snapshot_handle: String,
    /// When it was cut, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// Whether a volume can be made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The least size of a volume made from it, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
}

impl VolumeGroupSnapshotContent {
    /// Whether it and the group snapshot belong to each other, uid included.
    pub fn is_bound_to(&self, group: &VolumeGroupSnapshot) -> bool {
        let (owner, meta) = (&self.spec.volume_group_snapshot_ref, &group.metadata);
        owner.name == meta.name && owner.namespace == meta.namespace && owner.uid == meta.uid
    }

    /// Whether it may be bound to the group snapshot: by uid unless a person wrote none.
    pub fn may_bind_to(&self, group: &VolumeGroupSnapshot) -> bool {
        let (owner, meta) = (&self.spec.volume_group_snapshot_ref, &group.metadata);
        owner.name == meta.name
            && owner.namespace == meta.namespace
            && (owner.uid.is_empty() || owner.uid == meta.uid)
    }

    /// The group snapshot that it belongs to.
    pub fn owner(&self) -> Key {
        self.spec.volume_group_snapshot_ref.key()
    }

    /// Whether volumes can be made from all its members.
    pub fn is_ready(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.ready_to_use == Some(true))
    }

    /// The driver's id of it, once known.
    pub fn handle(&self) -> Option<&str> {
        self.status
            .as_ref()?
            .volume_group_snapshot_handle
            .as_deref()
    }

    /// The members that the driver told of.
    pub fn members(&self) -> &[MemberInfo] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.volume_snapshot_info_list)
    }

    /// The last failure's words.
    pub fn error_message(&self) -> Option<&str> {
        self.status.as_ref()?.error.as_ref()?.message.as_deref()
    }
}

/// How group snapshots of a class are made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeGroupSnapshotClass {
    /// Metadata.
    pub metadata: Meta,
    /// Who makes them.
    pub driver: String,
    /// The maker's parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// What happens to the driver's snapshots when their object goes.
    pub deletion_policy: DeletionPolicy,
}
kind!(
    VolumeGroupSnapshotClass,
    "groupsnapshot.storage.k8s.io",
    "v1",
    "VolumeGroupSnapshotClass",
    "volumegroupsnapshotclasses",
    Cluster
);

impl VolumeGroupSnapshotClass {
    /// Whether this class is marked as its driver's default.
    pub fn is_default(&self) -> bool {
        self.metadata
            .annotation(well_known::IS_DEFAULT_GROUP_SNAPSHOT_CLASS)
            == Some("true")
    }
}
