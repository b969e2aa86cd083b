//! Tells people what happens, as Events on the objects that it happens to.
//!
//! Recording never waits and never fails: events are for people, and no decision hangs
//! on them. What is said again counts up instead of filling the namespace. While the process has
//! other requests under way, events wait for these, with the time at which they were said.

use std::time::Duration;

use jiff::Timestamp;
use orlop_model::{Event, Key, Kind, Meta, ObjectRef, event::EventSource};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};
use tracing::{debug, info};

use crate::{ApiError, clock::Clock, cluster::Cluster, patch::Patch};

mod correlate;
mod message;

use correlate::{Correlator, Entry};
pub use message::{Message, spoken};

/// Beyond this many waiting events, new ones are dropped.
const WAITING: usize = 4096;

/// How long an event waits for other requests of the process at most.
const PATIENCE: Duration = Duration::from_secs(3);

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

/// What an event is about; there may be several texts about the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    about: ObjectRef,
    type_: EventType,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    subject: Subject,
    message: Message,
}

/// What was said, and when: by the clock that people read, and by the one that waits.
type Heard = (Said, Timestamp, Instant);

/// Records events in the name of one component.
#[derive(Clone)]
pub struct Recorder {
    clock: Clock,
    sender: mpsc::Sender<Heard>,
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
            component: component.to_owned(),
            correlator: Correlator::default(),
            count: 0,
        };
        (Self { clock, sender }, writer.run(receiver))
    }

    /// Says what happened to an object.
    pub fn say<K: Kind>(
        &self,
        object: &K,
        type_: EventType,
        reason: &str,
        message: impl Into<Message>,
    ) {
        self.say_of(object.reference(), type_, reason, message);
    }

    /// Says what happened to an object known by reference.
    pub fn say_of(
        &self,
        mut about: ObjectRef,
        type_: EventType,
        reason: &str,
        message: impl Into<Message>,
    ) {
        // The version would make each repetition a different event.
        about.resource_version.clear();
        let subject = Subject {
            about,
            type_,
            reason: reason.to_owned(),
        };
        let message = message.into();
        let heard = (Said { subject, message }, self.clock.now(), Instant::now());
        if self.sender.try_send(heard).is_err() {
            debug!(reason, "too many events are waiting; one was dropped");
        }
    }
}

struct Writer {
    cluster: Cluster,
    component: String,
    correlator: Correlator,
    count: u64,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Heard>) {
        while let Some((said, now, since)) = receiver.recv().await {
            let cluster = self.cluster.in_no_hurry(since + PATIENCE);
            self.write(&cluster, said, now).await;
        }
    }

    async fn write(&mut self, cluster: &Cluster, said: Said, now: Timestamp) {
        let written = match self.correlator.hear(&said, now) {
            Entry::Quiet => return,
            Entry::New { text } => self.create(cluster, &said, text, now).await,
            Entry::Again { event, count, text } => {
                self.log(&said);
                let patch = Patch::Merge(json!({
                    "count": count, "lastTimestamp": seconds(now), "message": text,
                }));
                match cluster.patch::<Event>(&event, &patch).await {
                    // Events are swept after a while; a repetition then starts a new one.
                    Err(error) if error.is_not_found() => {
                        self.correlator.forget(&said);
                        match self.correlator.hear(&said, now) {
                            Entry::New { text } => self.create(cluster, &said, text, now).await,
                            Entry::Quiet | Entry::Again { .. } => Ok(()),
                        }
                    }
                    other => other.map(|_| ()),
                }
            }
        };
        if let Err(error) = written {
            debug!(error = error.chain(), "an event could not be written");
        }
    }

    fn log(&self, said: &Said) {
        info!(
            kind = said.subject.about.kind,
            object = %said.subject.about.key(),
            reason = said.subject.reason,
            warning = said.subject.type_ == EventType::Warning,
            "event: {}",
            said.message.text(),
        );
    }

    async fn create(
        &mut self,
        cluster: &Cluster,
        said: &Said,
        text: String,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        self.log(said);
        let Subject {
            about,
            type_,
            reason,
        } = &said.subject;
        let namespace = match about.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let mut event = Event {
            metadata: Meta::default(),
            involved_object: about.clone(),
            reason: reason.clone(),
            message: text,
            type_: type_.as_str().to_owned(),
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
        // Another component may speak of the same object at the very same time.
        let mut written = Ok(());
        for _ in 0..NAMES {
            self.count += 1;
            let stamp = now.as_nanosecond() + i128::from(self.count);
            let key = Key::namespaced(namespace, event_name(&about.name, stamp));
            event.metadata = Meta::named(&key);
            written = cluster.create(&event).await.map(|_| ());
            if !written.as_ref().is_err_and(ApiError::is_already_exists) {
                break;
            }
        }
        self.correlator.written(said, event.metadata.key(), now);
        written
    }
}

/// The longest name that an object may have.
const LONGEST_NAME: usize = 253;

/// The name of an event on an object. Of a long name as much is in it as fits; the event itself says
/// which object it is about.
fn event_name(object: &str, stamp: i128) -> String {
    let stamp = format!("{stamp:x}");
    let room = LONGEST_NAME - 1 - stamp.len();
    let cut = object.floor_char_boundary(room);
    // No part of a name may end otherwise.
    let object = object[..cut].trim_end_matches(['.', '-']);
    format!("{object}.{stamp}")
}

fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_name_is_never_too_long() {
        let stamp = 0x18b2_c3d4_e5f6_0718;
        assert_eq!(event_name("web", stamp), "web.18b2c3d4e5f60718");
        for (object, kept) in [
            ("x".repeat(236), 236),
            ("x".repeat(237), 236),
            ("x".repeat(253), 236),
            (format!("{}.-{}", "x".repeat(234), "y".repeat(17)), 234),
        ] {
            let name = event_name(&object, stamp);
            assert_eq!(name, format!("{}.18b2c3d4e5f60718", &object[..kept]));
            assert!(name.len() <= LONGEST_NAME);
        }
    }
}
