//! Many controllers in one process: the flags of all of them at once.
//!
//! A flag of one controller has that controller's name before its own: `--attacher-timeout`. The
//! plain name speaks to every controller that has such a flag; the longer one wins.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::shared::{API, ELECTION, LOGGING, SIDECAR, done};
use super::{Flag, Program, Role, Support, of};
use crate::dropin::flags::Kind;

/// The controllers that can run together, by the names they are chosen by.
pub(in crate::dropin) const CONTROLLERS: [(&str, Role); 6] = [
    ("provisioner", Role::Provisioner),
    ("attacher", Role::Attacher),
    ("resizer", Role::Resizer),
    ("snapshotter", Role::Snapshotter),
    ("snapshot-controller", Role::SnapshotController),
    ("health-monitor", Role::HealthMonitor),
];

/// What runs on every node, and not beside a controller.
pub(in crate::dropin) const ON_NODES: [&str; 2] = ["node-driver-registrar", "livenessprobe"];

const CHOICE: Flag = done(
    "controllers",
    Kind::Text,
    "*",
    "Which to run: provisioner, attacher, resizer, snapshotter, health-monitor, snapshot-controller; \
     * for all that the driver can do (but snapshot-controller, of which a cluster has one), -NAME for \
     all but one. On a node: node-driver-registrar, or node-driver-registrar,livenessprobe.",
);

/// The flags of all of them.
pub(in crate::dropin) struct Together {
    pub(in crate::dropin) flags: Vec<Flag>,
}

impl Together {
    /// Made anew: it is needed once.
    pub(in crate::dropin) fn new() -> Self {
        let shared = [API, ELECTION, SIDECAR, LOGGING];
        let mut flags: Vec<Flag> = shared.into_iter().flatten().cloned().collect();
        flags.push(CHOICE);
        let mut plain: BTreeMap<&str, Flag> = BTreeMap::new();
        let everybodys: BTreeSet<Cow<'_, str>> = flags.iter().map(|f| f.name.clone()).collect();
        let [registrar, _] = ON_NODES;
        for (controller, role) in CONTROLLERS
            .into_iter()
            .chain([(registrar, Role::Registrar)])
        {
            for flag in of(role).own {
                if !everybodys.contains(&flag.name) {
                    plain
                        .entry(&flag.name)
                        .and_modify(|known| known.help = "For every controller that has it.")
                        .or_insert_with(|| flag.clone());
                }
                flags.push(Flag {
                    name: Cow::Owned(format!("{controller}-{}", flag.name)),
                    ..flag.clone()
                });
            }
        }
        // What one controller does not do another may: it is asked when it starts.
        flags.extend(plain.into_values().map(|flag| Flag {
            support: Support::Done,
            ..flag
        }));
        Self { flags }
    }

    /// The gates that some controller knows.
    pub(in crate::dropin) fn knows(gate: &str) -> bool {
        let mut programs = CONTROLLERS.iter().map(|(_, role)| of(*role));
        programs.any(|program: &Program| program.gates.iter().any(|known| known.name == gate))
    }
}
