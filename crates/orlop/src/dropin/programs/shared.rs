//! Flags and gates that several programs have.

use super::Gate;
use crate::dropin::flags::{Flag, Kind, Support};
use Kind::{Bool, Duration, Float, Gates, Int, Labels, Text};

pub(super) const fn flag(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    support: Support,
    help: &'static str,
) -> Flag {
    Flag {
        name: std::borrow::Cow::Borrowed(name),
        kind,
        default,
        help: std::borrow::Cow::Borrowed(help),
        support,
    }
}

pub(super) const fn done(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Flag {
    flag(name, kind, default, Support::Done, help)
}

pub(super) const fn moot(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Flag {
    flag(name, kind, default, Support::Moot, help)
}

pub(super) const fn gate(name: &'static str, default: bool, support: Support) -> Gate {
    Gate {
        name,
        default,
        support,
    }
}

/// The lease is always given up at the end.
pub(super) const RELEASE: Gate = gate("ReleaseLeaderElectionOnExit", false, Support::Moot);
/// What can't be switched off.
pub(super) const ALWAYS: Support =
    Support::DefaultOnly("it can not be switched off here, and stays on");

/// Gates that manifests still have and that change nothing here: Kubernetes' groups of gates, those
/// of its Go libraries, and those that the originals had in releases past.
pub(super) const GONE: &[&str] = &[
    "AllAlpha",
    "AllBeta",
    "AtomicFIFO",
    "ClientsAllowCARotation",
    "ClientsAllowCBOR",
    "ClientsAllowTLSCacheGC",
    "ClientsPreferCBOR",
    "ContextualLogging",
    "InOrderInformers",
    "InOrderInformersBatchProcess",
    "InformerResourceVersion",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "LoggingStableOptions",
    "UnlockWhileProcessingFIFO",
    "WatchListClient",
];
pub(super) const NO_PPROF: Support =
    Support::DefaultOnly("there is no Go runtime to profile; leave the flag out");

pub(super) const VERSION: Flag = done("version", Bool, "false", "Show version.");
pub(super) const KUBECONFIG: Flag = done(
    "kubeconfig",
    Text,
    "",
    "A kubeconfig; without one, $KUBECONFIG or the pod's service account.",
);
pub(super) const CSI_ADDRESS: Flag = done(
    "csi-address",
    Text,
    "/run/csi/socket",
    "The socket of the CSI driver.",
);
pub(super) const HTTP_ENDPOINT: Flag = done(
    "http-endpoint",
    Text,
    "",
    "Where metrics and health are served, such as :8080; empty for nowhere.",
);
pub(super) const METRICS_ADDRESS: Flag = done(
    "metrics-address",
    Text,
    "",
    "Deprecated: where metrics alone are served. Not together with -http-endpoint.",
);
pub(super) const METRICS_PATH: Flag =
    done("metrics-path", Text, "/metrics", "The path of metrics.");
pub(super) const AUTOMAXPROCS: Flag = moot("automaxprocs", Bool, "false", "Taken, without effect.");
pub(super) const RETRY_START: Flag = done(
    "retry-interval-start",
    Duration,
    "1s",
    "The wait after a first failure; it doubles with each.",
);
pub(super) const RETRY_MAX: Flag = done("retry-interval-max", Duration, "5m", "The longest wait.");
pub(super) const FEATURE_GATES: Flag = done(
    "feature-gates",
    Gates,
    "",
    "Features to switch on or off, as Name=true,Name=false.",
);
pub(super) const MASTER: Flag = done(
    "master",
    Text,
    "",
    "The API server's address; wins over the kubeconfig's.",
);

pub(super) const ELECTION: &[Flag] = &[
    done(
        "leader-election",
        Bool,
        "false",
        "Work only while holding a lease.",
    ),
    done(
        "leader-election-namespace",
        Text,
        "",
        "The lease's namespace; empty for the pod's own.",
    ),
    done(
        "leader-election-lease-duration",
        Duration,
        "15s",
        "How long others wait for a silent leader.",
    ),
    done(
        "leader-election-renew-deadline",
        Duration,
        "10s",
        "How long a leader tries to renew its lease before it stops working.",
    ),
    done(
        "leader-election-retry-period",
        Duration,
        "5s",
        "How often everybody tries.",
    ),
];

pub(super) const API: &[Flag] = &[
    VERSION,
    KUBECONFIG,
    done(
        "kube-api-qps",
        Float,
        "5",
        "The most requests per second to the API server. Counts only when given.",
    ),
    done(
        "kube-api-burst",
        Int,
        "10",
        "How many requests may come at once. Counts only when given.",
    ),
    HTTP_ENDPOINT,
    METRICS_PATH,
    AUTOMAXPROCS,
];

/// What all sidecars have that talk to an API server and a driver.
pub(super) const SIDECAR: &[Flag] = &[
    CSI_ADDRESS,
    done(
        "leader-election-labels",
        Labels,
        "",
        "Labels for the lease, as key:value,key:value.",
    ),
    METRICS_ADDRESS,
];

/// Of Kubernetes' component logging, and klog's before it.
pub(super) const LOGGING: &[Flag] = &[
    done(
        "v",
        Int,
        "0",
        "How much is logged: 4 and more is for debugging.",
    ),
    done(
        "logging-format",
        Text,
        "text",
        "How it is logged: text or json.",
    ),
    moot("vmodule", Text, "", "Taken, without effect."),
    moot(
        "log-flush-frequency",
        Duration,
        "5s",
        "Taken, without effect.",
    ),
    moot(
        "log-text-split-stream",
        Bool,
        "false",
        "Taken, without effect.",
    ),
    moot(
        "log-text-info-buffer-size",
        Text,
        "",
        "Taken, without effect.",
    ),
    moot(
        "log-json-split-stream",
        Bool,
        "false",
        "Taken, without effect.",
    ),
    moot(
        "log-json-info-buffer-size",
        Text,
        "",
        "Taken, without effect.",
    ),
    moot("logtostderr", Bool, "true", "Taken, without effect."),
    moot("alsologtostderr", Bool, "false", "Taken, without effect."),
    moot("stderrthreshold", Text, "", "Taken, without effect."),
    moot(
        "alsologtostderrthreshold",
        Text,
        "",
        "Taken, without effect.",
    ),
    moot(
        "legacy_stderr_threshold_behavior",
        Bool,
        "true",
        "Taken, without effect.",
    ),
    moot("log_backtrace_at", Text, "", "Taken, without effect."),
    moot("log_dir", Text, "", "Taken, without effect."),
    moot("log_file", Text, "", "Taken, without effect."),
    moot("log_file_max_size", Int, "1800", "Taken, without effect."),
    moot("add_dir_header", Bool, "false", "Taken, without effect."),
    moot("one_output", Bool, "false", "Taken, without effect."),
    moot("skip_headers", Bool, "false", "Taken, without effect."),
    moot("skip_log_headers", Bool, "false", "Taken, without effect."),
];
