//! What makes pods: StatefulSet, Deployment, ReplicaSet, DaemonSet, Job, and the revisions of
//! their templates.
//!
//! Templates are kept as they are: a pod is made from the whole of one, whatever it holds.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{kind::kind, meta::Meta, selector::LabelSelector};

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_long(number: &i64) -> bool {
    *number == 0
}

/// A number, or a part of a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// So many.
    Number(i32),
    /// `25%`.
    Percent(String),
}

impl Amount {
    /// How many of `total` that is, a fraction counted as one.
    pub fn up(&self, total: i32) -> i32 {
        self.hundredths(total)
            .map_or_else(|number| number, |part| part.div_ceil(100) as i32)
    }

    /// How many of `total` that is, a fraction counted as none.
    pub fn down(&self, total: i32) -> i32 {
        self.hundredths(total)
            .map_or_else(|number| number, |part| (part / 100) as i32)
    }

    fn hundredths(&self, total: i32) -> Result<u64, i32> {
        match self {
            Self::Number(number) => Err(*number),
            Self::Percent(text) => {
                let percent = text.strip_suffix('%').and_then(|p| p.parse::<u32>().ok());
                Ok(u64::from(percent.unwrap_or(0)) * u64::try_from(total).unwrap_or(0))
            }
        }
    }
}

/// A condition of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadCondition {
    /// Which.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was last said; deployments only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Timestamp>,
    /// Since when it has this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// Why, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Pods with a number each, which keep their names and their claims.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: StatefulSetSpec,
    /// What is there.
    pub status: StatefulSetStatus,
}
kind!(
    StatefulSet,
    "apps",
    "v1",
    "StatefulSet",
    "statefulsets",
    Namespaced
);

/// What a StatefulSet wants.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// How many pods; one if it isn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What they are made from.
    pub template: Value,
    /// The claims that each pod gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<Value>,
    /// The service by which its pods are found.
    pub service_name: String,
    /// Whether pods come and go one after the other.
    pub pod_management_policy: PodManagement,
    /// How pods get a new template.
    pub update_strategy: StatefulSetStrategy,
    /// How many old templates are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// How long a pod is ready before it counts as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// What becomes of the claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<ClaimRetention>,
    /// From which number on pods are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordinals: Option<Ordinals>,
}

/// Whether a set's pods come and go one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PodManagement {
    /// Each waits for the one before it.
    #[default]
    OrderedReady,
    /// All at once.
    Parallel,
}

/// How a set's pods get a new template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStrategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(rename = "type")]
    pub type_: String,
    /// How far and how fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<StatefulSetRolling>,
}

/// How far and how fast a set is rolled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetRolling {
    /// Pods below this number keep the old template.
    pub partition: i32,
    /// How many may be missing at a time; one if it isn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Amount>,
}

/// What becomes of a set's claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRetention {
    /// When the set is deleted.
    pub when_deleted: Retention,
    /// When a pod is one too many.
    pub when_scaled: Retention,
}

/// What becomes of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Retention {
    /// It stays.
    #[default]
    Retain,
    /// It goes, too.
    Delete,
}

/// From which number on a set's pods are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// The first one's.
    pub start: i32,
}

/// What a StatefulSet has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// Which spec this is about.
    #[serde(skip_serializing_if = "is_zero_long")]
    pub observed_generation: i64,
    /// How many pods there are.
    pub replicas: i32,
    /// How many of them are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// How many of them have been so for long enough.
    pub available_replicas: i32,
    /// How many have the old template.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// How many have the new template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// The old template's revision.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The new template's revision.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// How often a revision's name was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// What a workload's pods were made from at some time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerRevision {
    /// Metadata.
    pub metadata: Meta,
    /// A strategic merge patch that brings the template back.
    pub data: Value,
    /// The higher, the newer.
    pub revision: i64,
}
kind!(
    ControllerRevision,
    "apps",
    "v1",
    "ControllerRevision",
    "controllerrevisions",
    Namespaced
);

/// So many pods of one template.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: ReplicaSetSpec,
    /// What is there.
    pub status: ReplicaSetStatus,
}
kind!(
    ReplicaSet,
    "apps",
    "v1",
    "ReplicaSet",
    "replicasets",
    Namespaced
);

/// What a ReplicaSet wants.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// How many pods; one if it isn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How long a pod is ready before it counts as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What they are made from.
    pub template: Value,
}

/// What a ReplicaSet has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// How many pods there are.
    pub replicas: i32,
    /// How many have all labels of the template.
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// How many are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// How many have been so for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// How many are on their way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// Which spec this is about.
    #[serde(skip_serializing_if = "is_zero_long")]
    pub observed_generation: i64,
    /// Why pods can't be made or deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<WorkloadCondition>,
}

/// Pods that are all alike, replaced step by step when their template changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Deployment {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: DeploymentSpec,
    /// What is there.
    pub status: DeploymentStatus,
}
kind!(
    Deployment,
    "apps",
    "v1",
    "Deployment",
    "deployments",
    Namespaced
);

/// What a Deployment wants.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// How many pods; one if it isn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What they are made from.
    pub template: Value,
    /// How pods get a new template.
    pub strategy: DeploymentStrategy,
    /// How long a pod is ready before it counts as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many old ReplicaSets are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// Whether new templates are left alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How long it may stand still before that is a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
}

/// How a deployment's pods get a new template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStrategy {
    /// `RollingUpdate` or `Recreate`.
    #[serde(rename = "type")]
    pub type_: String,
    /// How many may be missing, and how many more there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<Rolling>,
}

/// How many pods may be missing, and how many more there may be, while they are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rolling {
    /// So many may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Amount>,
    /// There may be so many more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<Amount>,
}

/// What a Deployment has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// Which spec this is about.
    #[serde(skip_serializing_if = "is_zero_long")]
    pub observed_generation: i64,
    /// How many pods there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// How many have the new template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// How many are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// How many have been so for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// How many more are wanted.
    #[serde(skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    /// How many are on their way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// `Available`, `Progressing`, `ReplicaFailure`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<WorkloadCondition>,
    /// How often a ReplicaSet's name was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// One pod on every node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: DaemonSetSpec,
    /// What is there.
    pub status: DaemonSetStatus,
}
kind!(
    DaemonSet,
    "apps",
    "v1",
    "DaemonSet",
    "daemonsets",
    Namespaced
);

/// What a DaemonSet wants.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What they are made from.
    pub template: Value,
    /// How pods get a new template.
    pub update_strategy: DeploymentStrategy,
    /// How long a pod is ready before it counts as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many old templates are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
}

/// What a DaemonSet has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// On how many nodes a pod is that should be.
    pub current_number_scheduled: i32,
    /// On how many nodes a pod is that should not be.
    pub number_misscheduled: i32,
    /// On how many nodes a pod should be.
    pub desired_number_scheduled: i32,
    /// On how many of them it is ready.
    pub number_ready: i32,
    /// Which spec this is about.
    #[serde(skip_serializing_if = "is_zero_long")]
    pub observed_generation: i64,
    /// On how many nodes the pod has the new template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_number_scheduled: i32,
    /// On how many nodes it has been ready for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_available: i32,
    /// On how many nodes it hasn't.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_unavailable: i32,
    /// How often a revision's name was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// Pods that run until so many of them have succeeded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: JobSpec,
    /// What is there.
    pub status: JobStatus,
}
kind!(Job, "batch", "v1", "Job", "jobs", Namespaced);

/// What a Job wants.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// How many pods at once; one if it isn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i32>,
    /// How many must succeed; if it isn't said, one of a crowd is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<i32>,
    /// How long it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// How many pods may fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What they are made from.
    pub template: Value,
    /// Whether it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// `NonIndexed` or `Indexed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_mode: Option<String>,
    /// How long after its end it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// What a Job has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// `Complete`, `Failed`, `Suspended`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<WorkloadCondition>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When the last of its pods had succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Timestamp>,
    /// How many pods run or will.
    #[serde(skip_serializing_if = "is_zero")]
    pub active: i32,
    /// How many of them are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// How many succeeded.
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: i32,
    /// How many failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: i32,
    /// How many are on their way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    /// Which have ended and aren't in the numbers yet.
    pub uncounted_terminated_pods: Uncounted,
}

/// Pods of a job that have ended and aren't in its numbers yet, by uid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    /// Those that succeeded.
    pub succeeded: Vec<String>,
    /// Those that failed.
    pub failed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_rounded_as_it_was_asked() {
        let quarter = Amount::Percent("25%".into());
        assert_eq!((quarter.up(3), quarter.down(3)), (1, 0));
        assert_eq!((quarter.up(4), quarter.down(4)), (1, 1));
        let two = Amount::Number(2);
        assert_eq!((two.up(10), two.down(10)), (2, 2));
        assert_eq!(Amount::Percent("many".into()).up(10), 0);
    }
}
