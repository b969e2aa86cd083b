//! From what a client sent to what is stored: fields the kind does not have
//! and nulls are dropped, values of the wrong type are refused.

use super::{Scalar, Shape, check, schema};
use crate::amount::Amount;
use crate::document::Source;
use crate::kinds::KindInfo;
use serde_json::Value;

/// The `fieldValidation` parameter: what is said of dropped fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A warning for each; what clients get unless they ask.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

impl FieldValidation {
    /// Reads the parameter's value; the empty text is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// Why an object cannot be read as its kind: HTTP 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} in version \"{version}\" cannot be handled as a {kind}: {what}")]
pub struct DecodeError {
    kind: &'static str,
    version: &'static str,
    what: String,
}

impl DecodeError {
    /// What is wrong, without a word on where.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// Brings an object into its kind's form; returns warnings to hand on. The source is the text
/// that it was read from.
///
/// A status subresource's body and a patched object are whole objects, too, so
/// this fits every write.
pub fn decode(
    kind: &KindInfo,
    object: &mut Value,
    (validation, source): (FieldValidation, &Source),
) -> Result<Vec<String>, DecodeError> {
    let refused = |what| DecodeError {
        kind: kind.kind,
        version: kind.version,
        what,
    };
    let problems = check(kind, object);
    // The contents of defined kinds are checked against their own schema later.
    let decides = |mistake: &&String| kind.custom.is_none() || mistake.starts_with("metadata");
    if let Some(mistake) = problems.mistyped.iter().find(decides) {
        return Err(refused(mistake.clone()));
    }
    // Of what it knows no schema of, the original tells in no order of the text.
    let unordered = kind.custom.map(|_| source.clone().unordered());
    let source = unordered.as_ref().unwrap_or(source);
    let warnings = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn => source.warnings(&problems.unknown),
        FieldValidation::Strict => match source.error(&problems.unknown) {
            none if none.is_empty() => Vec::new(),
            all => return Err(refused(format!("strict decoding error: {all}"))),
        },
    };
    prune(&schema().of(kind), object);
    drop_empty_metadata(object);
    Ok(warnings)
}

/// Empty lists and maps of the metadata say nothing, and the original doesn't keep them.
fn drop_empty_metadata(object: &mut Value) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.retain(|_, value| match value {
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        });
    }
}

/// Drops what the schema has no place for, and nulls, which say nothing in a structure.
fn prune(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct { of, .. }, Value::Object(map)) => {
            let fields = &schema().get(*of).fields;
            map.retain(|name, value| !value.is_null() && fields.contains_key(name.as_str()));
            for (name, value) in map {
                prune(shape.entry(name).0, value);
            }
        }
        (Shape::Defined(of), Value::Object(map)) => {
            // Of a defined kind, the schema says where null is a value.
            map.retain(|name, _| of.rest.is_some() || of.fields.contains_key(name.as_str()));
            for (name, value) in map {
                prune(shape.entry(name).0, value);
            }
        }
        (Shape::Map { values, .. }, Value::Object(map)) => {
            let are_amounts = matches!(**values, Shape::Scalar(Scalar::Quantity));
            for value in map.values_mut() {
                match Amount::of(value).filter(|_| are_amounts) {
                    Some(amount) => *value = amount.in_thousandths().to_string().into(),
                    None => prune(values, value),
                }
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            list.iter_mut().for_each(|value| prune(items, value));
        }
        // Amounts are kept in the one form that all clients know.
        (Shape::Scalar(Scalar::Quantity), value) => {
            if let Some(amount) = Amount::of(value) {
                *value = amount.to_string().into();
            }
        }
        _ => {}
    }
}
