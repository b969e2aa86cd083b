//! Rules for persistent volumes.

use serde_json::Value;

use super::claims;
use crate::refusal::FieldError;
use crate::registry::text;

/// The fields of a volume's spec that aren't its source.
const NOT_SOURCES: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
const RECLAIM: &[&str] = &["Delete", "Recycle", "Retain"];

pub(super) fn validate(volume: &Value) -> Vec<FieldError> {
    let mut errors = claims::access_mode_errors(&volume["spec"]["accessModes"], "");
    let spec = &volume["spec"];
    match spec["capacity"].get("storage") {
        None => {
            errors.push(FieldError::required("spec.capacity", ""));
            let (field, given) = ("spec.capacity", &spec["capacity"]);
            errors.push(FieldError::not_supported(field, given, &["storage"]));
        }
        Some(size) => errors.extend(claims::size_error("spec.capacity[storage]", size)),
    }
    let policy = &spec["persistentVolumeReclaimPolicy"];
    if !policy
        .as_str()
        .is_some_and(|policy| RECLAIM.contains(&policy))
    {
        let field = "spec.persistentVolumeReclaimPolicy";
        errors.push(FieldError::not_supported(field, policy, RECLAIM));
    }
    if let Some(mode) = spec.get("volumeMode")
        && !mode
            .as_str()
            .is_some_and(|mode| claims::VOLUME_MODES.contains(&mode))
    {
        errors.push(FieldError::not_supported(
            "spec.volumeMode",
            mode,
            claims::VOLUME_MODES,
        ));
    }
    let sources = sources(spec);
    match sources.len() {
        0 => errors.push(FieldError::required("spec", "must specify a volume type")),
        1 => {}
        _ => {
            let field = format!("spec.{}", sources[1]);
            errors.push(FieldError::forbidden(
                field,
                "may not specify more than 1 volume type",
            ));
        }
    }
    errors.extend(claims::class_name_error(spec));
    for source in ["hostPath", "local"] {
        let path = text(spec, &format!("/{source}/path"));
        if path.split('/').any(|part| part == "..") {
            let field = format!("spec.{source}.path");
            let path = &spec[source]["path"];
            errors.push(FieldError::invalid(field, path, "must not contain '..'"));
        }
    }
    if let Some(csi) = spec.get("csi") {
        for field in ["driver", "volumeHandle"] {
            if text(csi, &format!("/{field}")).is_empty() {
                errors.push(FieldError::required(format!("spec.csi.{field}"), ""));
            }
        }
    }
    if spec.get("local").is_some() && spec["nodeAffinity"]["required"].is_null() {
        let detail = "Local volume requires node affinity";
        errors.push(FieldError::required("spec.nodeAffinity", detail));
    }
    errors
}

fn sources(spec: &Value) -> Vec<&str> {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .map(|(name, _)| name.as_str())
        .filter(|name| !NOT_SOURCES.contains(name))
        .collect()
}

pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (old, new) = (&before["spec"], &after["spec"]);
    if sources(old)
        .iter()
        .chain(&sources(new))
        .any(|source| changed(source, old, new))
    {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    if old["volumeMode"] != new["volumeMode"] {
        let mode = &new["volumeMode"];
        errors.push(FieldError::invalid(
            "volumeMode",
            mode,
            "field is immutable",
        ));
    }
    // An affinity may be added, but a volume doesn't move.
    if !old["nodeAffinity"].is_null() && old["nodeAffinity"] != new["nodeAffinity"] {
        let affinity = &new["nodeAffinity"];
        errors.push(FieldError::invalid(
            "spec.nodeAffinity",
            affinity,
            "field is immutable",
        ));
    }
    errors
}

fn changed(source: &str, old: &Value, new: &Value) -> bool {
    // The secret that expands a volume may be set later.
    let fixed = |spec: &Value| {
        let mut value = spec[source].clone();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("controllerExpandSecretRef");
            fields.remove("nodeExpandSecretRef");
        }
        value
    };
    fixed(old) != fixed(new)
}
