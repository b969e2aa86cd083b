//! What a container is to be: the intent that is on record before it starts.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything the shim needs to know to run one container, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ContainerSpec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The whole environment; nothing is inherited. `PATH`, `HOSTNAME` and
    /// `HOME` get sensible values where they are not named.
    pub env: Vec<EnvVar>,
    /// Where the program starts; made if it is missing. `/` by default.
    pub working_dir: Option<PathBuf>,
    /// The host name that the container sees; the host's own by default.
    pub hostname: Option<String>,
    /// Volumes.
    pub mounts: Vec<Mount>,
    /// Raw block devices.
    pub devices: Vec<Device>,
    /// Host folders that the container must find empty, such as the node's own.
    pub hidden: Vec<PathBuf>,
    /// Who the program runs as.
    pub user: User,
    /// What the program may do to the kernel.
    pub privilege: Privilege,
    /// Whether the container may write outside its volumes.
    pub root: Writable,
}

/// One environment variable. Its value may be a secret: `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvVar {
    /// The variable's name.
    pub name: String,
    /// The variable's value.
    pub value: String,
}

impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=…", self.name)
    }
}

/// A folder or file of the host, seen at a path in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What the pod calls the volume.
    #[serde(default)]
    pub volume: String,
    /// On the host.
    pub source: PathBuf,
    /// Only this part of it, made as a folder if it is missing. Resolved at the
    /// moment of mounting and never out of the volume: what lies in it is not to
    /// be trusted.
    #[serde(default)]
    pub sub_path: Option<PathBuf>,
    /// In the container.
    pub target: PathBuf,
    /// Whether the container may write to it.
    pub access: Writable,
    /// Whether the same holds for what is mounted below it.
    #[serde(default)]
    pub below: Below,
    /// Which way later mounts below it travel.
    pub propagation: Propagation,
}

/// May it be written to?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Writable {
    /// Yes.
    #[default]
    ReadWrite,
    /// No.
    ReadOnly,
}

/// What a read-only mount means for the mounts below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Below {
    /// They are as they are.
    #[default]
    AsItIs,
    /// They are read-only too.
    ReadOnly,
    /// The same where it can be had; here it always can.
    ReadOnlyIfPossible,
}

/// Kubernetes' `mountPropagation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Propagation {
    /// Later mounts stay on the side that made them.
    #[default]
    None,
    /// Later mounts of the host appear in the container.
    HostToContainer,
    /// And the container's on the host.
    Bidirectional,
}

/// A block device of the host, seen at a path in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// A device node on the host, or a link to one.
    pub source: PathBuf,
    /// In the container.
    pub target: PathBuf,
}

/// Who a program runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct User {
    /// User id; root by default.
    pub uid: u32,
    /// Primary group id; root by default.
    pub gid: u32,
    /// Further groups, the pod's `fsGroup` among them.
    pub groups: Vec<u32>,
}

/// What a program may do to the kernel when it runs as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Privilege {
    /// What container runtimes grant by default, less the making of device
    /// nodes: there is no device cgroup here that would hold them back.
    #[default]
    Restricted,
    /// Everything, and the host's devices.
    Full,
}
