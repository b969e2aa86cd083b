//! Rules for attachments, CSI nodes and capacities, and in-use protection.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::claims;
use crate::refusal::{Fault, FieldError};
use crate::registry::{DNS_SUBDOMAIN, metadata, text};

/// StorageObjectInUseProtection: new objects carry the finalizer that keeps them while in use.
pub(super) fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = metadata(object)
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Some(all) = finalizers.as_array_mut()
        && !all.iter().any(|one| one == finalizer)
    {
        all.push(finalizer.into());
    }
}

pub(super) fn validate_attachment(attachment: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["attacher", "nodeName"] {
        if text(attachment, &format!("/spec/{field}")).is_empty() {
            errors.push(FieldError::required(format!("spec.{field}"), ""));
        }
    }
    let source = &attachment["spec"]["source"];
    let by_name = !text(source, "/persistentVolumeName").is_empty();
    let inline = source.get("inlineVolumeSpec").is_some();
    if !by_name && !inline {
        let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        errors.push(FieldError::required("spec.source", detail));
    }
    if by_name && inline {
        let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        errors.push(FieldError::invalid("spec.source", source, detail));
    }
    errors
}

pub(super) fn validate_attachment_change(before: &Value, after: &Value) -> Vec<FieldError> {
    if before["spec"] == after["spec"] {
        return Vec::new();
    }
    vec![FieldError::invalid(
        "spec",
        &Value::Null,
        "field is immutable",
    )]
}

pub(super) fn validate_node(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, driver) in node["spec"]["drivers"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        for field in ["name", "nodeID"] {
            if text(driver, &format!("/{field}")).is_empty() {
                errors.push(FieldError::required(
                    format!("spec.drivers[{at}].{field}"),
                    "",
                ));
            }
        }
        if !seen.insert(text(driver, "/name")) {
            errors.push(FieldError {
                field: format!("spec.drivers[{at}].name"),
                fault: Fault::Duplicate(driver["name"].clone()),
                detail: String::new(),
            });
        }
    }
    errors
}

pub(super) fn validate_capacity(capacity: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(fault) = DNS_SUBDOMAIN.fault(text(capacity, "/storageClassName")) {
        let class = text(capacity, "/storageClassName").into();
        errors.push(FieldError::invalid("storageClassName", &class, fault));
    }
    for field in ["capacity", "maximumVolumeSize"] {
        if let Some(size) = capacity.get(field)
            && let Some(error) = claims::size_error(field, size)
            && size != "0"
        {
            errors.push(error);
        }
    }
    errors
}
