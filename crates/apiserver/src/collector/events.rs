//! Old events.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{exactly, target};
use crate::registry::{Registry, text};
use crate::store::{Key, Stored};

/// How long an event is kept after it was last seen.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// Events are for people who look soon; nobody deletes them.
pub(super) async fn forget_old(registry: &Registry) {
    let now = registry.clock.now();
    let old: Vec<(Key, Arc<Stored>)> = {
        let state = registry.store.read();
        let events = state.list("events", None).map(|(namespace, name, event)| {
            (Key::new("events", namespace, name), Arc::clone(event))
        });
        events
            .filter(|(_, event)| now.duration_since(last_seen(&event.value())) > EVENT_LIFE)
            .collect()
    };
    for (key, event) in old {
        let Some(target) = target(registry, &key) else {
            continue;
        };
        if let Err(refusal) = registry.delete(&target, &exactly(&event)).await {
            tracing::debug!(%refusal, "could not forget an event");
        }
    }
}

fn last_seen(event: &Value) -> Timestamp {
    [
        "/lastTimestamp",
        "/series/lastObservedTime",
        "/eventTime",
        "/metadata/creationTimestamp",
    ]
    .iter()
    .filter_map(|pointer| text(event, pointer).parse().ok())
    .max()
    .unwrap_or(Timestamp::MIN)
}
