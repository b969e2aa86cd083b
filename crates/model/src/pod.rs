//! Pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    claim::ClaimSpec,
    kind::kind,
    meta::{Key, Meta},
    migration::source::{
        AzureDiskSource, AzureFileSource, CinderSource, EbsSource, GceDiskSource, PortworxSource,
        VsphereSource,
    },
    node::Condition,
    quantity::{Quantity, Resources},
    volume::{FlexSource, HostPathSource, NfsSource, SecretRef},
};

/// Processes that run together on one node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// What shall run.
    pub spec: PodSpec,
    /// What runs.
    pub status: PodStatus,
}
kind!(Pod, "", "v1", "Pod", "pods", Namespaced);

/// What shall run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Where it was placed; empty before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Who places it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// What must happen before it may be placed; only whether there is any matters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scheduling_gates: Vec<serde_json::Value>,
    /// Labels that the node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Where it wants to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that it bears.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Run one after the other, before the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// Run side by side.
    pub containers: Vec<Container>,
    /// Their folders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<PodVolume>,
    /// What happens when a container ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,
    /// How long it may take to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Whom it acts as.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_account_name: String,
    /// Users and groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,
    /// Whether its containers see the host's network.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
    /// The pod's host name, where it isn't its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
}

/// Where a pod wants to be.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// By node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<PodNodeAffinity>,
}

/// Which nodes a pod must be on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodNodeAffinity {
    /// It must hold when the pod is placed.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<crate::selector::NodeSelector>,
}

/// A taint that a pod bears.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// The taint; empty with `Exists` for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Exists` or `Equal`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// Its value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Its effect; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
}

/// What happens when a container ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// It is started again.
    Always,
    /// It is started again if it failed.
    OnFailure,
    /// It stays ended.
    Never,
}

/// Users and groups of a pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSecurityContext {
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// The group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// The group that owns its volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// `Always` or `OnRootMismatch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group_change_policy: Option<String>,
    /// More groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supplemental_groups: Vec<i64>,
}

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
    /// A disk by iSCSI; refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<Box<IscsiSource>>,
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

/// A disk by iSCSI.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IscsiSource {
    /// Its target's name.
    pub iqn: String,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
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

/// What runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Where in its life it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<PodPhase>,
    /// Why it is there, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it is there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `PodScheduled`, `Ready` and the like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When the node took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// One per init container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// One per container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    /// One per container that was added to look into the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

/// How a container is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// What it does now.
    pub state: ContainerState,
    /// What it did before its last restart.
    #[serde(skip_serializing_if = "ContainerState::is_empty")]
    pub last_state: ContainerState,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// How often it was restarted.
    pub restart_count: i32,
    /// Its image.
    pub image: String,
    /// Its image's id.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// Its own id.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}

/// What a container does: one of the three.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// It runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningSince>,
    /// It ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

impl ContainerState {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a container waits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// In one word.
    pub reason: String,
    /// In a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Since when a container runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunningSince {
    /// Since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// 0 for success.
    pub exit_code: i32,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// In one word.
    pub reason: String,
    /// In a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Its own id.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}

/// Where in its life a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    /// Not all its containers were started.
    Pending,
    /// At least one container runs or will run again.
    Running,
    /// All ended well and stay so.
    Succeeded,
    /// All ended, one badly.
    Failed,
    /// Its node is out of reach.
    Unknown,
}

impl Pod {
    /// The phase; a pod without one is pending.
    pub fn phase(&self) -> PodPhase {
        self.status.phase.unwrap_or(PodPhase::Pending)
    }

    /// Whether all its containers ended for good.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase(), PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether none of its containers runs, nor will: they ended for good, or it is being deleted
    /// and none runs any more.
    pub fn has_ended(&self) -> bool {
        let status = &self.status;
        let init = status.init_container_statuses.iter();
        let mut all = init
            .chain(&status.container_statuses)
            .chain(&status.ephemeral_container_statuses);
        let runs =
            |one: &ContainerStatus| one.state.terminated.is_none() && one.state.waiting.is_none();
        self.is_finished() || (self.metadata.is_deleting() && !all.any(runs))
    }

    /// Whether it was placed on a node.
    pub fn is_placed(&self) -> bool {
        !self.spec.node_name.is_empty()
    }

    /// The claims that it uses, by volume: those named and those made for it.
    pub fn claims(&self) -> impl Iterator<Item = (&PodVolume, Key)> {
        self.spec.volumes.iter().filter_map(|volume| {
            let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => source.claim_name.clone(),
                (None, Some(_)) => format!("{}-{}", self.metadata.name, volume.name),
                (None, None) => return None,
            };
            Some((volume, Key::namespaced(&self.metadata.namespace, name)))
        })
    }
}

/// The name of the index by [`claims_used`].
pub const BY_CLAIM: &str = "by-claim";

/// What a pod is found under: the keys of the claims that it uses.
pub fn claims_used(pod: &Pod) -> Vec<String> {
    pod.claims().map(|(_, key)| key.to_string()).collect()
}

/// The name of the index by [`node_used`].
pub const BY_NODE: &str = "by-node";

/// What a placed pod is found under: its node.
pub fn node_used(pod: &Pod) -> Vec<String> {
    match pod.is_placed() {
        true => vec![pod.spec.node_name.clone()],
        false => Vec::new(),
    }
}
