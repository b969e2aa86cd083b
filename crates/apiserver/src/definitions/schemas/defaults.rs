//! Do the defaults of a schema fit it?

use serde_json::Value;

use crate::definitions::structural::Structural;
use crate::definitions::validate;
use crate::refusal::FieldError;

/// What is wrong with the defaults of a schema.
pub(super) fn errors(schema: &Structural, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, path, &mut errors);
    errors
}

fn walk(schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let path = format!("{path}.default");
        if has_unknown(schema, default) {
            let detail = "must not have unknown fields";
            errors.push(FieldError::invalid(path.clone(), default, detail));
        }
        let found = validate::validate(schema, None, default);
        errors.extend(found.into_iter().map(|error| FieldError {
            field: match error.field.as_str() {
                "" | "<nil>" => path.clone(),
                inner if inner.starts_with('[') => format!("{path}{inner}"),
                inner => format!("{path}.{inner}"),
            },
            ..error
        }));
    }
    if let Some(items) = &schema.items {
        walk(items, &format!("{path}.items"), errors);
    }
    for (name, inner) in &schema.properties {
        walk(inner, &format!("{path}.properties[{name}]"), errors);
    }
}

/// Whether a value has fields that would be dropped.
fn has_unknown(schema: &Structural, value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| {
            let own =
                schema.embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            match schema.property(name) {
                Some(inner) => has_unknown(inner, value),
                None => !own && !schema.preserve,
            }
        }),
        Value::Array(list) => {
            let inner = schema.items.as_deref();
            inner.is_some_and(|inner| list.iter().any(|value| has_unknown(inner, value)))
        }
        _ => false,
    }
}
