//! Names and metadata that every object carries.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Namespace and name: what finds an object of a kind. Cluster-scoped objects have an
/// empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// The key of an object in a namespace.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self {
            namespace: String::new(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The metadata that roles read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The object's name.
    pub name: String,
    /// Asks the server to make a name with this prefix.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Given by the server; tells two objects of one name apart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Given by the server; changes with every write.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Counts changes of the spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When the server made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// How long a deletion may take to be graceful.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Who must act before a deletion completes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The objects that this one belongs to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

impl Meta {
    /// Metadata of a new object.
    pub fn named(key: &Key) -> Self {
        Self {
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            ..Self::default()
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The annotation's value, if set.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    /// Whether the finalizer stands on the object.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|f| f == name)
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The resource version as a number, 0 if there is none. Kubernetes guarantees since
    /// 1.35 that versions of one kind compare as integers.
    pub fn revision(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    /// The owner marked as controller, if any.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references
            .iter()
            .find(|o| o.controller == Some(true))
    }
}

/// A reference to the object that owns this one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// The owner's API version.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid.
    pub uid: String,
    /// Whether the owner manages this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner waits for this object's deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// A reference to any object, as in `claimRef` and `involvedObject`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// The object's API version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The object's kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Empty when any object of that name is meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The version that was seen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part of the object that is meant, e.g. `spec.containers{web}`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl ObjectRef {
    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}
