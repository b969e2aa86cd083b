//! Which of the things that are said become events of their own. Pure.
//!
//! A text that was said before counts up, and the more often it comes the more rarely that is
//! written down. Many different texts about the same end up in one event, which shows the last.
//! So whatever fails for however long, an object has few events and costs few requests.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use orlop_model::Key;

use super::{Said, Subject};

/// How many subjects are remembered.
const REMEMBERED: usize = 4096;
/// How many texts about one subject have events of their own, while all are in use.
const TEXTS: usize = 10;
/// A text that was not heard for so long gives its place away.
const SPELL: Duration = Duration::from_secs(600);
/// The same is not written down again before this has passed; it doubles each time.
const QUIET: Duration = Duration::from_secs(10);
/// The longest such wait.
const QUIETEST: Duration = Duration::from_secs(300);

/// What to do about something that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// Nothing: it stands already.
    Quiet,
    /// It gets an event; [`Correlator::written`] must follow.
    New { text: String },
    /// An event counts up.
    Again {
        event: Key,
        count: i32,
        text: String,
    },
}

struct Record {
    event: Key,
    count: i32,
    heard: Timestamp,
    written: Timestamp,
    quiet: Duration,
}

impl Record {
    fn hear(&mut self, text: String, now: Timestamp) -> Entry {
        self.count = self.count.saturating_add(1);
        if since(self.heard, now) >= SPELL {
            self.quiet = QUIET;
        }
        self.heard = now;
        if since(self.written, now) < self.quiet {
            return Entry::Quiet;
        }
        self.written = now;
        self.quiet = (self.quiet * 2).min(QUIETEST);
        Entry::Again {
            event: self.event.clone(),
            count: self.count,
            text,
        }
    }
}

/// What was said about one subject.
#[derive(Default)]
struct Talk {
    texts: BTreeMap<String, Record>,
    /// The event of those texts that have none of their own.
    combined: Option<Record>,
    heard: Timestamp,
}

impl Talk {
    /// Whether a text that was not heard before gets an event of its own.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.texts.len() < TEXTS {
            return true;
        }
        let oldest = self.texts.iter().min_by_key(|(_, record)| record.heard);
        let oldest = oldest.filter(|(_, record)| since(record.heard, now) >= SPELL);
        let oldest = oldest.map(|(text, _)| text.clone());
        oldest.and_then(|text| self.texts.remove(&text)).is_some()
    }
}

/// Remembers what was said.
#[derive(Default)]
pub(super) struct Correlator {
    talks: BTreeMap<Subject, Talk>,
}

impl Correlator {
    pub(super) fn hear(&mut self, said: &Said, now: Timestamp) -> Entry {
        let talk = self.talk(&said.subject);
        talk.heard = now;
        let text = said.message.text();
        if let Some(record) = talk.texts.get_mut(said.message.lasting()) {
            return record.hear(text, now);
        }
        if talk.has_room(now) {
            return Entry::New { text };
        }
        let text = format!("(combined from similar events): {text}");
        let text: String = text.chars().take(1024).collect();
        match &mut talk.combined {
            Some(record) => record.hear(text, now),
            None => Entry::New { text },
        }
    }

    /// A new event stands, or at least was tried.
    pub(super) fn written(&mut self, said: &Said, event: Key, now: Timestamp) {
        let talk = self.talk(&said.subject);
        let record = Record {
            event,
            count: 1,
            heard: now,
            written: now,
            quiet: QUIET,
        };
        if talk.texts.len() < TEXTS {
            talk.texts.insert(said.message.lasting().to_owned(), record);
        } else {
            talk.combined = Some(record);
        }
    }

    /// Its event is there no more.
    pub(super) fn forget(&mut self, said: &Said) {
        let talk = self.talk(&said.subject);
        if talk.texts.remove(said.message.lasting()).is_none() {
            talk.combined = None;
        }
    }

    fn talk(&mut self, subject: &Subject) -> &mut Talk {
        if self.talks.len() >= REMEMBERED && !self.talks.contains_key(subject) {
            let oldest = self.talks.iter().min_by_key(|(_, talk)| talk.heard);
            let oldest = oldest.map(|(subject, _)| subject.clone());
            oldest.map(|subject| self.talks.remove(&subject));
        }
        self.talks.entry(subject.clone()).or_default()
    }
}

fn since(then: Timestamp, now: Timestamp) -> Duration {
    // A clock that was set back has not moved.
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use orlop_model::ObjectRef;

    use super::*;
    use crate::recorder::{EventType, Message};

    /// A correlator, what it had written, and its time.
    #[derive(Default)]
    struct Ear {
        correlator: Correlator,
        created: Vec<String>,
        patched: Vec<(i32, String)>,
        now: i64,
    }

    impl Ear {
        fn hear(&mut self, message: impl Into<Message>) {
            let said = Said {
                subject: Subject {
                    about: ObjectRef::default(),
                    type_: EventType::Warning,
                    reason: "Failed".into(),
                },
                message: message.into(),
            };
            let now = Timestamp::from_second(self.now).expect("a time");
            match self.correlator.hear(&said, now) {
                Entry::Quiet => {}
                Entry::New { text } => {
                    let key = Key::namespaced("a", self.created.len().to_string());
                    self.correlator.written(&said, key, now);
                    self.created.push(text);
                }
                Entry::Again { count, text, .. } => self.patched.push((count, text)),
            }
        }
    }

    #[test]
    fn what_fails_for_a_day_has_one_event_and_few_requests() {
        let mut ear = Ear::default();
        let mut wait = 1;
        while ear.now < 24 * 3600 {
            ear.hear(Message::until_next_try(
                "no room",
                Duration::from_secs(wait),
            ));
            ear.now += i64::try_from(wait).expect("small");
            wait = (wait * 2).min(300);
        }
        assert_eq!(ear.created, ["no room; next try in 1s"]);
        assert!(ear.patched.len() <= 24 * 12 + 5, "{}", ear.patched.len());
        let (count, text) = ear.patched.last().expect("it was told again");
        assert!(*count > 280, "{count}");
        assert_eq!(text, "no room; next try in 5m0s");
    }

    #[test]
    fn what_is_said_every_second_is_written_ever_more_rarely() {
        let mut ear = Ear::default();
        for _ in 0..3600 {
            ear.hear("busy");
            ear.now += 1;
        }
        assert_eq!(ear.created.len(), 1);
        // 10, 20, 40 … s, then each 5 minutes.
        assert!((10..=17).contains(&ear.patched.len()), "{:?}", ear.patched);
        let before = ear.patched.len();
        ear.now += 3600;
        ear.hear("busy");
        ear.now += 21;
        ear.hear("busy");
        assert_eq!(ear.patched.len(), before + 2, "after a rest it is news");
    }

    #[test]
    fn many_texts_about_one_object_end_in_one_event() {
        let mut ear = Ear::default();
        for number in 0..100 {
            ear.hear(format!("request {number} failed"));
            ear.now += 1;
        }
        assert_eq!(ear.created.len(), TEXTS + 1);
        let combined = "(combined from similar events): request 10 failed";
        assert_eq!(ear.created.last().expect("it is there"), combined);
        assert!(ear.patched.len() < 5, "{:?}", ear.patched);
        // Those of long ago make room.
        ear.now += 700;
        ear.hear("something else");
        assert_eq!(ear.created.last().expect("it is there"), "something else");
    }

    #[test]
    fn an_event_that_was_swept_is_written_anew() {
        let mut ear = Ear::default();
        ear.hear("busy");
        let said = Said {
            subject: Subject {
                about: ObjectRef::default(),
                type_: EventType::Warning,
                reason: "Failed".into(),
            },
            message: "busy".into(),
        };
        ear.correlator.forget(&said);
        ear.hear("busy");
        assert_eq!(ear.created, ["busy", "busy"]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = Correlator::default();
        for number in 0..REMEMBERED + 10 {
            let said = Said {
                subject: Subject {
                    about: ObjectRef {
                        name: number.to_string(),
                        ..ObjectRef::default()
                    },
                    type_: EventType::Normal,
                    reason: "Done".into(),
                },
                message: "done".into(),
            };
            let now = Timestamp::from_second(i64::try_from(number).expect("small"));
            correlator.hear(&said, now.expect("a time"));
        }
        assert_eq!(correlator.talks.len(), REMEMBERED);
    }
}
