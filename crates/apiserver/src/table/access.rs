//! Rows of roles and bindings.

use super::{AGE, Column, NAME, age, at, list, name, text, wide};
use jiff::Timestamp;
use serde_json::Value;

pub(super) const ROLE: &[Column] = &[NAME, text("Created At")];

/// The same of limit ranges, whose time is one to clients, too.
pub(super) const RANGE: &[Column] = &[
    NAME,
    Column {
        kind: "date",
        ..text("Created At")
    },
];

pub(super) fn role(role: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(role), at(role, "/metadata/creationTimestamp").into()]
}

pub(super) const BINDING: &[Column] = &[
    NAME,
    text("Role"),
    AGE,
    wide("Users"),
    wide("Groups"),
    wide("ServiceAccounts"),
];

pub(super) fn binding(binding: &Value, now: Timestamp) -> Vec<Value> {
    let of = |kind: &str| {
        let subjects = list(binding, "/subjects").iter();
        let names: Vec<String> = subjects
            .filter(|subject| subject["kind"] == kind)
            .map(|subject| match at(subject, "/namespace") {
                "" => at(subject, "/name").to_owned(),
                namespace => format!("{namespace}/{}", at(subject, "/name")),
            })
            .collect();
        Value::from(names.join(", "))
    };
    let role = format!(
        "{}/{}",
        at(binding, "/roleRef/kind"),
        at(binding, "/roleRef/name")
    );
    vec![
        name(binding),
        role.into(),
        age::of(binding, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}
