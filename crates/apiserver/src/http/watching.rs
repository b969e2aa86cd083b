//! Watches over HTTP: a stream of events, JSON lines or protobuf frames.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use super::negotiate::{Answer, Encoding, Form};
use super::query::{Query, Selection};
use super::{Api, reply};
use crate::kinds::KindInfo;
use crate::protobuf;
use crate::refusal::{FieldError, Refusal};
use crate::registry::{Served as _, resource_of};
use crate::store::{self, Event, Expired, Feed, Scope, Sort, Stored};
use crate::table;
use crate::watch;

/// How often a watcher that asked for it is told how far it has seen.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long a watch lasts that doesn't say; spread, so that clients don't return together.
const SHORTEST: u64 = 1800;

/// How much of what a watch begins with is made at once.
const CHUNK: usize = 64 << 10;

/// One running watch.
struct Watch {
    api: Api,
    kind: &'static KindInfo,
    selection: Selection,
    answer: Answer,
    query: Query,
    feed: Option<Feed>,
    bookmarks: Option<Interval>,
    end: Pin<Box<Sleep>>,
    /// What stands before everything that the feed gives.
    first: VecDeque<First>,
    /// Columns are told once per watch.
    told_columns: bool,
}

/// What a watch begins with. Objects are rendered when they are sent: a client that doesn't
/// read must not hold a copy of all of them.
enum First {
    Object(Arc<Stored>),
    Line(Bytes),
}

impl Api {
    pub(super) async fn watch(
        &self,
        (kind, namespace): (&'static KindInfo, &str),
        query: &Query,
        answer: Answer,
    ) -> Result<Response<Body>, Refusal> {
        let selection = query.selection(kind)?;
        check_initial_events(query)?;
        let asked = query.watched_revision()?;
        let seconds = query
            .timeout_seconds
            .filter(|&seconds| seconds > 0)
            .unwrap_or_else(|| {
                SHORTEST
                    + u64::try_from(self.registry.entropy.draw() % u128::from(SHORTEST))
                        .unwrap_or(0)
            });
        let end = Box::pin(tokio::time::sleep(Duration::from_secs(seconds)));
        let bookmarks = query.bookmarks.then(|| {
            let mut interval = tokio::time::interval_at(Instant::now() + BOOKMARKS, BOOKMARKS);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        let mut watch = Watch {
            api: self.clone(),
            kind,
            selection,
            answer,
            query: query.clone(),
            feed: None,
            bookmarks,
            end,
            first: VecDeque::new(),
            told_columns: false,
        };
        let initial = match query.initial_events {
            Some(wanted) => wanted,
            None => asked.is_none(),
        };
        let from = if initial {
            self.await_revision(asked).await?;
            watch.begin_with_objects(namespace)
        } else {
            asked.unwrap_or_else(|| self.registry.store.read().revision())
        };
        let scope = match (namespace, watch.selection.name()) {
            (namespace, Some(name)) if !kind.namespaced || !namespace.is_empty() => {
                Scope::Object(namespace.into(), name.into())
            }
            ("", _) => Scope::All,
            (namespace, _) => Scope::Namespace(namespace.into()),
        };
        match self.registry.store.feed(&resource_of(kind), scope, from) {
            Ok(feed) => watch.feed = Some(feed),
            Err(expired) => {
                watch.first = VecDeque::from([First::Line(error_line(answer.encoding, expired))])
            }
        }
        let lines = futures::stream::unfold(watch, |mut watch| async {
            let line = watch.next().await?;
            Some((Ok::<Bytes, std::convert::Infallible>(line), watch))
        });
        let mut response = Response::new(Body::from_stream(lines));
        let content_type = match (answer.form, answer.encoding) {
            (_, Encoding::Protobuf) => HeaderValue::from_static(protobuf::WATCH_TYPE),
            (Form::Object, Encoding::Json) => reply::JSON,
            (Form::Table, Encoding::Json) => {
                HeaderValue::from_static("application/json;as=Table;g=meta.k8s.io;v=v1")
            }
            (Form::Metadata, Encoding::Json) => HeaderValue::from_static(
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            ),
        };
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Ok(response)
    }
}

fn check_initial_events(query: &Query) -> Result<(), Refusal> {
    let field = "resourceVersionMatch";
    let asked = query.resource_version_match.as_str();
    let mut errors = Vec::new();
    match (query.initial_events, asked) {
        (Some(_), "NotOlderThan") | (None, "") => return Ok(()),
        (Some(_), "") => {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(field, why));
        }
        (initial, _) => {
            if initial.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents \
                           is provided";
                errors.push(FieldError::forbidden(field, why));
            }
            if asked != "NotOlderThan" {
                let supported = &["NotOlderThan"];
                errors.push(FieldError::not_supported(field, &asked.into(), supported));
            }
        }
    }
    Err(Refusal::invalid_named("ListOptions.meta.k8s.io", &errors))
}

impl Watch {
    /// Puts the current objects first; returns the revision at which they are current.
    fn begin_with_objects(&mut self, namespace: &str) -> u64 {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let state = self.api.registry.store.read();
        let revision = state.revision();
        let objects: Vec<Arc<Stored>> = state
            .list(&resource_of(self.kind), namespace)
            .map(|(_, _, object)| Arc::clone(object))
            .collect();
        drop(state);
        let selected = objects
            .into_iter()
            .filter(|object| self.selection.matches(object));
        self.first = selected.map(First::Object).collect();
        if self.query.initial_events == Some(true) && self.query.bookmarks {
            let bookmark = self.bookmark(revision, true);
            self.first.push_back(First::Line(bookmark));
        }
        revision
    }

    /// The next of what the watch begins with, a chunk of it at a time.
    fn next_first(&mut self) -> Option<Bytes> {
        let mut text = Vec::new();
        while text.len() < CHUNK
            && let Some(first) = self.first.pop_front()
        {
            match first {
                First::Line(line) if text.is_empty() => return Some(line),
                First::Line(line) => text.extend_from_slice(&line),
                First::Object(object) => {
                    let line = self.line(Sort::Added, &object);
                    text.extend_from_slice(&line);
                }
            }
        }
        (!text.is_empty()).then(|| text.into())
    }

    fn line(&mut self, sort: Sort, object: &Arc<Stored>) -> Bytes {
        let how = Line {
            api: &self.api,
            kind: self.kind,
            answer: self.answer,
            query: &self.query,
        };
        line(&mut self.told_columns, &how, sort, object)
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(lines) = self.next_first() {
            return Some(lines);
        }
        loop {
            let feed = self.feed.as_mut()?;
            tokio::select! {
                biased;
                events = feed.next() => match events {
                    Ok(events) => {
                        if let Some(lines) = self.lines(&events) {
                            return Some(lines);
                        }
                    }
                    Err(expired) => return Some(self.give_up(expired)),
                },
                () = tick(&mut self.bookmarks) => return Some(self.catch_up_and_bookmark()),
                () = &mut self.end => {
                    let last = self.bookmarks.is_some().then(|| self.catch_up_and_bookmark());
                    self.feed = None;
                    return last;
                }
            }
        }
    }

    /// The events that were not handed out yet, and how far that goes.
    fn catch_up_and_bookmark(&mut self) -> Bytes {
        let Some(feed) = self.feed.as_mut() else {
            return Bytes::new();
        };
        match feed.take() {
            Ok(events) => {
                let seen = feed.seen();
                let mut text = self.lines(&events).map(Vec::from).unwrap_or_default();
                text.extend_from_slice(&self.bookmark(seen, false));
                text.into()
            }
            Err(expired) => self.give_up(expired),
        }
    }

    fn give_up(&mut self, expired: Expired) -> Bytes {
        self.feed = None;
        error_line(self.answer.encoding, expired)
    }

    fn lines(&mut self, events: &[Arc<Event>]) -> Option<Bytes> {
        let everything = self.selection.is_everything();
        let mut lines = events.iter().filter_map(|event| {
            let (sort, object) = if everything {
                (event.sort(), Arc::clone(&event.object))
            } else {
                watch::translate(event, |object| self.selection.matches(object))?
            };
            let how = Line {
                api: &self.api,
                kind: self.kind,
                answer: self.answer,
                query: &self.query,
            };
            Some(line(&mut self.told_columns, &how, sort, &object))
        });
        let first = lines.next()?;
        // One alone is what everybody gets, as it lies in memory.
        let Some(second) = lines.next() else {
            return Some(first);
        };
        let mut text = [first, second].concat();
        lines.for_each(|line| text.extend_from_slice(&line));
        Some(text.into())
    }

    fn bookmark(&self, revision: u64, ends_initial_events: bool) -> Bytes {
        let mut object = match self.answer.form {
            Form::Object => {
                json!({ "kind": self.kind.kind, "apiVersion": self.kind.api_version() })
            }
            Form::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "columnDefinitions": [], "rows": [],
            }),
            Form::Metadata => {
                json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1" })
            }
        };
        object["metadata"] =
            json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if ends_initial_events {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        match self.answer.encoding {
            Encoding::Json => store::line("BOOKMARK", object.to_string().as_bytes()),
            Encoding::Protobuf => {
                let object = protobuf::object(&object).unwrap_or_default();
                protobuf::event("BOOKMARK", &object).into()
            }
        }
    }
}

/// Resolves at the next bookmark; never if none were asked for.
async fn tick(bookmarks: &mut Option<Interval>) {
    match bookmarks {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// What all lines of a watch have in common.
struct Line<'w> {
    api: &'w Api,
    kind: &'static KindInfo,
    answer: Answer,
    query: &'w Query,
}

fn line(told_columns: &mut bool, how: &Line<'_>, sort: Sort, object: &Arc<Stored>) -> Bytes {
    let plain = how.answer.form == Form::Object && how.answer.encoding == Encoding::Json;
    if plain && object.is_served_as_stored(how.kind) {
        return object.line(sort);
    }
    let text = match how.answer.form {
        Form::Object | Form::Metadata => how.api.render(how.kind, how.answer, how.query, object),
        Form::Table => {
            let value = object.parsed(how.kind);
            let now = how.api.registry.clock.now();
            let mut table = table::render(how.kind, &[&value], now, how.query.include);
            table["metadata"]["resourceVersion"] = object.revision.to_string().into();
            if std::mem::replace(told_columns, true) {
                table["columnDefinitions"] = Value::Array(Vec::new());
            }
            table.to_string().into()
        }
    };
    match how.answer.encoding {
        Encoding::Json => store::line(sort.name(), &text),
        Encoding::Protobuf => protobuf::event(sort.name(), &text).into(),
    }
}

fn error_line(encoding: Encoding, expired: Expired) -> Bytes {
    let Expired { asked, oldest } = expired;
    let refusal = Refusal::expired(format!("too old resource version: {asked} ({oldest})"));
    match encoding {
        Encoding::Json => store::line("ERROR", refusal.status().to_string().as_bytes()),
        Encoding::Protobuf => {
            let status = protobuf::object(&refusal.status()).unwrap_or_default();
            protobuf::event("ERROR", &status).into()
        }
    }
}
