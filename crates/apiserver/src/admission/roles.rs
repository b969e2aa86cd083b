//! Rules for roles and bindings.

use serde_json::{Value, json};

use super::selectors::{items, label_selector_errors};
use crate::refusal::FieldError;
use crate::registry::text;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The group of a binding's role and subjects, where it is left out.
pub(super) fn set_groups(binding: &mut Value) {
    if let Some(role) = binding["roleRef"].as_object_mut() {
        role.entry("apiGroup").or_insert_with(|| GROUP.into());
    }
    let subjects = binding["subjects"].as_array_mut().into_iter().flatten();
    for subject in subjects.filter_map(Value::as_object_mut) {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            subject.entry("apiGroup").or_insert_with(|| GROUP.into());
        }
    }
}

/// A rule says what may be done, to resources or to paths but not to both.
pub(super) fn validate_rules(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(rule) = role.get("aggregationRule").filter(|_| !namespaced) {
        let field = "aggregationRule.clusterRoleSelectors";
        if items(rule, "clusterRoleSelectors").next().is_none() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(FieldError::required(field, detail));
        }
        for (at, selector) in items(rule, "clusterRoleSelectors") {
            let field = format!("{field}[{at}]");
            let wrong = label_selector_errors(&field, selector);
            let is_wrong = !wrong.is_empty();
            errors.extend(wrong);
            if is_wrong {
                let detail = "invalid label selector.";
                errors.push(FieldError::invalid(field, &Value::Null, detail));
            }
        }
    }
    for (at, rule) in role["rules"].as_array().into_iter().flatten().enumerate() {
        let has = |field: &str| rule[field].as_array().is_some_and(|list| !list.is_empty());
        let path = |field: &str| format!("rules[{at}].{field}");
        if !has("verbs") {
            errors.push(FieldError::required(path("verbs"), ""));
        }
        if has("nonResourceURLs") {
            let urls = &rule["nonResourceURLs"];
            let mut wrong =
                |detail| errors.push(FieldError::invalid(path("nonResourceURLs"), urls, detail));
            if namespaced {
                wrong("namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|field| has(field))
            {
                wrong("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        if !has("apiGroups") {
            let detail = "resource rules must supply at least one api group";
            errors.push(FieldError::required(path("apiGroups"), detail));
        }
        if !has("resources") {
            let detail = "resource rules must supply at least one resource";
            errors.push(FieldError::required(path("resources"), detail));
        }
    }
    errors
}

/// A binding names a role and who holds it.
pub(super) fn validate_binding(binding: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &binding["roleRef"];
    if text(role, "/apiGroup") != GROUP {
        let supported = &[GROUP];
        let group = &role["apiGroup"];
        errors.push(FieldError::not_supported(
            "roleRef.apiGroup",
            group,
            supported,
        ));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text(role, "/kind")) {
        errors.push(FieldError::not_supported(
            "roleRef.kind",
            &role["kind"],
            kinds,
        ));
    }
    if text(role, "/name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (at, subject) in binding["subjects"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = |field: &str| format!("subjects[{at}].{field}");
        if text(subject, "/name").is_empty() {
            errors.push(FieldError::required(path("name"), ""));
        }
        let (kind, group) = (text(subject, "/kind"), text(subject, "/apiGroup"));
        let supported: &[&str] = match kind {
            "User" | "Group" => &[GROUP],
            "ServiceAccount" => &[""],
            _ => {
                let kinds = &["ServiceAccount", "User", "Group"];
                errors.push(FieldError::not_supported(
                    path("kind"),
                    &subject["kind"],
                    kinds,
                ));
                continue;
            }
        };
        if !supported.contains(&group) {
            let group = json!(group);
            errors.push(FieldError::not_supported(
                path("apiGroup"),
                &group,
                supported,
            ));
        }
        if kind == "ServiceAccount" && !namespaced && text(subject, "/namespace").is_empty() {
            errors.push(FieldError::required(path("namespace"), ""));
        }
    }
    errors
}

/// To change the role would change who may do what without saying so: delete and create.
pub(super) fn validate_binding_change(before: &Value, after: &Value) -> Vec<FieldError> {
    if before["roleRef"] == after["roleRef"] {
        return Vec::new();
    }
    let role = &after["roleRef"];
    let shown = json!({
        "APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"],
    });
    vec![FieldError::invalid("roleRef", &shown, "field is immutable")]
}
