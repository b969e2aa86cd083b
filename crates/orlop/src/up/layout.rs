//! Where everything lies in the data folder.

use std::path::{Path, PathBuf};

/// The longest path that a unix socket can have.
const LONGEST_SOCKET: usize = 107;

/// The data folder of `orlop up`.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Held while an instance runs.
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The API server's objects.
    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// The API server's certificates.
    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// For kubectl.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Where the driver's controller half listens.
    pub(crate) fn controller_socket(&self) -> PathBuf {
        self.root.join("csi.sock")
    }

    /// All nodes' roots.
    pub(crate) fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// A node's root, laid out as the kubelet's.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.nodes().join(name)
    }

    /// Where a node's volumes of the local driver lie.
    pub(crate) fn pool(&self, node: &str) -> PathBuf {
        self.root.join("pools").join(node)
    }

    /// Where a driver's node half listens.
    pub(crate) fn node_socket(&self, node: &str, driver: &str) -> PathBuf {
        self.node(node)
            .join("plugins")
            .join(driver)
            .join("csi.sock")
    }

    /// Where a node looks for drivers.
    pub(crate) fn registry(&self, node: &str) -> PathBuf {
        self.node(node).join("plugins_registry")
    }

    /// The longest socket path that will be needed, if it is too long for the kernel.
    pub(crate) fn too_long(&self, node: &str, driver: &str) -> Option<PathBuf> {
        [
            self.node_socket(node, driver),
            self.registry(node).join(format!("{driver}-reg.sock")),
        ]
        .into_iter()
        .find(|path| path.as_os_str().len() > LONGEST_SOCKET)
    }
}
