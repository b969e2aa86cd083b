//! Taking a set of fields out of an object.

use super::set::{FieldSet, Step};
use super::step_to;
use crate::schema::{ListType, Shape};
use serde_json::{Map, Value};

/// The object without these fields; maps and lists that become empty go, too.
pub(crate) fn without(shape: &Shape, object: &Value, fields: &FieldSet) -> Value {
    remove(shape, object, fields).unwrap_or_else(|| Value::Object(Map::new()))
}

fn remove(shape: &Shape, value: &Value, fields: &FieldSet) -> Option<Value> {
    let keep = |child: &Shape, value: &Value, step: &Step| {
        if fields.has(step) {
            return None;
        }
        match fields.below(step) {
            Some(below) => remove(child, value, below),
            None => Some(value.clone()),
        }
    };
    match value {
        Value::Object(map) if !shape.atomic_map() => {
            let left: Map<String, Value> = map
                .iter()
                .filter_map(|(name, value)| {
                    let kept = keep(shape.entry(name).0, value, &Step::field(name))?;
                    Some((name.clone(), kept))
                })
                .collect();
            (!left.is_empty()).then_some(Value::Object(left))
        }
        Value::Array(list) if *shape.list_type() != ListType::Atomic => {
            let left: Vec<Value> = list
                .iter()
                .filter_map(|item| match step_to(shape, item) {
                    Ok(step) => keep(shape.element(), item, &step),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            (!left.is_empty()).then_some(Value::Array(left))
        }
        // Something inside an atomic value was to go: it goes as a whole.
        Value::Object(_) | Value::Array(_) => None,
        scalar => Some(scalar.clone()),
    }
}
