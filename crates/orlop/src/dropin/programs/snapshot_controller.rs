//! The flags of `snapshot-controller`.

use super::shared::{
    API, ELECTION, FEATURE_GATES, LOGGING, RELEASE, RETRY_MAX, RETRY_START, done, gate, moot,
};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind, Support};
use Kind::{Bool, Duration, Int};

pub(super) static SNAPSHOT_CONTROLLER: Program = Program {
    name: "snapshot-controller",
    role: Role::SnapshotController,
    dialect: Dialect::Go,
    shared: &[API, ELECTION, LOGGING],
    own: &[
        moot(
            "resync-period",
            Duration,
            "15m",
            "Taken, without effect: nothing is missed that a resync would find.",
        ),
        done(
            "worker-threads",
            Int,
            "10",
            "Snapshots that are worked on at once.",
        ),
        RETRY_START,
        RETRY_MAX,
        done(
            "enable-distributed-snapshotting",
            Bool,
            "false",
            "Contents say which node's snapshotter is to work on them.",
        ),
        done(
            "prevent-volume-mode-conversion",
            Bool,
            "true",
            "Contents say what mode their volume had.",
        ),
        moot(
            "retry-crd-interval-max",
            Duration,
            "30s",
            "How long the snapshot kinds are waited for.",
        ),
        FEATURE_GATES,
    ],
    gates: &[gate("CSIVolumeGroupSnapshot", true, Support::Done), RELEASE],
};
