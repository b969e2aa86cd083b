//! What a watcher sees of a resource's events: a pure translation.
//!
//! A watcher with a selector sees a smaller world, in which an object that starts to
//! match appears and one that stops to match vanishes.

use std::sync::Arc;

use crate::store::{Event, Sort, Stored};

/// Translates an event for a watcher that sees only objects that match.
pub(crate) fn translate(
    event: &Event,
    matches: impl Fn(&Stored) -> bool,
) -> Option<(Sort, Arc<Stored>)> {
    let before = event.before.as_ref().filter(|before| matches(before));
    let now = (!event.deleted && matches(&event.object)).then_some(&event.object);
    match (before, now) {
        (None, None) => None,
        (None, Some(now)) => Some((Sort::Added, Arc::clone(now))),
        (Some(_), Some(now)) => Some((Sort::Modified, Arc::clone(now))),
        // What vanishes is shown as it was last seen, under the revision that took it away.
        (Some(before), None) => Some((Sort::Deleted, Arc::new(before.at(event.revision())))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Draft, Key};

    fn object(revision: u64, colour: &str) -> Arc<Stored> {
        let object = json!({ "metadata": { "name": "x", "labels": { "colour": colour } } });
        Arc::new(Draft::new(&object).at(revision))
    }

    fn red(object: &Stored) -> bool {
        object.value()["metadata"]["labels"]["colour"] == "red"
    }

    fn seen(before: Option<&str>, now: &str, deleted: bool) -> Option<(Sort, u64, bool)> {
        let event = Event {
            key: Key::new("pods", "default", "x"),
            object: object(7, now),
            before: before.map(|colour| object(3, colour)),
            deleted,
        };
        translate(&event, red).map(|(sort, object)| (sort, object.revision, red(&object)))
    }

    #[test]
    fn a_selector_turns_changes_into_appearing_and_vanishing() {
        assert_eq!(seen(None, "red", false), Some((Sort::Added, 7, true)));
        assert_eq!(seen(None, "blue", false), None);
        assert_eq!(
            seen(Some("blue"), "red", false),
            Some((Sort::Added, 7, true))
        );
        assert_eq!(
            seen(Some("red"), "red", false),
            Some((Sort::Modified, 7, true))
        );
        assert_eq!(
            seen(Some("red"), "blue", false),
            Some((Sort::Deleted, 7, true))
        );
        assert_eq!(seen(Some("blue"), "blue", false), None);
        assert_eq!(
            seen(Some("red"), "red", true),
            Some((Sort::Deleted, 7, true))
        );
        assert_eq!(seen(Some("blue"), "blue", true), None);
    }
}
