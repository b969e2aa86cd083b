//! A reader's place in the events of one resource.
//!
//! A feed holds a position and no buffer: events are taken from the shared window when
//! the reader is ready for them. A reader that falls behind the window has lost its place
//! and learns so; the writer never notices it.

use std::sync::Arc;

use super::Store;
use super::bell::Listener;
use super::state::{Event, Expired};

/// The most events handed out at once, and from how many bytes of text on no more are added:
/// together they bound what a slow reader keeps alive.
const CHUNK: usize = 256;
const CHUNK_BYTES: usize = 64 << 10;

/// Which part of a resource a feed covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every namespace, or a cluster-scoped resource.
    All,
    /// One namespace.
    Namespace(Arc<str>),
    /// One object, by its namespace and name.
    Object(Arc<str>, Arc<str>),
}

/// The position of one reader.
#[derive(Debug)]
pub struct Feed {
    store: Store,
    resource: Arc<str>,
    scope: Scope,
    seen: u64,
    changes: Listener,
}

impl Feed {
    pub(super) fn new(
        store: Store,
        resource: &str,
        scope: Scope,
        seen: u64,
        changes: Listener,
    ) -> Self {
        Self {
            store,
            resource: resource.into(),
            scope,
            seen,
            changes,
        }
    }

    /// Every event up to this revision was handed out.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The next events, without waiting; at most a chunk of them.
    pub fn take(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        let state = self.store.read();
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut bytes = 0;
        let mut seen = state.revision();
        let all = state.events_after(&self.resource, self.seen)?;
        for event in all.filter(|event| self.scope.covers(event)) {
            if events.len() == CHUNK || bytes >= CHUNK_BYTES {
                seen = events.last().map_or(seen, |event| event.revision());
                break;
            }
            bytes += event.object.json().len();
            events.push(Arc::clone(event));
        }
        // A reader may start from a revision it was told by a newer server.
        self.seen = self.seen.max(seen);
        Ok(events)
    }

    /// The next events, waiting for them. Cancelling loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        loop {
            self.changes.note();
            let events = self.take()?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.changes.rung().await;
        }
    }
}

impl Scope {
    fn covers(&self, event: &Event) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => event.key.namespace == *namespace,
            Self::Object(namespace, name) => {
                event.key.namespace == *namespace && event.key.name == *name
            }
        }
    }
}
