//! What the schema of a defined kind may say. The texts are the original's.

mod defaults;
mod lists;
mod structure;

use serde_json::{Value, json};

use super::rules::{Rule, Type};
use super::selectable::{self, Brackets};
use super::structural::Structural;
use crate::refusal::{Fault, FieldError};
use crate::registry::text;

/// What a schema may say at its root beside a status of its own.
const ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
/// What JSON schema has and definitions don't.
const UNKNOWN: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

/// What is wrong with a `schema`; `status` says whether the kind has a status of its own.
pub(super) fn validate(schema: &Value, path: &str, status: bool, errors: &mut Vec<FieldError>) {
    let root = &schema["openAPIV3Schema"];
    let path = format!("{path}.openAPIV3Schema");
    let before = errors.len();
    if status {
        validate_root(root, &path, errors);
    }
    if root["nullable"] == true {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
    }
    let mut found = Vec::new();
    walk(root, &path, &Place::root(), &mut found);
    // What has no structure at all is not asked for it.
    if !uses_unknown(root) {
        errors.extend(structure::errors(root, &path));
    }
    if errors.len() == before && found.is_empty() {
        let schema = Structural::parse_root(root);
        errors.extend(defaults::errors(&schema, &path));
    }
    let structured = errors.len() == before;
    errors.append(&mut found);
    if structured && errors.len() == before {
        rules(root, &path, &Place::root(), errors);
    }
}

fn validate_root(root: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let allowed = |name: &String| {
        let name = name.strip_prefix("x-kubernetes-").map_or_else(
            || name.clone(),
            |rest| format!("x{}", rest.replace('-', "")),
        );
        ROOT.iter().any(|known| known.eq_ignore_ascii_case(&name))
    };
    let fields = root.as_object().into_iter().flatten();
    if fields
        .filter(|(_, value)| said(value))
        .any(|(name, _)| !allowed(name))
    {
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource \
             is enabled",
            ROOT.join(" ")
        );
        errors.push(FieldError::invalid(path, root, detail));
    }
}

fn said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Number(_) => true,
    }
}

fn uses_unknown(schema: &Value) -> bool {
    UNKNOWN.iter().any(|name| !schema[*name].is_null())
        || schema["items"].is_array()
        || children(schema, "")
            .iter()
            .any(|(inner, _)| uses_unknown(inner))
}

/// The schemas inside of a schema that say what it is made of, with their paths.
fn children<'s>(schema: &'s Value, path: &str) -> Vec<(&'s Value, String)> {
    let mut found = Vec::new();
    if schema["additionalProperties"].is_object() {
        let inner = &schema["additionalProperties"];
        found.push((inner, format!("{path}.additionalProperties")));
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    found.extend(properties.map(|(name, inner)| (inner, format!("{path}.properties[{name}]"))));
    if schema["items"].is_object() {
        found.push((&schema["items"], format!("{path}.items")));
    }
    found
}

/// The schemas inside of a schema that only restrict it, with their paths.
fn restrictions<'s>(schema: &'s Value, path: &str) -> Vec<(&'s Value, String)> {
    let mut found = Vec::new();
    if schema["not"].is_object() {
        found.push((&schema["not"], format!("{path}.not")));
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        let all = schema[name].as_array().into_iter().flatten().enumerate();
        found.extend(all.map(|(at, inner)| (inner, format!("{path}.{name}[{at}]"))));
    }
    found
}

/// What holds for a place of a schema because of what is around it.
#[derive(Debug, Clone, Default)]
struct Place {
    root: bool,
    /// Why there may be no default.
    no_default: Option<String>,
    in_metadata: bool,
    /// The list whose items have no past.
    forgetful: Option<String>,
}

impl Place {
    fn root() -> Self {
        Self {
            root: true,
            ..Self::default()
        }
    }

    /// The place of an inner schema.
    fn inner(&self, schema: &Value, path: &str, inner: &str) -> Self {
        let mut place = Self {
            root: false,
            ..self.clone()
        };
        match inner.strip_prefix(path).unwrap_or("") {
            ".additionalProperties" => {
                if self.in_metadata {
                    let why = "inside additionalProperties applying to object metadata";
                    place.no_default = Some(why.to_owned());
                }
            }
            ".items" => {
                if schema["x-kubernetes-list-type"] != "map" && place.forgetful.is_none() {
                    place.forgetful = Some(path.to_owned());
                }
            }
            named => {
                let name = named.strip_prefix(".properties[").unwrap_or("");
                let name = name.strip_suffix(']').unwrap_or("");
                let embedded = schema["x-kubernetes-embedded-resource"] == true;
                if matches!(name, "metadata" | "kind" | "apiVersion") && (self.root || embedded) {
                    place.in_metadata = true;
                    if self.root {
                        place.no_default = Some(format!("in top-level {name}"));
                    }
                }
            }
        }
        place
    }
}

fn walk(schema: &Value, path: &str, place: &Place, errors: &mut Vec<FieldError>) {
    words(schema, path, place, errors);
    let properties = schema["properties"].as_object();
    let has_properties = properties.is_some_and(|all| !all.is_empty());
    let others = &schema["additionalProperties"];
    if has_properties && (others.is_object() || *others == false) {
        let detail = "additionalProperties and properties are mutual exclusive";
        let field = format!("{path}.additionalProperties");
        errors.push(FieldError::forbidden(field, detail));
    }
    for (inner, at) in children(schema, path) {
        walk(inner, &at, &place.inner(schema, path, &at), errors);
    }
    for (inner, at) in restrictions(schema, path) {
        let place = Place {
            root: false,
            ..place.clone()
        };
        walk(inner, &at, &place, errors);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(field, &false.into(), detail));
    }
    lists::errors(schema, path, errors);
    rule_words(schema, path, errors);
}

fn words(schema: &Value, path: &str, place: &Place, errors: &mut Vec<FieldError>) {
    let kind = &schema["type"];
    if kind
        .as_str()
        .is_some_and(|kind| !kind.is_empty() && !TYPES.contains(&kind))
    {
        errors.push(FieldError::not_supported(
            format!("{path}.type"),
            kind,
            TYPES,
        ));
    }
    if let (Some(why), true) = (&place.no_default, !schema["default"].is_null()) {
        let detail = format!("must not be set {why}");
        errors.push(FieldError::forbidden(format!("{path}.default"), detail));
    }
    for name in UNKNOWN {
        if !schema[name].is_null() {
            let detail = format!("{name} is not supported");
            errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), detail));
    }
    if schema["items"].is_array() {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    let embedded = "x-kubernetes-embedded-resource";
    if place.in_metadata && schema[embedded] == true {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(format!("{path}.{embedded}"), detail));
    }
    if schema["uniqueItems"] == true {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes \
                      quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
}

fn all_rules(schema: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let rules = schema["x-kubernetes-validations"].as_array();
    rules.into_iter().flatten().enumerate()
}

/// What is wrong with the words around rules.
fn rule_words(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (at, rule) in all_rules(schema) {
        let field = |name: &str| format!("{path}.x-kubernetes-validations[{at}].{name}");
        let given = |name: &str| text(rule, &format!("/{name}"));
        let (message, words) = (given("message"), given("rule").trim());
        let lines = |text: &str| text.contains(['\n', '\r']);
        let mut invalid = |name: &str, detail: &str| {
            errors.push(FieldError::invalid(field(name), &rule[name], detail));
        };
        if !message.is_empty() && message.trim().is_empty() && !words.is_empty() {
            invalid("message", "must be non-empty if specified");
        } else if lines(message.trim()) && !words.is_empty() {
            invalid("message", "must not contain line breaks");
        }
        let place = given("fieldPath");
        if !place.is_empty() && place.trim().is_empty() {
            invalid("fieldPath", "must be non-empty if specified");
        }
        if lines(place) {
            invalid("fieldPath", "must not contain line breaks");
        }
        if !place.is_empty() && selectable::walk(place, schema, Brackets::Taken).is_err() {
            invalid("fieldPath", "must be a valid path");
        }
        if words.is_empty() {
            errors.push(FieldError::required(field("rule"), "rule is not specified"));
        } else if lines(words) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(field("message"), detail));
        }
        let computed = given("messageExpression");
        if !computed.is_empty() && computed.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(field("messageExpression"), detail));
        }
        const REASONS: &[&str] = &[
            "FieldValueDuplicate",
            "FieldValueForbidden",
            "FieldValueInvalid",
            "FieldValueRequired",
        ];
        let reason = &rule["reason"];
        if reason
            .as_str()
            .is_some_and(|reason| !REASONS.contains(&reason))
        {
            errors.push(FieldError::not_supported(field("reason"), reason, REASONS));
        }
    }
}

/// What is wrong with rules themselves.
fn rules(schema: &Value, path: &str, place: &Place, errors: &mut Vec<FieldError>) {
    let of = all_rules(schema).next().and_then(|_| {
        let parsed = match place.root {
            true => Structural::parse_root(schema),
            false => Structural::parse(schema),
        };
        Type::of(&parsed, parsed.embedded)
    });
    for (at, rule) in all_rules(schema) {
        let field = |name: &str| format!("{path}.x-kubernetes-validations[{at}].{name}");
        let Some(of) = &of else {
            let detail = "rules can't speak of a value whose type isn't known";
            errors.push(FieldError::forbidden(field("rule"), detail));
            continue;
        };
        match Rule::parse(rule, of) {
            Err(refused) => errors.push(FieldError {
                field: field(refused.field),
                fault: Fault::Told(as_told(rule)),
                detail: refused.detail,
            }),
            Ok(compiled) => {
                if let (Some(list), true) = (&place.forgetful, compiled.about_change) {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema \
                         within {list}"
                    );
                    errors.push(FieldError::invalid(field("rule"), &rule["rule"], detail));
                }
                if !compiled.about_change && !rule["optionalOldSelf"].is_null() {
                    let detail = "may not be set if oldSelf is not used in rule";
                    let value = &rule["optionalOldSelf"];
                    errors.push(FieldError::invalid(field("optionalOldSelf"), value, detail));
                }
            }
        }
    }
    for (inner, at) in children(schema, path) {
        rules(inner, &at, &place.inner(schema, path, &at), errors);
    }
}

/// A rule as the original shows it.
fn as_told(rule: &Value) -> String {
    let value = |name: &str, none: Value| match &rule[name] {
        Value::Null => none,
        given => given.clone(),
    };
    let fields = [
        ("Rule", value("rule", json!(""))),
        ("Message", value("message", json!(""))),
        ("MessageExpression", value("messageExpression", json!(""))),
        ("Reason", value("reason", Value::Null)),
        ("FieldPath", value("fieldPath", json!(""))),
        ("OptionalOldSelf", value("optionalOldSelf", Value::Null)),
    ];
    let fields = fields.map(|(name, value)| format!("{name:?}:{value}"));
    let text = format!("{{{}}}", fields.join(","));
    // Go writes these so, lest somebody takes them for markup.
    let text = text.replace('&', "\\u0026").replace('<', "\\u003c");
    text.replace('>', "\\u003e")
}
