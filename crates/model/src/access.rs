//! How a volume may be used: by how many nodes, and as a file system or a device.

use serde::{Deserialize, Serialize};

/// Who may use a volume at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AccessMode {
    /// Read and written on one node.
    ReadWriteOnce,
    /// Read on many nodes.
    ReadOnlyMany,
    /// Read and written on many nodes.
    ReadWriteMany,
    /// Read and written by one pod.
    ReadWriteOncePod,
}

/// Whether the modes let the volume be attached to several nodes. No modes at all say
/// nothing against it.
pub fn allows_many_nodes(modes: &[AccessMode]) -> bool {
    modes.is_empty()
        || modes
            .iter()
            .any(|m| matches!(m, AccessMode::ReadWriteMany | AccessMode::ReadOnlyMany))
}

/// Whether pods see files or a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum VolumeMode {
    /// A mounted file system.
    #[default]
    Filesystem,
    /// A raw block device.
    Block,
}
