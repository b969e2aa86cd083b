//! What a schema says of how its lists and maps merge.

use serde_json::Value;

use crate::refusal::FieldError;

/// What is wrong with the list and map types of one schema.
pub(super) fn errors(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kind = schema["type"].as_str().unwrap_or("");
    let (map_type, list_type) = (
        &schema["x-kubernetes-map-type"],
        &schema["x-kubernetes-list-type"],
    );
    let mut wants_type = |wanted: &str, because: &str| {
        let detail = format!("must be {wanted} if {because} is specified");
        let field = format!("{path}.type");
        errors.push(match kind {
            "" => FieldError::required(field, detail),
            _ => FieldError::invalid(field, &schema["type"], detail),
        });
    };
    if !map_type.is_null() && kind != "object" {
        wants_type("object", "x-kubernetes-map-type");
    }
    let mistyped = !list_type.is_null() && kind != "array";
    if mistyped {
        wants_type("array", "x-kubernetes-list-type");
    }
    if !map_type.is_null() && map_type != "atomic" && map_type != "granular" {
        let field = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(
            field,
            map_type,
            &["atomic", "granular"],
        ));
    }
    let items = &schema["items"];
    if !mistyped && list_type == "set" {
        let inner = |name: &str, errors: &mut Vec<FieldError>| {
            let field = format!("{path}.items.{name}");
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let shown = &items["x-kubernetes-list-type"];
            errors.push(FieldError::invalid(field, shown, detail));
        };
        let merges = |name: &str| !matches!(items[name].as_str(), None | Some("atomic"));
        if items["type"] == "array" && merges("x-kubernetes-list-type") {
            inner("x-kubernetes-list-type", errors);
        }
        if items["type"] == "object" && items["x-kubernetes-map-type"] != "atomic" {
            inner("x-kubernetes-map-type", errors);
        }
    }
    let known = ["atomic", "set", "map"];
    if !list_type.is_null() && !known.iter().any(|known| list_type == known) {
        let field = format!("{path}.x-kubernetes-list-type");
        errors.push(FieldError::not_supported(
            field,
            list_type,
            &["atomic", "set", "map"],
        ));
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array();
    let keys = keys.map_or(&[][..], Vec::as_slice);
    if !keys.is_empty() && list_type != "map" {
        let field = format!("{path}.x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            Value::Null => FieldError::required(field, detail),
            other => FieldError::invalid(field, other, detail),
        });
    }
    if list_type == "map" {
        keyed(schema, keys, path, errors);
    }
    if (list_type == "set" || list_type == "map") && items["nullable"] == true {
        let named = list_type.as_str().unwrap_or("");
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {named}");
        errors.push(FieldError::forbidden(
            format!("{path}.items.nullable"),
            detail,
        ));
    }
    if list_type == "map" {
        key_values(items, keys, path, errors);
    }
}

fn keyed(schema: &Value, keys: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let items = &schema["items"];
    let field = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(field.clone(), detail));
    }
    if items.is_null() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    }
    if items["type"] != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        let shown = items["type"].as_str().unwrap_or("").into();
        errors.push(FieldError::invalid(
            format!("{path}.items.type"),
            &shown,
            detail,
        ));
        return;
    }
    let all = &schema["x-kubernetes-list-map-keys"];
    for (at, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or("");
        match items["properties"].get(name) {
            Some(property) if matches!(property["type"].as_str(), Some("array" | "object")) => {
                let field = format!("{path}.items.properties[{name}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is \
                              map";
                errors.push(FieldError::invalid(field, &items["type"], detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(field.clone(), all, detail));
            }
        }
        if keys[..at].contains(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(field.clone(), all, detail));
        }
    }
}

/// Every item has a value for each key.
fn key_values(items: &Value, keys: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let required = items["required"].as_array();
    for key in keys {
        let name = key.as_str().unwrap_or("");
        let Some(property) = items["properties"].get(name) else {
            continue;
        };
        let path = format!("{path}.items.properties[{name}]");
        let is_required = required.is_some_and(|all| all.contains(key));
        if !is_required && property.get("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a \
                          default or be a required property";
            errors.push(FieldError::required(format!("{path}.default"), detail));
        }
        if property["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be \
                          nullable";
            errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
        }
    }
}
