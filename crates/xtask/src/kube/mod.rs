//! The test cluster: a real Kubernetes in namespaces of its own on this machine.
//!
//! ```text
//! command  `up`, `test`            what a person started
//!   keeper  own session            outlives the command; cleans up after everything
//!     unshare                      new pid, mount, net, ipc and uts namespaces
//!       init  pid 1                when it dies the kernel ends everything inside
//!         supervisor               starts and watches the components
//!           etcd, kube-apiserver, containerd, kubelet, …
//!         runner                   the scenarios, entered from outside
//! ```
//!
//! Each of these holds a pipe to the one above, and ends when that pipe does: whichever is
//! killed, all below it goes. What the kernel doesn't take back by itself (folder, cgroups, loop
//! devices) the keeper removes, or the next command does if the keeper was killed.

pub(crate) mod binaries;
mod certificates;
mod cgroups;
mod cleanup;
mod cluster;
mod commands;
mod component;
mod fitness;
pub(crate) mod folder;
mod images;
mod init;
mod keeper;
pub(crate) mod logs;
mod namespaces;
mod sanity;
mod supervisor;

pub(crate) use certificates::Authority;
pub(crate) use cleanup::loop_devices;
pub(crate) use commands::{Command, inside, run};
pub(crate) use component::{NAMES as COMPONENTS, containerd_socket, import_ours};
pub(crate) use fitness::build_all;
pub(crate) use images::{BUSYBOX, ORLOP};
pub(crate) use supervisor::client;

/// The one node's name.
pub(crate) const NODE: &str = "node-1";
/// The cluster's only address, on the loopback device of its own network namespace.
pub(crate) const ADDRESS: &str = "10.77.0.1";
/// Where the kubelet keeps its state, as everything inside sees it.
pub(crate) const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// Where the API server is reached from inside.
pub(crate) const SERVER: &str = "https://10.77.0.1:6443";
