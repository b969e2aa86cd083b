//! Local disks as persistent volumes.
//!
//! One instance per node looks into configured folders, one or more per class, and makes a
//! volume of each mounted file system or block device that it finds there: same names,
//! annotations, labels and configuration as sig-storage-local-static-provisioner's. When a
//! claim gives a volume with policy `Delete` back, its disk is cleaned, the volume deleted,
//! and the disk found anew.
//!
//! ```text
//! disk found --> volume offered --> bound --> released --> being cleaned --> clean
//!      ^                                                        |  (crash: goes on)  |
//!      +--------------------------------------------------------------- volume deleted
//! ```
//!
//! A finalizer stands on every volume until its disk is known to be clean: whoever deletes a
//! volume early doesn't get its disk offered with somebody's data. Volumes name their node's
//! uid in their affinity, so that another machine of the same name doesn't take them for its
//! own; and that machine cleans them before it offers what it finds in their place.
//!
//! Must never: clean a disk of a volume that isn't released, or whose claim still exists;
//! offer a disk while a volume stands for it; leave the folder that a disk is mounted at.

pub mod clean;
pub mod config;
pub mod disks;
pub mod identity;
pub mod metrics;
pub mod missing;
pub mod node_cleanup;
pub mod offer;
pub mod pattern;
mod provisioner;
pub mod record;
pub mod volume;
pub mod wipe;

pub use config::{Config, ConfigError};
pub use provisioner::{Readiness, Settings, start};

#[cfg(test)]
mod trials;
