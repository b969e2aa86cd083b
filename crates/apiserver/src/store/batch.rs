//! Writes staged on top of a state, with their expectations checked.
//!
//! A [`Batch`] never touches the [`State`] that it stands on, so that a commit that fails
//! leaves no trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::{Draft, Sort, Stored};
use super::state::{Event, State};
use super::{Key, WriteError};

/// One write to one object.
#[derive(Debug)]
pub struct Write {
    /// The object.
    pub key: Key,
    /// What to do with it.
    pub change: Change,
    /// What must be true of the object for the write to happen.
    pub expect: Expect,
    /// Another object that must exist and must not be on its way out: the namespace of an
    /// object that is created.
    pub requires: Option<Key>,
}

impl Write {
    /// Whether it leads to less being stored: it removes an object, or is a step on its way out.
    pub(super) fn frees(&self) -> bool {
        match &self.change {
            Change::Put(draft) => draft.meta().deleting(),
            Change::Delete => true,
        }
    }

    /// About how long it is in the file.
    pub(super) fn len(&self) -> u64 {
        let text = match &self.change {
            Change::Put(draft) => draft.len(),
            Change::Delete => 0,
        };
        (text + self.key.len()) as u64 + OVERHEAD
    }
}

/// What a record needs besides its key and its text, at most.
pub(super) const OVERHEAD: u64 = 64;

/// What a write does.
#[derive(Debug)]
pub enum Change {
    /// Stores this version.
    Put(Draft),
    /// Removes the object.
    Delete,
}

/// What a write expects of the object it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// There is no such object.
    Absent,
    /// The object is at exactly this revision.
    Revision(u64),
}

/// Writes staged on top of a state, not yet visible.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) revision: u64,
    overlay: BTreeMap<Key, Option<Arc<Stored>>>,
    pub(super) events: Vec<Arc<Event>>,
}

impl Batch {
    pub(super) fn on(state: &State) -> Self {
        let revision = state.revision();
        Self {
            revision,
            overlay: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Checks a write against the state and what was staged before it, and stages it.
    pub(super) fn stage(&mut self, state: &State, write: Write) -> Result<Arc<Stored>, WriteError> {
        let Write {
            key,
            change,
            expect,
            requires,
        } = write;
        if let Some(required) = requires
            && self
                .look(state, &required)
                .is_none_or(|object| object.meta.deleting())
        {
            return Err(WriteError::Required(required));
        }
        let before = self.look(state, &key).cloned();
        match (expect, &before) {
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists(key)),
            (Expect::Revision(_), None) => return Err(WriteError::Gone(key)),
            (Expect::Revision(wanted), Some(found)) if wanted != found.revision => {
                return Err(WriteError::Changed(key));
            }
            (Expect::Absent, None) | (Expect::Revision(_), Some(_)) => {}
        }
        let key = state.known(key);
        let revision = self.revision + 1;
        let (object, deleted) = match (change, &before) {
            (Change::Put(draft), None) => (draft.become_event(Sort::Added, revision), false),
            (Change::Put(draft), Some(_)) => (draft.become_event(Sort::Modified, revision), false),
            (Change::Delete, Some(before)) => (before.become_event(Sort::Deleted, revision), true),
            (Change::Delete, None) => return Err(WriteError::Gone(key)),
        };
        let object = Arc::new(object);
        self.revision = revision;
        self.overlay
            .insert(key.clone(), (!deleted).then(|| Arc::clone(&object)));
        self.events.push(Arc::new(Event {
            key,
            object: Arc::clone(&object),
            before,
            deleted,
        }));
        Ok(object)
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn events(&self) -> &[Arc<Event>] {
        &self.events
    }

    fn look<'a>(&'a self, state: &'a State, key: &Key) -> Option<&'a Arc<Stored>> {
        match self.overlay.get(key) {
            Some(staged) => staged.as_ref(),
            None => state.get(key),
        }
    }
}
