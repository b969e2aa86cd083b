//! What the binder counts, under the names of the original.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use orlop_model::{
    Claim, ClaimPhase, Key, StorageClass, Volume, VolumeMode, VolumePhase, migration, well_known,
};
use orlop_runtime::{ApiError, Cache, Change, Metrics};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram,
    },
};
use tokio::time::Instant;

use super::{claim, volume};

/// Stands for a plugin that nobody knows.
const UNKNOWN: &str = "N/A";

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct Operation {
    plugin_name: String,
    operation_name: &'static str,
}

/// How often operations failed. The original tells it under two names, of which the client would
/// give only one.
type Errors = Arc<Mutex<BTreeMap<Operation, u64>>>;

/// What the binder counts.
#[derive(Clone)]
pub(super) struct BinderMetrics {
    seconds: Family<Operation, Histogram, fn() -> Histogram>,
    errors: Errors,
    defaulted: Counter,
    defaulting_failed: Counter,
    /// Since when operations are under way, by their object.
    begun: Arc<Mutex<BTreeMap<String, (Operation, Instant)>>>,
}

fn seconds() -> Histogram {
    let buckets = [
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
    ];
    Histogram::new(buckets)
}

impl BinderMetrics {
    pub(super) fn register(
        metrics: &Metrics,
        volumes: Cache<Volume>,
        claims: Cache<Claim>,
    ) -> Self {
        let counts = Self {
            seconds: Family::new_with_constructor(seconds),
            errors: Errors::default(),
            defaulted: Counter::default(),
            defaulting_failed: Counter::default(),
            begun: Arc::default(),
        };
        let mut registry = metrics.registry();
        registry.register(
            "volume_operation_total_seconds",
            "Total volume operation time",
            counts.seconds.clone(),
        );
        registry.register(
            "retroactive_storageclass",
            "Total number of retroactive StorageClass assignments to persistent volume claim",
            counts.defaulted.clone(),
        );
        registry.register(
            "retroactive_storageclass_errors",
            "Total number of failed retroactive StorageClass assignments to persistent volume claim",
            counts.defaulting_failed.clone(),
        );
        registry.register_collector(Box::new(Census {
            volumes,
            claims,
            errors: counts.errors.clone(),
        }));
        counts
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<String, (Operation, Instant)>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, object: String, plugin_name: String, operation_name: &'static str) {
        let operation = Operation {
            plugin_name,
            operation_name,
        };
        let begun = (operation, Instant::now());
        self.begun().entry(object).or_insert(begun);
    }

    fn end(&self, object: &str) {
        if let Some((operation, since)) = self.begun().remove(object) {
            let took = since.elapsed().as_secs_f64();
            self.seconds.get_or_create(&operation).observe(took);
        }
    }

    fn fail(&self, object: &str) {
        if let Some((operation, _)) = self.begun().get(object) {
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            *errors.entry(operation.clone()).or_default() += 1;
        }
    }

    /// Takes in what a claim's turn decided, and whether that worked.
    pub(super) fn claim_turn(
        &self,
        key: &Key,
        decision: &claim::Decision,
        carried_out: &Result<(), ApiError>,
    ) {
        let object = key.to_string();
        if let claim::Because::Provisioning(plugin) = &decision.because {
            self.begin(object.clone(), plugin.clone(), "provision");
        }
        match (&decision.because, carried_out) {
            (claim::Because::DefaultClass, result) => {
                self.defaulted.inc();
                if result.is_err() {
                    self.defaulting_failed.inc();
                }
            }
            (claim::Because::Fits, Ok(())) => self.end(&object),
            (_, Err(_)) => self.fail(&object),
            (_, Ok(())) => {}
        }
    }

    /// The claim is gone: nothing of it is waited for.
    pub(super) fn claim_gone(&self, key: &Key) {
        self.begun().remove(&key.to_string());
    }

    /// Takes in what a volume's turn decided.
    pub(super) fn volume_turn(
        &self,
        volume: &Volume,
        decision: &volume::Decision,
        classes: &Cache<StorageClass>,
    ) {
        let abandoned = matches!(
            decision.because,
            volume::Because::Abandoned | volume::Because::Superfluous
        );
        if !abandoned || volume.reclaim_policy() != orlop_model::ReclaimPolicy::Delete {
            return;
        }
        let name = &volume.metadata.name;
        self.begin(name.clone(), deleter(volume, classes), "delete");
        let failed = |step: &volume::Step| matches!(step, volume::Step::MarkFailed(_));
        if decision.steps.iter().any(failed) {
            self.fail(name);
        }
    }

    /// A volume that is gone was deleted.
    pub(super) fn volume_changed(&self, change: &Change<'_, Volume>) {
        if let Change::Deleted(volume) = change {
            self.end(&volume.metadata.name);
        }
    }
}

/// Who deletes a volume: of those who are not ours, what its class says, since a volume may name
/// anything.
fn deleter(volume: &Volume, classes: &Cache<StorageClass>) -> String {
    let maker = volume.metadata.annotation(well_known::PROVISIONED_BY);
    if maker.is_some_and(migration::is_left_over) {
        return UNKNOWN.to_owned();
    }
    let class = classes.named(volume.class());
    class.map_or_else(
        || UNKNOWN.to_owned(),
        |class| {
            let name = class.provisioner.as_str();
            migration::driver_of(name).unwrap_or(name).to_owned()
        },
    )
}

/// How many volumes and claims there are: counted when asked.
struct Census {
    volumes: Cache<Volume>,
    claims: Cache<Claim>,
    errors: Errors,
}

impl fmt::Debug for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Census").finish_non_exhaustive()
    }
}

type Labels = Vec<(&'static str, String)>;
type Counts = BTreeMap<Labels, u64>;

/// What our counters never have.
type NoExemplar = [(String, String); 0];

impl Census {
    fn encode_volumes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let [mut all, mut bound, mut unbound] = [Counts::new(), Counts::new(), Counts::new()];
        for volume in self.volumes.in_any_order() {
            let mode = match volume.volume_mode() {
                VolumeMode::Filesystem => "Filesystem",
                VolumeMode::Block => "Block",
            };
            let labels = vec![
                ("plugin_name", plugin(&volume)),
                ("volume_mode", mode.to_owned()),
            ];
            *all.entry(labels).or_default() += 1;
            let counts = match volume.phase() {
                VolumePhase::Bound => &mut bound,
                _ => &mut unbound,
            };
            let class = volume.spec.storage_class_name.clone();
            *counts.entry(vec![("storage_class", class)]).or_default() += 1;
        }
        let of = "persistent volume";
        gauges(
            encoder,
            "total_pv_count",
            &format!("total number of {of}s"),
            &all,
        )?;
        let bound_of = format!("number of {of} currently bound");
        gauges(encoder, "bound_pv_count", &bound_of, &bound)?;
        let unbound_of = format!("number of {of} currently unbound");
        gauges(encoder, "unbound_pv_count", &unbound_of, &unbound)
    }

    fn encode_claims(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let [mut bound, mut unbound] = [Counts::new(), Counts::new()];
        for claim in self.claims.in_any_order() {
            let class = claim.class().unwrap_or_default().to_owned();
            let attributes = claim.spec.volume_attributes_class_name.clone();
            let labels = vec![
                ("namespace", claim.metadata.namespace.clone()),
                ("storage_class", class),
                ("volume_attributes_class", attributes.unwrap_or_default()),
            ];
            let counts = match claim.phase() {
                ClaimPhase::Bound => &mut bound,
                ClaimPhase::Pending | ClaimPhase::Lost => &mut unbound,
            };
            *counts.entry(labels).or_default() += 1;
        }
        let of = "number of persistent volume claim currently";
        gauges(encoder, "bound_pvc_count", &format!("{of} bound"), &bound)?;
        gauges(
            encoder,
            "unbound_pvc_count",
            &format!("{of} unbound"),
            &unbound,
        )
    }
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    what: &str,
    counts: &Counts,
) -> fmt::Result {
    let (name, help) = (
        format!("pv_collector_{name}"),
        format!("Gauge measuring {what}"),
    );
    let mut gauges = encoder.encode_descriptor(&name, &help, None, MetricType::Gauge)?;
    for (labels, count) in counts {
        let count = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
        count.encode(gauges.encode_family(labels)?)?;
    }
    Ok(())
}

impl Collector for Census {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode_volumes(&mut encoder)?;
        self.encode_claims(&mut encoder)?;
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, type_) in [
            ("volume_operation_errors", MetricType::Counter),
            ("volume_operation_total_errors", MetricType::Unknown),
        ] {
            let help = "Total volume operation errors";
            let mut counters = encoder.encode_descriptor(name, help, None, type_)?;
            for (operation, count) in &*errors {
                let mut one = counters.encode_family(operation)?;
                match type_ {
                    // What is encoded as a gauge gets no ending of its own.
                    MetricType::Unknown => one.encode_gauge(count)?,
                    _ => one.encode_counter::<NoExemplar, _, u64>(count, None)?,
                }
            }
        }
        Ok(())
    }
}

/// The plugin of a volume, as the original's metrics call it.
fn plugin(volume: &Volume) -> String {
    let spec = &volume.spec;
    match (&spec.csi, &spec.local, &spec.host_path, &spec.nfs) {
        (Some(csi), ..) => format!("kubernetes.io/csi:{}", csi.driver),
        (_, Some(_), ..) => "kubernetes.io/local-volume".to_owned(),
        (_, _, Some(_), _) => "kubernetes.io/host-path".to_owned(),
        (_, _, _, Some(_)) => "kubernetes.io/nfs".to_owned(),
        (None, None, None, None) => UNKNOWN.to_owned(),
    }
}

#[cfg(test)]
mod tests;
