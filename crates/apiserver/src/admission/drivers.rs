//! Rules for CSI drivers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::selectors::items;
use crate::refusal::{Fault, FieldError};
use crate::registry::{DNS_SUBDOMAIN, text};

const LIFECYCLE: &[&str] = &["Persistent", "Ephemeral"];
const FS_GROUP: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
/// A node isn't asked for its limit more often than this, in seconds.
const SHORTEST_PERIOD: i64 = 10;
/// A token lives this long at least, in seconds.
const SHORTEST_TOKEN: i64 = 10 * 60;
const LONGEST_NAME: usize = 63;

pub(super) fn validate(driver: &Value) -> Vec<FieldError> {
    let spec = &driver["spec"];
    let mut errors = Vec::new();
    if let Some(policy) = spec.get("fsGroupPolicy")
        && !one_of(policy, FS_GROUP)
    {
        let field = "spec.fsGroupPolicy";
        errors.push(FieldError::not_supported(field, policy, FS_GROUP));
    }
    errors.extend(token_errors(spec));
    for (_, mode) in items(spec, "volumeLifecycleModes") {
        if !one_of(mode, LIFECYCLE) {
            let field = "spec.volumeLifecycleModes";
            errors.push(FieldError::not_supported(field, mode, LIFECYCLE));
        }
    }
    let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
    if period.as_i64().is_some_and(|it| it < SHORTEST_PERIOD) {
        let field = "spec.nodeAllocatableUpdatePeriodSeconds";
        let detail = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid(field, period, detail));
    }
    errors
}

fn token_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut audiences = BTreeSet::new();
    for (at, request) in items(spec, "tokenRequests") {
        let audience = text(request, "/audience");
        if !audiences.insert(audience) {
            let field = format!("spec.tokenRequests[{at}].audience");
            errors.push(FieldError::new(&field, Fault::Duplicate(json!(audience))));
            continue;
        }
        let seconds = &request["expirationSeconds"];
        let detail = match seconds.as_i64() {
            Some(short) if short < SHORTEST_TOKEN => {
                "may not specify a duration less than 10 minutes"
            }
            Some(long) if long > 1 << 32 => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        let field = format!("spec.tokenRequests[{at}].expirationSeconds");
        errors.push(FieldError::invalid(field, seconds, detail));
    }
    errors
}

/// Volumes that are in use were published by these.
pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    // The first is called so by the original.
    [
        ("attachRequired", "spec.attachedRequired"),
        ("volumeLifecycleModes", "spec.volumeLifecycleModes"),
    ]
    .into_iter()
    .filter(|(name, _)| before["spec"][name] != after["spec"][name])
    .map(|(name, field)| FieldError::invalid(field, &after["spec"][name], "field is immutable"))
    .collect()
}

/// What is wrong with a driver's name; it is compared without regard to case.
pub(super) fn name_errors(field: &str, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(field, "")];
    }
    let mut errors = Vec::new();
    if name.len() > LONGEST_NAME {
        errors.push(FieldError::new(field, Fault::TooLong(LONGEST_NAME)));
    }
    let fault = DNS_SUBDOMAIN.fault(&name.to_lowercase());
    errors.extend(fault.map(|fault| FieldError::invalid(field, &json!(name), fault)));
    errors
}

fn one_of(value: &Value, known: &[&str]) -> bool {
    value.as_str().is_some_and(|value| known.contains(&value))
}
