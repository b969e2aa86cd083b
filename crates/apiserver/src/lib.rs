//! An embedded Kubernetes API server for storage.
//!
//! [`ApiServer::open`] reads the store; [`ApiServer::service`] is the API as a tower
//! service for roles in the same process; [`ApiServer::serve`] offers it over HTTPS.
//!
//! | room | owns |
//! |---|---|
//! | [`store`] | the objects, their revisions, durability, the recent past |
//! | `watch` | what a watcher sees of the past |
//! | [`registry`] | what may happen to an object of any kind |
//! | `access` | who asks, and what they may do |
//! | `admission` | the rules of single kinds |
//! | `quota`, `amount` | how much there may be of what, and how much there is |
//! | [`definitions`] | kinds that users define |
//! | `collector` | what goes because something else went |
//! | [`pki`], `serve`, `limits` | the cluster's authority, HTTPS, what clients get at most |
//! | [`http`](mod@crate::http) | the words of the protocol |
//! | `document` | bodies as they come, JSON or YAML |
//! | `protobuf` | the other encoding of objects |
//! | [`patch`], [`table`], [`selector`], [`discovery`], [`openapi`], [`kinds`] | pure parts of the protocol |

mod access;
mod admission;
mod amount;
mod bootstrap;
mod collector;
pub mod definitions;
pub mod discovery;
mod document;
#[cfg(test)]
mod fuzz;
pub mod http;
pub mod kinds;
mod limits;
pub mod openapi;
pub mod patch;
pub mod pki;
mod poise;
mod protobuf;
mod quota;
pub mod refusal;
pub mod registry;
pub mod schema;
pub mod selector;
mod serve;
pub mod store;
pub mod table;
mod watch;

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;

pub use access::{Signer, TokenKeyError, User};

use crate::http::Sources;
pub use crate::http::{
    ApiService, LogError, LogRequest, LogSource, LogStream, NodeAnswer, NodeSource,
};
use access::Caller;
pub use limits::Limits;
pub use pki::{Pki, PkiError, Tls};
use registry::Registry;
pub use registry::{Clock, Entropy, Policy};
pub use store::Storage;
use store::{OpenError, Store};

/// How a server is set up.
pub struct Config {
    /// Where objects are kept.
    pub storage: Storage,
    /// Who keeps the logs of containers, if anybody here does.
    pub logs: Option<Arc<dyn LogSource>>,
    /// Who runs nodes that can be asked, if anybody here does.
    pub nodes: Option<Arc<dyn NodeSource>>,
    /// The time for stamps. Timers follow tokio's clock.
    pub clock: Clock,
    /// Where uids and generated names come from.
    pub entropy: Entropy,
    /// Signs the tokens of service accounts; none for a key that is gone with the process.
    pub signer: Option<Signer>,
    /// What clients get at most.
    pub limits: Limits,
    /// What happens to objects besides what must.
    pub policy: Policy,
}

impl Config {
    /// A server on this storage with the system's time and randomness.
    pub fn new(storage: Storage) -> Self {
        Self {
            storage,
            logs: None,
            nodes: None,
            clock: Clock::default(),
            entropy: Entropy::default(),
            signer: None,
            limits: Limits::default(),
            policy: Policy::default(),
        }
    }
}

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store can't be opened.
    #[error("could not open the store")]
    Store(#[source] OpenError),
    /// The objects that every cluster has can't be written.
    #[error("could not write the objects that every cluster has")]
    Bootstrap(#[source] refusal::Refusal),
    /// Tokens can't be signed.
    #[error("could not set up the signing of tokens")]
    Tokens(#[source] TokenKeyError),
}

/// A running API server.
#[derive(Debug)]
pub struct ApiServer {
    registry: Registry,
    service: ApiService,
    limits: Limits,
    collector: tokio::task::JoinHandle<()>,
}

impl ApiServer {
    /// Opens the store, reads it into memory and writes what every cluster has.
    pub async fn open(config: Config) -> Result<Self, StartError> {
        let Config {
            storage,
            logs,
            nodes,
            clock,
            entropy,
            signer,
            limits,
            policy,
        } = config;
        let store = match &storage {
            // No thread may be involved: the simulation runs on one.
            Storage::Memory => Store::open(&storage),
            Storage::Disk(_) => tokio::task::spawn_blocking(move || Store::open(&storage))
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())),
        };
        let store = store.map_err(StartError::Store)?;
        let registry = Registry {
            store,
            clock,
            entropy,
            catalog: Arc::default(),
            policy: Arc::new(policy),
            quotas: quota::Quotas::default(),
        };
        match bootstrap::write(&registry).await {
            // All there was before can be read all the same.
            Err(refusal) if refusal.is_for_room() => {
                tokio::spawn(bootstrap::write_when_there_is_room(registry.clone()));
            }
            written => written.map_err(StartError::Bootstrap)?,
        }
        let signer = signer.map_or_else(Signer::ephemeral, Ok);
        let signer = Arc::new(signer.map_err(StartError::Tokens)?);
        let service = ApiService::new(registry.clone(), Sources { logs, nodes }, signer, &limits);
        let collector = tokio::spawn(collector::run(registry.clone()));
        Ok(Self {
            registry,
            service,
            limits,
            collector,
        })
    }

    /// The API as a tower service for this process: `kube::Client::new(server.service(), "default")`.
    pub fn service(&self) -> ApiService {
        self.service.clone()
    }

    /// The API as a user sees it, for parts of this process that are to be held to their roles.
    pub fn service_as(&self, user: User) -> ApiService {
        self.service.clone().called_by(Caller::Known(user))
    }

    /// Serves HTTPS on this listener until `shutdown` resolves. Several may run at once.
    pub fn serve(
        &self,
        listener: TcpListener,
        tls: Tls,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        serve::run(self.service(), listener, tls, self.limits.clone(), shutdown)
    }

    /// The store beneath the API, for whoever must see every change as it is committed,
    /// such as the simulation's witness. Reading it is all that is meant.
    pub fn store(&self) -> &Store {
        &self.registry.store
    }

    /// Writes what is queued and closes the store's file.
    pub async fn shutdown(self) {
        self.collector.abort();
        self.registry.store.close().await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.collector.abort();
    }
}
