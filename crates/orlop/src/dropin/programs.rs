//! The programs that we stand in for: their names, flags and feature gates.
//!
//! Names and defaults are the originals' at their newest releases; a test compares them with
//! the reference as a table.

use super::flags::{Dialect, Flag, Kind, Support};
use Kind::{Bool, Duration, Float, Gates, Int, Text};

mod together;

pub(super) use together::{CONTROLLERS, Together};

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Provisioner,
    Attacher,
    Resizer,
    Snapshotter,
    SnapshotController,
    HealthMonitor,
    Registrar,
    LivenessProbe,
}

/// A feature gate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    pub(super) name: &'static str,
    pub(super) default: bool,
    pub(super) support: Support,
}

/// A program that we stand in for.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) dialect: Dialect,
    /// What it shares with the others.
    shared: &'static [&'static [Flag]],
    /// What it alone has, or has with a default of its own.
    pub(super) own: &'static [Flag],
    pub(super) gates: &'static [Gate],
}

impl Program {
    /// All its flags.
    pub(super) fn flags(&self) -> Vec<Flag> {
        self.shared
            .iter()
            .copied()
            .flatten()
            .chain(self.own)
            .cloned()
            .collect()
    }

    /// One of its flags.
    pub(super) fn flag(&self, name: &str) -> Option<&'static Flag> {
        let mut all = self.shared.iter().copied().flatten().chain(self.own);
        all.find(|flag| flag.name == name)
    }
}

/// The program of a name, be it a path.
pub(super) fn called(name: &str) -> Option<&'static Program> {
    let name = name.rsplit('/').next().unwrap_or(name);
    ALL.iter().copied().find(|program| program.name == name)
}

/// Those of this role.
pub(super) fn of(role: Role) -> &'static Program {
    // There is one for each, as a test says.
    ALL.iter()
        .copied()
        .find(|program| program.role == role)
        .unwrap_or(&PROVISIONER)
}

const fn flag(
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
        help,
        support,
    }
}

const fn done(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    flag(name, kind, default, Support::Done, help)
}

const fn moot(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    flag(name, kind, default, Support::Moot, help)
}

const fn gate(name: &'static str, default: bool, support: Support) -> Gate {
    Gate {
        name,
        default,
        support,
    }
}

/// The lease is always given up at the end.
const RELEASE: Gate = gate("ReleaseLeaderElectionOnExit", false, Support::Moot);
/// What can't be switched off.
const ALWAYS: Support = Support::DefaultOnly("it can not be switched off here");
const NO_PPROF: Support =
    Support::DefaultOnly("there is no Go runtime to profile; leave the flag out");

const VERSION: Flag = done("version", Bool, "false", "Show version.");
const KUBECONFIG: Flag = done(
    "kubeconfig",
    Text,
    "",
    "A kubeconfig; without one, $KUBECONFIG or the pod's service account.",
);
const CSI_ADDRESS: Flag = done(
    "csi-address",
    Text,
    "/run/csi/socket",
    "The socket of the CSI driver.",
);
const HTTP_ENDPOINT: Flag = done(
    "http-endpoint",
    Text,
    "",
    "Where metrics and health are served, such as :8080; empty for nowhere.",
);
const METRICS_ADDRESS: Flag = done(
    "metrics-address",
    Text,
    "",
    "Deprecated: where metrics alone are served. Not together with -http-endpoint.",
);
const METRICS_PATH: Flag = done("metrics-path", Text, "/metrics", "The path of metrics.");
const AUTOMAXPROCS: Flag = moot("automaxprocs", Bool, "false", "Taken, without effect.");
const RETRY_START: Flag = done(
    "retry-interval-start",
    Duration,
    "1s",
    "The wait after a first failure; it doubles with each.",
);
const RETRY_MAX: Flag = done("retry-interval-max", Duration, "5m", "The longest wait.");
const FEATURE_GATES: Flag = done(
    "feature-gates",
    Gates,
    "",
    "Features to switch on or off, as Name=true,Name=false.",
);
const MASTER: Flag = done(
    "master",
    Text,
    "",
    "The API server's address; wins over the kubeconfig's.",
);

const ELECTION: &[Flag] = &[
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

const API: &[Flag] = &[
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
const SIDECAR: &[Flag] = &[
    CSI_ADDRESS,
    done(
        "leader-election-labels",
        Text,
        "",
        "Labels for the lease, as key:value,key:value.",
    ),
    METRICS_ADDRESS,
];

/// Of Kubernetes' component logging, and klog's before it.
const LOGGING: &[Flag] = &[
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
    moot("log_backtrace_at", Text, "", "Taken, without effect."),
    moot("log_dir", Text, "", "Taken, without effect."),
    moot("log_file", Text, "", "Taken, without effect."),
    moot("log_file_max_size", Int, "1800", "Taken, without effect."),
    moot("add_dir_header", Bool, "false", "Taken, without effect."),
    moot("one_output", Bool, "false", "Taken, without effect."),
    moot("skip_headers", Bool, "false", "Taken, without effect."),
    moot("skip_log_headers", Bool, "false", "Taken, without effect."),
];

static PROVISIONER: Program = Program {
    name: "csi-provisioner",
    role: Role::Provisioner,
    dialect: Dialect::Pflag,
    shared: &[API, ELECTION, SIDECAR, LOGGING],
    own: &[
        MASTER,
        done(
            "volume-name-prefix",
            Text,
            "pvc",
            "What volumes' names begin with.",
        ),
        done(
            "volume-name-uuid-length",
            Int,
            "-1",
            "How much of a claim's uid is in its volume's name; -1 for all.",
        ),
        RETRY_START,
        RETRY_MAX,
        done(
            "worker-threads",
            Int,
            "100",
            "Claims, and volumes, that are worked on at once.",
        ),
        moot(
            "cloning-protection-threads",
            Int,
            "1",
            "Taken, without effect.",
        ),
        done(
            "snapshot-orphan-sweep-interval",
            Duration,
            "5m",
            "How often snapshots are looked through for finalizers that a crash left; 0 for never.",
        ),
        done(
            "capacity-threads",
            Int,
            "1",
            "How many calls for room are made at once.",
        ),
        done(
            "timeout",
            Duration,
            "10s",
            "How long the driver may take for a call.",
        ),
        done(
            "strict-topology",
            Bool,
            "false",
            "Late-binding volumes are made where the selected node is, and nowhere else.",
        ),
        done(
            "immediate-topology",
            Bool,
            "true",
            "The driver is told of all places for volumes that bind immediately.",
        ),
        done(
            "extra-create-metadata",
            Bool,
            "false",
            "The driver is told the names of claim and volume.",
        ),
        flag("enable-pprof", Bool, "false", NO_PPROF, "Not there."),
        done(
            "default-fstype",
            Text,
            "",
            "The file system of classes that name none.",
        ),
        moot(
            "kube-api-capacity-qps",
            Float,
            "1",
            "Taken, without effect.",
        ),
        moot(
            "kube-api-capacity-burst",
            Int,
            "5",
            "Taken, without effect.",
        ),
        done(
            "enable-capacity",
            Bool,
            "false",
            "Publish CSIStorageCapacity objects.",
        ),
        done(
            "capacity-for-immediate-binding",
            Bool,
            "false",
            "Publish them also for classes that bind immediately.",
        ),
        done(
            "capacity-poll-interval",
            Duration,
            "1m",
            "How often the driver is asked for its room.",
        ),
        done(
            "capacity-ownerref-level",
            Int,
            "1",
            "Whose capacity objects are: 0 the pod's, 1 its owner's …",
        ),
        done(
            "node-deployment",
            Bool,
            "false",
            "One provisioner per node; needs $NODE_NAME.",
        ),
        done(
            "node-deployment-immediate-binding",
            Bool,
            "true",
            "With one per node: serve classes that bind immediately.",
        ),
        done(
            "node-deployment-base-delay",
            Duration,
            "20s",
            "With one per node: how long nodes wait at first before one takes a claim.",
        ),
        done(
            "node-deployment-max-delay",
            Duration,
            "60s",
            "With one per node: how long they wait at most.",
        ),
        done(
            "controller-publish-readonly",
            Bool,
            "false",
            "Volumes that are only read say so to the attacher.",
        ),
        done(
            "prevent-volume-mode-conversion",
            Bool,
            "true",
            "A snapshot is restored in its volume's mode, unless its administrator allows another.",
        ),
        FEATURE_GATES,
    ],
    gates: &[
        gate("Topology", true, ALWAYS),
        gate("CrossNamespaceVolumeDataSource", false, Support::Done),
        gate("VolumeAttributesClass", true, ALWAYS),
        RELEASE,
    ],
};

static ATTACHER: Program = Program {
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
            "Attachments, and as many detachments, worked on at once.",
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

static RESIZER: Program = Program {
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

static SNAPSHOTTER: Program = Program {
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

static SNAPSHOT_CONTROLLER: Program = Program {
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

static HEALTH_MONITOR: Program = Program {
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

static REGISTRAR: Program = Program {
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

static LIVENESS_PROBE: Program = Program {
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

/// All of them.
pub(super) static ALL: [&Program; 8] = [
    &PROVISIONER,
    &ATTACHER,
    &RESIZER,
    &SNAPSHOTTER,
    &SNAPSHOT_CONTROLLER,
    &HEALTH_MONITOR,
    &REGISTRAR,
    &LIVENESS_PROBE,
];

#[cfg(test)]
mod tests;
