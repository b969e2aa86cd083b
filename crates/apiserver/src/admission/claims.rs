//! Rules for persistent volume claims.

use orlop_model::Quantity;
use serde_json::{Value, json};

use super::selectors::label_selector_errors;
use crate::refusal::FieldError;
use crate::registry::{DNS_SUBDOMAIN, section, text};

pub(super) const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
pub(super) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

pub(super) fn validate(claim: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &claim["spec"];
    let missing = "at least 1 access mode is required";
    errors.extend(access_mode_errors(&spec["accessModes"], missing));
    errors.extend(label_selector_errors("spec.selector", &spec["selector"]));
    let storage = &spec["resources"]["requests"]["storage"];
    if storage.is_null() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    } else {
        errors.extend(size_error("spec.resources[storage]", storage));
    }
    if let Some(mode) = spec.get("volumeMode")
        && !mode
            .as_str()
            .is_some_and(|mode| VOLUME_MODES.contains(&mode))
    {
        errors.push(FieldError::not_supported(
            "spec.volumeMode",
            mode,
            VOLUME_MODES,
        ));
    }
    errors.extend(class_name_error(spec));
    errors.extend(source_errors(spec));
    errors.extend(named_class_error(spec, "volumeAttributesClassName"));
    errors
}

/// A class is named as an object is; an empty name stands for none.
pub(super) fn class_name_error(spec: &Value) -> Option<FieldError> {
    named_class_error(spec, "storageClassName")
}

fn named_class_error(spec: &Value, field: &str) -> Option<FieldError> {
    let name = text(spec, &format!("/{field}"));
    let fault = DNS_SUBDOMAIN.fault(name).filter(|_| !name.is_empty())?;
    Some(FieldError::invalid(
        format!("spec.{field}"),
        &spec[field],
        fault,
    ))
}

/// A new claim's older field takes claims and snapshots only; what else it names is as if it
/// weren't there, unless the newer field says so, too.
pub(super) fn drop_unknown_source(claim: &mut Value) {
    let spec = section(claim, "spec");
    let Some(source) = spec.get("dataSource") else {
        return;
    };
    let known = matches!(
        (text(source, "/apiGroup"), text(source, "/kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if !known && !spec.contains_key("dataSourceRef") {
        spec.remove("dataSource");
    }
}

/// Rules shared by claims and volumes.
pub(super) fn access_mode_errors(modes: &Value, missing: &str) -> Vec<FieldError> {
    let field = "spec.accessModes";
    let all = modes.as_array().map_or(&[][..], Vec::as_slice);
    if all.is_empty() {
        return vec![FieldError::required(field, missing)];
    }
    let mut errors: Vec<FieldError> = all
        .iter()
        .filter(|mode| {
            !mode
                .as_str()
                .is_some_and(|mode| ACCESS_MODES.contains(&mode))
        })
        .map(|mode| FieldError::not_supported(field, mode, ACCESS_MODES))
        .collect();
    if all.len() > 1 && all.iter().any(|mode| mode == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(field, detail));
    }
    errors
}

/// A size must be a positive quantity.
pub(super) fn size_error(field: &str, size: &Value) -> Option<FieldError> {
    let parsed = match size {
        Value::String(text) => text.parse::<Quantity>().map_err(|error| error.to_string()),
        Value::Number(number) => number
            .to_string()
            .parse()
            .map_err(|_| "not a size".to_owned()),
        _ => Err("quantities must match the regular expression \
            '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned()),
    };
    match parsed {
        Ok(quantity) if quantity.value() > 0 => None,
        Ok(_) => Some(FieldError::invalid(
            field,
            size,
            "must be greater than zero",
        )),
        Err(detail) => Some(FieldError::invalid(field, size, detail)),
    }
}

fn source_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["dataSource", "dataSourceRef"] {
        let Some(source) = spec.get(field) else {
            continue;
        };
        for part in ["kind", "name"] {
            if text(source, &format!("/{part}")).is_empty() {
                errors.push(FieldError::required(format!("spec.{field}.{part}"), ""));
            }
        }
        let core = text(source, "/apiGroup").is_empty();
        if core && text(source, "/kind") != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(
                format!("spec.{field}"),
                &source["kind"],
                detail,
            ));
        }
        let group = text(source, "/apiGroup");
        if let Some(fault) = DNS_SUBDOMAIN.fault(group).filter(|_| !core) {
            let field = format!("spec.{field}.apiGroup");
            errors.push(FieldError::invalid(field, &source["apiGroup"], fault));
        }
    }
    errors.extend(contradiction(spec));
    errors
}

/// The two fields of a claim's source say the same, or one of them nothing.
fn contradiction(spec: &Value) -> Option<FieldError> {
    let (source, reference) = (spec.get("dataSource")?, spec.get("dataSourceRef")?);
    let detail = if !text(reference, "/namespace").is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if ["/apiGroup", "/kind", "/name"]
        .iter()
        .any(|part| text(source, part) != text(reference, part))
    {
        "must match dataSourceRef"
    } else {
        return None;
    };
    // The value that is shown is empty, as the original's.
    Some(FieldError::invalid("spec", &json!({}), detail))
}

/// A claim's spec is fixed but for its size, its volume (once), its class (while it has
/// none) and its attributes class.
pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let (old, new) = (&before["spec"], &after["spec"]);
    if old == new {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let mut frozen = new.clone();
    let bound = text(before, "/status/phase") == "Bound";
    if text(old, "/volumeName").is_empty() {
        put(&mut frozen, "volumeName", old.get("volumeName"));
    }
    if old.get("storageClassName").is_none() && !bound {
        put(&mut frozen, "storageClassName", None);
    }
    put(
        &mut frozen,
        "volumeAttributesClassName",
        old.get("volumeAttributesClassName"),
    );
    let requests = |spec: &Value| spec["resources"].get("requests").cloned();
    if bound && let Some(resources) = frozen["resources"].as_object_mut() {
        match requests(old) {
            Some(requests) => resources.insert("requests".to_owned(), requests),
            None => resources.remove("requests"),
        };
    }
    if frozen != *old {
        let detail = "spec is immutable after creation except resources.requests and \
            volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let size = |pointer: &str, claim: &Value| text(claim, pointer).parse::<Quantity>().ok();
    let asked = size("/spec/resources/requests/storage", after);
    let had = size("/spec/resources/requests/storage", before);
    let capacity = size("/status/capacity/storage", before);
    // A failed expansion may be taken back, but not to what is there: the failed one may yet
    // turn out to have happened, and must be followed by one that ends. No capacity is less than any.
    if asked < had && asked <= capacity {
        let detail = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            detail,
        ));
    }
    errors
}

fn put(spec: &mut Value, field: &str, value: Option<&Value>) {
    let Some(fields) = spec.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Value {
        json!({
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
                "volumeMode": "Filesystem",
            },
            "status": { "phase": "Pending" },
        })
    }

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_claim_says_what_it_lacks() {
        assert_eq!(validate(&claim()), []);
        assert_eq!(
            texts(&validate(&json!({ "spec": {} }))),
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ]
        );
    }

    #[test]
    fn an_unknown_access_mode_names_the_known_ones() {
        let mut wrong = claim();
        wrong["spec"]["accessModes"] = json!(["RWO"]);
        assert_eq!(
            texts(&validate(&wrong)),
            [
                "spec.accessModes: Unsupported value: \"RWO\": supported values: \"ReadOnlyMany\", \
              \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\""
            ]
        );
    }

    #[test]
    fn the_volume_is_named_once() {
        let mut named = claim();
        named["spec"]["volumeName"] = json!("pv");
        assert_eq!(validate_change(&claim(), &named), []);
        let mut renamed = named.clone();
        renamed["spec"]["volumeName"] = json!("other");
        assert_eq!(validate_change(&named, &renamed)[0].field, "spec");
    }

    #[test]
    fn only_a_bound_claim_grows_and_none_shrinks_below_its_capacity() {
        let mut bigger = claim();
        bigger["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        assert_eq!(validate_change(&claim(), &bigger)[0].field, "spec");
        let mut bound = claim();
        bound["status"] = json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } });
        assert_eq!(validate_change(&bound, &bigger), []);
        let mut smaller = claim();
        smaller["spec"]["resources"]["requests"]["storage"] = json!("1Mi");
        assert_eq!(
            texts(&validate_change(&bound, &smaller)),
            [
                "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
            ]
        );
    }

    #[test]
    fn a_claim_without_capacity_is_told_only_that_its_request_is_fixed() {
        let mut bigger = claim();
        bigger["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        let errors = validate_change(&bigger, &claim());
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["spec"]);
    }

    #[test]
    fn the_access_modes_are_fixed() {
        let mut other = claim();
        other["spec"]["accessModes"] = json!(["ReadWriteMany"]);
        assert_eq!(validate_change(&claim(), &other)[0].field, "spec");
    }
}
