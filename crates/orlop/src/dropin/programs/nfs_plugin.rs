//! The flags of `nfsplugin`, which is csi-driver-nfs.

use super::shared::{LOGGING, done, moot};
use super::{Program, Role};
use crate::dropin::flags::{Dialect, Kind};
use Kind::{Bool, Int, Text};

pub(super) static NFS_PLUGIN: Program = Program {
    name: "nfsplugin",
    role: Role::NfsDriver,
    dialect: Dialect::Go,
    shared: &[LOGGING],
    own: &[
        done("endpoint", Text, "unix://tmp/csi.sock", "Where to listen."),
        done("nodeid", Text, "", "What the driver calls this node."),
        done(
            "mount-permissions",
            Int,
            "0",
            "Permissions of volumes' folders where nothing else is said; 0 leaves them. A number that \
             begins with 0 is octal.",
        ),
        done(
            "drivername",
            Text,
            orlop_drivers::nfs::DRIVER_NAME,
            "The driver's name.",
        ),
        done(
            "working-mount-dir",
            Text,
            "/tmp",
            "Where workers see the shares that they work on; nobody else does.",
        ),
        done(
            "default-ondelete-policy",
            Text,
            "",
            "What happens to a deleted volume's folder where its class says nothing: delete, retain or \
             archive; empty is delete.",
        ),
        done(
            "vol-stats-cache-expire-in-minutes",
            Int,
            "10",
            "How long a volume's figures are told again without a look.",
        ),
        done(
            "remove-archived-volume-path",
            Bool,
            "false",
            "Let a new archive of a volume replace an older one of the same name.",
        ),
        moot(
            "use-tar-command-in-snapshot",
            Bool,
            "false",
            "Taken, without effect: no program is run to pack or unpack.",
        ),
        done(
            "enable-snapshot-compression",
            Bool,
            "true",
            "Compress snapshots.",
        ),
    ],
    gates: &[],
};
