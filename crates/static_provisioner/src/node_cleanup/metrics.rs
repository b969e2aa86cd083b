//! What was deleted, counted under the original's names.

use orlop_model::VolumePhase;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// How the original's metrics begin.
const PREFIX: &str = "local_volume_node_cleanup";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: String,
}

/// What was deleted; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    volumes: Family<Phase, Counter>,
    volumes_failed: Family<Phase, Counter>,
    claims: Counter,
    claims_failed: Counter,
}

impl Metrics {
    /// Metrics that a registry shows. Once per registry.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix(PREFIX);
        // The registry adds `_total` to counters by itself.
        registry.register(
            "persistentvolume_delete",
            "Volumes of removed nodes that were deleted, by their phase",
            metrics.volumes.clone(),
        );
        registry.register(
            "persistentvolume_delete_failed",
            "Tries to delete a volume of a removed node that failed, by the volume's phase",
            metrics.volumes_failed.clone(),
        );
        registry.register(
            "persistentvolumeclaim_delete",
            "Claims bound to volumes of removed nodes that were deleted",
            metrics.claims.clone(),
        );
        registry.register(
            "persistentvolumeclaim_delete_failed",
            "Tries to delete a claim bound to a volume of a removed node that failed",
            metrics.claims_failed.clone(),
        );
        metrics
    }

    pub(super) fn volume(&self, phase: VolumePhase, went_well: bool) {
        let counter = match went_well {
            true => &self.volumes,
            false => &self.volumes_failed,
        };
        let phase = format!("{phase:?}");
        counter.get_or_create(&Phase { phase }).inc();
    }

    pub(super) fn claim(&self, went_well: bool) {
        match went_well {
            true => self.claims.inc(),
            false => self.claims_failed.inc(),
        };
    }
}
