//! Kinds served in several versions: events of `events.k8s.io/v1` are the stored core
//! events under other field names; versions of a defined kind differ in nothing but name.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::kinds::{self, KindInfo};
use crate::protobuf;
use crate::store::Stored;

/// Field names of an event: stored, served by `events.k8s.io`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

/// Who reports an event.
const NAMES: [&str; 2] = ["reportingController", "reportingInstance"];

fn is_new_event(kind: &KindInfo) -> bool {
    kind.group == "events.k8s.io"
}

/// The resource that a kind is stored under.
pub fn resource_of(kind: &KindInfo) -> String {
    if is_new_event(kind) {
        kind.plural.to_owned()
    } else {
        kind.resource()
    }
}

/// The kind whose form is stored.
pub(crate) fn stored_kind(kind: &'static KindInfo) -> &'static KindInfo {
    if is_new_event(kind) {
        kinds::find("", "v1", "events").unwrap_or(kind)
    } else {
        kind
    }
}

/// Objects in the form in which a kind is served.
pub trait Served {
    /// Whether the text is served as it is stored.
    fn is_served_as_stored(&self, kind: &KindInfo) -> bool;
    /// The JSON text, for who copies it.
    fn text(&self, kind: &KindInfo) -> Cow<'_, [u8]>;
    /// The JSON text, for who sends it as it is.
    fn shared_text(self: &Arc<Self>, kind: &KindInfo) -> Bytes;
    /// The parsed object.
    fn parsed(&self, kind: &KindInfo) -> Value;
    /// The protobuf message, without an envelope; empty if the kind has none.
    fn message(&self, kind: &KindInfo) -> Bytes;
}

impl Served for Stored {
    fn is_served_as_stored(&self, kind: &KindInfo) -> bool {
        if kind.custom.is_none() {
            return !is_new_event(kind);
        }
        // The storage version may have changed since the object was written.
        let text = self.json().strip_prefix(br#"{"apiVersion":""#);
        let version = kind.api_version();
        let rest = text.and_then(|text| text.strip_prefix(version.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b"\""))
    }

    fn text(&self, kind: &KindInfo) -> Cow<'_, [u8]> {
        if self.is_served_as_stored(kind) {
            Cow::Borrowed(self.json())
        } else {
            Cow::Owned(self.parsed(kind).to_string().into())
        }
    }

    fn shared_text(self: &Arc<Self>, kind: &KindInfo) -> Bytes {
        match self.text(kind) {
            Cow::Borrowed(_) => self.shared_json(),
            Cow::Owned(text) => text.into(),
        }
    }

    fn parsed(&self, kind: &KindInfo) -> Value {
        to_served(kind, Cow::Owned(self.value())).into_owned()
    }

    fn message(&self, kind: &KindInfo) -> Bytes {
        let encode = |object: &Value| {
            protobuf::message(&kind.api_version(), kind.kind, object).unwrap_or_default()
        };
        if is_new_event(kind) {
            encode(&self.parsed(kind)).into()
        } else {
            self.encoded(encode)
        }
    }
}

/// From the stored form to the served one.
pub(crate) fn to_served<'v>(kind: &KindInfo, object: Cow<'v, Value>) -> Cow<'v, Value> {
    if kind.custom.is_some() && object["apiVersion"] != kind.api_version() {
        // All versions of a defined kind have the same fields.
        let mut object = object.into_owned();
        object["apiVersion"] = kind.api_version().into();
        return Cow::Owned(object);
    }
    if !is_new_event(kind) {
        return object;
    }
    let mut object = object.into_owned();
    rename(&mut object, EVENT_FIELDS.iter().copied());
    object["apiVersion"] = kind.api_version().into();
    if let Some(fields) = object.as_object_mut() {
        // Those that the core group always has.
        fields.retain(|name, value| !(NAMES.contains(&name.as_str()) && value == ""));
    }
    Cow::Owned(object)
}

/// From the served form to the stored one.
pub(crate) fn to_stored(kind: &KindInfo, mut object: Value) -> Value {
    if let Some(custom) = kind.custom {
        object["apiVersion"] = kinds::group_version(kind.group, custom.storage_version).into();
    }
    if is_new_event(kind) {
        rename(
            &mut object,
            EVENT_FIELDS
                .iter()
                .map(|&(stored, served)| (served, stored)),
        );
        object["apiVersion"] = "v1".into();
    }
    object
}

/// Changes an object that is in its stored form in the one that it is served in.
pub(crate) fn as_served(
    kind: &'static KindInfo,
    mut object: Value,
    change: impl FnOnce(&mut Value),
) -> Value {
    if !is_new_event(kind) {
        change(&mut object);
        return object;
    }
    let mut served = to_served(kind, Cow::Owned(object)).into_owned();
    change(&mut served);
    to_stored(kind, served)
}

fn rename<'n>(object: &mut Value, names: impl Iterator<Item = (&'n str, &'n str)>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_keeps_its_contents_under_the_other_group() {
        let kind = kinds::find("events.k8s.io", "v1", "events").unwrap();
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "message": "m", "count": 2,
            "involvedObject": { "name": "p" }, "reason": "R",
        });
        let served = to_served(kind, Cow::Borrowed(&stored)).into_owned();
        assert_eq!(served["note"], "m");
        assert_eq!(served["regarding"]["name"], "p");
        assert_eq!(served["apiVersion"], "events.k8s.io/v1");
        assert_eq!(to_stored(kind, served), stored);
    }
}
