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
use crate::dropin::flags::{Kind, shown_default};

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

/// One flag for every controller that has it.
fn for_all(owners: &[(&'static str, &'static Flag)]) -> Option<Flag> {
    let (_, first) = owners.first()?;
    let same = owners.iter().all(|(_, flag)| flag.default == first.default);
    let help = match (owners.len(), same) {
        (1, _) => first.help.clone(),
        (_, true) => Cow::Borrowed("For every controller that has it."),
        (_, false) => {
            let each = owners.iter().map(|(controller, flag)| {
                let default = shown_default(flag).unwrap_or_else(|| "none".to_owned());
                format!("{default} for the {controller}")
            });
            let each: Vec<String> = each.collect();
            Cow::Owned(format!(
                "For every controller that has it. By default {}.",
                each.join(", ")
            ))
        }
    };
    Some(Flag {
        help,
        default: if same { first.default } else { "" },
        // What one controller does not do another may: it is asked when it starts.
        support: Support::Done,
        ..(*first).clone()
    })
}

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
        let mut plain: BTreeMap<&str, Vec<(&'static str, &'static Flag)>> = BTreeMap::new();
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
                        .or_default()
                        .push((controller, flag));
                }
                flags.push(Flag {
                    name: Cow::Owned(format!("{controller}-{}", flag.name)),
                    ..flag.clone()
                });
            }
        }
        flags.extend(plain.into_values().filter_map(|owners| for_all(&owners)));
        Self { flags }
    }

    /// The gates that some controller knows.
    pub(in crate::dropin) fn knows(gate: &str) -> bool {
        let mut programs = CONTROLLERS.iter().map(|(_, role)| of(*role));
        programs.any(|program: &Program| program.gates.iter().any(|known| known.name == gate))
    }
}
