//! The NFS driver: a volume is a folder of an NFS export.
//!
//! It reads and writes what csi-driver-nfs does: the same class parameters, volume ids, snapshot
//! archives. Whatever touches a server happens in a worker, a process of its own with mounts of its
//! own ([`hands`]): a server that is gone blocks nothing but that, and whatever the worker mounted is
//! gone with it. What a call shall do is decided here, from the request alone, and written down as an
//! [`order::Order`]; how it is done is in [`work`].
//!
//! Invariants: nothing outside of the share is touched, and in it nothing but the folder that the id
//! names, `archived-…`, [`HOUSE`] and, on a full share, `.orlop-gone-…`; no link is followed; the share's
//! root is never removed; a volume's folder leaves its name in one step, before anything of it is deleted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orlop_csi::server::Services;

mod controller;
mod crew;
mod diagnosis;
mod export;
mod failure;
mod hands;
mod identity;
mod ids;
mod node;
mod options;
mod order;
mod parameters;
mod record;
mod shown;
mod signs;
mod sub_dir;
mod work;

pub use crew::Crew;
pub use hands::Hands;
pub use parameters::OnDelete;
pub use work::worker_main;

use crate::local::Reach;
use crate::local::in_flight::InFlight;

/// The original's name, so that its volumes are ours.
pub const DRIVER_NAME: &str = "nfs.csi.k8s.io";

/// The folder in a share that is the driver's own: records, half-made things, what is to be deleted.
pub(crate) const HOUSE: &str = ".orlop-csi";

/// How long a call may take whose caller sets no deadline.
const PATIENCE: Duration = Duration::from_secs(110);

/// What a driver is made of.
#[derive(Clone, Debug)]
pub struct NfsConfig {
    /// Its name; [`DRIVER_NAME`] unless there is a reason.
    pub driver_name: String,
    /// What it calls this node.
    pub node: String,
    /// Permissions of a volume's folder where neither class nor attributes name any; 0 leaves them.
    pub mount_permissions: u32,
    /// What happens to the folder of a deleted volume where the class says nothing.
    pub on_delete: OnDelete,
    /// How long a volume's figures are told again without a look.
    pub stats_age: Duration,
    /// Whether an older archive of the same volume makes way for a new one.
    pub remove_archived: bool,
    /// Whether snapshots are compressed.
    pub compress: bool,
    /// Where the paths that callers name must be.
    pub reach: Reach,
    /// An empty folder that workers, and nobody else, see shares mounted on.
    pub working_dir: PathBuf,
    /// Who does the work.
    pub hands: Hands,
}

impl NfsConfig {
    /// The usual driver of a node.
    #[must_use]
    pub fn new(node: &str, hands: Hands) -> Self {
        Self {
            driver_name: DRIVER_NAME.to_owned(),
            node: node.to_owned(),
            mount_permissions: 0,
            on_delete: OnDelete::Delete,
            stats_age: Duration::from_secs(600),
            remove_archived: false,
            compress: true,
            reach: Reach::Anywhere,
            working_dir: PathBuf::from("/tmp"),
            hands,
        }
    }
}

/// What all services share.
#[derive(Debug)]
struct Shared {
    config: NfsConfig,
    in_flight: InFlight,
    memory: node::Memory,
    options: options::Remembered,
}

/// The driver.
#[derive(Clone, Debug)]
pub struct NfsDriver {
    shared: Arc<Shared>,
}

impl NfsDriver {
    /// A driver; nothing is mounted or looked at before the first call.
    pub fn new(config: NfsConfig) -> Result<Self, orlop_csi::limits::LimitError> {
        orlop_csi::limits::plugin_name(&config.driver_name)?;
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                in_flight: InFlight::default(),
                memory: node::Memory::default(),
                options: options::Remembered::default(),
            }),
        })
    }

    /// Everything on one endpoint.
    pub fn services(&self) -> Services {
        Services::new()
            .identity(identity::IdentityService::new(Arc::clone(&self.shared)))
            .controller(controller::ControllerService::new(Arc::clone(&self.shared)))
            .node(node::NodeService::new(Arc::clone(&self.shared)))
    }
}

#[cfg(test)]
mod tests;
