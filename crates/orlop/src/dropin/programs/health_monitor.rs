//! The flags of `csi-external-health-monitor-controller`.

use super::shared::{API, ELECTION, LOGGING, SIDECAR, done, moot};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind};
use Kind::{Bool, Duration, Int};

pub(super) static HEALTH_MONITOR: Program = Program {
    name: "csi-external-health-monitor-controller",
    role: Role::HealthMonitor,
    dialect: Dialect::Go,
    shared: &[API, ELECTION, SIDECAR, LOGGING],
    own: &[
        done(
            "monitor-interval",
            Duration,
            "1m",
            "How often volumes are asked for one by one.",
        ),
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
        done(
            "list-volumes-interval",
            Duration,
            "5m",
            "How often the driver's volumes are listed.",
        ),
        moot(
            "volume-list-add-interval",
            Duration,
            "5m",
            "Taken, without effect: new volumes are seen at once.",
        ),
        moot(
            "node-list-add-interval",
            Duration,
            "5m",
            "Taken, without effect: new nodes are seen at once.",
        ),
        done(
            "worker-threads",
            Int,
            "10",
            "Volumes that are asked for at once.",
        ),
        done(
            "enable-node-watcher",
            Bool,
            "false",
            "Tell claims of pods whose node failed.",
        ),
    ],
    gates: &[],
};
