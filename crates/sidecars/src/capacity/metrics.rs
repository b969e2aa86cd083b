//! How many objects there are and should be, under the names that dashboards of the
//! original select on.

use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

/// The capacity teller's metrics; clones share them. The default counts for nobody.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    goal: Gauge,
    current: Gauge,
    obsolete: Gauge,
}

impl Metrics {
    /// Metrics that a registry shows. Once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "csistoragecapacities_desired_goal",
            "CSIStorageCapacity objects that there should be",
            metrics.goal.clone(),
        );
        registry.register(
            "csistoragecapacities_desired_current",
            "CSIStorageCapacity objects that there should be, and are",
            metrics.current.clone(),
        );
        registry.register(
            "csistoragecapacities_obsolete",
            "CSIStorageCapacity objects that there should not be",
            metrics.obsolete.clone(),
        );
        metrics
    }

    pub(super) fn shows(&self, goal: usize, current: usize, obsolete: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.goal.set(number(goal));
        self.current.set(number(current));
        self.obsolete.set(number(obsolete));
    }
}
