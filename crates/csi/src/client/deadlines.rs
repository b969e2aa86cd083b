//! How long each kind of call may take, and its end when the time is up.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{Method, Service};

/// The peer knows the deadline too. A grpc-go server resets the stream when it
/// has passed, and may be ahead of our timer, which is coarse, by this much.
const TIMER_SLACK: Duration = Duration::from_millis(5);

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

/// A request that tells the peer how long its caller will wait.
pub(super) fn timed<R>(request: R, deadline: Duration) -> tonic::Request<R> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(deadline);
    request
}

/// The outcome of a call, or that it ran out of time.
pub(super) async fn within<T>(
    allowed: Duration,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let ends = Instant::now() + allowed;
    match tokio::time::timeout_at(ends, work).await {
        Ok(Err(status)) if is_reset(&status) && Instant::now() + TIMER_SLACK >= ends => {
            Err(out_of_time())
        }
        Ok(outcome) => outcome,
        Err(_) => Err(out_of_time()),
    }
}

/// The peer has let go of the call without an answer.
fn is_reset(status: &Status) -> bool {
    status.code() == Code::Cancelled && status.source().is_some()
}

fn out_of_time() -> Status {
    let mut status = Status::deadline_exceeded("");
    status.set_source(Arc::new(tonic::TimeoutExpired(())));
    status
}
