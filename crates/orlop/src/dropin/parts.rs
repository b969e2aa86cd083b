//! What a controller is started with, of what its flags say.

use std::time::Duration;

use orlop_csi::{Deadlines, Driver, DriverInfo, client::ControllerCapability};
use orlop_model::{Key, well_known::sanitise};
use orlop_runtime::{Backoff, Metrics, Process};
use orlop_sidecars::{
    RetryMetrics, attacher, capacity, health, provisioner, resizer, snapshot_controller,
    snapshotter,
};

use super::{programs::Role, settings::View};
use crate::identity;

/// One controller, ready to be started.
pub(super) struct Part {
    /// How long the driver may take.
    timeout: Duration,
    config: Config,
}

enum Config {
    Provisioner(Box<provisioner::Config>, Option<Box<capacity::Config>>),
    Attacher(attacher::Config),
    Resizer(resizer::Config),
    Snapshotter(snapshotter::Config),
    SnapshotController(snapshot_controller::Config),
    HealthMonitor(health::Config),
}

impl Part {
    /// Reads a controller's flags.
    pub(super) fn read(
        view: &View<'_>,
        metrics: &Metrics,
        retries: &RetryMetrics,
    ) -> Result<Self, String> {
        if let Some(refusal) = view.refusals().into_iter().next() {
            return Err(refusal);
        }
        let config = match view.program.role {
            Role::Provisioner => {
                let mut config = provisioner(view, metrics)?;
                config.metrics = config.metrics.with_retries(retries.clone());
                let room = match view.bool("enable-capacity") {
                    true => Some(Box::new(capacity(view, metrics, &config)?)),
                    false => None,
                };
                Config::Provisioner(Box::new(config), room)
            }
            Role::Attacher => {
                let (calls, ours) = (view.workers("worker-threads")?, attacher::Config::default());
                Config::Attacher(attacher::Config {
                    default_fs_type: view.text("default-fstype"),
                    workers: match view.is_set("worker-threads") {
                        true => calls,
                        false => ours.workers,
                    },
                    calls,
                    retry: view.retry()?,
                    reconcile: view.duration("reconcile-sync"),
                    max_entries: u31(view, "max-entries")?,
                    metrics: retries.clone(),
                })
            }
            Role::Resizer => Config::Resizer(resizer::Config {
                extra_modify_metadata: view.bool("extra-modify-metadata"),
                // The original has no such flag; beside controllers that have it, it holds for all.
                node: view.bool("node-deployment").then(node_name).transpose()?,
                workers: view.workers("workers")?,
                retry: view.retry()?,
                metrics: retries.clone(),
            }),
            Role::HealthMonitor => Config::HealthMonitor(health::Config {
                list_interval: view.interval("list-volumes-interval")?,
                get_interval: view.interval("monitor-interval")?,
                workers: view.workers("worker-threads")?,
                nodes: view.bool("enable-node-watcher"),
            }),
            Role::Snapshotter => Config::Snapshotter(snapshotter::Config {
                metrics: retries.clone(),
                ..snapshotter(view)?
            }),
            Role::SnapshotController => Config::SnapshotController(snapshot_controller::Config {
                groups: view.gate("CSIVolumeGroupSnapshot"),
                prevent_volume_mode_conversion: view.bool("prevent-volume-mode-conversion"),
                distributed: view.bool("enable-distributed-snapshotting"),
                workers: view.workers("worker-threads")?,
                retry: view.retry()?,
                metrics: snapshot_controller::Metrics::register(
                    &mut metrics.registry(),
                    retries.clone(),
                ),
            }),
            Role::Registrar | Role::LivenessProbe | Role::NfsDriver => {
                return Err(format!("{} is no controller", view.program.name));
            }
        };
        Ok(Self {
            timeout: match view.program.flag("timeout") {
                Some(_) => view.interval("timeout")?,
                None => Duration::ZERO,
            },
            config,
        })
    }

    /// Whether the driver can do what the controller is for.
    pub(super) fn suits(&self, info: &DriverInfo) -> Result<(), String> {
        use ControllerCapability as Can;
        let name = &info.name;
        match &self.config {
            Config::Provisioner(..) if !info.can(Can::CreateDeleteVolume) => Err(format!(
                "the driver {name} makes no volumes: it lacks CREATE_DELETE_VOLUME"
            )),
            Config::Resizer(_) if !resizer::suits(info) => Err(format!(
                "the driver {name} neither grows nor changes volumes: it lacks EXPAND_VOLUME and \
                 MODIFY_VOLUME"
            )),
            Config::HealthMonitor(_) if !health::suits(info) => Err(format!(
                "the driver {name} does not tell the condition of its volumes: it lacks \
                 VOLUME_CONDITION with LIST_VOLUMES or GET_VOLUME"
            )),
            Config::Snapshotter(_) if !info.can(Can::CreateDeleteSnapshot) => Err(format!(
                "the driver {name} cuts no snapshots: it lacks CREATE_DELETE_SNAPSHOT"
            )),
            // What is not attached by the driver is attached in name.
            Config::Provisioner(..)
            | Config::Attacher(_)
            | Config::Resizer(_)
            | Config::Snapshotter(_)
            | Config::SnapshotController(_)
            | Config::HealthMonitor(_) => Ok(()),
        }
    }

    /// Starts it, if it needs no driver.
    pub(super) fn start_without_driver(&self, process: &Process) {
        if let Config::SnapshotController(config) = &self.config {
            snapshot_controller::start(process, config.clone());
        }
    }

    /// Starts it.
    pub(super) fn start(&self, process: &Process, driver: &Driver) {
        let deadlines = Deadlines::all(self.timeout);
        let driver = driver.clone().with_deadlines(deadlines);
        match &self.config {
            Config::Provisioner(config, room) => {
                if let Some(room) = room {
                    capacity::start(process, driver.clone(), (**room).clone());
                }
                provisioner::start(process, driver, (**config).clone());
            }
            Config::Attacher(config) => attacher::start(process, driver, config.clone()),
            Config::Resizer(config) => resizer::start(process, driver, config.clone()),
            Config::Snapshotter(config) => snapshotter::start(process, driver, config.clone()),
            Config::SnapshotController(_) => self.start_without_driver(process),
            Config::HealthMonitor(config) => health::start(process, driver, config.clone()),
        }
    }
}

fn snapshotter(view: &View<'_>) -> Result<snapshotter::Config, String> {
    let node = if view.bool("node-deployment") {
        if view.bool("leader-election") {
            return Err("--node-deployment and --leader-election can not be used together".into());
        }
        Some(node_name()?)
    } else {
        None
    };
    let prefix = |name: &str| match view.text(name) {
        prefix if prefix.is_empty() => Err(format!("--{name} cannot be of length 0")),
        prefix => Ok(prefix),
    };
    let length = |name: &str| uid_length(view, name);
    Ok(snapshotter::Config {
        name_prefix: prefix("snapshot-name-prefix")?,
        name_uid_length: length("snapshot-name-uuid-length")?,
        group_name_prefix: prefix("groupsnapshot-name-prefix")?,
        group_name_uid_length: length("groupsnapshot-name-uuid-length")?,
        extra_create_metadata: view.bool("extra-create-metadata"),
        node,
        groups: view.gate("CSIVolumeGroupSnapshot"),
        workers: view.workers("worker-threads")?,
        retry: view.retry()?,
        ..snapshotter::Config::default()
    })
}

/// A count that a driver is told.
fn u31(view: &View<'_>, name: &str) -> Result<i32, String> {
    let count = view.int(name);
    i32::try_from(count)
        .ok()
        .filter(|count| *count >= 0)
        .ok_or_else(|| format!("--{name}={count}: must be between 0 and {}", i32::MAX))
}

/// How much of a uid is in a name; less than none is all of it.
fn uid_length(view: &View<'_>, name: &str) -> Result<Option<usize>, String> {
    match usize::try_from(view.int(name)).ok() {
        // What has the name of another is taken for it by the driver.
        Some(0) => Err(format!(
            "--{name}=0: all would have one name; leave the flag out, or give at least 1"
        )),
        length => Ok(length),
    }
}

/// The node of a controller that serves one.
fn node_name() -> Result<String, String> {
    let node = std::env::var("NODE_NAME").ok();
    node.filter(|name| !name.is_empty()).ok_or_else(|| {
        "the NODE_NAME environment variable must be set when using --node-deployment".to_owned()
    })
}

fn provisioner(view: &View<'_>, metrics: &Metrics) -> Result<provisioner::Config, String> {
    let deployment = if view.bool("node-deployment") {
        provisioner::Deployment::Node {
            name: node_name()?,
            immediate: view
                .bool("node-deployment-immediate-binding")
                .then(|| Backoff {
                    first: view.duration("node-deployment-base-delay"),
                    most: view.duration("node-deployment-max-delay"),
                }),
        }
    } else {
        provisioner::Deployment::Central
    };
    let prefix = view.text("volume-name-prefix");
    if prefix.is_empty() {
        return Err("volume name prefix cannot be of length 0".into());
    }
    let may_begin = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !prefix.starts_with(may_begin) || prefix.contains(|c| !may_begin(c) && c != '-' && c != '.')
    {
        return Err(format!(
            "--volume-name-prefix={prefix}: no PersistentVolume can have a name that begins so; use \
             lower-case letters, digits, - and ."
        ));
    }
    Ok(provisioner::Config {
        deployment,
        volume_name_prefix: prefix,
        volume_name_uuid_length: uid_length(view, "volume-name-uuid-length")?,
        spread: if view.bool("strict-topology") {
            provisioner::Spread::Strict
        } else {
            provisioner::Spread::Preferred
        },
        immediate: if view.bool("immediate-topology") {
            provisioner::Immediate::EverywhereTheDriverIs
        } else {
            provisioner::Immediate::AsTheClassSays
        },
        default_fs_type: view.text("default-fstype"),
        extra_create_metadata: view.bool("extra-create-metadata"),
        controller_publish_readonly: view.bool("controller-publish-readonly"),
        prevent_volume_mode_conversion: view.bool("prevent-volume-mode-conversion"),
        cross_namespace_sources: view.gate("CrossNamespaceVolumeDataSource"),
        snapshot_sweep: view.duration("snapshot-orphan-sweep-interval"),
        workers: view.workers("worker-threads")?,
        retry: view.retry()?,
        metrics: provisioner::Metrics::register(&mut metrics.registry()),
        identity: identity::of_provisioner,
        more_room: provisioner::MoreRoom::default(),
    })
}

fn capacity(
    view: &View<'_>,
    metrics: &Metrics,
    beside: &provisioner::Config,
) -> Result<capacity::Config, String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let namespace =
        set("NAMESPACE").ok_or("NAMESPACE env var not set: needed by --enable-capacity")?;
    let level = view.int("capacity-ownerref-level");
    let owner = match u8::try_from(level) {
        Err(_) => None,
        Ok(level) => {
            let name =
                set("POD_NAME").ok_or("POD_NAME env var not set: needed by --enable-capacity")?;
            let pod = Key::namespaced(&namespace, name);
            Some(capacity::Above { pod, level })
        }
    };
    Ok(capacity::Config {
        namespace,
        deployment: beside.deployment.clone(),
        immediate: view.bool("capacity-for-immediate-binding"),
        poll: view.interval("capacity-poll-interval")?,
        owner,
        workers: view.workers("capacity-threads")?,
        cap: view.cap("kube-api-capacity-qps", "kube-api-capacity-burst"),
        retry: view.retry()?,
        metrics: capacity::Metrics::register(&mut metrics.registry()),
        more_room: beside.more_room.clone(),
    })
}

/// The lease of a program beside a driver; the originals', so that theirs and ours never lead at
/// the same time.
pub(super) fn lease(role: Role, driver: &str) -> String {
    match role {
        Role::Provisioner => sanitise(&driver.replace('/', "-")),
        Role::Attacher => sanitise(&format!("external-attacher-leader-{driver}")),
        Role::Resizer => sanitise(&format!("external-resizer-{}", sanitise(driver))),
        Role::Snapshotter => sanitise(&format!("external-snapshotter-leader-{driver}")),
        Role::SnapshotController => "snapshot-controller-leader".to_owned(),
        Role::HealthMonitor => sanitise(&format!("external-health-monitor-leader-{driver}")),
        // These have none.
        Role::Registrar | Role::LivenessProbe | Role::NfsDriver => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_have_the_originals_names() {
        for (role, expected) in [
            (Role::Provisioner, "ebs-csi-aws-com"),
            (Role::Attacher, "external-attacher-leader-ebs-csi-aws-com"),
            (Role::Resizer, "external-resizer-ebs-csi-aws-com"),
            (
                Role::Snapshotter,
                "external-snapshotter-leader-ebs-csi-aws-com",
            ),
            (Role::SnapshotController, "snapshot-controller-leader"),
            (
                Role::HealthMonitor,
                "external-health-monitor-leader-ebs-csi-aws-com",
            ),
        ] {
            assert_eq!(lease(role, "ebs.csi.aws.com"), expected);
        }
        assert_eq!(lease(Role::Provisioner, "a/b-"), "a-b-X");
    }
}
