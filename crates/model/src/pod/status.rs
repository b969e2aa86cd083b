//! What became of a pod and its containers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::node::Condition;

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
