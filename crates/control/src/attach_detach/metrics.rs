//! What attach-detach tells of itself: kube-controller-manager's metrics, by their names, and how
//! long the oldest wish has waited.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use orlop_model::{Pod, Volume, VolumeAttachment, flex as names, migration, network_disk};
use orlop_runtime::{Change, Clock, Process};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, family::Family, gauge::ConstGauge, gauge::Gauge, histogram::Histogram},
};
use tokio::time::Instant;

use super::{
    actual, by_word,
    decide::Force,
    flex,
    work::{Flex, Known},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct InUse {
    node: String,
    volume_plugin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct State {
    plugin_name: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    volume_plugin: String,
    operation_name: &'static str,
    status: &'static str,
    migrated: &'static str,
}

#[derive(Clone)]
pub(super) struct Metrics {
    // The name has no `_total`, which a counter would get here.
    forced: Family<Reason, Gauge>,
    took: Family<Ended, Histogram, fn() -> Histogram>,
    /// Since when attachments are on their way to be made, or to go, by uid.
    begun: Arc<Mutex<BTreeMap<String, Instant>>>,
}

fn seconds() -> Histogram {
    let buckets = [
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
    ];
    Histogram::new(buckets)
}

/// What an attachment waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Attaching,
    Attached,
    Detaching,
}

fn stage(attachment: &VolumeAttachment) -> Stage {
    match (
        attachment.metadata.is_deleting(),
        attachment.status.attached,
    ) {
        (true, _) => Stage::Detaching,
        (false, true) => Stage::Attached,
        (false, false) => Stage::Attaching,
    }
}

/// What ended with a change, and how: its operation and its status, as the original names them.
fn ended(change: &Change<'_, VolumeAttachment>) -> Option<(&'static str, &'static str)> {
    const DONE: &str = "success";
    const FAILED: &str = "fail-unknown";
    match change {
        Change::Deleted(_) => Some(("volume_detach", DONE)),
        Change::Applied { old, new } => {
            let old = (*old)?;
            match (stage(old), stage(new)) {
                (Stage::Attaching, Stage::Attached) => Some(("volume_attach", DONE)),
                (Stage::Attaching, Stage::Attaching)
                    if new.status.attach_error.is_some()
                        && new.status.attach_error != old.status.attach_error =>
                {
                    Some(("volume_attach", FAILED))
                }
                (Stage::Detaching, Stage::Detaching)
                    if new.status.detach_error.is_some()
                        && new.status.detach_error != old.status.detach_error =>
                {
                    Some(("volume_detach", FAILED))
                }
                _ => None,
            }
        }
    }
}

impl Metrics {
    pub(super) fn register(process: &Process, known: &Known, flex: Option<&Flex>) -> Self {
        let metrics = Self {
            forced: Family::default(),
            took: Family::new_with_constructor(seconds),
            begun: Arc::default(),
        };
        let mut registry = process.metrics.registry();
        registry.register(
            "attach_detach_controller_attachdetach_controller_forced_detaches",
            "Number of times the A/D Controller performed a forced detach",
            metrics.forced.clone(),
        );
        registry.register(
            "storage_operation_duration_seconds",
            "Storage operation duration",
            metrics.took.clone(),
        );
        registry.register_collector(Box::new(Standings {
            known: known.clone(),
            flex: flex.cloned(),
            clock: process.clock,
        }));
        metrics
    }

    /// Takes in what became of an attachment. What was under way before us is timed from our start.
    pub(super) fn attachment_changed(&self, change: &Change<'_, VolumeAttachment>, migrated: bool) {
        let attachment = change.object();
        let uid = &attachment.metadata.uid;
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((operation_name, status)) = ended(change)
            && let Some(since) = begun.remove(uid)
        {
            let ended = Ended {
                volume_plugin: plugin_of_attachment(attachment),
                operation_name,
                status,
                migrated: if migrated { "true" } else { "false" },
            };
            let took = since.elapsed().as_secs_f64();
            self.took.get_or_create(&ended).observe(took);
        }
        let deleted = matches!(change, Change::Deleted(_));
        match stage(attachment) {
            Stage::Attached => drop(begun.remove(uid)),
            _ if deleted => drop(begun.remove(uid)),
            Stage::Detaching if !was_leaving(change) => {
                begun.insert(uid.clone(), Instant::now());
            }
            Stage::Attaching | Stage::Detaching => {
                begun.entry(uid.clone()).or_insert_with(Instant::now);
            }
        }
    }

    pub(super) fn forced(&self, force: Force) {
        let reason = match force {
            Force::OutOfService => "out-of-service",
            Force::Timeout => "timeout",
        };
        self.forced.get_or_create(&Reason { reason }).inc();
    }
}

fn was_leaving(change: &Change<'_, VolumeAttachment>) -> bool {
    match change {
        Change::Applied { old, .. } => old.is_some_and(|old| stage(old) == Stage::Detaching),
        Change::Deleted(_) => true,
    }
}

/// What is counted when it is asked for.
struct Standings {
    known: Known,
    flex: Option<Flex>,
    clock: Clock,
}

impl fmt::Debug for Standings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Standings")
    }
}

fn plugin(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

/// FlexVolume's drivers are plugins of their own.
fn plugin_of_attachment(attachment: &VolumeAttachment) -> String {
    let flex = flex::unique_name(attachment).and_then(names::parts);
    match flex {
        Some((driver, _)) => driver.to_owned(),
        None => plugin(&attachment.spec.attacher),
    }
}

impl Standings {
    /// The plugin of a volume that is attached.
    fn plugin_of(&self, volume: &Volume) -> Option<String> {
        match migration::source(volume) {
            Some(csi) => Some(plugin(&csi.driver)),
            None => self
                .plugin_without_driver(&volume.unique_name()?)
                .map(str::to_owned),
        }
    }

    /// The plugin of storage that no CSI driver has. Of FlexVolume's drivers those count that attach.
    fn plugin_without_driver<'n>(&self, unique: &'n str) -> Option<&'n str> {
        let flex = names::parts(unique).map(|(driver, _)| driver);
        let served = |driver: &&str| {
            let flex = self.flex.as_ref();
            flex.is_some_and(|flex| flex.is_known_to_attach(driver))
        };
        let disk = || network_disk::plugin(unique);
        flex.filter(served).or_else(disk)
    }

    /// The plugins of a pod's volumes, one for each volume.
    fn plugins(&self, pod: &Pod) -> Vec<String> {
        let namespace = &pod.metadata.namespace;
        let claimed = pod.claims().filter_map(|(_, key)| {
            let claim = self.known.claims.get(&key)?;
            let volume = self.known.volumes.named(&claim.spec.volume_name)?;
            let bound = super::desired::is_bound(&claim, &volume);
            bound.then(|| self.plugin_of(&volume))?
        });
        let own = pod.spec.volumes.iter().filter_map(|volume| {
            let own = volume.csi.as_ref().map(|csi| plugin(&csi.driver));
            own.or_else(|| self.plugin_of(&by_word::own(volume, namespace)?))
        });
        claimed.chain(own).collect()
    }

    fn in_use(&self) -> BTreeMap<InUse, i64> {
        let mut counts = BTreeMap::new();
        for pod in self.known.pods.in_any_order() {
            if !pod.is_placed() {
                continue;
            }
            for volume_plugin in self.plugins(&pod) {
                let node = pod.spec.node_name.clone();
                *counts
                    .entry(InUse {
                        node,
                        volume_plugin,
                    })
                    .or_default() += 1;
            }
        }
        counts
    }

    fn totals(&self) -> BTreeMap<State, i64> {
        let mut counts = BTreeMap::new();
        for unique in self.known.all() {
            let (plugin_name, attachable) = match actual::parts(&unique) {
                Some((driver, _)) => (plugin(driver), self.known.is_attachable(driver)),
                None => match self.plugin_without_driver(&unique) {
                    Some(plugin) => (plugin.to_owned(), true),
                    None => continue,
                },
            };
            let wishes = self.known.grantable(self.known.unit(&unique).wishes);
            let wished = i64::try_from(wishes.len()).unwrap_or(i64::MAX);
            if wished > 0 && attachable {
                let state = State {
                    plugin_name,
                    state: "desired_state_of_world",
                };
                *counts.entry(state).or_default() += wished;
            }
        }
        for attachment in self.known.attachments.in_any_order() {
            let state = State {
                plugin_name: plugin_of_attachment(&attachment),
                state: "actual_state_of_world",
            };
            *counts.entry(state).or_default() += 1;
        }
        counts
    }

    /// How many are under way, and for how many seconds the oldest of them.
    fn pending(&self) -> [(Operation, i64, f64); 2] {
        let attachments = self.known.attachments.in_any_order();
        let now = self.clock.now();
        let waiting = |operation, since: fn(&VolumeAttachment) -> Option<jiff::Timestamp>| {
            let since = attachments.iter().filter_map(|a| since(a));
            let ages = since.map(|since| now.duration_since(since).as_secs_f64());
            let ages: Vec<f64> = ages.collect();
            let count = i64::try_from(ages.len()).unwrap_or(i64::MAX);
            let oldest = ages.into_iter().fold(0.0, f64::max);
            (Operation { operation }, count, oldest)
        };
        [
            waiting("attach", |a| {
                let under_way = !a.status.attached && !a.metadata.is_deleting();
                a.metadata.creation_timestamp.filter(|_| under_way)
            }),
            waiting("detach", |a| a.metadata.deletion_timestamp),
        ]
    }
}

impl Collector for Standings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = MetricType::Gauge;
        let mut family = encoder.encode_descriptor(
            "storage_count_attachable_volumes_in_use",
            "Measure number of volumes in use",
            None,
            gauge,
        )?;
        for (labels, count) in self.in_use() {
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "attachdetach_controller_total_volumes",
            "Number of volumes in A/D Controller",
            None,
            gauge,
        )?;
        for (labels, count) in self.totals() {
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        let pending = self.pending();
        let mut family = encoder.encode_descriptor(
            "orlop_attach_detach_pending",
            "Attachments that are asked for and not made, or given back and not gone",
            None,
            gauge,
        )?;
        for (labels, count, _) in &pending {
            ConstGauge::new(*count).encode(family.encode_family(labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "orlop_attach_detach_oldest_pending_seconds",
            "How long the oldest of them has waited",
            None,
            gauge,
        )?;
        for (labels, _, oldest) in &pending {
            ConstGauge::new(*oldest).encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }
}
