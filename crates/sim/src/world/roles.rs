//! Which roles a process runs, and with what.

use std::path::PathBuf;
use std::sync::Arc;

use orlop_csi::{Driver, Gate, memory};
use orlop_node::{
    Announcement, ChannelRegistrations, DriverConnector, NodeConfig, PluginId, Seams,
};
use orlop_runtime::Process;

use super::{StartRole, runner::FakeRunner};
use crate::driver;
use crate::wire::Wire;

pub(super) fn control(process: &Process, attach_detach: StartRole) {
    orlop_control::binder::start(process);
    attach_detach(process);
    orlop_control::protection::start(process);
    orlop_control::ephemeral::start(process);
    orlop_control::expand::start(process);
}

pub(super) fn scheduler(process: &Process) {
    orlop_scheduler::start(process);
}

pub(crate) fn provisioner(process: &Process, driver: Driver) {
    orlop_sidecars::provisioner::start(process, driver, Default::default());
}

pub(super) fn attacher(process: &Process, driver: Driver) {
    orlop_sidecars::attacher::start(process, driver, Default::default());
}

pub(crate) fn resizer(process: &Process, driver: Driver) {
    orlop_sidecars::resizer::start(process, driver, Default::default());
}

pub(crate) fn snapshotter(process: &Process, driver: Driver) {
    orlop_sidecars::snapshotter::start(process, driver, Default::default());
}

pub(crate) fn snapshot_controller(process: &Process) {
    orlop_sidecars::snapshot_controller::start(process, Default::default());
}

/// What outlives the processes of a node.
pub(super) struct NodePlace {
    name: String,
    root: PathBuf,
    socket: memory::Socket,
    runner: FakeRunner,
}

impl NodePlace {
    pub(super) fn new(
        name: String,
        root: PathBuf,
        socket: memory::Socket,
        runner: FakeRunner,
    ) -> Self {
        Self {
            name,
            root,
            socket,
            runner,
        }
    }

    /// The machine has no power any more: nothing on it runs.
    pub(super) fn go_dark(&self) {
        self.runner.go_dark();
    }

    pub(super) fn start(&self, process: &Process, wire: &Wire) {
        let (announcer, registrations) = ChannelRegistrations::new();
        // The driver's registrar lives on, and tells every node role that comes up.
        announcer.came(
            PluginId(driver::NAME.to_owned()),
            Announcement {
                kind: "CSIPlugin".to_owned(),
                name: driver::NAME.to_owned(),
                endpoint: "in memory".to_owned(),
                versions: vec!["1.0.0".to_owned()],
            },
        );
        // The role takes an end of the sightings for the end of the world.
        process.spawn("announcer", async move {
            let _announcer = announcer;
            std::future::pending().await
        });
        let connector = InMemory {
            socket: self.socket.clone(),
            gate: wire.gate(),
        };
        let seams = Seams {
            runner: Arc::new(self.runner.clone()),
            connector: Arc::new(connector),
            registrations: Box::new(registrations),
        };
        orlop_node::start(process, NodeConfig::new(&self.name, &self.root), seams);
    }
}

/// The one driver there is.
struct InMemory {
    socket: memory::Socket,
    gate: Arc<dyn Gate>,
}

impl DriverConnector for InMemory {
    fn connect(&self, _: &str) -> Result<Driver, String> {
        Ok(Driver::in_memory(&self.socket).with_gate(Arc::clone(&self.gate)))
    }
}
