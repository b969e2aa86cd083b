//! Rules for quotas themselves.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::metadata::key_fault;
use super::selectors::items;
use crate::amount::Amount;
use crate::refusal::FieldError;
use crate::registry::text;

/// What is counted without a domain.
const STANDARD: [&str; 19] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// What comes in whole ones only.
const WHOLE: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// What pods of a scope are counted for.
const OF_PODS: [&str; 7] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.memory",
];
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

pub(super) fn validate(quota: &Value) -> Vec<FieldError> {
    let spec = &quota["spec"];
    let mut errors = amount_errors("spec.hard", &spec["hard"]);
    errors.extend(scope_errors(spec));
    errors.extend(selector_errors(spec));
    errors
}

pub(super) fn validate_status(quota: &Value) -> Vec<FieldError> {
    let status = &quota["status"];
    let mut errors = amount_errors("status.hard", &status["hard"]);
    errors.extend(amount_errors("status.used", &status["used"]));
    errors
}

pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let scopes = |quota: &Value| -> BTreeSet<String> {
        let all = items(&quota["spec"], "scopes");
        all.filter_map(|(_, scope)| scope.as_str().map(str::to_owned))
            .collect()
    };
    if scopes(before) == scopes(after) {
        return Vec::new();
    }
    let scopes = &after["spec"]["scopes"];
    vec![FieldError::invalid(
        "spec.scopes",
        scopes,
        "field is immutable",
    )]
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

fn amount_errors(path: &str, amounts: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, value) in amounts.as_object().into_iter().flatten() {
        let field = format!("{path}[{name}]");
        let shown = json!(name);
        if let Some(fault) = key_fault(name) {
            errors.push(FieldError::invalid(&field, &shown, fault));
        }
        if !name.contains('/') && !is_standard(name) {
            if key_fault(name).is_none() {
                let detail = "must be a standard resource type or fully qualified";
                errors.push(FieldError::invalid(&field, &shown, detail));
            }
            let detail = "must be a standard resource for quota";
            errors.push(FieldError::invalid(&field, &shown, detail));
        }
        let Some(amount) = Amount::of(value) else {
            continue;
        };
        let shown = json!(amount.to_string());
        if amount.is_negative() {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&field, &shown, detail));
        }
        if is_whole(name) && !amount.is_whole() {
            errors.push(FieldError::invalid(&field, &shown, "must be an integer"));
        }
    }
    errors
}

/// Objects, and what pods ask for by names of somebody's own.
fn is_whole(name: &str) -> bool {
    let own = name.contains('/') && !name.contains("kubernetes.io/");
    WHOLE.contains(&name) || own && !name.starts_with("requests.")
}

/// Whether there is such a scope, and whether it says something of a resource.
fn fits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => OF_CLAIMS.contains(&resource),
        scope if is_scope(scope) => OF_PODS.contains(&resource),
        _ => true,
    }
}

fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "VolumeAttributesClass"
            | "CrossNamespacePodAffinity"
    )
}

fn misfits(spec: &Value, scope: &str) -> usize {
    let hard = spec["hard"].as_object().into_iter().flatten();
    hard.filter(|(name, _)| is_standard(name) && !fits(scope, name))
        .count()
}

fn contradict(scopes: &[&str]) -> usize {
    let pairs = [
        ["BestEffort", "NotBestEffort"],
        ["Terminating", "NotTerminating"],
    ];
    let both = |pair: &&[&str; 2]| pair.iter().all(|one| scopes.contains(one));
    pairs.iter().filter(both).count()
}

fn scope_errors(spec: &Value) -> Vec<FieldError> {
    let (field, all) = ("spec.scopes", &spec["scopes"]);
    let mut errors = Vec::new();
    let mut wrong = |detail: &str| errors.push(FieldError::invalid(field, all, detail));
    let mut scopes = Vec::new();
    for (_, scope) in items(spec, "scopes") {
        let scope = scope.as_str().unwrap_or_default();
        if !is_scope(scope) {
            wrong("unsupported scope");
        }
        for _ in 0..misfits(spec, scope) {
            wrong("unsupported scope applied to resource");
        }
        scopes.push(scope);
    }
    for _ in 0..contradict(&scopes) {
        wrong("conflicting scopes");
    }
    errors
}

fn selector_errors(spec: &Value) -> Vec<FieldError> {
    let path = "spec.scopeSelector.matchExpressions";
    let field = |name: &str| format!("{path}.{name}");
    let mut errors = Vec::new();
    let mut scopes = Vec::new();
    for (_, one) in items(&spec["scopeSelector"], "matchExpressions") {
        let (scope, operator) = (text(one, "/scopeName"), text(one, "/operator"));
        if !is_scope(scope) {
            let detail = "unsupported scope";
            errors.push(FieldError::invalid(
                field("scopeName"),
                &json!(scope),
                detail,
            ));
        }
        for _ in 0..misfits(spec, scope) {
            let detail = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(path, &spec["scopeSelector"], detail));
        }
        let named = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if is_scope(scope) && !named && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(
                field("operator"),
                &json!(operator),
                detail,
            ));
        }
        let values = one["values"].as_array().map_or(0, Vec::len);
        match operator {
            "In" | "NotIn" if values == 0 => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for \
                    scope selector";
                errors.push(FieldError::required(field("values"), detail));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for \
                    scope selector";
                errors.push(FieldError::invalid(field("values"), &one["values"], detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(
                    field("operator"),
                    &json!(other),
                    detail,
                ));
            }
        }
        scopes.push(scope);
    }
    for _ in 0..contradict(&scopes) {
        errors.push(FieldError::invalid(
            path,
            &spec["scopes"],
            "conflicting scopes",
        ));
    }
    errors
}
