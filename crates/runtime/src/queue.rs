//! Keys that need a look, each once, and the workers that look.
//!
//! A key is never worked on twice at the same time; one that is added while it is
//! worked on gets another turn afterwards. Failures wait with a backoff of their own.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tracing::error;

use crate::{backoff::Backoff, metrics::Metrics};

pub(crate) mod measure;

use measure::Measure;

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this long, whatever happens.
    After(Duration),
    /// It failed: look again after a backoff.
    Retry,
}

/// Keys that need a look.
pub struct Queue<T> {
    state: Arc<Mutex<State<T>>>,
    wake: Arc<Notify>,
    backoff: Backoff,
    measure: Option<Measure>,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            wake: self.wake.clone(),
            backoff: self.backoff,
            measure: self.measure.clone(),
        }
    }
}

struct State<T> {
    ready: VecDeque<T>,
    /// Those in `ready`, or added again while being worked on.
    waiting: BTreeSet<T>,
    working: BTreeSet<T>,
    later: BTreeMap<(Instant, u64), T>,
    due: BTreeMap<T, (Instant, u64)>,
    failures: BTreeMap<T, u32>,
    count: u64,
    /// Since when keys wait, and are worked on.
    since: BTreeMap<T, Instant>,
    begun: BTreeMap<T, Arc<Instant>>,
}

impl<T: Ord + Clone> Queue<T> {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        let state = State {
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            working: BTreeSet::new(),
            later: BTreeMap::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            count: 0,
            since: BTreeMap::new(),
            begun: BTreeMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            wake: Arc::default(),
            backoff,
            measure: None,
        }
    }

    /// With metrics, by a name. Several queues may share one.
    #[must_use]
    pub fn measured(self, metrics: &Metrics, name: &str) -> Self {
        Self {
            measure: Some(metrics.queues.named(name)),
            ..self
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Asks for a look at the key, soon.
    pub fn add(&self, key: T) {
        let mut state = self.lock();
        state.add(key);
        if let Some(measure) = &self.measure {
            measure.added();
            measure.depth(state.ready.len());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Asks for a look at the key after a while; the earliest of several such wishes holds.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.lock().schedule(key, Instant::now() + delay);
        self.wake.notify_one();
    }

    /// Ends all waits: what failed, and what was to be looked at later, is looked at soon.
    pub fn hurry(&self) {
        let mut state = self.lock();
        state.due.clear();
        for key in std::mem::take(&mut state.later).into_values() {
            state.add(key);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// How many keys wait for a turn now.
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    /// Whether nothing waits, is worked on or is scheduled.
    pub fn is_idle(&self) -> bool {
        let state = self.lock();
        state.ready.is_empty() && state.working.is_empty() && state.later.is_empty()
    }

    /// The next key; [`Queue::done`] must follow.
    async fn next(&self) -> T {
        loop {
            let timer = {
                let mut state = self.lock();
                state.promote(Instant::now());
                if let Some(key) = state.take() {
                    let since = state.since.remove(&key);
                    if let Some(measure) = &self.measure {
                        let waited = since.map(|at| at.elapsed()).unwrap_or_default();
                        state.begun.insert(key.clone(), measure.begun(waited));
                        measure.depth(state.ready.len());
                    }
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return key;
                }
                state.later.keys().next().map(|(at, _)| *at)
            };
            match timer {
                None => self.wake.notified().await,
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = self.wake.notified() => {}
                        () = sleep_until(at) => {}
                    }
                }
            }
        }
    }

    fn done(&self, key: T, outcome: Outcome) {
        let mut state = self.lock();
        state.working.remove(&key);
        if let Some((measure, begun)) = self.measure.as_ref().zip(state.begun.remove(&key)) {
            measure.over(&begun, outcome == Outcome::Retry);
        }
        if state.waiting.contains(&key) {
            state.ready.push_back(key.clone());
        }
        match outcome {
            Outcome::Done => {
                state.failures.remove(&key);
            }
            Outcome::After(delay) => {
                state.failures.remove(&key);
                state.schedule(key, Instant::now() + delay);
            }
            Outcome::Retry => {
                // A turn that an event brought before its wait was over is no further failure:
                // a storm of events must not make the next wait any longer.
                let early = state.due.contains_key(&key);
                let failures = state.failures.entry(key.clone()).or_default();
                if !early || *failures == 0 {
                    *failures += 1;
                }
                let delay = self.backoff.after(*failures);
                state.schedule(key, Instant::now() + delay);
            }
        }
        drop(state);
        self.wake.notify_one();
    }
}

impl<T: Ord + Clone> State<T> {
    fn add(&mut self, key: T) {
        if self.waiting.insert(key.clone()) {
            self.since.insert(key.clone(), Instant::now());
            if !self.working.contains(&key) {
                self.ready.push_back(key);
            }
        }
    }

    fn schedule(&mut self, key: T, at: Instant) {
        if let Some(due) = self.due.get(&key) {
            if due.0 <= at {
                return;
            }
            self.later.remove(due);
        }
        self.count += 1;
        self.later.insert((at, self.count), key.clone());
        self.due.insert(key, (at, self.count));
    }

    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<T> {
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.working.insert(key.clone());
        Some(key)
    }
}

/// Works a queue off, `at_once` keys at a time, for ever. A turn that panics is reported
/// and tried again later; the other turns go on.
pub async fn work<T, F, Turn>(queue: Queue<T>, at_once: usize, turn: F)
where
    T: Ord + Clone + std::fmt::Debug,
    F: Fn(T) -> Turn,
    Turn: Future<Output = Outcome>,
{
    let mut turns = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some((key, outcome)) = turns.next(), if !turns.is_empty() => queue.done(key, outcome),
            key = queue.next(), if turns.len() < at_once => {
                let guarded = AssertUnwindSafe(turn(key.clone())).catch_unwind();
                turns.push(async move {
                    let outcome = guarded.await.unwrap_or_else(|panic| {
                        error!(?key, "will be tried again");
                        crate::panics::in_a_turn(&*panic);
                        Outcome::Retry
                    });
                    (key, outcome)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
