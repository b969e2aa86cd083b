//! Namespace, Secret, ConfigMap and ServiceAccount.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{kind::kind, meta::Meta};

/// A namespace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Metadata.
    pub metadata: Meta,
}
kind!(Namespace, "", "v1", "Namespace", "namespaces", Cluster);

/// A service account.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceAccount {
    /// Metadata.
    pub metadata: Meta,
}
kind!(
    ServiceAccount,
    "",
    "v1",
    "ServiceAccount",
    "serviceaccounts",
    Namespaced
);

/// Files and values for pods.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Meta,
    /// Texts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Bytes, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_data: BTreeMap<String, String>,
    /// Whether it never changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
}
kind!(ConfigMap, "", "v1", "ConfigMap", "configmaps", Namespaced);

/// Values that must stay secret: printing one never shows them.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// Metadata.
    pub metadata: Meta,
    /// Bytes, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// What it is for, as `vendor/driver` or the like.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// Whether it never changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
}
kind!(Secret, "", "v1", "Secret", "secrets", Namespaced);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("metadata", &self.metadata.key())
            .field("keys", &self.data.keys().collect::<Vec<_>>())
            .finish()
    }
}
