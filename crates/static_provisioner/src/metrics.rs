//! Disks found and cleaned, counted under the names that dashboards of the original select on.

use std::time::Duration;

use orlop_model::VolumeMode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

/// How the original's metrics begin.
const PREFIX: &str = "local_volume_provisioner";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Mode {
    mode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deletion {
    mode: &'static str,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cleaning {
    mode: &'static str,
    r#type: &'static str,
    cleanup_command: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVolume {
    persistentvolume: String,
}

#[derive(Debug, Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        // From a tenth of a second to a day and a half.
        Histogram::new((0..20).map(|power| 0.1 * f64::from(1 << power)))
    }
}

/// The provisioner's metrics; clones share them. The default counts for nobody.
#[derive(Debug, Clone)]
pub struct Metrics {
    capacity: Family<Mode, Gauge>,
    discovered: Family<Mode, Counter>,
    deleted: Family<Deletion, Counter>,
    failed: Family<Deletion, Counter>,
    seconds: Family<Cleaning, Histogram, Seconds>,
    running: Gauge,
    progress: Family<OfVolume, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            capacity: Family::default(),
            discovered: Family::default(),
            deleted: Family::default(),
            failed: Family::default(),
            seconds: Family::new_with_constructor(Seconds),
            running: Gauge::default(),
            progress: Family::default(),
        }
    }
}

fn word(mode: VolumeMode) -> &'static str {
    match mode {
        VolumeMode::Filesystem => "Filesystem",
        VolumeMode::Block => "Block",
    }
}

fn process(mode: VolumeMode) -> Deletion {
    Deletion {
        mode: word(mode),
        r#type: "process",
    }
}

impl Metrics {
    /// Metrics that a registry shows. Once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix(PREFIX);
        // The registry adds `_total` to counters by itself.
        registry.register(
            "persistentvolume_capacity_bytes",
            "Size of the disks that were found",
            metrics.capacity.clone(),
        );
        registry.register(
            "persistentvolume_discovery",
            "Disks offered",
            metrics.discovered.clone(),
        );
        registry.register(
            "persistentvolume_delete",
            "Volumes deleted, their disks clean",
            metrics.deleted.clone(),
        );
        registry.register(
            "persistentvolume_delete_failed",
            "Tries to clean a disk that failed",
            metrics.failed.clone(),
        );
        registry.register(
            "persistentvolume_delete_duration_seconds",
            "Time that cleaning a disk took",
            metrics.seconds.clone(),
        );
        registry.register(
            "proctable_running",
            "Disks that are being cleaned",
            metrics.running.clone(),
        );
        registry.register(
            "persistentvolume_cleaned_percent",
            "How far the cleaning of a volume's disk has come",
            metrics.progress.clone(),
        );
        metrics
    }

    pub(crate) fn found(&self, mode: VolumeMode, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let label = Mode { mode: word(mode) };
        self.capacity.get_or_create(&label).set(bytes);
    }

    pub(crate) fn offered(&self, mode: VolumeMode) {
        let label = Mode { mode: word(mode) };
        self.discovered.get_or_create(&label).inc();
    }

    pub(crate) fn begun(&self, volume: &str) -> Running {
        self.running.inc();
        Running {
            metrics: self.clone(),
            volume: OfVolume {
                persistentvolume: volume.to_owned(),
            },
        }
    }

    pub(crate) fn cleaned(&self, mode: VolumeMode, how: &str, took: Duration) {
        self.deleted.get_or_create(&process(mode)).inc();
        let label = Cleaning {
            mode: word(mode),
            r#type: "process",
            cleanup_command: how.to_owned(),
        };
        self.seconds
            .get_or_create(&label)
            .observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self, mode: VolumeMode) {
        self.failed.get_or_create(&process(mode)).inc();
    }
}

/// A cleaning under way; over when dropped.
pub(crate) struct Running {
    metrics: Metrics,
    volume: OfVolume,
}

impl Running {
    pub(crate) fn reached(&self, percent: u64) {
        let percent = i64::try_from(percent).unwrap_or(100);
        self.metrics
            .progress
            .get_or_create(&self.volume)
            .set(percent);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.running.dec();
        self.metrics.progress.remove(&self.volume);
    }
}
