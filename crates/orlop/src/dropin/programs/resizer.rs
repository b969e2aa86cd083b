//! The flags of `csi-resizer`.

use super::shared::{
    ALWAYS, API, ELECTION, FEATURE_GATES, LOGGING, MASTER, RELEASE, RETRY_MAX, RETRY_START,
    SIDECAR, done, gate, moot,
};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind};
use Kind::{Bool, Duration, Int};

pub(super) static RESIZER: Program = Program {
    name: "csi-resizer",
    role: Role::Resizer,
    dialect: Dialect::Go,
    shared: &[API, ELECTION, SIDECAR, LOGGING],
    own: &[
        MASTER,
        moot(
            "resync-period",
            Duration,
            "10m",
            "Taken, without effect: nothing is missed that a resync would find.",
        ),
        done("workers", Int, "10", "Claims that are worked on at once."),
        done(
            "extra-modify-metadata",
            Bool,
            "false",
            "The driver is told the names of claim and volume when attributes change.",
        ),
        done(
            "timeout",
            Duration,
            "10s",
            "How long the driver may take for a call.",
        ),
        RETRY_START,
        RETRY_MAX,
        moot(
            "handle-volume-inuse-error",
            Bool,
            "true",
            "Taken, without effect: pods are looked at only where a driver grows volumes offline.",
        ),
        FEATURE_GATES,
    ],
    gates: &[
        gate("AnnotateFsResize", true, ALWAYS),
        gate("RecoverVolumeExpansionFailure", true, ALWAYS),
        gate("VolumeAttributesClass", true, ALWAYS),
        RELEASE,
    ],
};
