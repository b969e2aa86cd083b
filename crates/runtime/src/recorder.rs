//! Tells people what happens, as Events on the objects that it happens to.
//!
//! Recording never waits and never fails: events are for people, and no decision hangs
//! on them. A repeated event counts up instead of filling the namespace.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use orlop_model::{Event, Key, Kind, Meta, ObjectRef, event::EventSource};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::{debug, info};

use crate::{clock::Clock, cluster::Cluster, patch::Patch};

/// Beyond this many waiting events, new ones are dropped.
const WAITING: usize = 1024;
/// How many different events are remembered for counting.
const REMEMBERED: usize = 4096;
/// The same event is not written again before this has passed.
const QUIET: Duration = Duration::from_secs(10);

/// How many names are tried for a new event.
const NAMES: usize = 16;

/// Good or bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may have to act.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    about: ObjectRef,
    type_: EventType,
    reason: String,
    message: String,
}

/// Records events in the name of one component.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Said>,
}

impl Recorder {
    /// A recorder and the task that writes for it.
    pub(crate) fn new(
        cluster: Cluster,
        clock: Clock,
        component: &str,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let writer = Writer {
            cluster,
            clock,
            component: component.to_owned(),
            said: BTreeMap::new(),
            count: 0,
        };
        (Self { sender }, writer.run(receiver))
    }

    /// Says what happened to an object.
    pub fn say<K: Kind>(
        &self,
        object: &K,
        type_: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.say_of(object.reference(), type_, reason, message);
    }

    /// Says what happened to an object known by reference.
    pub fn say_of(
        &self,
        mut about: ObjectRef,
        type_: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let message: String = message.into().chars().take(1024).collect();
        // The version would make each repetition a different event.
        about.resource_version.clear();
        let said = Said {
            about,
            type_,
            reason: reason.to_owned(),
            message,
        };
        if self.sender.try_send(said).is_err() {
            debug!(reason, "too many events are waiting; one was dropped");
        }
    }
}

struct Record {
    key: Key,
    count: i32,
    last: Timestamp,
}

struct Writer {
    cluster: Cluster,
    clock: Clock,
    component: String,
    said: BTreeMap<Said, Record>,
    count: u64,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Said>) {
        while let Some(said) = receiver.recv().await {
            self.write(said).await;
        }
    }

    async fn write(&mut self, said: Said) {
        let now = self.clock.now();
        let repeated = match self.said.get_mut(&said) {
            Some(record) => {
                record.count += 1;
                let quiet = now.duration_since(record.last).unsigned_abs() < QUIET;
                if quiet {
                    return;
                }
                record.last = now;
                Some((record.key.clone(), record.count))
            }
            None => None,
        };
        info!(
            kind = said.about.kind,
            object = %said.about.key(),
            reason = said.reason,
            warning = said.type_ == EventType::Warning,
            "event: {}",
            said.message,
        );
        let written = match repeated {
            Some((key, count)) => {
                let patch = Patch::Merge(json!({"count": count, "lastTimestamp": seconds(now)}));
                let result = self.cluster.patch::<Event>(&key, &patch).await;
                // Events are swept after a while; a repetition then starts a new one.
                if result.as_ref().is_err_and(crate::ApiError::is_not_found) {
                    self.said.remove(&said);
                    self.create(said, now).await
                } else {
                    result.map(|_| ())
                }
            }
            None => self.create(said, now).await,
        };
        if let Err(error) = written {
            debug!(error = error.chain(), "an event could not be written");
        }
    }

    async fn create(&mut self, said: Said, now: Timestamp) -> Result<(), crate::ApiError> {
        let namespace = match said.about.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let mut event = Event {
            metadata: Meta::default(),
            involved_object: said.about.clone(),
            reason: said.reason.clone(),
            message: said.message.clone(),
            type_: said.type_.as_str().to_owned(),
            source: EventSource {
                component: self.component.clone(),
                host: String::new(),
            },
            first_timestamp: Some(seconds(now)),
            last_timestamp: Some(seconds(now)),
            count: 1,
            reporting_component: self.component.clone(),
            reporting_instance: String::new(),
        };
        if self.said.len() >= REMEMBERED {
            let oldest = self
                .said
                .iter()
                .min_by_key(|(_, r)| r.last)
                .map(|(s, _)| s.clone());
            oldest.map(|said| self.said.remove(&said));
        }
        // Another component may speak of the same object at the very same time.
        let mut written = Ok(());
        for _ in 0..NAMES {
            self.count += 1;
            let stamp = now.as_nanosecond() + i128::from(self.count);
            let key = Key::namespaced(namespace, format!("{}.{stamp:x}", said.about.name));
            event.metadata = Meta::named(&key);
            written = self.cluster.create(&event).await.map(|_| ());
            if !written
                .as_ref()
                .is_err_and(crate::ApiError::is_already_exists)
            {
                break;
            }
        }
        self.said.insert(
            said,
            Record {
                key: event.metadata.key(),
                count: 1,
                last: now,
            },
        );
        written
    }
}

fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
