//! Rules for selectors: of labels, of nodes, and of topologies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::metadata::{LABEL_VALUE, key_fault, label_value_is_good};
use crate::refusal::{Fault, FieldError};
use crate::registry::{DNS_SUBDOMAIN, text};

const NO_OPERATOR: &str = "not a valid selector operator";

/// The items of a list with their places; nothing for what is no list.
pub(super) fn items<'v>(object: &'v Value, list: &str) -> impl Iterator<Item = (usize, &'v Value)> {
    object[list].as_array().into_iter().flatten().enumerate()
}

/// What is wrong with a selector of labels.
pub(super) fn label_selector_errors(field: &str, selector: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = format!("{field}.matchLabels");
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        errors.extend(key_fault(key).map(|fault| FieldError::invalid(&at, &json!(key), fault)));
        errors.extend(label_value_error(&at, value));
    }
    for (at, requirement) in items(selector, "matchExpressions") {
        let field = format!("{field}.matchExpressions[{at}]");
        errors.extend(requirement_errors(&field, requirement, false));
    }
    errors
}

/// What is wrong with a selector of nodes.
pub(super) fn node_selector_errors(field: &str, selector: &Value) -> Vec<FieldError> {
    let field = format!("{field}.nodeSelectorTerms");
    if items(selector, "nodeSelectorTerms").next().is_none() {
        let detail = "must have at least one node selector term";
        return vec![FieldError::required(field, detail)];
    }
    let mut errors = Vec::new();
    for (at, term) in items(selector, "nodeSelectorTerms") {
        for (nth, requirement) in items(term, "matchExpressions") {
            let field = format!("{field}[{at}].matchExpressions[{nth}]");
            errors.extend(requirement_errors(&field, requirement, true));
        }
        for (nth, requirement) in items(term, "matchFields") {
            let field = format!("{field}[{at}].matchFields[{nth}]");
            errors.extend(field_requirement_errors(&field, requirement));
        }
    }
    errors
}

/// Nodes' labels are compared as numbers, too.
fn requirement_errors(field: &str, requirement: &Value, numbers: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let count = items(requirement, "values").count();
    let values = format!("{field}.values");
    match text(requirement, "/operator") {
        "In" | "NotIn" if count == 0 => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&values, detail));
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&values, detail));
        }
        "Gt" | "Lt" if numbers && count != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(&values, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if numbers => {}
        other => errors.push(unknown_operator(field, other)),
    }
    errors.extend(label_key_error(field, requirement));
    for (at, value) in items(requirement, "values") {
        errors.extend(label_value_error(&format!("{values}[{at}]"), value));
    }
    errors
}

/// Of a node's fields, only its name is selected by.
fn field_requirement_errors(field: &str, requirement: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text(requirement, "/operator") {
        "In" | "NotIn" => {
            if items(requirement, "values").count() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node \
                    field selector";
                errors.push(FieldError::required(format!("{field}.values"), detail));
            }
        }
        other => errors.push(unknown_operator(field, other)),
    }
    let key = text(requirement, "/key");
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        let field = format!("{field}.key");
        errors.push(FieldError::invalid(field, &json!(key), detail));
        return errors;
    }
    for (at, value) in items(requirement, "values") {
        if let Some(fault) = DNS_SUBDOMAIN.fault(value.as_str().unwrap_or_default()) {
            let field = format!("{field}.values[{at}]");
            errors.push(FieldError::invalid(field, value, fault));
        }
    }
    errors
}

/// What is wrong with a class's topologies.
pub(super) fn topology_errors(object: &Value, list: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut terms = BTreeSet::new();
    for (at, term) in items(object, list) {
        let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let field = format!("{list}[{at}].matchLabelExpressions");
        for (nth, requirement) in items(term, "matchLabelExpressions") {
            let field = format!("{field}[{nth}]");
            let mut seen = BTreeSet::new();
            if items(requirement, "values").next().is_none() {
                errors.push(FieldError::required(format!("{field}.values"), ""));
            }
            for (place, value) in items(requirement, "values") {
                if !seen.insert(value.as_str().unwrap_or_default()) {
                    let field = format!("{field}.values[{place}]");
                    errors.push(FieldError::new(&field, Fault::Duplicate(value.clone())));
                }
            }
            errors.extend(label_key_error(&field, requirement));
            let key = text(requirement, "/key");
            if keys.insert(key, seen).is_some() {
                let fault = Fault::Duplicate(json!(key));
                errors.push(FieldError::new(&format!("{field}.key"), fault));
            }
        }
        if !terms.insert(keys) {
            errors.push(FieldError::new(&field, Fault::Duplicate(json!(""))));
        }
    }
    errors
}

fn unknown_operator(field: &str, operator: &str) -> FieldError {
    FieldError::invalid(format!("{field}.operator"), &json!(operator), NO_OPERATOR)
}

fn label_key_error(field: &str, requirement: &Value) -> Option<FieldError> {
    let key = text(requirement, "/key");
    let field = format!("{field}.key");
    key_fault(key).map(|fault| FieldError::invalid(field, &json!(key), fault))
}

fn label_value_error(field: &str, value: &Value) -> Option<FieldError> {
    let good = value.as_str().is_some_and(label_value_is_good);
    (!good).then(|| FieldError::invalid(field, value, LABEL_VALUE))
}
