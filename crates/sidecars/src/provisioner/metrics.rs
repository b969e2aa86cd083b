//! Provisioning and deletion, counted under the names that dashboards of the original
//! select on.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::Histogram,
    },
    registry::Registry,
};

use crate::patience::RetryMetrics;

/// Prometheus' default bounds, in seconds.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provisioned {
    class: String,
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deleted {
    class: String,
}

#[derive(Debug, Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// The provisioner's metrics; clones share them. The default counts for nobody.
#[derive(Debug, Clone)]
pub struct Metrics {
    provisioned: Family<Provisioned, Counter>,
    provision_failed: Family<Provisioned, Counter>,
    provision_seconds: Family<Provisioned, Histogram, Seconds>,
    deleted: Family<Deleted, Counter>,
    delete_failed: Family<Deleted, Counter>,
    delete_seconds: Family<Deleted, Histogram, Seconds>,
    pub(super) retries: RetryMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            provisioned: Family::default(),
            provision_failed: Family::default(),
            provision_seconds: Family::new_with_constructor(Seconds),
            deleted: Family::default(),
            delete_failed: Family::default(),
            delete_seconds: Family::new_with_constructor(Seconds),
            retries: RetryMetrics::default(),
        }
    }
}

impl Metrics {
    /// The same, with retries counted where other controllers' are.
    #[must_use]
    pub fn with_retries(self, retries: RetryMetrics) -> Self {
        Self { retries, ..self }
    }

    /// Metrics that a registry shows. Once per registry: hand clones to every provisioner.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // The registry adds `_total` to counters by itself.
        registry.register(
            "controller_persistentvolumeclaim_provision",
            "Volumes provisioned",
            metrics.provisioned.clone(),
        );
        registry.register(
            "controller_persistentvolumeclaim_provision_failed",
            "Tries to provision a volume that failed",
            metrics.provision_failed.clone(),
        );
        registry.register(
            "controller_persistentvolumeclaim_provision_duration_seconds",
            "Time that provisioning a volume took",
            metrics.provision_seconds.clone(),
        );
        registry.register(
            "controller_persistentvolume_delete",
            "Volumes deleted",
            metrics.deleted.clone(),
        );
        registry.register(
            "controller_persistentvolume_delete_failed",
            "Tries to delete a volume that failed",
            metrics.delete_failed.clone(),
        );
        registry.register(
            "controller_persistentvolume_delete_duration_seconds",
            "Time that deleting a volume took",
            metrics.delete_seconds.clone(),
        );
        metrics
    }

    pub(super) fn provisioned(&self, class: &str, source: &str, took: Duration) {
        let labels = provisioned(class, source);
        self.provisioned.get_or_create(&labels).inc();
        self.provision_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    pub(super) fn provision_failed(&self, class: &str, source: &str) {
        self.provision_failed
            .get_or_create(&provisioned(class, source))
            .inc();
    }

    pub(super) fn deleted(&self, class: &str, took: Duration) {
        let labels = deleted(class);
        self.deleted.get_or_create(&labels).inc();
        self.delete_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    pub(super) fn delete_failed(&self, class: &str) {
        self.delete_failed.get_or_create(&deleted(class)).inc();
    }
}

fn provisioned(class: &str, source: &str) -> Provisioned {
    Provisioned {
        class: class.to_owned(),
        source: source.to_owned(),
    }
}

fn deleted(class: &str) -> Deleted {
    Deleted {
        class: class.to_owned(),
    }
}
