//! The way from client-side apply to server-side apply.
//!
//! `kubectl apply` without `--server-side` keeps what it applied in an
//! annotation and writes as an updater. When the same kubectl applies
//! server-side, what the annotation says was its own is no conflict, and the
//! annotation follows, so that the way back stays open. Other managers get
//! neither: they are not the author of the annotation.

use super::super::fields::compare::changes;
use super::super::fields::fields_of;
use super::super::fields::set::FieldSet;
use crate::schema::Shape;
use serde_json::Value;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MANAGER: &str = "kubectl";

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str()
}

/// The fields that `manager` applied client-side and that are still as it
/// left them.
pub(super) fn own_fields(shape: &Shape, live: &Value, manager: &str) -> FieldSet {
    if manager != MANAGER {
        return FieldSet::default();
    }
    let last = annotation(live).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(last) = last else {
        return FieldSet::default();
    };
    let found = changes(shape, &last, live);
    fields_of(shape, &last)
        .unwrap_or_default()
        .difference(&found.written())
        .difference(&found.removed)
}

/// Brings the annotation up to date, if the object has one.
pub(super) fn follow(object: &mut Value, applied: &Value, manager: &str) {
    if manager != MANAGER || annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations")
        && let Some(annotations) = annotations.as_object_mut()
    {
        annotations.remove(ANNOTATION);
    }
    // kubectl ends the text with a line break; the same text is no change.
    object["metadata"]["annotations"][ANNOTATION] = format!("{applied}\n").into();
}
