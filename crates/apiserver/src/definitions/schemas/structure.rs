//! Is a schema structural: does it say once, outside of junctions, what each place holds?

use serde_json::{Value, json};

use super::{children, restrictions, said};
use crate::refusal::FieldError;

/// Where a schema stands in the one around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What keeps a schema from being structural, in the order of the texts.
pub(super) fn errors(root: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(root, Level::Root, path, &mut errors);
    completeness(root, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn flag(schema: &Value, name: &str) -> bool {
    schema[format!("x-kubernetes-{name}")] == true
}

fn kind(schema: &Value) -> &str {
    schema["type"].as_str().unwrap_or("")
}

fn invariants(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if kind(schema) == "array" && schema["items"].is_null() {
        errors.push(FieldError::required(
            format!("{path}.items"),
            "must be specified",
        ));
    }
    for (inner, at) in children(schema, path) {
        let level = if at.ends_with(".items") {
            Level::Item
        } else {
            Level::Field
        };
        invariants(inner, level, &at, errors);
    }
    let others = !matches!(schema["additionalProperties"], Value::Null);
    let embedded = flag(schema, "embedded-resource");
    if others && level == Level::Root {
        let field = format!("{path}.additionalProperties");
        errors.push(FieldError::forbidden(field, "must not be used at the root"));
    }
    if flag(schema, "int-or-string") {
        for other in ["preserve-unknown-fields", "embedded-resource"] {
            if flag(schema, other) {
                let field = format!("{path}.x-kubernetes-{other}");
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(field, &true.into(), detail));
            }
        }
    }
    let union = schema["anyOf"] == int_or_string();
    let inner_union = schema["allOf"][0]["anyOf"] == int_or_string();
    values(schema, (union, inner_union), path, errors);
    types(schema, level, path, errors);
    if embedded && others {
        let field = format!("{path}.additionalProperties");
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(field, detail));
    }
    let is_object = level == Level::Root || embedded;
    let properties = &schema["properties"];
    for name in ["kind", "apiVersion"] {
        if let Some(inner) = properties.get(name).filter(|_| is_object)
            && kind(inner) != "string"
        {
            let field = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(
                field,
                &kind(inner).into(),
                "must be string",
            ));
        }
    }
    if let Some(inner) = properties.get("metadata") {
        let path = format!("{path}.properties[metadata]");
        if is_object && kind(inner) != "object" {
            let field = format!("{path}.type");
            errors.push(FieldError::invalid(
                field,
                &kind(inner).into(),
                "must be object",
            ));
        }
        if level == Level::Root && !only_names(inner) {
            let detail = "must not specify anything other than name and generateName, but \
                          metadata is implicitly specified";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    let empty = properties.as_object().is_none_or(serde_json::Map::is_empty);
    if embedded && !flag(schema, "preserve-unknown-fields") && empty {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn int_or_string() -> Value {
    json!([{ "type": "integer" }, { "type": "string" }])
}

/// Names may be restricted; the rest of the metadata is what it is.
fn only_names(metadata: &Value) -> bool {
    let mut fields = metadata.as_object().into_iter().flatten();
    fields.all(|(name, value)| match name.as_str() {
        "type" | "default" => true,
        "properties" => {
            let mut inner = value.as_object().into_iter().flatten();
            inner.all(|(name, _)| name == "name" || name == "generateName")
        }
        _ => !said(value),
    })
}

fn types(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.type");
    let kind = kind(schema);
    if flag(schema, "embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(field.clone(), detail),
            other => FieldError::invalid(field.clone(), &other.into(), detail),
        });
    } else if kind.is_empty()
        && !flag(schema, "int-or-string")
        && !flag(schema, "preserve-unknown-fields")
    {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        let detail = format!("must not be empty {place}");
        errors.push(FieldError::required(field.clone(), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        let detail = "must be object at the root";
        errors.push(FieldError::invalid(field, &kind.into(), detail));
    }
}

/// What is wrong with the junctions of a schema, but for the two ways to write int-or-string.
fn values(
    schema: &Value,
    (union, inner_union): (bool, bool),
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for (inner, at) in restrictions(schema, path) {
        let place = at.strip_prefix(path).unwrap_or("");
        if union && place.starts_with(".anyOf") {
            continue;
        }
        nested(inner, inner_union && place == ".allOf[0]", &at, errors);
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = regex::Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        let field = format!("{path}.pattern");
        errors.push(FieldError::invalid(field, &schema["pattern"], detail));
    }
}

/// What is wrong with a schema inside of a junction, which may only restrict.
fn nested(schema: &Value, union: bool, path: &str, errors: &mut Vec<FieldError>) {
    values(schema, (union, false), path, errors);
    for (inner, at) in children(schema, path) {
        if !at.ends_with(".additionalProperties") {
            nested(inner, false, &at, errors);
        }
    }
    for (name, must) in [
        ("type", "be empty"),
        ("additionalProperties", "be undefined"),
        ("default", "be undefined"),
        ("title", "be empty"),
        ("description", "be empty"),
        ("nullable", "be false"),
        ("x-kubernetes-preserve-unknown-fields", "be false"),
        ("x-kubernetes-embedded-resource", "be false"),
        ("x-kubernetes-int-or-string", "be false"),
        ("x-kubernetes-list-map-keys", "be empty"),
        ("x-kubernetes-list-type", "be undefined"),
        ("x-kubernetes-map-type", "be undefined"),
        ("x-kubernetes-validations", "be empty"),
    ] {
        let given = match must {
            "be undefined" => !schema[name].is_null(),
            _ => said(&schema[name]),
        };
        if given {
            let detail = format!("must {must} to be structural");
            errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
        }
    }
    if schema["properties"].get("metadata").is_some() {
        let detail = "must not be specified in a nested context";
        let field = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(field, detail));
    }
}

/// What a junction speaks of must exist outside of it; the original looks at the root only.
fn completeness(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (inner, at) in restrictions(schema, path) {
        covered(inner, schema, (&at, path), errors);
    }
}

fn covered(
    restriction: &Value,
    schema: &Value,
    (at, path): (&str, &str),
    errors: &mut Vec<FieldError>,
) {
    if schema.is_null() {
        let detail = format!("because it is defined in {at}");
        errors.push(FieldError::required(path, detail));
        return;
    }
    for (inner, at) in restrictions(restriction, at) {
        covered(inner, schema, (&at, path), errors);
    }
    for (inner, inner_at) in children(restriction, at) {
        let place = inner_at.strip_prefix(at).unwrap_or("");
        let counterpart = match place {
            ".items" => &schema["items"],
            ".additionalProperties" => continue,
            named => {
                let name = named.strip_prefix(".properties[").unwrap_or("");
                &schema["properties"][name.strip_suffix(']').unwrap_or("")]
            }
        };
        covered(
            inner,
            counterpart,
            (&inner_at, &format!("{path}{place}")),
            errors,
        );
    }
}
