//! StorageClass and VolumeAttributesClass.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{kind::kind, meta::Meta, well_known};

/// How volumes of a class are made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    pub metadata: Meta,
    /// Who makes them.
    pub provisioner: String,
    /// The maker's parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// What happens when the claim is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// When binding happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_binding_mode: Option<BindingMode>,
    /// Whether claims may grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_volume_expansion: Option<bool>,
    /// Options for mounting the volumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
    /// Where volumes may be made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}
kind!(
    StorageClass,
    "storage.k8s.io",
    "v1",
    "StorageClass",
    "storageclasses",
    Cluster
);

/// Attributes of volumes that can be changed while they are used, chosen by claims.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttributesClass {
    /// Metadata.
    pub metadata: Meta,
    /// Whose volumes it is for.
    pub driver_name: String,
    /// What the driver is told.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}
kind!(
    VolumeAttributesClass,
    "storage.k8s.io",
    "v1",
    "VolumeAttributesClass",
    "volumeattributesclasses",
    Cluster
);

/// Labels that a place must have, all of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    /// All must hold.
    pub match_label_expressions: Vec<TopologyRequirement>,
}

/// A label that must have one of several values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyRequirement {
    /// The label.
    pub key: String,
    /// One of these.
    pub values: Vec<String>,
}

impl TopologySelectorTerm {
    /// Whether the labels satisfy every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_label_expressions.iter().all(|r| {
            labels
                .get(&r.key)
                .is_some_and(|value| r.values.contains(value))
        })
    }
}

/// What happens to a volume when its claim is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReclaimPolicy {
    /// It is kept for a person to look at.
    Retain,
    /// It is deleted, object and storage.
    Delete,
    /// It is scrubbed and made available again.
    Recycle,
    /// One that we don't know.
    #[serde(other)]
    Unknown,
}

/// When a claim is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindingMode {
    /// As soon as the claim exists.
    Immediate,
    /// When a pod that uses it is placed.
    WaitForFirstConsumer,
}

impl StorageClass {
    /// Whether this class is marked as the default one.
    pub fn is_default(&self) -> bool {
        [
            well_known::IS_DEFAULT_CLASS,
            well_known::BETA_IS_DEFAULT_CLASS,
        ]
        .iter()
        .any(|name| self.metadata.annotation(name) == Some("true"))
    }

    /// Whether binding waits for a pod.
    pub fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode == Some(BindingMode::WaitForFirstConsumer)
    }

    /// What happens to its volumes; the API's default is to delete.
    pub fn reclaim_policy(&self) -> ReclaimPolicy {
        self.reclaim_policy.unwrap_or(ReclaimPolicy::Delete)
    }

    /// Whether volumes may be made where these labels hold.
    pub fn allows_topology(&self, labels: &BTreeMap<String, String>) -> bool {
        self.allowed_topologies.is_empty()
            || self
                .allowed_topologies
                .iter()
                .any(|term| term.matches(labels))
    }
}

/// The default class: of those marked, the newest, ties by name.
pub fn default_class<'a>(
    classes: impl IntoIterator<Item = &'a StorageClass>,
) -> Option<&'a StorageClass> {
    classes
        .into_iter()
        .filter(|c| c.is_default())
        .min_by(|a, b| {
            b.metadata
                .creation_timestamp
                .cmp(&a.metadata.creation_timestamp)
                .then_with(|| a.metadata.name.cmp(&b.metadata.name))
        })
}
