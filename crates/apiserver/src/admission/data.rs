//! Rules for the data of ConfigMaps and Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::refusal::{Fault, FieldError};
use crate::registry::text;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
    (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
    '[-._a-zA-Z0-9]+')";

/// The most bytes of all values together.
const MOST: usize = 1 << 20;

pub(super) fn validate_map(map: &Value) -> Vec<FieldError> {
    let mut errors = key_errors(map, "data");
    let both = map["data"].as_object().into_iter().flatten();
    for (key, _) in both.filter(|(key, _)| map["binaryData"].get(key).is_some()) {
        let detail = "duplicate of key present in binaryData";
        errors.push(FieldError::invalid(
            format!("data[{key}]"),
            &json!(key),
            detail,
        ));
    }
    errors.extend(key_errors(map, "binaryData"));
    let texts = map["data"].as_object().into_iter().flatten();
    let texts: usize = texts
        .map(|(_, value)| value.as_str().map_or(0, str::len))
        .sum();
    if texts + decoded(&map["binaryData"]) > MOST {
        errors.push(FieldError::new("", Fault::TooLong(MOST)));
    }
    errors
}

/// A secret of a known type has what is looked for in it. Values are never repeated.
pub(super) fn validate_secret(secret: &Value) -> Vec<FieldError> {
    let mut errors = key_errors(secret, "data");
    if decoded(&secret["data"]) > MOST {
        errors.push(FieldError::new("data", Fault::TooLong(MOST)));
    }
    let has = |key: &str| secret["data"].get(key).is_some();
    let missing = |key: &str| FieldError::required(format!("data[{key}]"), "");
    match text(secret, "/type") {
        "kubernetes.io/service-account-token" => {
            let account = "kubernetes.io/service-account.name";
            if secret["metadata"]["annotations"][account]
                .as_str()
                .unwrap_or("")
                .is_empty()
            {
                let field = format!("metadata.annotations[{account}]");
                errors.push(FieldError::required(field, ""));
            }
        }
        "kubernetes.io/tls" => {
            let keys = ["tls.crt", "tls.key"].into_iter();
            errors.extend(keys.filter(|key| !has(key)).map(missing));
        }
        "kubernetes.io/basic-auth" => {
            let keys = ["username", "password"];
            if !keys.iter().any(|key| has(key)) {
                errors.extend(keys.map(missing));
            }
        }
        "kubernetes.io/ssh-auth" if text(&secret["data"], "/ssh-privatekey").is_empty() => {
            errors.push(missing("ssh-privatekey"));
        }
        "kubernetes.io/dockercfg" => errors.extend(login_error(secret, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => {
            errors.extend(login_error(secret, ".dockerconfigjson"));
        }
        _ => {}
    }
    errors
}

/// What a registry is logged in to with is JSON.
fn login_error(secret: &Value, key: &str) -> Option<FieldError> {
    let field = format!("data[{key}]");
    let Some(text) = secret["data"].get(key).and_then(Value::as_str) else {
        return Some(FieldError::required(field, ""));
    };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    let read = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes);
    let shown = json!("<secret contents redacted>");
    read.is_err()
        .then(|| FieldError::invalid(field, &shown, "must be the JSON of an object"))
}

/// How many bytes are encoded in the values.
fn decoded(data: &Value) -> usize {
    let values = data.as_object().into_iter().flatten();
    let size = |text: &str| {
        let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
        (text.len() / 4 * 3).saturating_sub(padding)
    };
    values
        .map(|(_, value)| value.as_str().map_or(0, size))
        .sum()
}

/// The keys of data become the names of files.
fn key_errors(object: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, _) in object[field].as_object().into_iter().flatten() {
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let fault = if key.is_empty() || !key.chars().all(letter) {
            KEY
        } else if key == "." {
            "must not be '.'"
        } else if key.starts_with("..") {
            "must not start with '..'"
        } else if key.len() > 253 {
            "must be no more than 253 characters"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(
            format!("{field}[{key}]"),
            &json!(key),
            fault,
        ));
    }
    errors
}

/// A ConfigMap or Secret marked immutable stays as it is.
pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    if before["immutable"] != true {
        return Vec::new();
    }
    let detail = "field is immutable when `immutable` is set";
    ["immutable", "data", "binaryData", "stringData"]
        .into_iter()
        .filter(|field| before[field] != after[field])
        .map(|field| FieldError::forbidden(field, detail))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_is_kept_and_no_more() {
        let half = "x".repeat(MOST / 2);
        let encoded = STANDARD.encode(&half);
        let fits = json!({ "data": { "a": half }, "binaryData": { "b": encoded } });
        assert_eq!(validate_map(&fits), []);
        let over = json!({ "data": { "a": half, "c": "x" }, "binaryData": { "b": encoded } });
        assert_eq!(validate_map(&over)[0].fault, Fault::TooLong(MOST));
        let fits = json!({ "data": { "a": encoded, "b": encoded } });
        assert_eq!(validate_secret(&fits), []);
        let over = json!({ "data": { "a": encoded, "b": encoded, "c": "eA==" } });
        assert_eq!(validate_secret(&over)[0].fault, Fault::TooLong(MOST));
    }

    #[test]
    fn a_login_that_is_no_json_is_told_without_it() {
        let secret = json!({
            "type": "kubernetes.io/dockerconfigjson",
            "data": { ".dockerconfigjson": STANDARD.encode("hunter2") },
        });
        let errors = validate_secret(&secret);
        assert_eq!(errors.len(), 1);
        assert!(!errors[0].to_string().contains("hunter2"));
    }
}
