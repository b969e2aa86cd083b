//! Pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    kind::kind,
    meta::{Key, Meta},
};

mod container;
mod status;
mod volume;

pub use container::{
    Container, ContainerResources, ContainerSecurityContext, EnvSource, EnvVar, FieldRef, KeyRef,
    ResourceFieldRef, VolumeDevice, VolumeMount,
};
pub use status::{
    ContainerState, ContainerStatus, PodPhase, PodStatus, RunningSince, Terminated, Waiting,
};
pub use volume::{
    ClaimSource, ClaimTemplate, ConfigMapSource, DownwardFile, DownwardSource, EmptyDirSource,
    EphemeralSource, InlineSource, KeyToPath, PodVolume, ProjectedSource, Projection, RbdSource,
    SecretSource, TokenSource,
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
    /// How SELinux knows its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SeLinuxOptions>,
    /// `MountOption` or `Recursive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se_linux_change_policy: Option<String>,
}

/// Parts of a process's SELinux label; empty ones are the host's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SeLinuxOptions {
    /// The user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Its level, with categories.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub level: String,
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
