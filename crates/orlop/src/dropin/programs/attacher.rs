//! The flags of `csi-attacher`.

use super::shared::{
    ALWAYS, API, ELECTION, FEATURE_GATES, LOGGING, RELEASE, RETRY_MAX, RETRY_START, SIDECAR, done,
    gate, moot,
};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind};
use Kind::{Duration, Int, Text};

pub(super) static ATTACHER: Program = Program {
    name: "csi-attacher",
    role: Role::Attacher,
    dialect: Dialect::Go,
    shared: &[API, ELECTION, SIDECAR, LOGGING],
    own: &[
        moot(
            "resync",
            Duration,
            "10m",
            "Taken, without effect: nothing is missed that a resync would find.",
        ),
        done(
            "timeout",
            Duration,
            "15s",
            "How long the driver may take for a call.",
        ),
        RETRY_START,
        RETRY_MAX,
        done(
            "worker-threads",
            Int,
            "10",
            "Attachments, and as many detachments, that the driver is called for at once; when given, also worked on.",
        ),
        done(
            "max-entries",
            Int,
            "0",
            "How many volumes are asked for at once; 0 for all.",
        ),
        done(
            "default-fstype",
            Text,
            "",
            "The file system of volumes that name none.",
        ),
        done(
            "reconcile-sync",
            Duration,
            "1m",
            "How often attachments are compared with the driver's list.",
        ),
        moot(
            "max-grpc-log-length",
            Int,
            "-1",
            "Taken, without effect: calls' bodies are never logged.",
        ),
        FEATURE_GATES,
    ],
    gates: &[
        gate("MutableCSINodeAllocatableCount", true, ALWAYS),
        RELEASE,
    ],
};
