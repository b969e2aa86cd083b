//! How long to wait before the next try, by what kind of failure it was, and how many wait.
//!
//! Every wait is told: in the event about the failure, and as metrics.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_csi::{CallError, Retry};
use orlop_runtime::{ApiError, Backoff, Clock, Message, Outcome, Refusal, spoken};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::time::Instant;
use tonic::Code;

/// What waits for somebody else is looked at this often even if no event tells.
pub(crate) const UNTOLD: Duration = Duration::from_secs(30);

/// The longest wait for another call on the same volume to end. Many may wait for one volume, and
/// only one of them gets its turn at a time.
pub(crate) const TAKEN: Duration = Duration::from_secs(4);

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setback {
    /// The driver is busy with another call on the same volume.
    Taken,
    /// Somebody else must act first.
    Waiting,
    /// It failed; it may go well next time.
    Failed,
    /// It may have been done, or still be under way.
    Uncertain,
    /// It won't go well until somebody changes what is asked for.
    Infeasible,
    /// The API server has too much to do, and may have said how long.
    Busy(Option<Duration>),
}

impl Setback {
    /// What a driver's failure is.
    pub(crate) fn of_call(error: &CallError) -> Self {
        match error.retry {
            _ if error.code == Code::Aborted => Self::Taken,
            Retry::Uncertain => Self::Uncertain,
            Retry::Final => Self::Failed,
            Retry::Infeasible => Self::Infeasible,
        }
    }

    /// What the API server's refusal is.
    pub(crate) fn of_api(error: &ApiError) -> Self {
        match &error.refusal {
            Refusal::Busy { after, .. } => Self::Busy(*after),
            Refusal::Lost(_) => Self::Uncertain,
            _ => Self::Failed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Uncertain => "uncertain",
            Self::Infeasible => "infeasible",
            Self::Busy(_) => "api-server-busy",
        }
    }

    /// How long `who` waits after so many failures in a row.
    fn wait(self, retry: Backoff, failures: u32, who: &str) -> Duration {
        match self {
            Self::Taken => spread(retry.after(failures).min(TAKEN), who, failures),
            Self::Failed | Self::Uncertain | Self::Busy(None) => retry.after(failures),
            Self::Busy(Some(after)) => after.max(retry.first),
            Self::Waiting => retry.after(failures).min(UNTOLD),
            Self::Infeasible => retry.most,
        }
    }
}

/// Half of a wait or more, each his own, so that those who failed together don't come back together.
pub(crate) fn spread(wait: Duration, who: &str, failures: u32) -> Duration {
    let mut hasher = DefaultHasher::new();
    (who, failures).hash(&mut hasher);
    wait / 2 + wait.mul_f64((hasher.finish() % 1000) as f64 / 2000.0)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waiting {
    controller: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

/// How many objects wait for another try, and when the next is; clones share them. The
/// default counts for nobody.
#[derive(Debug, Clone, Default)]
pub struct RetryMetrics {
    waiting: Family<Waiting, Gauge>,
    next: Family<Controller, Gauge>,
}

impl RetryMetrics {
    /// Metrics that a registry shows. Once per registry: hand clones to every controller.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "orlop_retries_waiting",
            "Objects that wait for another try, by what went wrong",
            metrics.waiting.clone(),
        );
        registry.register(
            "orlop_next_retry_timestamp_seconds",
            "When the next of them is tried again; 0 if none waits",
            metrics.next.clone(),
        );
        metrics
    }
}

struct Entry {
    failures: u32,
    setback: Setback,
    until: Instant,
    /// The same in seconds since 1970, for people.
    due: i64,
}

/// Who waits, and for how long; clones share it.
#[derive(Clone)]
pub(crate) struct Patience {
    retry: Backoff,
    clock: Clock,
    ledger: Arc<Ledger>,
}

/// Those who wait. With a controller that ends, because it leads no more, its waits end too.
struct Ledger {
    controller: &'static str,
    metrics: RetryMetrics,
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl Ledger {
    fn waiting(&self, setback: Setback) -> Gauge {
        let labels = Waiting {
            controller: self.controller,
            reason: setback.word(),
        };
        self.metrics.waiting.get_or_create(&labels).clone()
    }

    fn tell_next(&self, entries: &BTreeMap<String, Entry>) {
        let next = entries.values().map(|entry| entry.due).min();
        let labels = Controller {
            controller: self.controller,
        };
        self.metrics
            .next
            .get_or_create(&labels)
            .set(next.unwrap_or(0));
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let entries = self.entries.get_mut();
        let entries = std::mem::take(entries.unwrap_or_else(PoisonError::into_inner));
        for entry in entries.values() {
            self.waiting(entry.setback).dec();
        }
        self.tell_next(&BTreeMap::new());
    }
}

impl Patience {
    pub(crate) fn new(
        controller: &'static str,
        retry: Backoff,
        clock: Clock,
        metrics: RetryMetrics,
    ) -> Self {
        Self {
            retry,
            clock,
            ledger: Arc::new(Ledger {
                controller,
                metrics,
                entries: Mutex::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        let entries = self.ledger.entries.lock();
        entries.unwrap_or_else(PoisonError::into_inner)
    }

    /// A try failed: how long to wait before the next.
    ///
    /// One that was made before its time, because something had changed, is no further failure:
    /// its wait ends when it would have ended, or sooner, unless what went wrong is of another kind.
    pub(crate) fn after(&self, who: &str, setback: Setback) -> Duration {
        let now = Instant::now();
        let mut entries = self.lock();
        let (failures, left) = match entries.get(who) {
            None => (1, None),
            Some(entry) => {
                self.ledger.waiting(entry.setback).dec();
                match entry.until.saturating_duration_since(now) {
                    Duration::ZERO => (entry.failures.saturating_add(1), None),
                    left => {
                        let same = entry.setback.word() == setback.word();
                        (entry.failures, same.then_some(left))
                    }
                }
            }
        };
        let wait = setback.wait(self.retry, failures, who);
        let wait = left.map_or(wait, |left| left.min(wait));
        let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
        let due = self.clock.now().as_second().saturating_add(seconds);
        self.ledger.waiting(setback).inc();
        let entry = Entry {
            failures,
            setback,
            until: now + wait,
            due,
        };
        entries.insert(who.to_owned(), entry);
        self.ledger.tell_next(&entries);
        wait
    }

    /// Whether the last try failed.
    pub(crate) fn has_failed(&self, who: &str) -> bool {
        self.lock().contains_key(who)
    }

    /// A try went well, or there is nothing to try any more.
    pub(crate) fn forget(&self, who: &str) {
        let mut entries = self.lock();
        if let Some(entry) = entries.remove(who) {
            self.ledger.waiting(entry.setback).dec();
            self.ledger.tell_next(&entries);
        }
    }

    /// Ends a turn as [`Patience::conclude`] does. What the API server refused, and would refuse
    /// again, is told to whoever looks at the object: nobody else can help.
    pub(crate) fn conclude_aloud(
        &self,
        who: &str,
        result: Result<Outcome, ApiError>,
        tell: impl FnOnce(Message),
    ) -> Outcome {
        let refused = result.as_ref().err().and_then(ApiError::told);
        let outcome = self.conclude(who, result);
        if let (Some(refused), Outcome::After(wait)) = (refused, outcome) {
            tell(Message::until_next_try(refused, wait));
        }
        outcome
    }

    /// Ends a turn: what is done is forgotten, what the API server refused waits.
    pub(crate) fn conclude(&self, who: &str, result: Result<Outcome, ApiError>) -> Outcome {
        match result {
            Ok(Outcome::Done) => {
                self.forget(who);
                Outcome::Done
            }
            Ok(outcome) => outcome,
            Err(error) => {
                let wait = self.after(who, Setback::of_api(&error));
                tracing::warn!(
                    who,
                    error = error.chain(),
                    "will try again in {}",
                    spoken(wait)
                );
                Outcome::After(wait)
            }
        }
    }
}

#[cfg(test)]
mod tests;
