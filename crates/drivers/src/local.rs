//! The local driver: sized volumes on a node's own file system, nothing to set up.
//!
//! A volume is a sparse image in a pool directory, brought to life by a loop device. One [`Pools`]
//! serves every endpoint of the process: one controller over the pools of all nodes, and a node
//! service per node. On a cluster that is one pool and one endpoint with everything; on one machine
//! with several simulated nodes it is one controller and many node endpoints.
//!
//! Invariants: what is on disk is the truth, and a kill at any instruction leaves it readable; a
//! volume that ever held data is never formatted; nothing outside of the pool and the paths that
//! the caller named is touched.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use orlop_csi::server::{CsiError, Services, answer};
use orlop_host::FsKind;
use tonic::{Request, Response, Status};

mod audit;
mod capability;
pub mod controller;
mod fields;
mod identity;
mod in_flight;
pub mod node;
mod parameters;
mod pool;
mod pools;
mod size;
pub mod topology;
mod volume;

pub use audit::leftovers;
pub use identity::IdentityService;
pub use pool::{OpenError, Pool};
pub use pools::Pools;
pub use volume::{NodeName, VolumeId};

/// The driver's name unless another is chosen.
pub const DRIVER_NAME: &str = "local.csi.orlop.dev";

/// What a driver is made of.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Its name; [`DRIVER_NAME`] unless there is a reason.
    pub driver_name: String,
    /// The file system of volumes that name none.
    pub default_fs: FsKind,
    /// The pool directory of each node; made if need be.
    pub pools: BTreeMap<NodeName, PathBuf>,
}

impl LocalConfig {
    /// The usual driver over these pools.
    #[must_use]
    pub fn new(pools: BTreeMap<NodeName, PathBuf>) -> Self {
        Self {
            driver_name: DRIVER_NAME.to_owned(),
            default_fs: FsKind::Ext4,
            pools,
        }
    }
}

/// Why the driver did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The name is not one.
    #[error("the driver's name cannot be used")]
    Name(#[source] orlop_csi::limits::LimitError),
    /// A node's name cannot be a topology's value.
    #[error("the name of node {node:?} cannot be used")]
    Node {
        /// The node.
        node: String,
        /// Why.
        #[source]
        source: orlop_csi::limits::LimitError,
    },
    /// A pool could not be opened.
    #[error(transparent)]
    Pool(#[from] OpenError),
}

/// The driver: pools, and the services over them.
#[derive(Clone, Debug)]
pub struct LocalDriver {
    pools: Arc<Pools>,
}

impl LocalDriver {
    /// Opens all pools and cleans up what a killed driver left in them. Blocks.
    pub fn open(config: LocalConfig) -> Result<Self, StartError> {
        let LocalConfig {
            driver_name,
            default_fs,
            pools,
        } = config;
        orlop_csi::limits::plugin_name(&driver_name).map_err(StartError::Name)?;
        for node in pools.keys() {
            orlop_csi::limits::topology(&topology::of_node(&driver_name, node).segments).map_err(
                |source| StartError::Node {
                    node: node.0.clone(),
                    source,
                },
            )?;
        }
        let pools = Pools::open(driver_name, default_fs, &pools)?;
        Ok(Self {
            pools: Arc::new(pools),
        })
    }

    /// The pools, for audits.
    #[must_use]
    pub fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// Identity and controller, over the pools of all nodes.
    pub fn controller_services(&self) -> Services {
        Services::new()
            .identity(self.identity())
            .controller(self.controller())
    }

    /// Identity and node, for one node.
    pub fn node_services(&self, node: &NodeName) -> Services {
        Services::new()
            .identity(self.identity())
            .node(self.node(node))
    }

    /// Everything on one endpoint, as a driver on a cluster's node has it.
    pub fn services(&self, node: &NodeName) -> Services {
        self.controller_services().node(self.node(node))
    }

    /// The identity service by itself.
    #[must_use]
    pub fn identity(&self) -> IdentityService {
        IdentityService::new(Arc::clone(&self.pools))
    }

    /// The controller service by itself.
    #[must_use]
    pub fn controller(&self) -> controller::ControllerService {
        controller::ControllerService::new(Arc::clone(&self.pools))
    }

    /// The node service of one node by itself.
    #[must_use]
    pub fn node(&self, node: &NodeName) -> node::NodeService {
        node::NodeService::new(Arc::clone(&self.pools), node.clone())
    }
}

/// Runs one call on a blocking thread, to its end even if nobody waits for the answer any more.
async fn serve<Q, R, E>(
    pools: &Arc<Pools>,
    request: Request<Q>,
    call: impl FnOnce(&Pools, &Q) -> Result<R, E> + Send + 'static,
) -> Result<Response<R>, Status>
where
    Q: Send + 'static,
    R: Send + 'static,
    E: CsiError + Send + 'static,
{
    let pools = Arc::clone(pools);
    let request = request.into_inner();
    let span = tracing::Span::current();
    let work = move || span.in_scope(|| call(&pools, &request));
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => answer(outcome),
        Err(_) => Err(Status::internal(
            "the driver failed in an unforeseen way; see its log",
        )),
    }
}

#[cfg(test)]
mod tests;
