//! Rules for `metadata`.

use serde_json::{Value, json};

use crate::refusal::FieldError;
use crate::registry::{DNS_SUBDOMAIN, text};

/// Finalizers of the server's own, which need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The most bytes of all annotations of an object together.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let metadata = &object["metadata"];
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        errors.extend(
            key_fault(key).map(|fault| FieldError::invalid("metadata.labels", &json!(key), fault)),
        );
        match value.as_str() {
            Some(text) if label_value_is_good(text) => {}
            _ => errors.push(FieldError::invalid("metadata.labels", value, LABEL_VALUE)),
        }
    }
    let mut annotations = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        annotations += key.len() + value.as_str().map_or(0, str::len);
        errors.extend(
            key_fault(&key.to_lowercase())
                .map(|fault| FieldError::invalid("metadata.annotations", &json!(key), fault)),
        );
        if !value.is_string() {
            errors.push(FieldError::invalid(
                "metadata.annotations",
                value,
                "must be a string",
            ));
        }
    }
    if annotations > ANNOTATIONS_LIMIT {
        errors.push(FieldError {
            field: "metadata.annotations".to_owned(),
            fault: crate::refusal::Fault::TooLong(ANNOTATIONS_LIMIT),
            detail: String::new(),
        });
    }
    // Definitions and the kinds that they define are judged less strictly.
    let version = text(object, "/apiVersion");
    let (group, _) = version.split_once('/').unwrap_or(("", version));
    let strict =
        group != "apiextensions.k8s.io" && (group.is_empty() || group.ends_with(".k8s.io"));
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    for (at, finalizer) in finalizers.enumerate() {
        let field = format!("metadata.finalizers[{at}]");
        let name = finalizer.as_str().unwrap_or("");
        if key_fault(name).is_some() {
            errors.push(FieldError::invalid(field, finalizer, QUALIFIED_NAME));
        } else if strict && !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(field, finalizer, why));
        }
    }
    errors.extend(owner_errors(metadata));
    errors
}

fn owner_errors(metadata: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controllers = 0;
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    for (at, owner) in owners.enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or("").is_empty() {
                let path = format!("metadata.ownerReferences[{at}].{field}");
                errors.push(FieldError::required(path, "must not be empty"));
            }
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &metadata["ownerReferences"],
            "Only one reference can have Controller set to true",
        ));
    }
    errors
}

pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let deleting = !text(before, "/metadata/deletionTimestamp").is_empty();
    let finalizers = |object: &Value| -> Vec<String> {
        let all = object["metadata"]["finalizers"].as_array();
        all.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let had = finalizers(before);
    let new: Vec<String> = finalizers(after)
        .into_iter()
        .filter(|one| !had.contains(one))
        .collect();
    if !deleting || new.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = new.iter().map(|name| format!("\"{name}\"")).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{{}}}",
        names.join(", ")
    );
    vec![FieldError::forbidden("metadata.finalizers", detail)]
}

pub(super) const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

pub(crate) const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with a qualified name such as `example.com/name`, if anything.
pub(crate) fn key_fault(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(fault) = prefix.and_then(|prefix| DNS_SUBDOMAIN.fault(prefix)) {
        return Some(format!("prefix part {fault}"));
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 characters".to_owned());
    }
    (!word_is_good(name)).then(|| QUALIFIED_NAME.to_owned())
}

pub(super) fn label_value_is_good(value: &str) -> bool {
    value.is_empty() || value.len() <= 63 && word_is_good(value)
}

fn word_is_good(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_judged_as_the_original_does() {
        for good in [
            "a",
            "A.b_c-d",
            "example.com/x",
            "kubernetes.io/pvc-protection",
        ] {
            assert_eq!(key_fault(good), None, "{good}");
        }
        for bad in ["", "/x", "x/", "a b", "-a", "EXAMPLE.com/x", "a/b/c"] {
            assert!(key_fault(bad).is_some(), "{bad:?}");
        }
        assert!(label_value_is_good(""));
        assert!(!label_value_is_good("a/b"));
    }

    #[test]
    fn an_object_on_its_way_out_takes_no_new_finalizers() {
        let before = json!({ "metadata": { "deletionTimestamp": "x", "finalizers": ["a.b/c"] } });
        let mut after = before.clone();
        assert_eq!(validate_change(&before, &after), []);
        after["metadata"]["finalizers"] = json!(["a.b/c", "d.e/f"]);
        let text = validate_change(&before, &after)[0].to_string();
        assert!(
            text.ends_with("found new finalizers []string{\"d.e/f\"}"),
            "{text}"
        );
    }
}
