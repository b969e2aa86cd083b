//! The rules of definitions themselves: what one may say, and what becomes of it.

use serde_json::{Value, json};

use super::RESOURCE;
use super::columns::Path;
use super::rules::Rule;
use super::scale::ScalePaths;
use super::structural::Type;
use crate::kinds::KindInfo;
use crate::refusal::FieldError;
use crate::registry::{DNS_LABEL, DNS_SUBDOMAIN, section, text};
use crate::store::State;

/// Holds a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const APPROVED: &str = "api-approved.kubernetes.io";

/// Whether objects of this kind define kinds.
pub(crate) fn is_definition(kind: &KindInfo) -> bool {
    (kind.group, kind.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// Whether a condition holds.
pub(super) fn is_true(definition: &Value, condition: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == condition && one["status"] == "True")
}

/// The version that objects are stored in.
pub(super) fn storage_version(spec: &Value) -> &str {
    let versions = spec["versions"].as_array();
    let mut versions = versions.into_iter().flatten();
    let version = versions.find(|version| version["storage"] == true);
    version.map_or("", |version| text(version, "/name"))
}

/// Fills in what was left out.
pub(crate) fn defaults(object: &mut Value) {
    let kind = text(object, "/spec/names/kind").to_owned();
    let spec = section(object, "spec");
    spec.entry("conversion")
        .or_insert_with(|| json!({ "strategy": "None" }));
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        names
            .entry("singular")
            .or_insert_with(|| kind.to_lowercase().into());
        names
            .entry("listKind")
            .or_insert_with(|| format!("{kind}List").into());
    }
}

/// Says in the status what the server makes of a definition.
pub(crate) fn settle(state: &State, before: Option<&Value>, object: &mut Value, now: &str) {
    let taken = taken_name(state, object);
    let established = before.is_some_and(|before| is_true(before, "Established"));
    let accepted = taken.is_none();
    let (reason, message) = match &taken {
        None => ("NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => (*reason, message.clone()),
    };
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        let old = before.and_then(|before| before["status"]["conditions"].as_array());
        let mut old = old.into_iter().flatten();
        let same = old.find(|one| one["type"] == kind && one["status"] == status);
        let since = same.map_or(now, |one| text(one, "/lastTransitionTime"));
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since,
        })
    };
    let mut conditions = vec![condition("NamesAccepted", accepted, reason, &message)];
    conditions.push(if established || accepted {
        let message = "the initial names have been accepted";
        condition("Established", true, "InitialNamesAccepted", message)
    } else {
        condition(
            "Established",
            false,
            "NotAccepted",
            "not all names are accepted",
        )
    });
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        let message = "CustomResource deletion is in progress";
        conditions.push(condition(
            "Terminating",
            true,
            "InstanceDeletionInProgress",
            message,
        ));
    }
    let old = before.map_or(&Value::Null, |before| &before["status"]);
    let mut stored = old["storedVersions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let storage = Value::from(storage_version(&object["spec"]));
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    let names = if accepted {
        object["spec"]["names"].clone()
    } else {
        old["acceptedNames"].clone()
    };
    object["status"] = json!({ "conditions": conditions, "storedVersions": stored });
    if names.is_object() {
        object["status"]["acceptedNames"] = names;
    }
}

/// Says in the status that a definition, and all that it defines, is to go.
pub(crate) fn terminate(object: &mut Value, now: &str) {
    let conditions = section(object, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|one| one["type"] != "Terminating");
        conditions.push(json!({
            "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will \
                        begin soon",
            "lastTransitionTime": now,
        }));
    }
}

/// A name that another definition of the group has already.
fn taken_name(state: &State, object: &Value) -> Option<(&'static str, String)> {
    let resources = |object: &Value| -> Vec<(&'static str, String)> {
        let names = &object["spec"]["names"];
        let short = names["shortNames"].as_array().into_iter().flatten();
        let short = short.map(|name| ("ShortNamesConflict", name));
        [
            ("PluralConflict", &names["plural"]),
            ("SingularConflict", &names["singular"]),
        ]
        .into_iter()
        .chain(short)
        .filter_map(|(reason, name)| Some((reason, name.as_str()?.to_owned())))
        .collect()
    };
    let kinds = |object: &Value| -> Vec<(&'static str, String)> {
        let names = &object["spec"]["names"];
        [
            ("KindConflict", &names["kind"]),
            ("ListKindConflict", &names["listKind"]),
        ]
        .into_iter()
        .filter_map(|(reason, name)| Some((reason, name.as_str()?.to_owned())))
        .collect()
    };
    let mine = [resources(object), kinds(object)];
    let mut told = None;
    for (_, name, stored) in state.list(RESOURCE, None) {
        let other = stored.value();
        let same_group = other["spec"]["group"] == object["spec"]["group"];
        if **name == *text(object, "/metadata/name") || !same_group {
            continue;
        }
        let theirs = [resources(&other), kinds(&other)];
        for (mine, theirs) in mine.iter().zip(&theirs) {
            let taken = |(_, name): &&(&str, String)| theirs.iter().any(|(_, other)| other == name);
            // Of several, the original tells the last.
            if let Some((reason, name)) = mine.iter().rfind(taken) {
                told = Some((*reason, format!("\"{name}\" is already in use")));
            }
        }
    }
    told
}

/// What is wrong with a definition.
pub(crate) fn validate_definition(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    if object["metadata"]["name"] != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(
            "metadata.name",
            &object["metadata"]["name"],
            detail,
        ));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(fault) = DNS_SUBDOMAIN.fault(group) {
        errors.push(FieldError::invalid("spec.group", &spec["group"], fault));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &spec["group"], detail));
    }
    let protected = ["k8s.io", "kubernetes.io"];
    let protected = protected
        .iter()
        .any(|end| group.ends_with(&format!(".{end}")) || group == *end);
    if protected && object["metadata"]["annotations"][APPROVED].is_null() {
        errors.push(FieldError::required(
            format!("metadata.annotations[{APPROVED}]"),
            format!(
                "protected groups must have approval annotation \"{APPROVED}\", see \
                 https://github.com/kubernetes/enhancements/pull/1111"
            ),
        ));
    }
    if !matches!(text(spec, "/scope"), "Cluster" | "Namespaced") {
        let scopes = &["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(
            "spec.scope",
            &spec["scope"],
            scopes,
        ));
    }
    for name in ["plural", "singular", "kind", "listKind"] {
        let (field, value) = (format!("spec.names.{name}"), &spec["names"][name]);
        match value.as_str().unwrap_or("") {
            "" => errors.push(FieldError::required(field, "")),
            given => {
                if let Some(fault) = DNS_LABEL.fault(&given.to_lowercase()) {
                    errors.push(FieldError::invalid(field, value, fault));
                }
            }
        }
    }
    if text(spec, "/conversion/strategy") != "None" {
        let strategy = &spec["conversion"]["strategy"];
        let field = "spec.conversion.strategy";
        errors.push(FieldError::not_supported(field, strategy, &["None"]));
    }
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        let field = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid(field, &true.into(), detail));
    }
    validate_versions(spec, &mut errors);
    errors
}

fn validate_versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let storage = versions.iter().filter(|version| version["storage"] == true);
    if storage.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            detail,
        ));
    }
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}]");
        if let Some(fault) = DNS_LABEL.fault(text(version, "/name")) {
            let field = format!("{path}.name");
            errors.push(FieldError::invalid(field, &version["name"], fault));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let field = format!("{path}.schema.openAPIV3Schema");
        if schema.is_object() {
            if schema["type"] != "object" {
                let detail = "must be object at the root";
                let field = format!("{field}.type");
                errors.push(FieldError::invalid(field, &schema["type"], detail));
            }
            validate_schema(schema, &field, false, errors);
        } else {
            errors.push(FieldError::required(field, ""));
        }
        errors.extend(ScalePaths::errors(
            &version["subresources"]["scale"],
            &format!("{path}.subresources.scale"),
        ));
        let columns = version["additionalPrinterColumns"].as_array();
        for (at, column) in columns.into_iter().flatten().enumerate() {
            if Path::parse(text(column, "/jsonPath")).is_none() {
                let field = format!("{path}.additionalPrinterColumns[{at}].jsonPath");
                errors.push(FieldError::invalid(
                    field,
                    &column["jsonPath"],
                    "is not understood; use fields, indexes and [?(@.field==\"value\")]",
                ));
            }
        }
    }
}

/// What is wrong with a schema; inside of a junction it only restricts, and needs no type.
fn validate_schema(schema: &Value, path: &str, restricts: bool, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let kind = &schema["type"];
    match kind.as_str() {
        None if restricts
            || flag("x-kubernetes-int-or-string")
            || flag("x-kubernetes-preserve-unknown-fields") => {}
        None => {
            let detail = "must not be empty for specified object fields";
            errors.push(FieldError::required(format!("{path}.type"), detail));
        }
        Some(name) if Type::parse(name).is_none() => {
            let types = &["array", "boolean", "integer", "number", "object", "string"];
            errors.push(FieldError::not_supported(
                format!("{path}.type"),
                kind,
                types,
            ));
        }
        Some(_) => {}
    }
    if kind == "array" && !schema["items"].is_object() {
        errors.push(FieldError::required(
            format!("{path}.items"),
            "must be specified",
        ));
    }
    for unknown in [
        "$ref",
        "definitions",
        "dependencies",
        "patternProperties",
        "additionalItems",
    ] {
        if !schema[unknown].is_null() {
            let field = format!("{path}.{unknown}");
            errors.push(FieldError::forbidden(
                field,
                format!("{unknown} is not supported"),
            ));
        }
    }
    if schema["x-kubernetes-list-type"] == "map"
        && schema["x-kubernetes-list-map-keys"]
            .as_array()
            .is_none_or(Vec::is_empty)
    {
        let field = format!("{path}.x-kubernetes-list-map-keys");
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(field, detail));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = regex::Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            &schema["pattern"],
            detail,
        ));
    }
    let rules = schema["x-kubernetes-validations"].as_array();
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        if let Err(why) = Rule::parse(rule) {
            let field = format!("{path}.x-kubernetes-validations[{at}].rule");
            let detail = format!("compilation failed: ERROR: {why}");
            errors.push(FieldError::invalid(field, &rule["rule"], detail));
        }
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, inner) in properties {
        validate_schema(
            inner,
            &format!("{path}.properties[{name}]"),
            restricts,
            errors,
        );
    }
    for name in ["items", "additionalProperties"] {
        if schema[name].is_object() {
            validate_schema(&schema[name], &format!("{path}.{name}"), restricts, errors);
        }
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let all = schema[name].as_array().into_iter().flatten();
        for (at, inner) in all.enumerate() {
            validate_schema(inner, &format!("{path}.{name}[{at}]"), true, errors);
        }
    }
    if schema["not"].is_object() {
        validate_schema(&schema["not"], &format!("{path}.not"), true, errors);
    }
}

/// What is wrong with how a definition changed.
pub(crate) fn validate_definition_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["group", "scope"] {
        let (old, new) = (&before["spec"][field], &after["spec"][field]);
        if old != new {
            let detail = "field is immutable";
            errors.push(FieldError::invalid(format!("spec.{field}"), new, detail));
        }
    }
    for field in ["kind", "plural"] {
        let (old, new) = (
            &before["spec"]["names"][field],
            &after["spec"]["names"][field],
        );
        if old != new {
            let detail = "field is immutable";
            errors.push(FieldError::invalid(
                format!("spec.names.{field}"),
                new,
                detail,
            ));
        }
    }
    let versions = after["spec"]["versions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let stored = before["status"]["storedVersions"].as_array();
    for (at, stored) in stored.into_iter().flatten().enumerate() {
        if !versions.iter().any(|version| version["name"] == *stored) {
            let name = stored.as_str().unwrap_or("");
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains \
                 persisted in {name} and removes {name} from status.storedVersions"
            );
            let field = format!("status.storedVersions[{at}]");
            errors.push(FieldError::invalid(field, stored, detail));
        }
    }
    errors
}
