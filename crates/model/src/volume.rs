//! PersistentVolume.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    access::{AccessMode, VolumeMode},
    claim::Claim,
    class::ReclaimPolicy,
    flex,
    kind::kind,
    meta::{Meta, ObjectRef},
    migration::{
        self,
        source::{
            AzureDiskSource, AzureFileSource, CinderSource, EbsSource, GceDiskSource,
            PortworxSource, VsphereSource,
        },
    },
    network_disk::{self, FcSource, IscsiSource},
    quantity::{Quantity, Resources},
    selector::NodeSelector,
    well_known,
};

/// A piece of storage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// Metadata.
    pub metadata: Meta,
    /// What it is.
    pub spec: VolumeSpec,
    /// What became of it.
    pub status: VolumeStatus,
}
kind!(
    Volume,
    "",
    "v1",
    "PersistentVolume",
    "persistentvolumes",
    Cluster
);

/// What a volume is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    /// Its size.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    /// How it may be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<AccessMode>,
    /// The claim that it belongs, or shall belong, to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ObjectRef>,
    /// What happens when the claim is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_reclaim_policy: Option<ReclaimPolicy>,
    /// Its class; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_class_name: String,
    /// Options for mounting it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
    /// Files or a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<VolumeMode>,
    /// From which nodes it can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// The performance class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_attributes_class_name: Option<String>,
    /// A volume of a CSI driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiSource>,
    /// A folder or disk of one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalSource>,
    /// A folder of whichever node the pod is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPathSource>,
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
    /// A disk by iSCSI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<Box<IscsiSource>>,
    /// A disk by Fibre Channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fc: Option<Box<FcSource>>,
}

/// From which nodes a volume can be reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// The nodes must match this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<NodeSelector>,
}

/// A volume as a CSI driver knows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// The driver's name.
    pub driver: String,
    /// The volume's id, the driver's word.
    pub volume_handle: String,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The file system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// The driver's own attributes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_attributes: BTreeMap<String, String>,
    /// Secret for ControllerPublishVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_publish_secret_ref: Option<SecretRef>,
    /// Secret for NodeStageVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_stage_secret_ref: Option<SecretRef>,
    /// Secret for NodePublishVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_publish_secret_ref: Option<SecretRef>,
    /// Secret for ControllerExpandVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_expand_secret_ref: Option<SecretRef>,
    /// Secret for NodeExpandVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_expand_secret_ref: Option<SecretRef>,
}

/// A secret by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretRef {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// A folder or disk of one node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalSource {
    /// Where.
    pub path: String,
    /// The file system, for a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
}

/// A folder of whichever node the pod is on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostPathSource {
    /// Where.
    pub path: String,
    /// What must be there.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// A folder of a file server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NfsSource {
    /// The server's name or address.
    pub server: String,
    /// The folder that it exports.
    pub path: String,
    /// Whether it is mounted read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A volume of a driver that is a program on the node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlexSource {
    /// The driver, as `vendor/driver`.
    pub driver: String,
    /// The file system; the driver chooses if it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    /// What the driver is told besides; a pod's secret is of the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Whether it is mounted read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The driver's own options.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// What became of a volume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    /// Where in its life it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VolumePhase>,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Why it failed, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Where in its life a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumePhase {
    /// The binder has not seen it yet.
    Pending,
    /// Free.
    Available,
    /// Belongs to a claim.
    Bound,
    /// Its claim is gone; not yet reclaimed.
    Released,
    /// Reclaiming it failed.
    Failed,
}

impl Volume {
    /// The class: the legacy annotation wins; empty for none.
    pub fn class(&self) -> &str {
        self.metadata
            .annotation(well_known::BETA_STORAGE_CLASS)
            .unwrap_or(&self.spec.storage_class_name)
    }

    /// Its size in bytes.
    pub fn capacity_bytes(&self) -> i64 {
        self.spec.capacity.storage().map_or(0, Quantity::value)
    }

    /// Files or a device.
    pub fn volume_mode(&self) -> VolumeMode {
        self.spec.volume_mode.unwrap_or_default()
    }

    /// The phase; a volume without one is pending.
    pub fn phase(&self) -> VolumePhase {
        self.status.phase.unwrap_or(VolumePhase::Pending)
    }

    /// What happens when the claim is gone; the API's default is to keep.
    pub fn reclaim_policy(&self) -> ReclaimPolicy {
        self.spec
            .persistent_volume_reclaim_policy
            .unwrap_or(ReclaimPolicy::Retain)
    }

    /// Whether the volume is reserved for this very claim: same name, and the same uid
    /// unless a person reserved it by name alone.
    pub fn is_reserved_for(&self, claim: &Claim) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|r| {
            r.name == claim.metadata.name
                && r.namespace == claim.metadata.namespace
                && (r.uid.is_empty() || r.uid == claim.metadata.uid)
        })
    }

    /// Whether the binder, not a person, made the binding.
    pub fn bound_by_controller(&self) -> bool {
        self.metadata
            .annotations
            .contains_key(well_known::BOUND_BY_CONTROLLER)
    }

    /// The name by which attach-detach and the node talk of this volume, if it is one that is
    /// attached: a CSI driver has it, in its own name or in the place of a plugin, or a FlexVolume
    /// driver, or it is a disk that the node reaches by itself.
    pub fn unique_name(&self) -> Option<String> {
        let Some(csi) = migration::source(self) else {
            let disk = network_disk::unique_name(&self.spec);
            return disk.or_else(|| flex::unique_name_of(self));
        };
        Some(well_known::unique_volume_name(
            &csi.driver,
            &csi.volume_handle,
        ))
    }

    /// Whether a node with these labels and this name can reach the volume.
    pub fn reachable_from(&self, node: &str, labels: &BTreeMap<String, String>) -> bool {
        self.spec
            .node_affinity
            .as_ref()
            .and_then(|a| a.required.as_ref())
            .is_none_or(|selector| selector.matches(node, labels))
    }
}
