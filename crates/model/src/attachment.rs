//! VolumeAttachment.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{kind::kind, meta::Meta, volume::VolumeSpec};

/// The wish that a volume be attached to a node, and how far that is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    /// Metadata.
    pub metadata: Meta,
    /// What shall be attached where.
    pub spec: AttachmentSpec,
    /// How far it is.
    pub status: AttachmentStatus,
}
kind!(
    VolumeAttachment,
    "storage.k8s.io",
    "v1",
    "VolumeAttachment",
    "volumeattachments",
    Cluster
);

/// What shall be attached where.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpec {
    /// The driver that attaches.
    pub attacher: String,
    /// The node.
    pub node_name: String,
    /// The volume.
    pub source: AttachmentSource,
}

/// The volume of an attachment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSource {
    /// By name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_name: Option<String>,
    /// As it is, for a pod's own volume of an in-tree plugin that a driver took over from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_volume_spec: Option<Box<VolumeSpec>>,
}

/// How far an attachment is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentStatus {
    /// Whether it is attached.
    pub attached: bool,
    /// What the driver wants the node to know.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attachment_metadata: BTreeMap<String, String>,
    /// The last failure to attach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach_error: Option<VolumeError>,
    /// The last failure to detach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detach_error: Option<VolumeError>,
}

/// A failure, as the status tells it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeError {
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// What.
    pub message: String,
    /// The gRPC code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<i32>,
}

impl VolumeAttachment {
    /// The volume's name; empty for an inline volume.
    pub fn volume_name(&self) -> &str {
        self.spec
            .source
            .persistent_volume_name
            .as_deref()
            .unwrap_or_default()
    }
}
