//! How long each kind of call may take.

use std::time::Duration;

use crate::{Method, Service};

/// Time allowed per kind of call; defaults are the Go sidecars' and kubelet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Identity calls and questions for capabilities.
    pub identity: Duration,
    /// Volumes: create, delete, list, get, validate, capacity.
    pub volume: Duration,
    /// Publishing to nodes and back.
    pub attach: Duration,
    /// Growing and modifying at the backend.
    pub change: Duration,
    /// Snapshots, single and grouped.
    pub snapshot: Duration,
    /// A whole stream of snapshot metadata.
    pub metadata: Duration,
    /// What happens on a node.
    pub node: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            identity: Duration::from_secs(10),
            volume: Duration::from_secs(10),
            attach: Duration::from_secs(15),
            change: Duration::from_secs(10),
            snapshot: Duration::from_secs(60),
            metadata: Duration::from_secs(600),
            node: Duration::from_secs(120),
        }
    }
}

impl Deadlines {
    /// One time for all calls, as a sidecar's single `--timeout` sets it.
    pub fn all(time: Duration) -> Self {
        Self {
            identity: time,
            volume: time,
            attach: time,
            change: time,
            snapshot: time,
            metadata: time,
            node: time,
        }
    }

    /// The time that a call may take.
    pub fn of(&self, method: Method) -> Duration {
        match method {
            Method::ControllerGetCapabilities
            | Method::GroupControllerGetCapabilities
            | Method::NodeGetCapabilities => self.identity,
            Method::ControllerPublishVolume | Method::ControllerUnpublishVolume => self.attach,
            Method::ControllerExpandVolume | Method::ControllerModifyVolume => self.change,
            Method::CreateSnapshot
            | Method::DeleteSnapshot
            | Method::ListSnapshots
            | Method::GetSnapshot => self.snapshot,
            other => match other.service() {
                Service::Identity => self.identity,
                Service::Controller => self.volume,
                Service::GroupController => self.snapshot,
                Service::SnapshotMetadata => self.metadata,
                Service::Node => self.node,
            },
        }
    }
}
