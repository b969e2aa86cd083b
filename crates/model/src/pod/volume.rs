//! Volumes of pods, by their sources.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::container::{FieldRef, ResourceFieldRef};
use crate::{
    claim::ClaimSpec,
    meta::Meta,
    migration::source::{
        AzureDiskSource, AzureFileSource, CinderSource, EbsSource, GceDiskSource, PortworxSource,
        VsphereSource,
    },
    network_disk::{FcSource, IscsiSource},
    quantity::Quantity,
    volume::{FlexSource, HostPathSource, NfsSource, SecretRef},
};

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    /// Its name in the pod.
    pub name: String,
    /// By claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimSource>,
    /// By a claim that lives and dies with the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralSource>,
    /// A fresh folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDirSource>,
    /// Files from a config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// Files from a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretSource>,
    /// Files from the pod's own fields.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardSource>,
    /// Files from several sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected: Option<ProjectedSource>,
    /// A folder of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPathSource>,
    /// A CSI driver's volume that lives and dies with the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<InlineSource>,
    /// A disk of AWS, by the plugin of old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_elastic_block_store: Option<Box<EbsSource>>,
    /// A disk of GCE, by the plugin of old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gce_persistent_disk: Option<Box<GceDiskSource>>,
    /// A disk of Azure, by the plugin of old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_disk: Option<Box<AzureDiskSource>>,
    /// A share of Azure, by the plugin of old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_file: Option<Box<AzureFileSource>>,
    /// A volume of OpenStack, by the plugin of old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cinder: Option<Box<CinderSource>>,
    /// A disk of vSphere, by the plugin of old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere_volume: Option<Box<VsphereSource>>,
    /// A volume of Portworx, by the plugin of old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub portworx_volume: Option<Box<PortworxSource>>,
    /// A folder of a file server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsSource>,
    /// A volume of a driver that is a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flex_volume: Option<FlexSource>,
    /// A disk by iSCSI; refused by our own node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<Box<IscsiSource>>,
    /// A disk by Fibre Channel; refused by our own node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fc: Option<Box<FcSource>>,
    /// A disk of Ceph, by the plugin of old; refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rbd: Option<Box<RbdSource>>,
    /// A copy of a repository; refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_repo: Option<serde_json::Value>,
    /// The files of an image; refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<serde_json::Value>,
}

/// A disk of Ceph.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RbdSource {
    /// Who is asked for it.
    pub monitors: Vec<String>,
    /// Where it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Its name.
    pub image: String,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl RbdSource {
    /// Where it is; a default counts as named.
    pub fn pool(&self) -> &str {
        match self.pool.as_str() {
            "" => "rbd",
            pool => pool,
        }
    }
}

/// A claim of the pod's namespace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSource {
    /// Its name.
    pub claim_name: String,
    /// Whether the pod only reads.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A CSI driver's volume that lives and dies with the pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InlineSource {
    /// The driver's name.
    pub driver: String,
    /// Whether the pod only reads.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The file system; the driver chooses if it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// The driver's own attributes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_attributes: BTreeMap<String, String>,
    /// Secret of the pod's namespace for NodePublishVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_publish_secret_ref: Option<SecretRef>,
}

/// A claim that lives and dies with the pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralSource {
    /// What to create.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<ClaimTemplate>,
}

/// The claim to create.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate {
    /// Labels and annotations.
    pub metadata: Meta,
    /// The request.
    pub spec: ClaimSpec,
}

/// A fresh folder.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EmptyDirSource {
    /// Empty for the disk, or `Memory`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub medium: String,
    /// At most this much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,
}

/// Which keys become which files.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyToPath {
    /// The key.
    pub key: String,
    /// The file.
    pub path: String,
    /// Its mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// Files from a config map.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapSource {
    /// The map.
    pub name: String,
    /// Which keys; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<KeyToPath>,
    /// The files' mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<u32>,
    /// Whether it may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Files from a secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretSource {
    /// The secret, as a volume of its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_name: String,
    /// The secret, within a projected volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Which keys; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<KeyToPath>,
    /// The files' mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<u32>,
    /// Whether it may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Files from the pod's own fields.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardSource {
    /// The files.
    pub items: Vec<DownwardFile>,
    /// The files' mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<u32>,
}

/// A file from a field of the pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardFile {
    /// The file.
    pub path: String,
    /// The field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// What a container asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldRef>,
    /// Its mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// Files from several sources.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedSource {
    /// The sources.
    pub sources: Vec<Projection>,
    /// The files' mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<u32>,
}

/// One source of a projected volume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Projection {
    /// A config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// A secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretSource>,
    /// The pod's own fields.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardSource>,
    /// A token of its service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<TokenSource>,
    /// Certificates of signers; refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_trust_bundle: Option<serde_json::Value>,
    /// A certificate of the pod's own; refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_certificate: Option<serde_json::Value>,
}

/// A token of the pod's service account.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenSource {
    /// For whom.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub audience: String,
    /// For how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<i64>,
    /// The file.
    pub path: String,
}
