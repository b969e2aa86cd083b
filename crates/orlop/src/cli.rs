//! The command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use orlop_drivers::local::{Overcommit, PoolName, Reserve, size};
use orlop_drivers::nfs::OnDelete;

/// The whole Kubernetes storage stack as one binary.
#[derive(Debug, Parser)]
#[command(
    name = "orlop",
    version,
    about,
    max_term_width = 100,
    after_help = "Called as csi-provisioner, csi-attacher, csi-resizer, csi-snapshotter, \
        snapshot-controller, csi-external-health-monitor-controller, csi-node-driver-registrar, \
        livenessprobe, csi-sidecars or nfsplugin, by a link or as the first word, it is that program, \
        flags included."
)]
pub(crate) struct Cli {
    /// What to log: a level, or filters such as `orlop_node=debug`. By default warnings, and of
    /// `controller` and `node-registrar` what they do
    #[arg(long, global = true, env = "ORLOP_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: API server, controllers, scheduler, nodes and a driver.
    Up(Up),
    /// Clear away what a killed instance left: containers, mounts, loop devices. Data stays.
    Down(Down),
    /// Watch one claim live its whole life, on a throw-away folder.
    Demo(Demo),
    /// Measure the way from `kubectl apply` to a running pod, and what it costs to be idle.
    Bench(Bench),
    /// Run the embedded API server alone, without any role.
    Apiserver(Apiserver),
    /// Run a CSI driver.
    #[command(subcommand)]
    Driver(Driver),
    /// Judge any CSI driver by the specification. Exits with 0 if it conforms, 1 if not, 2 if that
    /// could not be found out.
    Conformance(Box<crate::conformance::Conformance>),
    /// Run the control plane's storage controllers against a cluster.
    Control(Control),
    /// Run the sidecars (provisioner, attacher, resizer …) beside a CSI driver, against a cluster.
    #[command(disable_help_flag = true)]
    Controller(Words),
    /// Compare what a CSI driver has with what the cluster knows of. Deletes nothing. Exits with 0 if
    /// all is owned, 1 if not, 2 if that could not be found out.
    Leaks(crate::leaks::Leaky),
    /// Run the pod scheduler against a cluster.
    Scheduler(Replica),
    /// Run a node: register drivers, mount volumes, run pods, against a cluster.
    Node(Node),
    /// Offer this node's local disks as persistent volumes, and clean them when they are given back.
    LocalStaticProvisioner(LocalStaticProvisioner),
    /// Delete the claims and local volumes of nodes that are gone, in classes that are named.
    LocalVolumeNodeCleanup(LocalVolumeNodeCleanup),
    /// Register a CSI driver with the kubelet of its node, and tell how both are.
    #[command(disable_help_flag = true)]
    NodeRegistrar(Words),
    /// Run one container; started by the node role, not by people.
    #[command(hide = true)]
    ContainerShim {
        /// The container's state folder.
        #[arg(long)]
        state_dir: PathBuf,
    },
}

/// `orlop up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Where all state is kept.
    #[arg(long, default_value = "/var/lib/orlop", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Where the API server listens; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// How many nodes to run, each with its own root.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) nodes: u16,
    /// Use the CSI driver at this socket instead of the built-in `local` one.
    #[arg(long, value_name = "unix://SOCKET")]
    pub(crate) driver: Option<String>,
    /// Run containers by the container runtime at this socket instead of as host processes.
    #[arg(long, value_name = "unix://SOCKET")]
    pub(crate) cri: Option<String>,
    /// Print nothing but where things are.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) admission: Admission,
}

/// What the API server does to objects that are created.
#[derive(Debug, Args)]
pub(crate) struct Admission {
    /// Admissions to leave out. Without ServiceAccount, pods get neither an account nor its token.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub(crate) disable_admission_plugins: Vec<AdmissionPlugin>,
}

/// An admission that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AdmissionPlugin {
    /// Pods run as an account that exists, and find a token of it.
    #[value(name = "ServiceAccount")]
    ServiceAccount,
}

/// `orlop apiserver`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Apiserver {
    #[command(subcommand)]
    pub(crate) store: Option<StoreCommand>,
    /// Where all state is kept.
    #[arg(long, default_value = "/var/lib/orlop", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Where it listens; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) admission: Admission,
}

/// What can be done to the API server's store besides serving it.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Write all objects to a file. The server may be running.
    ///
    /// The file holds Secrets as they are. The authority that clients know the server by, and the
    /// key that signs tokens, are not in it: copy the folder `pki` of the data folder as well.
    Backup {
        /// The file to write; it must not be there yet.
        file: PathBuf,
        /// The data folder.
        #[arg(long, default_value = "/var/lib/orlop", value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Make a store from a backup, in a data folder that has none.
    ///
    /// In the data folder that the backup is of, move `store` away first; certificates, kubeconfigs
    /// and tokens stay valid. In another one, put the old folder `pki` there before the first
    /// start: without it the server gets a new authority, and old kubeconfigs and tokens are
    /// refused.
    Restore {
        /// The backup.
        file: PathBuf,
        /// The data folder.
        #[arg(long, default_value = "/var/lib/orlop", value_name = "DIR")]
        data_dir: PathBuf,
    },
}

/// `orlop down`.
#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The data folder.
    #[arg(long, default_value = "/var/lib/orlop", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

/// `orlop demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave out the explanations.
    #[arg(long)]
    pub(crate) brief: bool,
}

/// `orlop bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// How many lives to measure.
    #[arg(long, default_value_t = 20)]
    pub(crate) runs: usize,
    /// How long to watch the idle process, in seconds; 0 leaves it out.
    #[arg(long, default_value_t = 60)]
    pub(crate) idle: u64,
}

/// `orlop driver …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Driver {
    /// Volumes as image files on this node's disk.
    #[command(version)]
    Local(DriverLocal),
    /// Volumes as folders of NFS shares, in the place of csi-driver-nfs.
    #[command(version)]
    Nfs(DriverNfs),
    /// Do one piece of the NFS driver's work; started by it.
    #[command(hide = true)]
    NfsWorker,
}

/// `orlop driver nfs`: the flags of csi-driver-nfs, and some of our own.
#[derive(Debug, Args)]
pub(crate) struct DriverNfs {
    /// Where to listen.
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///tmp/csi.sock")]
    pub(crate) endpoint: String,
    /// What the driver calls this node.
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub(crate) nodeid: String,
    /// The driver's name.
    #[arg(long, default_value = "nfs.csi.k8s.io")]
    pub(crate) drivername: String,
    /// Permissions of volumes' folders where nothing else is said; 0 leaves them. As in Go: a number
    /// that begins with 0 is octal, another one decimal, so 0777 and not 777.
    #[arg(long, default_value = "0", value_name = "MODE", value_parser = permissions)]
    pub(crate) mount_permissions: u32,
    /// A folder that shares are mounted on while the controller works on them. Nobody but the worker
    /// sees these mounts.
    #[arg(long, default_value = "/tmp", value_name = "DIR")]
    pub(crate) working_mount_dir: PathBuf,
    /// What happens to the folder of a deleted volume whose class says nothing: delete, retain or
    /// archive.
    #[arg(long, default_value = "delete", value_name = "POLICY", value_parser = on_delete)]
    pub(crate) default_ondelete_policy: OnDelete,
    /// How long a volume's figures are told again without a look, in minutes; 0 looks every time.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) vol_stats_cache_expire_in_minutes: u64,
    /// Let a new archive of a volume replace an older one of the same name.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(crate) remove_archived_volume_path: bool,
    /// Compress snapshots.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(crate) enable_snapshot_compression: bool,
    /// Means nothing here: no program is run to pack or unpack. Taken for the original's sake.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) use_tar_command_in_snapshot: bool,
    /// The kubelet's folder: no path that a caller names may be outside of it. `/` means anywhere.
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "DIR")]
    pub(crate) kubelet_dir: PathBuf,
    /// How much to log, in the numbers of the Go drivers: up to 3 is info, 4 debug, 5 trace. --log
    /// counts where this is not given.
    #[arg(long, short, value_name = "N", allow_negative_numbers = true)]
    pub(crate) v: Option<i64>,
    #[command(flatten)]
    pub(crate) moot: GoLogging,
}

/// Where Go's programs log to. Logs are on standard error here; manifests that say so, or otherwise,
/// go on working.
#[derive(Debug, Default, Args)]
pub(crate) struct GoLogging {
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    alsologtostderr: Option<bool>,
    #[arg(long, hide = true)]
    stderrthreshold: Option<String>,
}

fn permissions(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0o").or_else(|| text.strip_prefix('0')) {
        Some("") => Some(0),
        Some(octal) => u32::from_str_radix(octal, 8).ok(),
        None => text.parse().ok(),
    };
    let parsed = parsed.filter(|mode| *mode <= 0o7777);
    parsed.ok_or_else(|| "use permissions such as 0777".to_owned())
}

/// What an `onDelete` asks for; empty is the default.
pub(crate) fn on_delete(text: &str) -> Result<OnDelete, String> {
    match text {
        "" => Ok(OnDelete::default()),
        text => OnDelete::parse(text).ok_or_else(|| "use delete, retain or archive".to_owned()),
    }
}

/// `orlop driver local`.
#[derive(Debug, Args)]
pub(crate) struct DriverLocal {
    /// Where to listen.
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///tmp/csi.sock")]
    pub(crate) endpoint: String,
    /// What the driver calls this node.
    #[arg(long, env = "NODE_NAME")]
    pub(crate) nodeid: String,
    /// The driver's name.
    #[arg(long, default_value = "local.csi.orlop.dev")]
    pub(crate) drivername: String,
    /// A folder that volumes are kept in, and its name for classes; may be repeated.
    #[arg(long, required = true, value_name = "[NAME=]DIR")]
    pub(crate) pool: Vec<PoolArg>,
    /// How many times over thin volumes may be promised what the pools have.
    #[arg(long, default_value = "1", value_name = "FACTOR", value_parser = overcommit)]
    pub(crate) overcommit: Overcommit,
    /// What of each pool's file system is promised to no volume: bytes (10Gi) or a share (5%).
    ///
    /// It is taken off when room is promised, not when blocks are written: with --overcommit above 1,
    /// thin volumes that are all written can still fill the disk, this part too.
    #[arg(long, default_value = "5%", value_name = "SIZE", value_parser = reserve)]
    pub(crate) reserve: Reserve,
    /// How many volumes this node may use at once; 0 sets no limit.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) max_volumes: u32,
    /// The kubelet's folder: no path that a caller names may be outside of it. `/` means anywhere.
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "DIR")]
    pub(crate) kubelet_dir: PathBuf,
    /// Where to remember which pool was in which folder; the endpoint's folder unless others may
    /// write there.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How much to log, in the numbers of the Go drivers: up to 3 is info, 4 debug, 5 trace. --log
    /// counts where this is not given.
    #[arg(long, short, value_name = "N", allow_negative_numbers = true)]
    pub(crate) v: Option<i64>,
}

/// `--pool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolArg {
    /// Its name.
    pub(crate) name: PoolName,
    /// Where it is.
    pub(crate) folder: PathBuf,
}

impl std::str::FromStr for PoolArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, folder) = match text.split_once('=') {
            // The path of a folder may have such a sign in it, too, and then begins with another.
            Some((name, folder)) if !name.starts_with(['/', '.']) => {
                let parsed = PoolName::parse(name);
                (
                    parsed.ok_or_else(|| format!("{name:?} is no name for a pool"))?,
                    folder,
                )
            }
            _ => (PoolName::default(), text),
        };
        if folder.is_empty() {
            return Err("the folder is missing".to_owned());
        }
        let folder = PathBuf::from(folder);
        Ok(Self { name, folder })
    }
}

fn overcommit(text: &str) -> Result<Overcommit, String> {
    let factor = text.parse().ok().and_then(Overcommit::new);
    factor.ok_or_else(|| "use a factor of at least 1".to_owned())
}

fn reserve(text: &str) -> Result<Reserve, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|percent| *percent < 100)
            .map(Reserve::Percent),
        None => size::bytes(text).map(Reserve::Bytes),
    };
    parsed.ok_or_else(|| "use bytes, a quantity such as 10Gi, or a share such as 5%".to_owned())
}

/// How to reach the cluster.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// A kubeconfig; without one, `$KUBECONFIG`, the home folder's or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// How a controller runs of which there may be several.
#[derive(Debug, Args)]
pub(crate) struct Replica {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Work only while holding a lease.
    #[arg(long, alias = "leader-elect")]
    pub(crate) leader_election: bool,
    /// The lease's namespace.
    #[arg(
        long,
        alias = "leader-elect-resource-namespace",
        default_value = "kube-system",
        value_name = "NAMESPACE"
    )]
    pub(crate) leader_election_namespace: String,
    /// How long a lease holds without renewal: until then nobody takes it over.
    #[arg(
        long,
        alias = "leader-elect-lease-duration",
        default_value = "15s",
        value_parser = period,
        value_name = "DURATION"
    )]
    pub(crate) leader_election_lease_duration: Duration,
    /// How long a leader tries to renew it before it gives up.
    #[arg(
        long,
        alias = "leader-elect-renew-deadline",
        default_value = "10s",
        value_parser = period,
        value_name = "DURATION"
    )]
    pub(crate) leader_election_renew_deadline: Duration,
    /// How long to wait between two tries to get or renew it.
    #[arg(
        long,
        alias = "leader-elect-retry-period",
        default_value = "5s",
        value_parser = period,
        value_name = "DURATION"
    )]
    pub(crate) leader_election_retry_period: Duration,
    /// Where metrics and health are served: /metrics, /healthz, /healthz/leader-election. Such as
    /// 127.0.0.1:8080, or :8080 for everywhere; without it, nowhere.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http_endpoint: Option<String>,
}

fn period(text: &str) -> Result<Duration, String> {
    let read = crate::dropin::duration::parse(text).filter(|read| !read.is_zero());
    read.ok_or_else(|| "use a duration above zero such as 15s or 1m30s".to_owned())
}

/// `orlop control`.
#[derive(Debug, Args)]
pub(crate) struct Control {
    #[command(flatten)]
    pub(crate) replica: Replica,
    /// Which to run: binder, attach-detach, protection, ephemeral, expand, unused; `*` for all, `-NAME`
    /// for all but one. By name only: statefulset, deployment, replicaset, daemonset, job, which need
    /// the rules of deploy/rbac/workloads.yaml besides.
    #[arg(
        long,
        default_value = "*",
        value_delimiter = ',',
        value_name = "LIST",
        allow_hyphen_values = true
    )]
    pub(crate) controllers: Vec<String>,
    /// As kube-controller-manager's, but on unless it reads `false`: attach-detach then takes a volume
    /// that nobody wants from a node that hasn't been ready for six minutes, though the node says that
    /// it uses it and may still write to it.
    #[arg(
        long,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set,
        value_name = "BOOL"
    )]
    pub(crate) disable_force_detach_on_timeout: bool,
    /// How many pods' ephemeral volumes are looked at together; kube-controller-manager's flag.
    #[arg(long, default_value_t = 5, value_parser = at_once, value_name = "N")]
    pub(crate) concurrent_ephemeralvolume_syncs: usize,
    /// Where FlexVolume drivers that attach are on this machine, each as VENDOR~DRIVER/DRIVER;
    /// kube-controller-manager's flag.
    #[arg(long, default_value = crate::flex::PLUGIN_DIR, value_name = "DIR")]
    pub(crate) flex_volume_plugin_dir: PathBuf,
    #[command(flatten)]
    pub(crate) recycler: Recycler,
    #[command(flatten)]
    pub(crate) theirs: crate::theirs::Theirs,
}

fn at_once(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "use a number of at least 1".to_owned())
}

/// How volumes whose reclaim policy is Recycle are scrubbed; kube-controller-manager's flags.
#[derive(Debug, Args)]
pub(crate) struct Recycler {
    /// A Pod as YAML or JSON, the pattern of those that scrub host-path volumes. Its first volume is
    /// replaced by the one that is scrubbed.
    #[arg(long, value_name = "FILE")]
    pub(crate) pv_recycler_pod_template_filepath_hostpath: Option<PathBuf>,
    /// Seconds that such a pod may run at least.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) pv_recycler_minimum_timeout_hostpath: u32,
    /// Seconds that it may run for each gibibyte.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub(crate) pv_recycler_timeout_increment_hostpath: u32,
    /// The same for NFS volumes.
    #[arg(long, value_name = "FILE")]
    pub(crate) pv_recycler_pod_template_filepath_nfs: Option<PathBuf>,
    /// Seconds that such a pod may run at least.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub(crate) pv_recycler_minimum_timeout_nfs: u32,
    /// Seconds that it may run for each gibibyte.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub(crate) pv_recycler_increment_timeout_nfs: u32,
}

/// Flags as the Go sidecars take them, read by `dropin`.
#[derive(Debug, Args)]
pub(crate) struct Words {
    /// As the Go sidecars' flags; --help lists them.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    pub(crate) words: Vec<String>,
}

/// `orlop node`.
#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The node's name.
    #[arg(long, env = "NODE_NAME")]
    pub(crate) name: String,
    /// The node's root, laid out as the kubelet's.
    #[arg(long, default_value = "/var/lib/orlop-node", value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// Where FlexVolume drivers are, each as VENDOR~DRIVER/DRIVER.
    #[arg(long, default_value = orlop_node::VOLUME_PLUGIN_DIR, value_name = "DIR")]
    pub(crate) volume_plugin_dir: PathBuf,
    /// Run containers by the container runtime at this socket instead of as host processes.
    #[arg(long, value_name = "unix://SOCKET")]
    pub(crate) cri: Option<String>,
    /// Where `/metrics`, `/stats/summary` and `/healthz` are served, as `HOST:PORT`; nowhere unless
    /// it is given.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http_endpoint: Option<String>,
}

/// `orlop local-static-provisioner`.
#[derive(Debug, Args)]
pub(crate) struct LocalStaticProvisioner {
    /// A kubeconfig; without one, `$KUBECONFIG`, the home folder's or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The configuration: a folder with one file per key, as a ConfigMap is mounted, or one file.
    /// It is read again whenever it changes.
    #[arg(long, default_value = "/etc/provisioner/config", value_name = "PATH")]
    pub(crate) config: PathBuf,
    /// The node whose disks these are.
    #[arg(long, env = "MY_NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: String,
    /// How many disks are cleaned at once.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) concurrent_cleanings: u16,
    /// Where to serve metrics and, at /ready, whether all disks are offered; empty for nowhere.
    #[arg(long, default_value = ":8080", value_name = "ADDRESS")]
    pub(crate) listen_address: String,
    /// Where the metrics are.
    #[arg(long, default_value = "/metrics", value_name = "PATH")]
    pub(crate) metrics_path: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    crate::dropin::duration::parse(text)
        .ok_or_else(|| "use a duration such as 60s or 1h30m".to_owned())
}

/// `orlop local-volume-node-cleanup`.
#[derive(Debug, Args)]
pub(crate) struct LocalVolumeNodeCleanup {
    #[command(flatten)]
    pub(crate) replica: Replica,
    /// The API server's address, instead of the kubeconfig's.
    #[arg(long, value_name = "URL")]
    pub(crate) kube_api_endpoint: Option<String>,
    /// The classes whose disks go with their node: claims and volumes of no others are deleted.
    #[arg(long, value_delimiter = ',', required = true, value_name = "LIST")]
    pub(crate) storageclass_names: Vec<String>,
    /// How long a node must have been gone before anything of it is deleted: 60s, 10m, 1h30m.
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub(crate) pvc_deletion_delay: Duration,
    /// How many volumes are worked on at once.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) worker_threads: u16,
    /// Changes nothing: nothing is looked at again and again.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub(crate) stale_pv_discovery_interval: Duration,
    /// Changes nothing: nothing is looked at again and again.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub(crate) resync: Duration,
    /// Where to serve metrics; empty for nowhere.
    #[arg(long, default_value = ":8080", value_name = "ADDRESS")]
    pub(crate) listen_address: String,
    /// Where the metrics are.
    #[arg(long, default_value = "/metrics", value_name = "PATH")]
    pub(crate) metrics_path: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_a_folder_with_or_without_a_name() {
        let parse = |text: &str| text.parse::<PoolArg>();
        let pool = |name, folder: &str| PoolArg {
            name: PoolName::parse(name).unwrap(),
            folder: folder.into(),
        };
        assert_eq!(parse("/srv"), Ok(pool("default", "/srv")));
        assert_eq!(parse("fast=/srv/a=b"), Ok(pool("fast", "/srv/a=b")));
        assert_eq!(parse("/srv/a=b"), Ok(pool("default", "/srv/a=b")));
        for wrong in ["", "fast=", "-x=/srv"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reserve_is_a_size_or_a_share() {
        assert_eq!(reserve("10Gi"), Ok(Reserve::Bytes(10 << 30)));
        assert_eq!(reserve("5%"), Ok(Reserve::Percent(5)));
        for wrong in ["", "100%", "-1", "5 %"] {
            assert!(reserve(wrong).is_err(), "{wrong}");
        }
        assert!(overcommit("0.5").is_err() && overcommit("2.5").is_ok());
    }

    #[test]
    fn every_flag_of_the_original_nfs_driver_is_taken() {
        let flags = [
            "--endpoint=unix://tmp/csi.sock",
            "--nodeid=node-1",
            "--mount-permissions=0777",
            "--drivername=nfs.csi.k8s.io",
            "--working-mount-dir=/tmp",
            "--default-ondelete-policy=archive",
            "--vol-stats-cache-expire-in-minutes=10",
            "--remove-archived-volume-path=true",
            "--use-tar-command-in-snapshot=true",
            "--enable-snapshot-compression=false",
            "-v=5",
            "--logtostderr=true",
            "--alsologtostderr",
            "--stderrthreshold=INFO",
        ];
        let line = ["orlop", "driver", "nfs"].iter().chain(&flags);
        let parsed = Cli::try_parse_from(line).unwrap();
        let Command::Driver(Driver::Nfs(args)) = parsed.command else {
            panic!("another command");
        };
        assert_eq!((args.mount_permissions, args.v), (0o777, Some(5)));
        assert_eq!(args.default_ondelete_policy, OnDelete::Archive);
        assert!(args.remove_archived_volume_path && !args.enable_snapshot_compression);
    }
}
