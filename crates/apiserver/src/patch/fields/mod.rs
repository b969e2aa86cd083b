//! Which fields an object has, and who manages them: the machinery of
//! server-side apply, driven by the schema table.
//!
//! Owns the FieldsV1 format and the rules by which sets of fields are taken
//! from objects, compared, merged and removed. Knows nothing of requests.

pub(super) mod compare;
pub(super) mod managers;
pub(super) mod merge;
pub(super) mod record;
pub(super) mod remove;
pub(super) mod set;

use crate::schema::{ListType, Shape};
use serde_json::{Map, Value};
use set::{FieldSet, Step};

/// Why an object cannot be read as sets of fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}")]
pub(super) struct FieldError {
    pub(super) path: String,
    pub(super) what: String,
}

/// How two values of one place are to be walked.
pub(super) enum Walk<'v> {
    /// As a whole.
    Leaf,
    /// Entry by entry; `None` where a side has no map.
    Maps(
        Option<&'v Map<String, Value>>,
        Option<&'v Map<String, Value>>,
    ),
    /// Element by element; empty where a side has no list.
    Lists(&'v [Value], &'v [Value]),
}

/// Two empty sides are a leaf: that keeps an empty map apart from none.
pub(super) fn walk<'v>(
    shape: &Shape,
    left: Option<&'v Value>,
    right: Option<&'v Value>,
) -> Walk<'v> {
    let map = |value: Option<&'v Value>| match value {
        None | Some(Value::Null) => Some(None),
        Some(Value::Object(map)) => Some(Some(map)),
        Some(_) => None,
    };
    let list = |value: Option<&'v Value>| match value {
        None | Some(Value::Null) => Some(&[][..]),
        Some(Value::Array(list)) => Some(list.as_slice()),
        Some(_) => None,
    };
    if let (Some(left), Some(right)) = (map(left), map(right)) {
        let filled = |side: Option<&Map<_, _>>| side.is_some_and(|map| !map.is_empty());
        if !shape.atomic_map() && (filled(left) || filled(right)) {
            return Walk::Maps(left, right);
        }
    }
    if let (Some(left), Some(right)) = (list(left), list(right)) {
        let granular = *shape.list_type() != ListType::Atomic;
        if granular && !(left.is_empty() && right.is_empty()) {
            return Walk::Lists(left, right);
        }
    }
    Walk::Leaf
}

/// The step that leads to an element of a set or a keyed list.
pub(super) fn step_to(list: &Shape, item: &Value) -> Result<Step, String> {
    let ListType::Keyed(keys) = list.list_type() else {
        return match item {
            Value::Null | Value::Array(_) | Value::Object(_) => {
                Err("a set has an element that is not a scalar".to_owned())
            }
            scalar => Ok(Step::value(scalar)),
        };
    };
    let Value::Object(fields) = item else {
        return Err("associative list with keys may not have non-map elements".to_owned());
    };
    let mut found = Map::new();
    for key in keys {
        let default = || list.element().default_of(key).map(Value::from);
        if let Some(value) = fields.get(*key).cloned().or_else(default) {
            found.insert((*key).to_owned(), value);
        }
    }
    if found.is_empty() {
        return Err(format!(
            "associative list with keys has an element that omits all key fields {keys:?}"
        ));
    }
    Ok(Step::key(&found))
}

/// The fields of an object that someone who wrote all of it would manage.
pub(super) fn fields_of(shape: &Shape, object: &Value) -> Result<FieldSet, FieldError> {
    let mut set = FieldSet::default();
    collect(shape, object, &mut Vec::new(), &mut set)?;
    Ok(set)
}

fn collect(
    shape: &Shape,
    value: &Value,
    path: &mut Vec<Step>,
    set: &mut FieldSet,
) -> Result<(), FieldError> {
    match value {
        Value::Object(map) if !shape.atomic_map() => {
            for (name, value) in map {
                let (child, named) = shape.entry(name);
                path.push(Step::field(name));
                collect(child, value, path, set)?;
                let empty = value.as_object().is_some_and(Map::is_empty);
                // Entries of open maps are owned as such; named fields only
                // through what is in them.
                if value.is_null() || empty || !named {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Value::Array(list) if *shape.list_type() != ListType::Atomic => {
            for item in list {
                let step = step_to(shape, item).map_err(|what| error(path, what))?;
                path.push(step);
                if set.contains(path) {
                    let what = format!("duplicate entries for key {}", path[path.len() - 1]);
                    path.pop();
                    return Err(error(path, what));
                }
                collect(shape.element(), item, path, set)?;
                set.insert(path);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
    Ok(())
}

fn error(path: &[Step], what: String) -> FieldError {
    FieldError {
        path: set::path_text(path),
        what,
    }
}

/// Adds to a set the structure fields its members lie under, so that removing
/// the set also removes structures that become empty.
pub(super) fn with_parents(shape: &Shape, set: &FieldSet) -> FieldSet {
    set.map_children(&mut |step, child| {
        let (shape, named) = match step.as_field() {
            Some(name) => shape.entry(name),
            None => (shape.element(), false),
        };
        (named, with_parents(shape, child))
    })
}
