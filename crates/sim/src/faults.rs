//! What shall go wrong: which call of which process, counted from 1, and how.
//!
//! Pure data; [`wire`](crate::wire) lets it happen. A plan is all that is needed, beside
//! scenario and seed, to see a failure again.

use std::collections::BTreeMap;
use std::fmt;

/// A simulated process: the roles that live and die together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// Binder, attach-detach, protection, ephemeral claims.
    Control,
    /// The pod scheduler.
    Scheduler,
    /// The provisioner, beside the driver.
    Provisioner,
    /// The attacher, beside the driver.
    Attacher,
    /// The resizer, beside the driver.
    Resizer,
    /// The snapshotter, beside the driver.
    Snapshotter,
    /// The snapshot controller.
    SnapshotController,
    /// A node, counted from 1.
    Node(u8),
}

impl Member {
    /// The processes of a cluster with so many nodes.
    pub fn all(nodes: u8) -> Vec<Self> {
        let mut all = vec![
            Self::Control,
            Self::Scheduler,
            Self::Provisioner,
            Self::Attacher,
            Self::Resizer,
        ];
        all.extend((1..=nodes).map(Self::Node));
        all
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control => f.write_str("control"),
            Self::Scheduler => f.write_str("scheduler"),
            Self::Provisioner => f.write_str("provisioner"),
            Self::Attacher => f.write_str("attacher"),
            Self::Resizer => f.write_str("resizer"),
            Self::Snapshotter => f.write_str("snapshotter"),
            Self::SnapshotController => f.write_str("snapshot-controller"),
            Self::Node(number) => write!(f, "node-{number}"),
        }
    }
}

/// On which side of a call's effect something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The request is never sent.
    Before,
    /// The request is carried out, its reply is lost.
    After,
}

impl Phase {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];
}

/// What goes wrong at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process dies, and comes back after a while.
    Crash(Phase),
    /// The caller gets an error instead of the reply: 500 from the API server, INTERNAL
    /// from the gate of the driver.
    Error(Phase),
    /// A watch ends after so many pieces; other calls go through.
    Cut(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(phase) => write!(f, "crash {phase:?}"),
            Self::Error(phase) => write!(f, "error {phase:?}"),
            Self::Cut(pieces) => write!(f, "watch cut after {pieces}"),
        }
    }
}

/// Every fault of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    faults: BTreeMap<(Member, u64), Fault>,
}

impl Plan {
    /// Nothing goes wrong.
    pub fn calm() -> Self {
        Self::default()
    }

    /// One thing goes wrong.
    pub fn one(member: Member, call: u64, fault: Fault) -> Self {
        Self::calm().and(member, call, fault)
    }

    /// Also this.
    #[must_use]
    pub fn and(mut self, member: Member, call: u64, fault: Fault) -> Self {
        self.faults.insert((member, call), fault);
        self
    }

    /// What goes wrong at a call.
    pub fn at(&self, member: Member, call: u64) -> Option<Fault> {
        self.faults.get(&(member, call)).copied()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faults.is_empty() {
            return f.write_str("no fault");
        }
        for (index, ((member, call), fault)) in self.faults.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{member} at call {call}: {fault}")?;
        }
        Ok(())
    }
}
