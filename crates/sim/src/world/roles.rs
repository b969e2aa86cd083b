//! Which roles a process runs, and with what.

use std::path::PathBuf;

use orlop_csi::{Driver, memory};
use orlop_runtime::Process;

use crate::wire::Wire;
use crate::witness::Witness;

pub(super) fn control(process: &Process) {
    orlop_control::binder::start(process);
    orlop_control::attach_detach::start(process);
    orlop_control::protection::start(process);
    orlop_control::ephemeral::start(process);
}

pub(super) fn scheduler(_: &Process) {}

pub(super) fn provisioner(process: &Process, driver: Driver) {
    orlop_sidecars::provisioner::start(process, driver, Default::default());
}

pub(super) fn attacher(process: &Process, driver: Driver) {
    orlop_sidecars::attacher::start(process, driver, Default::default());
}

/// What outlives the processes of a node.
pub(super) struct NodePlace {
    root: PathBuf,
    socket: memory::Socket,
}

impl NodePlace {
    pub(super) fn make(root: PathBuf, socket: memory::Socket, _witness: &Witness) -> Self {
        Self { root, socket }
    }

    pub(super) fn start(&self, _process: &Process, _wire: &Wire, _name: &str) {
        let _ = (&self.root, &self.socket);
    }
}
