//! Does an object fit its kind's schema? What `fieldValidation` asks.

use super::{Scalar, Shape, schema};
use crate::amount::Amount;
use crate::kinds::KindInfo;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeSet;

/// What is wrong with an object's fields; paths are spelled as upstream's
/// strict decoder spells them, such as `spec.containers[0].foo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    /// Fields the kind does not have: an error under `Strict`, a warning under
    /// `Warn`.
    pub unknown: BTreeSet<String>,
    /// Values of the wrong type, as a sentence each: always an error.
    pub mistyped: Vec<String>,
}

/// Compares an object with its kind's schema.
pub fn check(kind: &KindInfo, object: &Value) -> Problems {
    let mut problems = Problems::default();
    walk(&schema().of(kind), object, "", &mut problems);
    problems
}

fn walk(shape: &Shape, value: &Value, path: &str, problems: &mut Problems) {
    if value.is_null() {
        return;
    }
    match (shape, value) {
        (Shape::Scalar(scalar), _) => {
            if *scalar == Scalar::Quantity && value.as_str().is_some_and(|text| !is_quantity(text))
            {
                problems.mistyped.push(NO_QUANTITY.to_owned());
            } else if !fits(*scalar, value) {
                problems
                    .mistyped
                    .push(mistake(path, wanted(*scalar), value));
            }
        }
        (Shape::Struct { of, .. }, Value::Object(map)) => {
            let fields = &schema().get(*of).fields;
            for (name, value) in map {
                let path = join(path, name);
                match fields.get(name.as_str()) {
                    Some(field) => walk(&field.shape, value, &path, problems),
                    None => {
                        problems.unknown.insert(path);
                    }
                }
            }
        }
        (Shape::Defined(of), Value::Object(map)) => {
            for (name, value) in map {
                let path = join(path, name);
                match (of.fields.get(name.as_str()), &of.rest) {
                    (Some(field), _) => walk(&field.shape, value, &path, problems),
                    (None, Some(rest)) => walk(rest, value, &path, problems),
                    (None, None) => {
                        problems.unknown.insert(path);
                    }
                }
            }
        }
        // Of defined kinds, types are the validator's business.
        (Shape::Any | Shape::Defined(_), _) => {}
        (Shape::Map { values, .. }, Value::Object(map)) => {
            for (name, value) in map {
                walk(values, value, &join(path, name), problems);
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            for (at, value) in list.iter().enumerate() {
                walk(items, value, &format!("{path}[{at}]"), problems);
            }
        }
        (Shape::Struct { .. } | Shape::Map { .. }, _) => {
            problems.mistyped.push(mistake(path, "an object", value));
        }
        (Shape::List { .. }, _) => problems.mistyped.push(mistake(path, "a list", value)),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn mistake(path: &str, wanted: &str, value: &Value) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("{path}: expected {wanted}, found {found}")
}

const NO_QUANTITY: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

fn is_quantity(text: &str) -> bool {
    text.parse::<Amount>().is_ok()
}

fn fits(scalar: Scalar, value: &Value) -> bool {
    match scalar {
        Scalar::String => value.is_string(),
        Scalar::Bytes => value
            .as_str()
            .is_some_and(|text| STANDARD.decode(text).is_ok()),
        // An empty time is no time, to Go's decoder, too.
        Scalar::Time | Scalar::MicroTime => value
            .as_str()
            .is_some_and(|text| text.is_empty() || text.parse::<jiff::Timestamp>().is_ok()),
        Scalar::Bool => value.is_boolean(),
        Scalar::Int32 => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        Scalar::Int64 => value.is_i64(),
        Scalar::Float => value.is_number(),
        Scalar::Quantity => value.is_string() || value.is_number(),
        Scalar::IntOrString => value.is_string() || value.is_i64(),
    }
}

fn wanted(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String => "a string",
        Scalar::Bytes => "base64 in a string",
        Scalar::Bool => "a boolean",
        Scalar::Int32 => "a 32-bit integer",
        Scalar::Int64 => "an integer",
        Scalar::Float => "a number",
        Scalar::Time | Scalar::MicroTime => "a time in a string",
        Scalar::Quantity => "a quantity",
        Scalar::IntOrString => "an integer or a string",
    }
}
