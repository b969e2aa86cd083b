//! Who an object says it is, against what the request says.

use serde_json::Value;

use super::{Target, metadata, text};
use crate::kinds::KindInfo;
use crate::refusal::{FieldError, Refusal};

/// Takes nulls out, as a decoder into typed fields would: to a client that writes
/// `creationTimestamp: null`, null means absent. In objects of a defined kind it may be a value;
/// its schema says where.
pub(super) fn drop_nulls(kind: &KindInfo, object: &mut Value) {
    if kind.custom.is_none() {
        return drop_all_nulls(object);
    }
    if let Some(fields) = object.as_object_mut() {
        let own = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata");
        fields.retain(|name, value| !own(name) || !value.is_null());
    }
    if let Some(metadata) = object.get_mut("metadata") {
        drop_all_nulls(metadata);
    }
}

fn drop_all_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_all_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_all_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Checks apiVersion, kind and namespace, and fills in what is left out.
pub(super) fn settle(kind: &KindInfo, namespace: &str, object: &mut Value) -> Result<(), Refusal> {
    if !object.is_object() || !object["metadata"].is_null() && !object["metadata"].is_object() {
        return Err(Refusal::bad_request(
            "the body of the request is not an object",
        ));
    }
    let api_version = kind.api_version();
    match text(object, "/apiVersion") {
        "" => object["apiVersion"] = api_version.into(),
        same if same == api_version => {}
        other => {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({other}) does not match the expected API version \
                 ({api_version})"
            )));
        }
    }
    match text(object, "/kind") {
        "" => object["kind"] = kind.kind.into(),
        other if other != kind.kind && kind.custom.is_some() => {
            return Err(other_kind(kind, object, other));
        }
        same if same == kind.kind => {}
        other => {
            return Err(Refusal::bad_request(format!(
                "{other} in version \"{}\" cannot be handled as a {}",
                kind.version, kind.kind
            )));
        }
    }
    let claimed = text(object, "/metadata/namespace").to_owned();
    if kind.namespaced {
        if claimed.is_empty() {
            metadata(object).insert("namespace".to_owned(), namespace.into());
        } else if claimed != namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the \
                 request",
            ));
        }
    } else {
        metadata(object).remove("namespace");
    }
    Ok(())
}

/// Objects of a defined kind are read without knowing the kind, which is a field like others.
fn other_kind(kind: &KindInfo, object: &Value, other: &str) -> Refusal {
    let why = format!("must be {}", kind.kind);
    let error = FieldError::invalid("kind", &other.into(), why);
    let name = text(object, "/metadata/name");
    let mut refusal = Refusal::invalid(kind, name, std::slice::from_ref(&error));
    refusal.details["kind"] = other.into();
    refusal.message = format!("{other}.{} {name:?} is invalid: {error}", kind.group);
    refusal
}

/// Checks that a configuration to apply is of the kind that the path names.
pub(super) fn check_applied(target: &Target, applied: &Value) -> Result<(), Refusal> {
    let (version, kind) = (text(applied, "/apiVersion"), text(applied, "/kind"));
    if kind == target.kind.kind || kind.is_empty() && version.is_empty() && applied.is_object() {
        return Ok(());
    }
    let slash = if version.contains('/') { "" } else { "/" };
    Err(Refusal::bad_request(format!(
        "invalid object type: {slash}{version}, Kind={kind}"
    )))
}

/// Checks that an update's body is about the object that the path names.
pub(super) fn settle_update(target: &Target, object: &mut Value) -> Result<(), Refusal> {
    settle(target.kind, &target.namespace, object)?;
    match text(object, "/metadata/name") {
        "" => {
            metadata(object).insert("name".to_owned(), target.name.as_str().into());
            Ok(())
        }
        same if same == target.name => Ok(()),
        other => Err(Refusal::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({})",
            target.name
        ))),
    }
}
