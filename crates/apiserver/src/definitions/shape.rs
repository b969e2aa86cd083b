//! How objects of a defined kind merge: its schema in the words of the schema table.

use std::collections::BTreeMap;

use super::kept;
use super::structural::{List, Structural, Type};
use crate::schema::{Defined, Field, ListPatch, ListType, Scalar, Shape, schema};

/// The shape of whole objects.
pub(super) fn of_root(root: &Structural) -> Shape {
    let mut defined = structure(root);
    let field = |shape| Field {
        shape,
        required: false,
        default: None,
    };
    for name in ["apiVersion", "kind"] {
        let text = field(Shape::Scalar(Scalar::String));
        defined.fields.insert(name, text);
    }
    let metadata = field(schema().metadata());
    defined.fields.insert("metadata", metadata);
    Shape::Defined(Box::leak(Box::new(defined)))
}

fn of(schema: &Structural) -> Shape {
    match schema.kind {
        Some(Type::Array) => Shape::List {
            items: Box::new(schema.items.as_deref().map_or(Shape::Any, of)),
            list: match &schema.list {
                List::Atomic => ListType::Atomic,
                List::Set => ListType::Set,
                List::Keyed(keys) => ListType::Keyed(keys.iter().map(|key| kept(key)).collect()),
            },
            patch: ListPatch::Replace,
        },
        Some(Type::Object) if is_map(schema) => Shape::Map {
            values: Box::new(schema.additional.as_deref().map_or(Shape::Any, of)),
            atomic: schema.atomic_map,
        },
        Some(Type::Object) => Shape::Defined(Box::leak(Box::new(structure(schema)))),
        // Types of leaves are the validator's business.
        Some(Type::String | Type::Integer | Type::Number | Type::Boolean) | None => Shape::Any,
    }
}

fn is_map(schema: &Structural) -> bool {
    schema.additional.is_some() && schema.properties.is_empty() && !schema.preserve
}

fn structure(schema: &Structural) -> Defined {
    let field = |(name, inner): (&String, &Structural)| {
        let default = inner.default.as_ref().and_then(serde_json::Value::as_str);
        let field = Field {
            shape: of(inner),
            required: schema.required.contains(name),
            default: default.map(kept),
        };
        (kept(name), field)
    };
    let mut fields: BTreeMap<&'static str, Field> = schema.properties.iter().map(field).collect();
    if schema.embedded {
        for name in ["apiVersion", "kind", "metadata"] {
            fields.entry(name).or_insert(Field {
                shape: Shape::Any,
                required: false,
                default: None,
            });
        }
    }
    Defined {
        fields,
        rest: match &schema.additional {
            Some(inner) => Some(of(inner)),
            None => schema.preserve.then_some(Shape::Any),
        },
        atomic: schema.atomic_map,
    }
}
