//! Rules that volumes and containers of a pod share: paths, modes, and references to fields.

use serde_json::{Value, json};

use super::metadata::key_fault;
use crate::refusal::FieldError;
use crate::registry::text;

/// What a pod's fields were ever called in a reference.
const LABELS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];
const AMOUNTS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// A path within a volume: relative, and never upwards.
pub(super) fn descent_errors(field: &str, path: &str) -> Vec<FieldError> {
    let mut details = Vec::new();
    if path.starts_with('/') {
        details.push("must be a relative path");
    }
    if path.split('/').any(|part| part == "..") {
        details.push("must not contain '..'");
    }
    if path.starts_with("..") && !path.starts_with("../") {
        details.push("must not start with '..'");
    }
    let value = json!(path);
    let error = |detail| FieldError::invalid(field, &value, detail);
    details.into_iter().map(error).collect()
}

/// The mode of a file.
pub(super) fn mode_error(path: &str, source: &Value, name: &str) -> Option<FieldError> {
    let mode = &source[name];
    let wrong = mode
        .as_i64()
        .is_some_and(|mode| !(0..=0o777).contains(&mode));
    wrong.then(|| {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        FieldError::invalid(format!("{path}.{name}"), mode, detail)
    })
}

/// A reference to one of these fields of a pod.
pub(super) fn field_ref_errors(
    path: &str,
    reference: &Value,
    allowed: &'static [&'static str],
) -> Vec<FieldError> {
    let field = format!("{path}.fieldPath");
    let named = &reference["fieldPath"];
    let wanted = text(reference, "/fieldPath");
    if wanted.is_empty() {
        return vec![FieldError::required(field, "")];
    }
    let not_converted = |why: String| {
        let detail = format!("error converting fieldPath: {why}");
        vec![FieldError::invalid(&field, named, detail)]
    };
    let version = text(reference, "/apiVersion");
    if !matches!(version, "" | "v1") {
        return not_converted(format!("unsupported pod version: {version}"));
    }
    let subscript = wanted
        .strip_suffix("']")
        .and_then(|rest| rest.split_once("['"))
        .filter(|(list, _)| !list.is_empty());
    if let Some((list, key)) = subscript {
        let key = match list {
            "metadata.annotations" => key.to_lowercase(),
            "metadata.labels" => key.to_owned(),
            _ => return not_converted(format!("field label does not support subscript: {wanted}")),
        };
        let fault = key_fault(&key);
        return fault
            .map(|fault| FieldError::invalid(path, &json!(key), fault))
            .into_iter()
            .collect();
    }
    if !LABELS.contains(&wanted) {
        return not_converted(format!("field label not supported: {wanted}"));
    }
    // An old name of the field.
    let wanted = if wanted == "spec.host" {
        "spec.nodeName"
    } else {
        wanted
    };
    if allowed.contains(&wanted) {
        return Vec::new();
    }
    vec![FieldError::not_supported(field, &json!(wanted), allowed)]
}

/// A reference to what a container asks for.
pub(super) fn resource_ref_errors(path: &str, reference: &Value) -> Option<FieldError> {
    let field = format!("{path}.resource");
    match text(reference, "/resource") {
        "" => Some(FieldError::required(field, "")),
        known if AMOUNTS.contains(&known) => None,
        pages
            if pages.starts_with("requests.hugepages-")
                || pages.starts_with("limits.hugepages-") =>
        {
            None
        }
        _ => Some(FieldError::not_supported(
            field,
            &reference["resource"],
            AMOUNTS,
        )),
    }
}
