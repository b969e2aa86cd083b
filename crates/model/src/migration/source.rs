//! Volumes as the plugins that were part of Kubernetes know them.

use serde::{Deserialize, Serialize};

/// An AWS EBS disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EbsSource {
    /// `vol-…`, or `aws://zone/vol-…`.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// The file system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// The partition; 0 for the whole disk.
    #[serde(skip_serializing_if = "is_zero")]
    pub partition: i32,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A GCE persistent disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GceDiskSource {
    /// Its name.
    pub pd_name: String,
    /// The file system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// The partition; 0 for the whole disk.
    #[serde(skip_serializing_if = "is_zero")]
    pub partition: i32,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// An Azure disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AzureDiskSource {
    /// Its name.
    pub disk_name: String,
    /// Where it is.
    #[serde(rename = "diskURI")]
    pub disk_uri: String,
    /// `None`, `ReadOnly` or `ReadWrite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching_mode: Option<String>,
    /// The file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// `Managed`; others have no successor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A share of Azure Files.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AzureFileSource {
    /// The secret with the storage account's key.
    pub secret_name: String,
    /// The share.
    pub share_name: String,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The secret's namespace, where it isn't the claim's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_namespace: Option<String>,
}

/// An OpenStack Cinder volume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CinderSource {
    /// Its id.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// The file system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A vSphere disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VsphereSource {
    /// The path of its file.
    pub volume_path: String,
    /// The file system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// The policy that it was made by.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_policy_name: String,
}

/// A Portworx volume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortworxSource {
    /// Its id.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// The file system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}
