//! Room for a write within the limits and quotas of its namespace.

use std::sync::Arc;

use serde_json::Value;

use super::{Part, Registry, Target, text};
use crate::admission;
use crate::quota::Reservation;
use crate::refusal::Refusal;
use crate::store::{Stored, Write, WriteError};

impl Registry {
    /// Refuses an object that is too large or one too many. What is returned holds the room
    /// until the write is visible; `before` is the object as it is, with its revision.
    pub(super) fn make_room(
        &self,
        target: &Target,
        part: Part,
        (before, after): (Option<(u64, &Value)>, &Value),
    ) -> Result<Option<Reservation>, Refusal> {
        // A range that came later must not keep an object from being told of, or from going.
        let going = before
            .is_some_and(|(_, before)| !text(before, "/metadata/deletionTimestamp").is_empty());
        if part == Part::Main && !going {
            let is_new = before.is_none();
            admission::admit_limits(&self.store.read(), target, is_new, after)?;
        }
        self.quotas.reserve(&self.store, target, (before, after))
    }

    /// Writes, and gives the room back once the outcome is known.
    pub(super) async fn write_within(
        &self,
        room: Option<Reservation>,
        write: Write,
    ) -> Result<Arc<Stored>, WriteError> {
        let Some(room) = room else {
            return self.store.write(write).await;
        };
        let store = self.store.clone();
        // A client that leaves doesn't take its write back, so its room must outlast it.
        let written = tokio::spawn(async move {
            let outcome = store.write(write).await;
            drop(room);
            outcome
        });
        written.await.unwrap_or(Err(WriteError::Closed))
    }
}
