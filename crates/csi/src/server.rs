//! What a driver stands on: its services behind a socket, started and stopped
//! in an orderly way.
//!
//! [`Services`] gathers the implementations, [`Socket`] (or
//! [`memory::Listener`](crate::memory::Listener)) serves them, [`answer`] turns
//! a handler's outcome into a reply.
//!
//! # Peers
//! The kubelet's plugin watcher and clients on gRPC's C core send the socket's path as
//! `:authority`, which HTTP/2 below us refuses; it is mended on the way in.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tower::Layer as _;

use crate::metrics::Metrics;
use crate::{proto, registration};

mod authority;
mod caller;
mod connections;
mod mended;
mod socket;
mod status;
mod watch;

pub use caller::Caller;
pub use socket::{BindError, Socket};
pub use status::{CsiError, answer, status};

/// Time for running calls to end at a stop; within a pod's usual 30 s.
const GRACE: Duration = Duration::from_secs(20);

/// Why serving ended before it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket could not be listened at.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The socket takes no connections any more.
    #[error("could not accept connections")]
    Accept(#[source] io::Error),
}

/// The services of one server. What is not added answers `UNIMPLEMENTED`.
#[must_use]
pub struct Services {
    routes: Routes,
    observer: Option<Arc<watch::Observer>>,
    grace: Duration,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            routes: Routes::default(),
            observer: None,
            grace: GRACE,
        }
    }
}

macro_rules! services {
    ($($doc:literal $name:ident: $module:ident::{$service:ident, $server:ident};)+) => {
        $(
            #[doc = $doc]
            pub fn $name(self, service: impl $module::$service) -> Self {
                self.add($module::$server::new(service))
            }
        )+
    };
}

use proto::{
    controller_server, group_controller_server, identity_server, node_server,
    snapshot_metadata_server,
};
use registration::registration_server;

impl Services {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    services! {
        "With the driver's name, capabilities and health."
        identity: identity_server::{Identity, IdentityServer};
        "With volumes and snapshots."
        controller: controller_server::{Controller, ControllerServer};
        "With group snapshots."
        group_controller: group_controller_server::{GroupController, GroupControllerServer};
        "With changed blocks."
        snapshot_metadata: snapshot_metadata_server::{SnapshotMetadata, SnapshotMetadataServer};
        "With volumes on a node."
        node: node_server::{Node, NodeServer};
        "With the registration that the kubelet calls."
        registration: registration_server::{Registration, RegistrationServer};
    }

    /// Counts every call in a histogram, under the driver's name.
    pub fn observed(self, driver: impl Into<String>, metrics: Metrics) -> Self {
        let observer = Some(Arc::new(watch::Observer {
            driver: driver.into(),
            metrics,
        }));
        Self { observer, ..self }
    }

    /// With another time for running calls to end at a stop; they are cut off
    /// after it, and their callers told `UNAVAILABLE`.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    fn add<S>(self, service: S) -> Self
    where
        S: tower::Service<
                http::Request<tonic::body::Body>,
                Response = http::Response<tonic::body::Body>,
                Error = std::convert::Infallible,
            > + tonic::server::NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Self {
            routes: self.routes.add_service(service),
            ..self
        }
    }

    /// Serves what comes in until `shutdown`. Dropping the future kills the
    /// calls that are running.
    pub(crate) async fn run<I, C>(
        self,
        incoming: I,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        I: Stream<Item = io::Result<C>>,
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let kill = CancellationToken::new();
        let _killed_at_the_latest_on_drop = kill.clone().drop_guard();
        let running = TaskTracker::new();
        let stopping = CancellationToken::new();
        let watch = watch::Watch {
            observer: self.observer,
            running: running.clone(),
            kill: kill.clone(),
        };
        let service = watch.layer(self.routes.prepare());
        let serve = async {
            let served = connections::serve(incoming, service, stopping.clone()).await;
            // Calls outlive callers that hung up.
            running.close();
            running.wait().await;
            served.map_err(ServeError::Accept)
        };
        let stop = async {
            shutdown.await;
            stopping.cancel();
            tokio::time::sleep(self.grace).await;
            kill.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = serve => outcome,
            () = stop => Ok(()),
        }
    }
}

/// Listens at `endpoint` and serves until `shutdown`. To know when the socket
/// is there, use [`Socket::bind`] and [`Socket::serve`].
pub async fn serve(
    endpoint: &str,
    services: Services,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    Socket::bind(endpoint)?.serve(services, shutdown).await
}

#[cfg(test)]
mod tests;
