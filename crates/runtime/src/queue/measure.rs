//! Queues, measured under the names that client-go's are known by.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::time::Instant;

/// Beyond this many, turns that are over are looked for and forgotten.
const MANY: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: String,
}

#[derive(Debug, Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(1e-8, 10.0, 10))
    }
}

/// The queues of a process.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    adds: Family<Name, Counter>,
    depth: Family<Name, Gauge>,
    retries: Family<Name, Counter>,
    waited: Family<Name, Histogram, Seconds>,
    worked: Family<Name, Histogram, Seconds>,
    running: Running,
}

impl Queues {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let queues = Self {
            adds: Family::default(),
            depth: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(Seconds),
            worked: Family::new_with_constructor(Seconds),
            running: Running::default(),
        };
        // The registry adds `_total` to counters by itself.
        registry.register(
            "workqueue_adds",
            "Keys added to a queue",
            queues.adds.clone(),
        );
        registry.register(
            "workqueue_depth",
            "Keys that wait now",
            queues.depth.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Turns that failed and are tried again",
            queues.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time that keys waited for their turn",
            queues.waited.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Time that turns took",
            queues.worked.clone(),
        );
        registry.register_collector(Box::new(queues.running.clone()));
        queues
    }

    /// The measures of one queue.
    pub(super) fn named(&self, name: &str) -> Measure {
        let name = Name {
            name: name.to_owned(),
        };
        self.running.lock().entry(name.name.clone()).or_default();
        Measure {
            adds: self.adds.get_or_create_owned(&name),
            depth: self.depth.get_or_create_owned(&name),
            retries: self.retries.get_or_create_owned(&name),
            waited: self.waited.get_or_create_owned(&name),
            worked: self.worked.get_or_create_owned(&name),
            running: self.running.clone(),
            name: name.name,
        }
    }
}

/// One queue's measures.
#[derive(Clone)]
pub(super) struct Measure {
    adds: Counter,
    depth: Gauge,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
    running: Running,
    name: String,
}

impl Measure {
    pub(super) fn added(&self) {
        self.adds.inc();
    }

    pub(super) fn depth(&self, depth: usize) {
        self.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A turn begins; it is over when what is answered is dropped.
    pub(super) fn begun(&self, waited: Duration) -> Arc<Instant> {
        self.waited.observe(waited.as_secs_f64());
        let now = Arc::new(Instant::now());
        let mut running = self.running.lock();
        let turns = running.entry(self.name.clone()).or_default();
        if turns.len() >= MANY {
            turns.retain(|turn| turn.strong_count() > 0);
        }
        turns.push(Arc::downgrade(&now));
        now
    }

    pub(super) fn over(&self, begun: &Instant, failed: bool) {
        self.worked.observe(begun.elapsed().as_secs_f64());
        if failed {
            self.retries.inc();
        }
    }
}

type Turns = BTreeMap<String, Vec<Weak<Instant>>>;

/// The turns that are not over.
#[derive(Debug, Clone, Default)]
struct Running(Arc<Mutex<Turns>>);

impl Running {
    fn lock(&self) -> std::sync::MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Running {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut running = self.lock();
        let times: Vec<(Name, f64, f64)> = running
            .iter_mut()
            .map(|(name, turns)| {
                turns.retain(|turn| turn.strong_count() > 0);
                let times = turns.iter().filter_map(Weak::upgrade);
                let times: Vec<f64> = times.map(|at| at.elapsed().as_secs_f64()).collect();
                let longest = times.iter().copied().fold(0.0, f64::max);
                let name = Name { name: name.clone() };
                // Not `sum`: that of nothing is -0.0.
                let sum = times.iter().fold(0.0, |sum, time| sum + time);
                (name, sum, longest)
            })
            .collect();
        drop(running);
        let mut unfinished = encoder.encode_descriptor(
            "workqueue_unfinished_work_seconds",
            "How long all turns that are not over have taken together",
            None,
            MetricType::Gauge,
        )?;
        for (name, sum, _) in &times {
            ConstGauge::new(*sum).encode(unfinished.encode_family(name)?)?;
        }
        let mut longest = encoder.encode_descriptor(
            "workqueue_longest_running_processor_seconds",
            "How long the longest turn that is not over has taken",
            None,
            MetricType::Gauge,
        )?;
        for (name, _, most) in &times {
            ConstGauge::new(*most).encode(longest.encode_family(name)?)?;
        }
        Ok(())
    }
}
