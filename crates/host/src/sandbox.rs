//! A container without a container runtime: host processes in namespaces of
//! their own, over an overlay of the host's root.
//!
//! Owns: the per-container shim, the container's mount tree, its state folder
//! and its log. It never changes the host's tree or mount table, and it never
//! lets a container hold on to a mount it was not given: a mount that stayed
//! behind in a container's namespace would keep its device busy after the host
//! unmounted it.
//!
//! ```text
//! node role ──spawns──> launching process ──forks──> shim ──forks──> init ──forks──> workload
//!  (may die)             (ends once the            host's mounts    pid 1 of its     the command
//!                         workload runs)           writes the log   own pid and
//!                                                  and the exit     mount namespace
//! ```
//!
//! Containers outlive the node role: the shim is no child of it once the
//! launching process has ended. What a later node role needs to take a container
//! over lies in the state folder, one per attempt to run a container:
//!
//! | file | written by | says |
//! |---|---|---|
//! | `spec.json` | launcher, first | what shall run: the intent |
//! | `lock` | shim and init hold it | somebody of this container is alive |
//! | `shim.json` | shim, before the workload can run | who they are |
//! | `started.json` | shim | the command has been executed |
//! | `exit.json` | shim, last | how it ended; everything of it is gone |
//! | `log` | shim | stdout and stderr, in the CRI log format |
//! | `log.1` | shim | the part before, once `log` grew too long |
//!
//! Files are replaced by rename, without fsync: they must survive the death of
//! any process, and after the death of the whole host no container is left that
//! they could describe (the boot id in `shim.json` tells).

mod devices;
mod exec;
mod init;
mod launcher;
pub mod log;
mod root;
mod shim;
mod spec;
mod state;
mod sys;

pub use launcher::{Adopted, Ended, Launcher, RunError, Running, ShimCommand};
pub use shim::shim_main;
pub use spec::{
    Below, ContainerSpec, Device, EnvVar, Mount, Privilege, Propagation, User, Writable,
};
pub use state::{Exit, ExitReason, StateDir, StateError};
