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

use orlop_csi::server::{Caller, CsiError, Services, answer};
use orlop_host::FsKind;
use tonic::{Request, Response, Status};

mod audit;
mod capability;
mod concerns;
mod condition;
pub mod controller;
mod cut;
pub(crate) mod fields;
pub mod group;
mod home;
mod identity;
mod ids;
pub(crate) mod in_flight;
mod making;
mod memory;
pub mod metadata;
mod mkfs;
pub mod node;
mod parameters;
mod pool;
mod pools;
mod reach;
mod room;
pub mod size;
mod snapshot;
mod snapshots;
pub mod topology;
mod volume;

pub use audit::leftovers;
pub use home::{Home, PoolName};
pub use identity::IdentityService;
pub use ids::PoolTag;
pub use pool::{OpenError, Pool};
pub use pools::{PoolSight, Pools};
pub use reach::Reach;
pub use room::{Allocation, Overcommit, Reserve, Rules};
pub use snapshot::{GroupId, SnapshotId};
pub use volume::{NodeName, VolumeId};

use in_flight::Concerns;
use memory::Memory;
use pools::Common;

/// The driver's name unless another is chosen.
pub const DRIVER_NAME: &str = "local.csi.orlop.dev";

/// What a driver is made of.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Its name; [`DRIVER_NAME`] unless there is a reason.
    pub driver_name: String,
    /// The file system of volumes that name none.
    pub default_fs: FsKind,
    /// The directory of each pool; made if need be.
    pub pools: BTreeMap<Home, PathBuf>,
    /// How much of the pools may be promised.
    pub rules: Rules,
    /// How many volumes a node may use at once; 0 sets no limit.
    pub max_volumes: u32,
    /// Where the paths that a node's callers name must be; anywhere for nodes without a word.
    pub reaches: BTreeMap<NodeName, Reach>,
    /// The file that remembers which pool was in which folder, so that an empty folder in place of
    /// one whose disk is not mounted is not taken for a new pool. None remembers nothing.
    pub memory: Option<PathBuf>,
}

impl LocalConfig {
    /// The usual driver over these pools, one for each node.
    #[must_use]
    pub fn new(pools: BTreeMap<NodeName, PathBuf>) -> Self {
        let home = |node| Home {
            node,
            pool: PoolName::default(),
        };
        let pools = pools.into_iter().map(|(node, dir)| (home(node), dir));
        Self {
            driver_name: DRIVER_NAME.to_owned(),
            default_fs: FsKind::Ext4,
            pools: pools.collect(),
            rules: Rules::default(),
            max_volumes: 0,
            reaches: BTreeMap::new(),
            memory: None,
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
            rules,
            max_volumes,
            reaches,
            memory,
        } = config;
        orlop_csi::limits::plugin_name(&driver_name).map_err(StartError::Name)?;
        for Home { node, .. } in pools.keys() {
            orlop_csi::limits::topology(&topology::of_node(&driver_name, node).segments).map_err(
                |source| StartError::Node {
                    node: node.0.clone(),
                    source,
                },
            )?;
        }
        let common = Common {
            driver_name,
            default_fs,
            rules,
            max_volumes,
            reaches,
            memory: Memory::open(memory),
        };
        let pools = Pools::open(common, &pools)?;
        cut::thaw_leftovers(&pools);
        Ok(Self {
            pools: Arc::new(pools),
        })
    }

    /// The pools, for audits.
    #[must_use]
    pub fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// Identity, controller, groups and snapshot metadata, over the pools of all nodes.
    pub fn controller_services(&self) -> Services {
        Services::new()
            .identity(self.identity())
            .controller(self.controller())
            .group_controller(self.group_controller())
            .snapshot_metadata(self.snapshot_metadata())
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

    /// The group controller service by itself.
    #[must_use]
    pub fn group_controller(&self) -> group::GroupControllerService {
        group::GroupControllerService::new(Arc::clone(&self.pools))
    }

    /// The snapshot metadata service by itself.
    #[must_use]
    pub fn snapshot_metadata(&self) -> metadata::SnapshotMetadataService {
        metadata::SnapshotMetadataService::new(Arc::clone(&self.pools))
    }

    /// The node service of one node by itself.
    #[must_use]
    pub fn node(&self, node: &NodeName) -> node::NodeService {
        node::NodeService::new(Arc::clone(&self.pools), node.clone())
    }
}

/// Runs one call on a blocking thread, to its end even if nobody waits for the answer any more.
///
/// The turn is taken here and now, in the order in which calls arrive, and given back by the thread
/// that did the work. A call whose caller is gone before it began does nothing at all: the caller
/// may be undoing it by now.
async fn serve<Q, R, E>(
    pools: &Arc<Pools>,
    request: Request<Q>,
    call: impl FnOnce(&Pools, &Q) -> Result<R, E> + Send + 'static,
) -> Result<Response<R>, Status>
where
    Q: Concerns + Send + 'static,
    R: Send + 'static,
    E: CsiError + Send + 'static,
{
    let caller = Caller::of(&request);
    let request = request.into_inner();
    let turn = match pools.in_flight().begin(request.subjects()) {
        Ok(turn) => turn,
        Err(busy) => return answer(Err(busy)),
    };
    let pools = Arc::clone(pools);
    let span = tracing::Span::current();
    let work = move || {
        let _turn = turn;
        if caller.is_gone() {
            return Err(Status::cancelled("the caller left before the call began"));
        }
        span.in_scope(|| {
            pools.look_after();
            answer(call(&pools, &request))
        })
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Status::internal(
            "the driver failed in an unforeseen way; see its log",
        )),
    }
}

#[cfg(test)]
mod tests;
