//! The node's own objects: Node, CSINode and the lease that says it is alive.
//!
//! The node's status is written when it starts and when it is found wrong; that it lives
//! is told by the lease alone, which is small.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlop_model::{CsiNode, Key, Lease, Meta, Node, lease::LeaseSpec, well_known};
use orlop_runtime::{ApiError, Backoff, Cache, Change, Clock, Cluster, Patch};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::registration::owned_by;

/// The kubelet's: renewed every ten seconds, good for forty.
const RENEW: Duration = Duration::from_secs(10);
const GOOD_FOR: Duration = Duration::from_secs(40);

/// Who the node is.
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) max_pods: u32,
    pub(crate) cluster: Cluster,
    pub(crate) clock: Clock,
    pub(crate) node: Cache<Node>,
    /// Told when the node has been made again, with nothing of its drivers on it.
    pub(crate) anew: Arc<Notify>,
}

impl Identity {
    /// Registers the node, trying for as long as it takes.
    pub(crate) async fn settle(&self) {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            most: Duration::from_secs(7),
        };
        let mut failures = 0;
        while let Err(error) = self.register().await {
            failures += 1;
            warn!(
                node = self.name,
                error = error.chain(),
                "could not register the node"
            );
            tokio::time::sleep(backoff.after(failures)).await;
        }
        info!(node = self.name, "node registered");
    }

    /// Keeps the lease, for ever; registers again should somebody delete the node.
    pub(crate) async fn live(&self) {
        let backoff = Backoff {
            first: Duration::from_millis(200),
            most: RENEW,
        };
        let mut failures = 0;
        let gone = Arc::new(Notify::new());
        let teller = gone.clone();
        self.node.subscribe(move |change| {
            if matches!(change, Change::Deleted(_)) {
                teller.notify_one();
            }
        });
        loop {
            let result = match self.node.named(&self.name) {
                Some(node) => self.renew(&node).await,
                None => self.register().await.map(|()| self.anew.notify_one()),
            };
            let pause = match result {
                Ok(()) => {
                    failures = 0;
                    RENEW
                }
                Err(error) => {
                    failures += 1;
                    warn!(
                        node = self.name,
                        error = error.chain(),
                        "could not renew the node's lease"
                    );
                    backoff.after(failures)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = gone.notified() => {}
            }
        }
    }

    async fn register(&self) -> Result<(), ApiError> {
        let key = Key::cluster(&self.name);
        let node = match self.cluster.get::<Node>(&key).await? {
            Some(node) => self.remark(node).await?,
            None => {
                let body = json!({"metadata": {
                    "name": self.name, "labels": self.own_labels(), "annotations": own_annotations(),
                }});
                match self.cluster.create_json::<Node>(&body).await {
                    Err(error) if !error.is_already_exists() => return Err(error),
                    _ => {}
                }
                match self.cluster.get::<Node>(&key).await? {
                    Some(node) => node,
                    // Deleted in between; the next look begins anew.
                    None => return Ok(()),
                }
            }
        };
        let csi_node = CsiNode {
            metadata: Meta {
                owner_references: vec![owned_by(&node)],
                ..Meta::named(&key)
            },
            ..CsiNode::default()
        };
        match self.cluster.create(&csi_node).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        self.renew(&node).await?;
        let patch = Patch::Strategic(json!({"status": self.status()}));
        self.node
            .absorb(self.cluster.patch_status::<Node>(&key, &patch).await?);
        Ok(())
    }

    async fn remark(&self, node: Node) -> Result<Node, ApiError> {
        let (labels, annotations) = (self.own_labels(), own_annotations());
        let all_in = |ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>| {
            ours.iter()
                .all(|(key, value)| theirs.get(key) == Some(value))
        };
        let meta = &node.metadata;
        if all_in(&labels, &meta.labels) && all_in(&annotations, &meta.annotations) {
            return Ok(node);
        }
        let patch =
            Patch::Merge(json!({"metadata": {"labels": labels, "annotations": annotations}}));
        self.cluster
            .patch::<Node>(&Key::cluster(&self.name), &patch)
            .await
    }

    async fn renew(&self, node: &Node) -> Result<(), ApiError> {
        let key = Key::namespaced(well_known::NODE_LEASES, &self.name);
        let now = self.clock.now();
        let patch = Patch::Merge(json!({"spec": {
            "holderIdentity": self.name,
            "leaseDurationSeconds": GOOD_FOR.as_secs(),
            "renewTime": format!("{now:.6}"),
        }}));
        match self.cluster.patch::<Lease>(&key, &patch).await {
            Err(error) if error.is_not_found() => {
                let lease = Lease {
                    metadata: Meta {
                        owner_references: vec![owned_by(node)],
                        ..Meta::named(&key)
                    },
                    spec: LeaseSpec {
                        holder_identity: Some(self.name.clone()),
                        lease_duration_seconds: i32::try_from(GOOD_FOR.as_secs()).ok(),
                        renew_time: Some(now),
                        ..LeaseSpec::default()
                    },
                };
                self.cluster.create(&lease).await.map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    fn own_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert(well_known::HOSTNAME.to_owned(), self.name.clone());
        labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
        labels.insert("kubernetes.io/arch".to_owned(), architecture().to_owned());
        labels
    }

    fn status(&self) -> Value {
        let now = self.clock.now_seconds().to_string();
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                   "lastHeartbeatTime": now, "lastTransitionTime": now})
        };
        let resources = json!({
            "cpu": cpus().to_string(),
            "memory": format!("{}Ki", memory_kib()),
            "pods": self.max_pods.to_string(),
        });
        json!({
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "the node role is ready"),
            ],
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "nodeInfo": {
                "machineID": read("/etc/machine-id"),
                "systemUUID": "",
                "bootID": read("/proc/sys/kernel/random/boot_id"),
                "kernelVersion": read("/proc/sys/kernel/osrelease"),
                "osImage": os_image(),
                "containerRuntimeVersion": concat!("orlop://", env!("CARGO_PKG_VERSION")),
                "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "+orlop"),
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": architecture(),
            },
        })
    }
}

/// In Go's words.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What the node can give to pods.
pub(crate) fn allocatable() -> orlop_model::Resources {
    let amounts = [
        ("cpu", cpus().to_string()),
        ("memory", format!("{}Ki", memory_kib())),
    ];
    let amounts = amounts
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text.parse().ok()?)));
    orlop_model::Resources(amounts.collect())
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn memory_kib() -> u64 {
    let text = read("/proc/meminfo");
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn os_image() -> String {
    let text = read("/etc/os-release");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("Linux").trim_matches('"').to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Attach-detach attaches nothing to a node without the first; ours leaves FlexVolumes to it by the second.
fn own_annotations() -> BTreeMap<String, String> {
    let names = [
        well_known::CONTROLLER_MANAGED_ATTACH,
        well_known::ATTACHES_FLEX,
    ];
    BTreeMap::from(names.map(|name| (name.to_owned(), "true".to_owned())))
}
