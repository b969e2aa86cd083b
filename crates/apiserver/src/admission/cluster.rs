//! Rules for the kinds around storage: nodes, services and leases.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::metadata::{LABEL_VALUE, key_fault, label_value_is_good};
use super::selectors::items;
use crate::refusal::{Fault, FieldError};
use crate::registry::{DNS_LABEL, text};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// A node's taints have a key and an effect, each pair once. The original looks for them in the
/// metadata when it tells of them.
pub(super) fn validate_node(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, taint) in items(&node["spec"], "taints") {
        let path = format!("metadata.taints[{at}]");
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if let Some(fault) = key_fault(key) {
            errors.push(FieldError::invalid(
                format!("{path}.key"),
                &json!(key),
                fault,
            ));
        }
        if !label_value_is_good(text(taint, "/value")) {
            let field = format!("{path}.value");
            errors.push(FieldError::invalid(field, &taint["value"], LABEL_VALUE));
        }
        let field = format!("{path}.effect");
        if effect.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(field, &taint["effect"], EFFECTS));
        }
        if !seen.insert((key, effect)) {
            let mut twice = FieldError::new(&path, Fault::Duplicate(taint.clone()));
            "taints must be unique by key and effect pair".clone_into(&mut twice.detail);
            errors.push(twice);
        }
    }
    errors
}

/// A service has ports unless it is only a name; several are told apart by theirs.
pub(super) fn validate_service(service: &Value) -> Vec<FieldError> {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    let is_name = text(spec, "/type") == "ExternalName" || text(spec, "/clusterIP") == "None";
    let mut errors = Vec::new();
    if ports == 0 && !is_name {
        errors.push(FieldError::required("spec.ports", ""));
    }
    let mut names = BTreeSet::new();
    for (at, port) in items(spec, "ports") {
        let path = format!("spec.ports[{at}]");
        let name = text(port, "/name");
        let field = format!("{path}.name");
        if name.is_empty() && ports > 1 {
            errors.push(FieldError::required(&field, ""));
        } else if let Some(fault) = DNS_LABEL.fault(name).filter(|_| !name.is_empty()) {
            errors.push(FieldError::invalid(&field, &port["name"], fault));
        } else if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::new(&field, Fault::Duplicate(json!(name))));
        }
        for which in ["port", "targetPort"] {
            let number = &port[which];
            if number
                .as_i64()
                .is_some_and(|number| !(1..=65535).contains(&number))
            {
                let detail = "must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(
                    format!("{path}.{which}"),
                    number,
                    detail,
                ));
            }
        }
        let protocol = text(port, "/protocol");
        if !PROTOCOLS.contains(&protocol) {
            let field = format!("{path}.protocol");
            errors.push(FieldError::not_supported(
                field,
                &json!(protocol),
                PROTOCOLS,
            ));
        }
    }
    errors
}

pub(super) fn validate_lease(lease: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &lease["spec"];
    let seconds = &spec["leaseDurationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        let field = "spec.leaseDurationSeconds";
        errors.push(FieldError::invalid(
            field,
            seconds,
            "must be greater than 0",
        ));
    }
    let changes = &spec["leaseTransitions"];
    if changes.as_i64().is_some_and(|changes| changes < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            changes,
            detail,
        ));
    }
    errors
}
