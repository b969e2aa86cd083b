//! How long snapshots take, under the names that dashboards of the original select on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};
use tokio::time::Instant;

use crate::patience::RetryMetrics;

/// The original's bounds, in seconds.
const BUCKETS: [f64; 13] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// What is done for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// From the wish to the cut.
    Create,
    /// From the wish to its readiness.
    CreateAndReady,
    /// From the deletion to the last finalizer.
    Delete,
}

/// Where a snapshot comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Dynamic,
    PreProvisioned,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    driver_name: String,
    operation_name: String,
    snapshot_type: &'static str,
    operation_status: &'static str,
}

#[derive(Debug, Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// One that is under way.
#[derive(Debug)]
struct Begun {
    at: Instant,
    prefix: &'static str,
    kind: Type,
    driver: String,
}

/// The snapshot controller's metrics; clones share them. The default counts for nobody.
#[derive(Debug, Clone)]
pub struct Metrics {
    seconds: Family<Labels, Histogram, Seconds>,
    in_flight: Gauge,
    /// By the uid of whom it is done for.
    begun: Arc<Mutex<BTreeMap<(String, Operation), Begun>>>,
    pub(super) retries: RetryMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(Seconds),
            in_flight: Gauge::default(),
            begun: Arc::default(),
            retries: RetryMetrics::default(),
        }
    }
}

impl Metrics {
    /// Metrics that a registry shows. Once per registry.
    pub fn register(registry: &mut Registry, retries: RetryMetrics) -> Self {
        let metrics = Self {
            retries,
            ..Self::default()
        };
        registry.register(
            "snapshot_controller_operation_total_seconds",
            "Total number of seconds spent by the controller on an operation",
            metrics.seconds.clone(),
        );
        registry.register(
            "snapshot_controller_operations_in_flight",
            "Total number of operations in flight",
            metrics.in_flight.clone(),
        );
        metrics
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, Operation), Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever a forerunner had under way is its own business no more.
    pub(super) fn begin_anew(&self) {
        let mut begun = self.lock();
        begun.clear();
        self.count(&begun);
    }

    /// An operation begins, unless it is under way. `prefix` is the kind's, before `Snapshot`;
    /// the driver may not be known yet.
    pub(super) fn begin(
        &self,
        uid: &str,
        what: Operation,
        (prefix, kind): (&'static str, Type),
        driver: Option<&str>,
    ) {
        let mut begun = self.lock();
        begun.entry((uid.to_owned(), what)).or_insert(Begun {
            at: Instant::now(),
            prefix,
            kind,
            driver: driver.unwrap_or("unknown").to_owned(),
        });
        self.count(&begun);
    }

    /// An operation went well, if it was under way. A deletion ends what was not finished.
    pub(super) fn succeed(&self, uid: &str, what: Operation, driver: Option<&str>) {
        let mut begun = self.lock();
        if let Some(one) = begun.remove(&(uid.to_owned(), what)) {
            self.observe(&one, what, driver, "success");
        }
        if what == Operation::Delete {
            self.end(&mut begun, uid);
        }
        self.count(&begun);
    }

    /// Whom it was done for is gone. That may be heard of before the answer to what let it go.
    pub(super) fn gone(&self, uid: &str) {
        let mut begun = self.lock();
        self.end(&mut begun, uid);
        self.count(&begun);
    }

    fn end(&self, begun: &mut BTreeMap<(String, Operation), Begun>, uid: &str) {
        for what in [
            Operation::Create,
            Operation::CreateAndReady,
            Operation::Delete,
        ] {
            if let Some(one) = begun.remove(&(uid.to_owned(), what)) {
                let status = match what {
                    Operation::Delete => "success",
                    Operation::Create | Operation::CreateAndReady => "cancel",
                };
                self.observe(&one, what, None, status);
            }
        }
    }

    fn observe(&self, one: &Begun, what: Operation, driver: Option<&str>, status: &'static str) {
        let prefix = one.prefix;
        let labels = Labels {
            driver_name: driver.unwrap_or(&one.driver).to_owned(),
            operation_name: match what {
                Operation::Create => format!("Create{prefix}Snapshot"),
                Operation::CreateAndReady => format!("Create{prefix}SnapshotAndReady"),
                Operation::Delete => format!("Delete{prefix}Snapshot"),
            },
            snapshot_type: match one.kind {
                Type::Dynamic => "dynamic",
                Type::PreProvisioned => "pre-provisioned",
            },
            operation_status: status,
        };
        let took = one.at.elapsed().as_secs_f64();
        self.seconds.get_or_create(&labels).observe(took);
    }

    fn count(&self, begun: &BTreeMap<(String, Operation), Begun>) {
        self.in_flight
            .set(i64::try_from(begun.len()).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shown(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).expect("it is text");
        text
    }

    #[tokio::test(start_paused = true)]
    async fn operations_are_counted_as_the_original_counts_them() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, RetryMetrics::default());
        for what in [Operation::Create, Operation::CreateAndReady] {
            metrics.begin("u", what, ("", Type::Dynamic), Some("d"));
            metrics.begin("u", what, ("", Type::Dynamic), None);
        }
        assert!(shown(&registry).contains("snapshot_controller_operations_in_flight 2\n"));
        tokio::time::sleep(Duration::from_secs(3)).await;
        metrics.succeed("u", Operation::Create, Some("d"));
        metrics.succeed("u", Operation::Create, Some("d"));
        metrics.begin("u", Operation::Delete, ("", Type::Dynamic), Some("d"));
        metrics.succeed("u", Operation::Delete, None);
        let text = shown(&registry);
        let line = |operation: &str, status: &str| {
            format!(
                "snapshot_controller_operation_total_seconds_count{{driver_name=\"d\",\
                 operation_name=\"{operation}\",snapshot_type=\"dynamic\",\
                 operation_status=\"{status}\"}} 1\n"
            )
        };
        for line in [
            line("CreateSnapshot", "success"),
            line("CreateSnapshotAndReady", "cancel"),
            line("DeleteSnapshot", "success"),
            "snapshot_controller_operations_in_flight 0\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        // Its end may be heard of first.
        metrics.begin(
            "v",
            Operation::Delete,
            ("", Type::PreProvisioned),
            Some("d"),
        );
        metrics.gone("v");
        metrics.succeed("v", Operation::Delete, None);
        let text = shown(&registry);
        let line = line("DeleteSnapshot", "success").replace("dynamic", "pre-provisioned");
        assert!(text.contains(&line), "{line} is not in\n{text}");
        let sum = "operation_name=\"CreateSnapshot\",snapshot_type=\"dynamic\",\
                   operation_status=\"success\"} 3";
        assert!(text.contains(sum), "{text}");
    }

    /// The original once locked twice here.
    #[test]
    fn many_at_once_neither_hang_nor_are_lost() {
        let metrics = Metrics::default();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let metrics = metrics.clone();
                scope.spawn(move || {
                    for number in 0..500 {
                        let uid = format!("{thread}-{number}");
                        metrics.begin(&uid, Operation::Create, ("", Type::Dynamic), None);
                        metrics.begin(&uid, Operation::Delete, ("", Type::Dynamic), None);
                        metrics.succeed(&uid, Operation::Delete, None);
                    }
                });
            }
        });
        assert_eq!(metrics.in_flight.get(), 0);
        assert!(metrics.lock().is_empty());
    }
}
