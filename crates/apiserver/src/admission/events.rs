//! Rules for events. Those that come through `events.k8s.io` are held to more, as in the original,
//! which has let everything pass in the core group for too long.

use serde_json::{Value, json};

use super::metadata::{QUALIFIED_NAME, key_fault};
use crate::refusal::FieldError;
use crate::registry::text;

const WORD: usize = 128;
const NOTE: usize = 1024;

/// Through which group an event came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    Core,
    Events,
}

/// What is wrong with an event, in its stored form.
pub(super) fn validate(event: &Value, came: Came) -> Vec<FieldError> {
    let is_timed = is_set(event, "eventTime");
    let mut errors: Vec<FieldError> = misplaced(event, is_timed).into_iter().collect();
    if is_timed {
        errors.extend(validate_words(event, came));
    }
    errors
}

/// What is wrong with an event that is new through `events.k8s.io`.
pub(super) fn validate_new(event: &Value) -> Vec<FieldError> {
    let mut errors = validate_series(event);
    if !is_set(event, "eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let sort = text(event, "/type");
    if !matches!(sort, "Normal" | "Warning") {
        let detail = format!("has invalid value: {sort}");
        errors.push(FieldError::invalid("type", &json!(""), detail));
    }
    let has_source = ["/source/component", "/source/host"]
        .iter()
        .any(|part| !text(event, part).is_empty());
    let old = [
        ("firstTimestamp", is_set(event, "firstTimestamp")),
        ("lastTimestamp", is_set(event, "lastTimestamp")),
        (
            "count",
            event["count"].as_i64().is_some_and(|count| count != 0),
        ),
        ("source", has_source),
    ];
    for (field, _) in old.into_iter().filter(|(_, is_set)| *is_set) {
        errors.push(FieldError::invalid(field, &json!(""), "needs to be unset"));
    }
    errors
}

/// What is wrong with a change through `events.k8s.io`: nothing but its series may change.
pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    const FIXED: &[&str] = &[
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
    ];
    // What is told of these is the name that they have in this group.
    const RENAMED: &[(&str, &str)] = &[
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    let mut errors = Vec::new();
    if before["series"] != after["series"] {
        errors.extend(validate_series(after));
    }
    let fixed = FIXED.iter().map(|field| (*field, *field));
    for (field, told) in fixed.chain(RENAMED.iter().copied()) {
        if !is_same(field, &before[field], &after[field]) {
            errors.push(FieldError::invalid(
                told,
                &after[field],
                "field is immutable",
            ));
        }
    }
    errors
}

fn is_set(event: &Value, field: &str) -> bool {
    event[field].as_str().is_some_and(|time| !time.is_empty())
}

/// Whether a field says the same; no time is finer than a microsecond on its way, and nothing is
/// what an empty text says.
fn is_same(field: &str, before: &Value, after: &Value) -> bool {
    let moment = |value: &Value| {
        let time: Option<jiff::Timestamp> = value.as_str()?.parse().ok();
        time.map(jiff::Timestamp::as_microsecond)
    };
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Array(_) => false,
    };
    match field {
        "eventTime" | "firstTimestamp" | "lastTimestamp" => moment(before) == moment(after),
        _ => before == after || is_nothing(before) && is_nothing(after),
    }
}

/// An event stands where the object is that it is about; one about an object of no namespace
/// stands in `default`.
fn misplaced(event: &Value, is_timed: bool) -> Option<FieldError> {
    let own = text(event, "/metadata/namespace");
    let about = text(event, "/involvedObject/namespace");
    let stands = match (about, is_timed) {
        ("", true) => matches!(own, "default" | "kube-system"),
        ("", false) => own == "default",
        (_, true) => true,
        (about, false) => about == own,
    };
    let detail = "does not match event.namespace";
    (!stands).then(|| FieldError::invalid("involvedObject.namespace", &json!(about), detail))
}

/// Who tells of what: needed of every event that has a time of its own.
fn validate_words(event: &Value, came: Came) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let reporter = match came {
        Came::Core => "reportingComponent",
        Came::Events => "reportingController",
    };
    let by = text(event, "/reportingComponent");
    if by.is_empty() {
        errors.push(FieldError::required(reporter, ""));
    }
    if let Some(fault) = key_fault(by) {
        errors.push(FieldError::invalid(reporter, &json!(by), fault));
    }
    if by.is_empty() {
        errors.push(FieldError::invalid(reporter, &json!(by), QUALIFIED_NAME));
    }
    for (field, required, most) in [
        ("reportingInstance", true, WORD),
        ("action", true, WORD),
        ("reason", true, WORD),
        ("message", false, NOTE),
    ] {
        let length = event[field].as_str().map_or(0, str::len);
        if required && length == 0 {
            errors.push(FieldError::required(field, ""));
        }
        if length > most {
            let detail = format!("can have at most {most} characters");
            errors.push(FieldError::invalid(field, &json!(""), detail));
        }
    }
    errors
}

fn validate_series(event: &Value) -> Vec<FieldError> {
    let series = &event["series"];
    let mut errors = Vec::new();
    if series.is_null() {
        return errors;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        let detail = "should be at least 2";
        errors.push(FieldError::invalid("series.count", &json!(""), detail));
    }
    if !is_set(series, "lastObservedTime") {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn event(changes: &Value) -> Value {
        let mut event = json!({
            "metadata": { "name": "e", "namespace": "default" },
            "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" },
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Pulled",
            "action": "Pull", "reportingComponent": "example.com/c", "reportingInstance": "c-1",
        });
        for (field, value) in changes.as_object().unwrap() {
            event[field] = value.clone();
        }
        event
    }

    fn all(event: &Value) -> Vec<String> {
        let mut errors = validate(event, Came::Events);
        errors.extend(validate_new(event));
        told(&errors)
    }

    #[test]
    fn an_event_of_the_new_group_says_when_who_what_and_why() {
        assert_eq!(all(&event(&json!({}))), [""; 0]);
        assert_eq!(
            all(&event(&json!({ "eventTime": null }))),
            ["eventTime: Required value"]
        );
        let bare = event(&json!({
            "action": "", "reason": null, "reportingInstance": "x".repeat(129),
            "reportingComponent": "no name", "message": "x".repeat(1025), "type": "Odd",
        }));
        assert_eq!(
            all(&bare).join("\n"),
            "reportingController: Invalid value: \"no name\": ".to_owned()
                + &key_fault("no name").unwrap()
                + "\nreportingInstance: Invalid value: \"\": can have at most 128 characters\n\
                   action: Required value\n\
                   reason: Required value\n\
                   message: Invalid value: \"\": can have at most 1024 characters\n\
                   type: Invalid value: \"\": has invalid value: Odd"
        );
        let old = event(&json!({
            "count": 1, "firstTimestamp": "2026-01-01T00:00:00Z", "source": { "component": "c" },
            "series": { "count": 1 },
        }));
        assert_eq!(
            all(&old),
            [
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value",
                "firstTimestamp: Invalid value: \"\": needs to be unset",
                "count: Invalid value: \"\": needs to be unset",
                "source: Invalid value: \"\": needs to be unset",
            ]
        );
    }

    #[test]
    fn an_event_of_the_core_group_without_a_time_says_what_it_likes_in_its_place() {
        let event = event(&json!({ "eventTime": null, "action": null, "type": "Odd" }));
        assert_eq!(told(&validate(&event, Came::Core)), [""; 0]);
        let mut elsewhere = event;
        elsewhere["metadata"]["namespace"] = "other".into();
        assert_eq!(
            told(&validate(&elsewhere, Came::Core)),
            [
                "involvedObject.namespace: Invalid value: \"default\": does not match event.namespace"
            ]
        );
    }

    #[test]
    fn nothing_of_an_event_of_the_new_group_changes_but_its_series() {
        let before = event(&json!({}));
        let series = json!({ "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" });
        let finer = "2026-01-01T00:00:00.000000400Z";
        let counted = event(&json!({ "series": series, "eventTime": finer, "count": 0 }));
        assert_eq!(told(&validate_change(&before, &counted)), [""; 0]);
        let other = event(&json!({ "reason": "Other", "reportingComponent": "d" }));
        assert_eq!(
            told(&validate_change(&before, &other)),
            [
                "reason: Invalid value: \"Other\": field is immutable",
                "reportingController: Invalid value: \"d\": field is immutable",
            ]
        );
    }
}
