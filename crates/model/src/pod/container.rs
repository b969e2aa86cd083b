//! Containers: what runs, with what environment, and where its volumes are.

use serde::{Deserialize, Serialize};

use super::SeLinuxOptions;
use crate::quantity::{Quantity, Resources};

/// A process of a pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// When its image is fetched.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_pull_policy: String,
    /// The program; the image's own if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The program's arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Whole maps as environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<serde_json::Value>,
    /// Where it starts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Its folders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Its devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_devices: Vec<VolumeDevice>,
    /// What it needs.
    pub resources: ContainerResources,
    /// Its user, where it isn't the pod's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<ContainerSecurityContext>,
}

/// What a container needs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerResources {
    /// At least.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub requests: Resources,
    /// At most.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub limits: Resources,
}

/// A container's own user.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerSecurityContext {
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// The group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// How SELinux knows its processes, if not as the pod's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SeLinuxOptions>,
    /// Whether it may do everything that the host's root may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// Whether it may write to its volumes alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
}

/// A variable of a container's environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Where the value comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// Where a variable's value comes from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvSource {
    /// A field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// A key of a config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// A key of a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// What a container asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldRef>,
}

/// A field of the pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldRef {
    /// e.g. `metadata.name`.
    pub field_path: String,
}

/// What a container asks for or is held to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFieldRef {
    /// Which container; in a variable, empty is the variable's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// e.g. `limits.memory`.
    pub resource: String,
    /// What the value is counted in; one by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
}

/// A key of a config map or secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyRef {
    /// The map.
    pub name: String,
    /// The key.
    pub key: String,
    /// Whether it may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A folder of a container.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// The pod's volume.
    pub name: String,
    /// Where.
    pub mount_path: String,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Only a part of the volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sub_path: String,
    /// The same, with `$(NAME)` for the container's variables.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sub_path_expr: String,
    /// `None`, `HostToContainer` or `Bidirectional`; empty is `None`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mount_propagation: String,
    /// Whether mounts below a read-only one are read-only too: `Disabled`, `IfPossible` or
    /// `Enabled`; empty is `Disabled`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub recursive_read_only: String,
}

/// A device of a container.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeDevice {
    /// The pod's volume.
    pub name: String,
    /// Where.
    pub device_path: String,
}
