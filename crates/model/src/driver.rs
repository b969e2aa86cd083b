//! CSIDriver, CSINode and CSIStorageCapacity.

use serde::{Deserialize, Serialize};

use crate::{kind::kind, meta::Meta, quantity::Quantity, selector::LabelSelector};

/// What Kubernetes must know of a driver.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    /// Metadata; the name is the driver's.
    pub metadata: Meta,
    /// Its traits.
    pub spec: CsiDriverSpec,
}
kind!(
    CsiDriver,
    "storage.k8s.io",
    "v1",
    "CSIDriver",
    "csidrivers",
    Cluster
);

/// A driver's traits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// Whether volumes are attached before they are staged; the API's default is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach_required: Option<bool>,
    /// Whether the driver wants to know the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_info_on_mount: Option<bool>,
    /// Whether the scheduler must look at CSIStorageCapacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_capacity: Option<bool>,
    /// How a pod's fsGroup is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group_policy: Option<String>,
    /// `Persistent`, `Ephemeral` or both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_lifecycle_modes: Vec<String>,
    /// Whether publishing is repeated now and then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_republish: Option<bool>,
    /// The tokens of a pod's account that the driver wants to have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub token_requests: Vec<TokenAudience>,
    /// Whether it gets them among the secrets, and not in the volume's context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_token_in_secrets: Option<bool>,
    /// Whether volumes can be mounted with an SELinux context.
    #[serde(rename = "seLinuxMount", skip_serializing_if = "Option::is_none")]
    pub se_linux_mount: Option<bool>,
    /// How often the node asks how many volumes fit on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_allocatable_update_period_seconds: Option<i64>,
    /// Whether pods with its volumes go only where it is registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prevent_pod_scheduling_if_missing: Option<bool>,
}

/// A token that a driver wants to have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenAudience {
    /// Whom it is for; the API server itself if empty.
    pub audience: String,
    /// How long it is to be good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<i64>,
}

impl CsiDriver {
    /// Whether volumes are attached before they are staged.
    pub fn attach_required(&self) -> bool {
        self.spec.attach_required.unwrap_or(true)
    }
}

/// The drivers of a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    /// Metadata; the name is the node's.
    pub metadata: Meta,
    /// The drivers.
    pub spec: CsiNodeSpec,
}
kind!(
    CsiNode,
    "storage.k8s.io",
    "v1",
    "CSINode",
    "csinodes",
    Cluster
);

/// The drivers of a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// One entry each.
    pub drivers: Vec<CsiNodeDriver>,
}

/// A driver on a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    /// The driver's name.
    pub name: String,
    /// What the driver calls this node.
    #[serde(rename = "nodeID")]
    pub node_id: String,
    /// The node labels that tell where its volumes can be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topology_keys: Vec<String>,
    /// How many volumes fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<VolumeNodeResources>,
}

/// How many volumes fit on a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeNodeResources {
    /// The limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
}

impl CsiNode {
    /// The entry of a driver.
    pub fn driver(&self, name: &str) -> Option<&CsiNodeDriver> {
        self.spec.drivers.iter().find(|d| d.name == name)
    }
}

/// How much storage a class can give in one place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiStorageCapacity {
    /// Metadata.
    pub metadata: Meta,
    /// The class.
    pub storage_class_name: String,
    /// The place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<LabelSelector>,
    /// What is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// The largest volume possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_volume_size: Option<Quantity>,
}
kind!(
    CsiStorageCapacity,
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities",
    Namespaced
);
