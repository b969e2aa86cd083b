//! The flags of `livenessprobe`.

use super::shared::{AUTOMAXPROCS, CSI_ADDRESS, LOGGING, METRICS_ADDRESS, METRICS_PATH, done};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind};
use Kind::{Duration, Text};

pub(super) static LIVENESS_PROBE: Program = Program {
    name: "livenessprobe",
    role: Role::LivenessProbe,
    dialect: Dialect::Go,
    shared: &[LOGGING],
    own: &[
        CSI_ADDRESS,
        AUTOMAXPROCS,
        done(
            "probe-timeout",
            Duration,
            "3s",
            "How long the driver may take for a Probe.",
        ),
        done(
            "health-port",
            Text,
            "9808",
            "Deprecated: the port of /healthz.",
        ),
        METRICS_ADDRESS,
        done(
            "http-endpoint",
            Text,
            "",
            "Where /healthz and metrics are served, such as :8080.",
        ),
        METRICS_PATH,
    ],
    gates: &[],
};
