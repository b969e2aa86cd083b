//! The flags of `csi-provisioner`.

use super::shared::{
    ALWAYS, API, ELECTION, FEATURE_GATES, LOGGING, MASTER, NO_PPROF, RELEASE, RETRY_MAX,
    RETRY_START, SIDECAR, done, flag, gate, moot,
};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind, Support};
use Kind::{Bool, Duration, Float, Int, Text};

pub(super) static PROVISIONER: Program = Program {
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
        done(
            "kube-api-capacity-qps",
            Float,
            "1",
            "The most requests per second for capacity objects. Counts only when given.",
        ),
        done(
            "kube-api-capacity-burst",
            Int,
            "5",
            "How many of them may come at once. Counts only when given.",
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
        gate("HonorPVReclaimPolicy", true, ALWAYS),
        gate("CrossNamespaceVolumeDataSource", false, Support::Done),
        gate("VolumeAttributesClass", true, ALWAYS),
        RELEASE,
    ],
};
