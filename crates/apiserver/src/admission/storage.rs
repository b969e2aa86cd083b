//! Rules for attachments, CSI nodes and capacities, and in-use protection.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::metadata::key_fault;
use super::selectors::{items, label_selector_errors};
use super::{claims, drivers, volumes};
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
    errors.extend(attacher_errors(text(attachment, "/spec/attacher")));
    let node = text(attachment, "/spec/nodeName");
    if node.is_empty() {
        errors.push(FieldError::required("spec.nodeName", ""));
    } else if let Some(fault) = DNS_SUBDOMAIN.fault(node) {
        errors.push(FieldError::invalid("spec.nodeName", &json!(node), fault));
    }
    let source = &attachment["spec"]["source"];
    let exactly = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (
        source.get("persistentVolumeName"),
        source.get("inlineVolumeSpec"),
    ) {
        (None, None) => errors.push(FieldError::required("spec.source", exactly)),
        (Some(_), Some(_)) => errors.push(FieldError::forbidden("spec.source", exactly)),
        (Some(name), None) if name == "" => {
            let detail = "must specify non empty persistentVolumeName";
            let field = "spec.source.persistentVolumeName";
            errors.push(FieldError::required(field, detail));
            let fault = DNS_SUBDOMAIN.fault("").unwrap_or_default();
            errors.push(FieldError::invalid(field, name, fault));
        }
        (Some(_), None) => {}
        (None, Some(spec)) => errors.extend(volumes::inline_errors(spec)),
    }
    errors.extend(attachment_status_errors(&attachment["status"]));
    errors
}

/// What a driver's words about an attachment may take, in bytes, names and values together.
const MOST_ATTACHED_METADATA: usize = 256 * 1024;

/// The longest text of what went wrong with an attachment, in bytes.
const LONGEST_VOLUME_ERROR: usize = 1024;

pub(super) fn attachment_status_errors(status: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let words = status["attachmentMetadata"]
        .as_object()
        .into_iter()
        .flatten();
    let size = words.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if size.sum::<usize>() > MOST_ATTACHED_METADATA {
        errors.push(FieldError::new(
            "status.attachmentMetadata",
            Fault::TooLong(MOST_ATTACHED_METADATA),
        ));
    }
    for field in ["attachError", "detachError"] {
        let error = &status[field];
        if text(error, "/message").len() > LONGEST_VOLUME_ERROR {
            let field = format!("status.{field}.message");
            errors.push(FieldError::new(
                &field,
                Fault::TooLong(LONGEST_VOLUME_ERROR),
            ));
        }
        let code = &error["errorCode"];
        if code.as_i64().is_some_and(|code| code < 0) {
            let field = format!("status.{field}.errorCode");
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(field, code, detail));
        }
    }
    errors
}

/// An attacher is a driver; of its letters' case the original says something else here.
fn attacher_errors(attacher: &str) -> Vec<FieldError> {
    const CASELESS: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or \
        '.', and must start and end with an alphanumeric character (e.g. 'Example.com', regex \
        used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let mut errors = drivers::name_errors("spec.attacher", attacher);
    for error in &mut errors {
        if matches!(error.fault, Fault::Invalid(_)) {
            CASELESS.clone_into(&mut error.detail);
        }
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

/// The longest id of a node, in bytes.
const LONGEST_NODE_ID: usize = 256;

pub(super) fn validate_node(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, driver) in node["spec"]["drivers"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let entry = format!("spec.drivers[{at}]");
        let name = format!("{entry}.name");
        errors.extend(drivers::name_errors(&name, text(driver, "/name")));
        let id = text(driver, "/nodeID");
        if id.is_empty() {
            errors.push(FieldError::required(format!("{entry}.nodeID"), ""));
        }
        if id.len() > LONGEST_NODE_ID {
            let field = format!("{entry}.nodeID");
            let detail = format!("must be {LONGEST_NODE_ID} characters or less");
            errors.push(FieldError::invalid(field, &driver["nodeID"], detail));
        }
        let count = &driver["allocatable"]["count"];
        if count.as_i64().is_some_and(|count| count < 0) {
            let field = format!("{entry}.allocatable.count");
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(field, count, detail));
        }
        if !seen.insert(text(driver, "/name")) {
            errors.push(FieldError {
                field: name,
                fault: Fault::Duplicate(driver["name"].clone()),
                detail: String::new(),
            });
        }
        errors.extend(topology_key_errors(&entry, driver));
    }
    errors
}

fn topology_key_errors(entry: &str, driver: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (_, key) in items(driver, "topologyKeys") {
        let name = key.as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(entry, ""));
        }
        if !seen.insert(name) {
            errors.push(FieldError::new(entry, Fault::Duplicate(key.clone())));
        }
        errors.extend(key_fault(name).map(|fault| FieldError::invalid(entry, key, fault)));
    }
    errors
}

/// What is attached is known to the driver by the node's id, which therefore stays. The
/// original keeps the keys of the topology, too; here a driver may come back with others.
pub(super) fn validate_node_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (_, old) in items(&before["spec"], "drivers") {
        for (_, new) in items(&after["spec"], "drivers") {
            if old["name"] == new["name"] && old["nodeID"] != new["nodeID"] {
                let (field, detail) = ("spec.drivers", "field is immutable");
                errors.push(FieldError::invalid(field, new, detail));
            }
        }
    }
    errors
}

/// A capacity is of one class and one part of the cluster.
pub(super) fn validate_capacity_change(before: &Value, after: &Value) -> Vec<FieldError> {
    ["nodeTopology", "storageClassName"]
        .into_iter()
        .filter(|field| before[field] != after[field])
        .map(|field| FieldError::invalid(field, &after[field], "field is immutable"))
        .collect()
}

pub(super) fn validate_capacity(capacity: &Value) -> Vec<FieldError> {
    let mut errors = label_selector_errors("nodeTopology", &capacity["nodeTopology"]);
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
