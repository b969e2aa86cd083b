//! Rules for persistent volumes.

use serde_json::Value;

use super::selectors::node_selector_errors;
use super::{claims, drivers};
use crate::refusal::FieldError;
use crate::registry::{DNS_LABEL, DNS_SUBDOMAIN, text};

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
    errors.extend(capacity_errors(&spec["capacity"]));
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
    if let Some(affinity) = spec.get("nodeAffinity") {
        errors.extend(affinity_errors(affinity));
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
        errors.extend(csi_errors(csi));
    }
    if let Some(nfs) = spec.get("nfs") {
        errors.extend(nfs_errors(nfs));
    }
    let root = text(spec, "/hostPath/path");
    if policy == "Recycle" && root.starts_with('/') && is_root(root) {
        let field = "spec.persistentVolumeReclaimPolicy";
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(field, detail));
    }
    if spec.get("local").is_some() && spec["nodeAffinity"].is_null() {
        let detail = "Local volume requires node affinity";
        errors.push(FieldError::required("spec.nodeAffinity", detail));
    }
    errors
}

/// What is wrong with a volume that an attachment holds in itself: one of a driver's, that is
/// nobody's claim.
pub(super) fn inline_errors(spec: &Value) -> Vec<FieldError> {
    let path = "spec.source.inlineVolumeSpec";
    let field = |name: &str| format!("{path}.{name}");
    let no = "may not be specified in the context of inline volumes";
    let mut errors = Vec::new();
    for name in ["claimRef", "capacity"] {
        if spec.get(name).is_some() {
            errors.push(FieldError::forbidden(field(name), no));
        }
    }
    if spec.get("csi").is_none() {
        let detail = "has to be specified in the context of inline volumes";
        errors.push(FieldError::required(field("csi"), detail));
    }
    let within = |mut error: FieldError| {
        error.field = field(error.field.trim_start_matches("spec."));
        error
    };
    let modes = claims::access_mode_errors(&spec["accessModes"], "");
    errors.extend(modes.into_iter().map(within));
    let policy = text(spec, "/persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        errors.push(FieldError::forbidden(
            field("persistentVolumeReclaimPolicy"),
            detail,
        ));
    }
    let forbid = |errors: &mut Vec<FieldError>, name: &str| {
        if spec.get(name).is_some_and(|value| value != "") {
            errors.push(FieldError::forbidden(field(name), no));
        }
    };
    forbid(&mut errors, "nodeAffinity");
    let csi = spec.get("csi").map(csi_errors).unwrap_or_default();
    errors.extend(csi.into_iter().map(within));
    if sources(spec).is_empty() {
        let detail = "must specify a volume type";
        errors.push(FieldError::required(path, detail));
    }
    forbid(&mut errors, "storageClassName");
    if !matches!(text(spec, "/volumeMode"), "" | "Filesystem") {
        let detail =
            "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.push(FieldError::forbidden(field("volumeMode"), detail));
    }
    errors
}

/// A volume's capacity is its storage, and nothing else.
fn capacity_errors(capacity: &Value) -> Vec<FieldError> {
    let field = "spec.capacity";
    let mut errors = Vec::new();
    let given = capacity.as_object().map_or(0, serde_json::Map::len);
    if given == 0 {
        errors.push(FieldError::required(field, ""));
    }
    if capacity.get("storage").is_none() || given > 1 {
        errors.push(FieldError::not_supported(field, capacity, &["storage"]));
    }
    for (name, size) in capacity.as_object().into_iter().flatten() {
        errors.extend(claims::size_error(&format!("{field}[{name}]"), size));
    }
    errors
}

fn affinity_errors(affinity: &Value) -> Vec<FieldError> {
    let field = "spec.nodeAffinity.required";
    match affinity.get("required") {
        None => {
            let detail = "must specify required node constraints";
            vec![FieldError::required(field, detail)]
        }
        Some(required) => node_selector_errors(field, required),
    }
}

fn csi_errors(csi: &Value) -> Vec<FieldError> {
    let mut errors = drivers::name_errors("spec.csi.driver", text(csi, "/driver"));
    if text(csi, "/volumeHandle").is_empty() {
        errors.push(FieldError::required("spec.csi.volumeHandle", ""));
    }
    // The original doesn't look at the secret for staging.
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(secret) = csi.get(name) else {
            continue;
        };
        for (part, format) in [("name", &DNS_SUBDOMAIN), ("namespace", &DNS_LABEL)] {
            let field = format!("spec.csi.{name}.{part}");
            let given = text(secret, &format!("/{part}"));
            if given.is_empty() {
                errors.push(FieldError::required(field, ""));
            } else if let Some(fault) = format.fault(given) {
                errors.push(FieldError::invalid(field, &secret[part], fault));
            }
        }
    }
    errors
}

fn nfs_errors(nfs: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["server", "path"] {
        if text(nfs, &format!("/{field}")).is_empty() {
            errors.push(FieldError::required(format!("spec.nfs.{field}"), ""));
        }
    }
    let path = text(nfs, "/path");
    if !path.starts_with('/') {
        let detail = "must be an absolute path";
        errors.push(FieldError::invalid("spec.nfs.path", &path.into(), detail));
    }
    errors
}

/// Whether an absolute path is another way to write `/`.
fn is_root(path: &str) -> bool {
    path.split('/').all(|part| matches!(part, "" | "." | ".."))
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
