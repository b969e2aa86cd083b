//! What two answers to one request may differ in: identities, versions, times and prose.

use serde_json::Value;

/// An answer's body with everything accidental replaced, in many lines.
pub(crate) fn text(mut value: Value) -> String {
    walk(&mut value, "");
    serde_json::to_string_pretty(&value).unwrap()
}

fn walk(value: &mut Value, field: &str) {
    match value {
        Value::Object(fields) => {
            // The original's prose, which is nobody's business but its own.
            for prose in ["description", "storageVersionHash"] {
                fields.remove(prose);
            }
            // To every client, a field that is null is one that isn't there.
            fields.retain(|_, inner| !inner.is_null());
            for (name, inner) in fields.iter_mut() {
                walk(inner, name);
            }
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                walk(item, field);
            }
            // Which of its bindings gives a rule to somebody first is an accident.
            if matches!(field, "resourceRules" | "nonResourceRules") {
                items.sort_by_key(Value::to_string);
            }
        }
        Value::String(text) => {
            *text = match scalar(field, text) {
                Some(normal) => normal.to_owned(),
                None => identities(text),
            };
        }
        Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

fn scalar(field: &str, text: &str) -> Option<&'static str> {
    match field {
        "resourceVersion" if !text.is_empty() => Some("VERSION"),
        "continue" => Some("TOKEN"),
        "token" if text.len() > 100 => Some("TOKEN"),
        "name" if is_generated(text) => Some("kube-api-access-RANDOM"),
        "cells" if is_age(text) => Some("AGE"),
        _ if is_time(text) => Some("TIME"),
        _ if is_uid(text) => Some("UID"),
        _ => None,
    }
}

/// The name of a volume that the server gave a pod.
fn is_generated(text: &str) -> bool {
    let suffix = text.strip_prefix("kube-api-access-");
    suffix.is_some_and(|suffix| suffix.len() == 5)
}

/// `5s` or `6y321d`, as tables show how old something is: another one every second, or every day.
fn is_age(text: &str) -> bool {
    let mut parts = text.split_inclusive(|c: char| !c.is_ascii_digit());
    let is_part = |part: &str| {
        let digits = part.strip_suffix(['s', 'm', 'h', 'd', 'y']);
        digits.is_some_and(|digits| !digits.is_empty())
    };
    !text.is_empty() && parts.all(is_part)
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_uid(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// A text with the identities and versions in it replaced, which stand in brackets.
fn identities(text: &str) -> String {
    let accidental = |part: &str| is_uid(part) && !part.starts_with("00000000");
    let parts: Vec<&str> = text
        .split_inclusive(['(', ')'])
        .map(|part| match part.strip_suffix(')') {
            Some(part) if accidental(part) => "UID)",
            Some(part) if part.len() > 1 && part.bytes().all(|b| b.is_ascii_digit()) => "VERSION)",
            _ => part,
        })
        .collect();
    parts.concat()
}
