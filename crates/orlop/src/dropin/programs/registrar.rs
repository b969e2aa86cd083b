//! The flags of `csi-node-driver-registrar`.

use super::shared::{AUTOMAXPROCS, CSI_ADDRESS, LOGGING, NO_PPROF, VERSION, done, flag, moot};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind};
use Kind::{Bool, Duration, Int, Text};

pub(super) static REGISTRAR: Program = Program {
    name: "csi-node-driver-registrar",
    role: Role::Registrar,
    dialect: Dialect::Go,
    shared: &[LOGGING],
    own: &[
        VERSION,
        CSI_ADDRESS,
        AUTOMAXPROCS,
        done(
            "plugin-registration-path",
            Text,
            "/registration",
            "The folder for the registration socket.",
        ),
        done(
            "kubelet-registration-path",
            Text,
            "",
            "The driver's socket, as the kubelet sees it.",
        ),
        done(
            "timeout",
            Duration,
            "1s",
            "How long the driver may take to say who it is.",
        ),
        moot(
            "connection-timeout",
            Duration,
            "0s",
            "Deprecated: taken, without effect.",
        ),
        done(
            "health-port",
            Int,
            "0",
            "Deprecated: the port of /healthz. Not together with -http-endpoint.",
        ),
        done(
            "http-endpoint",
            Text,
            "",
            "Where /healthz is served, such as :8080; empty for nowhere.",
        ),
        flag("enable-pprof", Bool, "false", NO_PPROF, "Not there."),
        done(
            "mode",
            Text,
            "",
            "Deprecated: kubelet-registration-probe ends at once, as it always did.",
        ),
    ],
    gates: &[],
};
