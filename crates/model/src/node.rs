//! Node.

use serde::{Deserialize, Serialize};

use crate::{kind::kind, meta::Meta, quantity::Resources};

/// A machine that runs pods.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// How it may be used.
    pub spec: NodeSpec,
    /// How it is.
    pub status: NodeStatus,
}
kind!(Node, "", "v1", "Node", "nodes", Cluster);

/// How a node may be used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// No new pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Marks that keep pods away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// A mark that keeps pods away.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its name.
    pub key: String,
    /// Its value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Among them `Ready`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What it can give to pods.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocatable: Resources,
    /// Volumes that the node uses, or is about to: they must not be detached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes_in_use: Vec<String>,
    /// Volumes that attach-detach has attached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes_attached: Vec<AttachedVolume>,
}

/// A volume that attach-detach has attached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachedVolume {
    /// Its unique name.
    pub name: String,
    /// Its device, where one is known.
    pub device_path: String,
}

/// A condition of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<jiff::Timestamp>,
}

impl Node {
    /// Whether the node says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
    }
}
