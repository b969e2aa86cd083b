//! The flags of `csi-snapshotter`.

use super::shared::{
    API, ELECTION, FEATURE_GATES, LOGGING, RELEASE, RETRY_MAX, RETRY_START, SIDECAR, done, gate,
    moot,
};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind, Support};
use Kind::{Bool, Duration, Int, Text};

pub(super) static SNAPSHOTTER: Program = Program {
    name: "csi-snapshotter",
    role: Role::Snapshotter,
    dialect: Dialect::Go,
    shared: &[API, ELECTION, SIDECAR, LOGGING],
    own: &[
        moot(
            "resync-period",
            Duration,
            "15m",
            "Taken, without effect: nothing is missed that a resync would find.",
        ),
        done(
            "snapshot-name-prefix",
            Text,
            "snapshot",
            "What snapshots' names begin with.",
        ),
        done(
            "snapshot-name-uuid-length",
            Int,
            "-1",
            "How much of the uid is in a snapshot's name; -1 for all.",
        ),
        done(
            "groupsnapshot-name-prefix",
            Text,
            "groupsnapshot",
            "What groups' names begin with.",
        ),
        done(
            "groupsnapshot-name-uuid-length",
            Int,
            "-1",
            "How much of the uid is in a group's name; -1 for all.",
        ),
        done(
            "worker-threads",
            Int,
            "10",
            "Snapshots that are worked on at once.",
        ),
        done(
            "timeout",
            Duration,
            "1m",
            "How long the driver may take for a call.",
        ),
        done(
            "extra-create-metadata",
            Bool,
            "false",
            "The driver is told the names of snapshot and content.",
        ),
        RETRY_START,
        RETRY_MAX,
        done(
            "node-deployment",
            Bool,
            "false",
            "One snapshotter per node; needs $NODE_NAME.",
        ),
        FEATURE_GATES,
    ],
    gates: &[gate("CSIVolumeGroupSnapshot", true, Support::Done), RELEASE],
};
