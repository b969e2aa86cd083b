//! The programs that we stand in for: their names, flags and feature gates.
//!
//! Names and defaults are the originals' at their newest releases; a test compares them with
//! the reference as a table.

use super::flags::{Dialect, Flag, Support};

mod attacher;
mod health_monitor;
mod liveness_probe;
mod nfs_plugin;
mod provisioner;
mod registrar;
mod resizer;
mod shared;
mod snapshot_controller;
mod snapshotter;
mod together;

use attacher::ATTACHER;
use health_monitor::HEALTH_MONITOR;
use liveness_probe::LIVENESS_PROBE;
use nfs_plugin::NFS_PLUGIN;
use provisioner::PROVISIONER;
use registrar::REGISTRAR;
use resizer::RESIZER;
use snapshot_controller::SNAPSHOT_CONTROLLER;
use snapshotter::SNAPSHOTTER;

pub(super) use together::{CONTROLLERS, ON_NODES, Together};

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Provisioner,
    Attacher,
    Resizer,
    Snapshotter,
    SnapshotController,
    HealthMonitor,
    Registrar,
    LivenessProbe,
    NfsDriver,
}

/// A feature gate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    pub(super) name: &'static str,
    pub(super) default: bool,
    pub(super) support: Support,
}

/// A program that we stand in for.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) dialect: Dialect,
    /// What it shares with the others.
    shared: &'static [&'static [Flag]],
    /// What it alone has, or has with a default of its own.
    pub(super) own: &'static [Flag],
    pub(super) gates: &'static [Gate],
}

impl Program {
    /// All its flags.
    pub(super) fn flags(&self) -> Vec<Flag> {
        self.shared
            .iter()
            .copied()
            .flatten()
            .chain(self.own)
            .cloned()
            .collect()
    }

    /// One of its flags.
    pub(super) fn flag(&self, name: &str) -> Option<&'static Flag> {
        let mut all = self.shared.iter().copied().flatten().chain(self.own);
        all.find(|flag| flag.name == name)
    }
}

/// The program of a name, be it a path.
pub(super) fn called(name: &str) -> Option<&'static Program> {
    let name = name.rsplit('/').next().unwrap_or(name);
    ALL.iter().copied().find(|program| program.name == name)
}

/// Those of this role.
pub(super) fn of(role: Role) -> &'static Program {
    // There is one for each, as a test says.
    ALL.iter()
        .copied()
        .find(|program| program.role == role)
        .unwrap_or(&PROVISIONER)
}

/// Whether a gate is one that any manifest may still have, though it changes nothing here.
pub(super) fn gone(gate: &str) -> bool {
    shared::GONE.contains(&gate)
}

/// All of them.
pub(super) static ALL: [&Program; 9] = [
    &PROVISIONER,
    &ATTACHER,
    &RESIZER,
    &SNAPSHOTTER,
    &SNAPSHOT_CONTROLLER,
    &HEALTH_MONITOR,
    &REGISTRAR,
    &LIVENESS_PROBE,
    &NFS_PLUGIN,
];

#[cfg(test)]
mod tests;
