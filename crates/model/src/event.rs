//! Event: what happened to an object, for people.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    kind::kind,
    meta::{Meta, ObjectRef},
};

/// What happened to an object.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// Metadata.
    pub metadata: Meta,
    /// The object.
    pub involved_object: ObjectRef,
    /// Why, in one word.
    pub reason: String,
    /// What, in a sentence.
    pub message: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Who says so.
    pub source: EventSource,
    /// The first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_timestamp: Option<Timestamp>,
    /// The last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_timestamp: Option<Timestamp>,
    /// How often.
    pub count: i32,
    /// Who says so, in the newer API.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_component: String,
    /// Which instance says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_instance: String,
}
kind!(Event, "", "v1", "Event", "events", Namespaced);

/// Who says what happened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventSource {
    /// The role.
    pub component: String,
    /// The machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}
