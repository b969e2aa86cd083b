//! What shall go wrong: which call of which process, counted from 1, and how.
//!
//! Pure data; [`wire`](crate::wire) lets it happen. A plan is all that is needed, beside
//! scenario and seed, to see a failure again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

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
    /// Whether another may take its place while it runs: a node has one kubelet.
    pub fn is_elected(self) -> bool {
        !matches!(self, Self::Node(_))
    }

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
    /// As [`Fault::Crash`], and its next life is shown the past first: every cache begins
    /// with the first list that the process ever got, and catches up slowly.
    Travel(Phase),
    /// As [`Fault::Crash`], and the user meddles while it is away.
    MeddledAway(Phase),
    /// The user meddles just before the request leaves.
    Meddled,
    /// Another process takes this one's place, as if its lease had run out: this one holds
    /// the call up for a while, then goes on with what it knew, hearing of nothing new,
    /// until it notices and ends.
    Deposed(Phase),
    /// The caller gets an error instead of the reply.
    Refused(Phase, Answer),
    /// A watch ends after so many pieces; other calls go through.
    Cut(usize),
    /// What a watch tells comes late: each piece waits this long for its turn.
    Late(Duration),
    /// A watch tells nothing for this long, then ends, and can't be resumed: what came and
    /// went meanwhile is never told of.
    Blind(Duration),
}

/// An error in a reply's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 500 from the API server, INTERNAL from the driver; UNAVAILABLE after the fact, for
    /// INTERNAL would say that nothing was done.
    Error,
    /// 409 from the API server, ABORTED from the driver.
    Conflict,
    /// 429 from the API server, UNAVAILABLE from the driver.
    Busy,
}

impl Fault {
    /// On which side of the call the process dies, if it does.
    pub fn death(self) -> Option<Phase> {
        match self {
            Self::Crash(phase) | Self::Travel(phase) | Self::MeddledAway(phase) => Some(phase),
            Self::Meddled
            | Self::Deposed(_)
            | Self::Refused(..)
            | Self::Cut(_)
            | Self::Late(_)
            | Self::Blind(_) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(phase) => write!(f, "crash {phase:?}"),
            Self::Travel(phase) => write!(f, "crash {phase:?}, then the past"),
            Self::MeddledAway(phase) => write!(f, "crash {phase:?}, and the user meddles"),
            Self::Meddled => f.write_str("the user meddles"),
            Self::Deposed(phase) => write!(f, "deposed {phase:?}"),
            Self::Refused(phase, answer) => write!(f, "{answer:?} {phase:?}"),
            Self::Cut(pieces) => write!(f, "watch cut after {pieces}"),
            Self::Late(time) => write!(f, "watch late by {time:?}"),
            Self::Blind(time) => write!(f, "watch blind for {time:?}"),
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

    /// Whether nothing goes wrong.
    pub fn is_calm(&self) -> bool {
        self.faults.is_empty()
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
