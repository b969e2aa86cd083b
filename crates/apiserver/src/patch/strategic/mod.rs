//! Strategic merge patch: a merge patch that knows which lists merge, by the
//! schema, and carries directives for what merging cannot say.
//!
//! | directive | meaning |
//! |---|---|
//! | `$patch: replace` | this map or list replaces the current one |
//! | `$patch: delete` | this map is emptied; in a list, the element goes |
//! | `$deleteFromPrimitiveList/x` | remove these values from `x` |
//! | `$setElementOrder/x` | the order of `x` afterwards |
//! | `$retainKeys` | drop the fields of this map that are not named |

mod order;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use self::order::{Identity, arrange};
use super::PatchError;
use crate::kinds::KindInfo;
use crate::schema::{ListPatch, Shape, schema};
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch.
pub fn strategic(kind: &KindInfo, current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (Value::Object(current), Value::Object(patch)) = (current, patch) else {
        return Err(malformed("a strategic merge patch is a JSON object"));
    };
    let merged = merge_map(&schema().of(kind), current.clone(), patch).map(Value::Object)?;
    let name = |object: &Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
    // A directive for the whole object leaves nothing that isn't in the patch.
    match current
        .get("metadata")
        .and_then(|metadata| metadata["name"].as_str())
    {
        Some(before) if patch.contains_key(PATCH) && name(&merged).is_none() => {
            Err(PatchError::Nameless(before.to_owned()))
        }
        _ => Ok(merged),
    }
}

fn malformed(text: impl Into<String>) -> PatchError {
    PatchError::Malformed(text.into())
}

fn merge_map(
    shape: &Shape,
    mut current: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(PATCH).map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some("replace")) => current = Map::new(),
        Some(Some("delete")) => return Ok(Map::new()),
        Some(other) => return Err(unknown_directive(other)),
    }
    if let Some(names) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut current, patch, names)?;
    }
    let mut orders = Vec::new();
    for (key, wanted) in patch {
        if let Some(key) = key.strip_prefix(SET_ORDER) {
            let server = current.get(key).and_then(Value::as_array).cloned();
            orders.push((key, wanted, server.unwrap_or_default()));
        }
    }
    for (key, value) in patch {
        if key == PATCH
            || key == RETAIN_KEYS
            || key.starts_with(SET_ORDER)
            || key.starts_with(DELETE_FROM)
        {
            continue;
        }
        if value.is_null() {
            current.remove(key);
            continue;
        }
        let merged = merge_value(shape.entry(key).0, current.remove(key), value)?;
        current.insert(key.clone(), merged);
    }
    // After the merge: of what is both added and deleted, nothing is left.
    for (key, values) in patch {
        if let Some(key) = key.strip_prefix(DELETE_FROM) {
            delete_from(&mut current, key, values)?;
        }
    }
    for (key, wanted, server) in orders {
        let Value::Array(wanted) = wanted else {
            return Err(malformed(format!("{SET_ORDER}{key} is not a list")));
        };
        if let Some(Value::Array(list)) = current.get_mut(key) {
            let merged = std::mem::take(list);
            *list = set_order(shape.entry(key).0, merged, wanted, &server);
        }
    }
    Ok(current)
}

fn unknown_directive(found: Option<&str>) -> PatchError {
    malformed(format!(
        "unknown $patch directive {:?}",
        found.unwrap_or("")
    ))
}

fn merge_value(shape: &Shape, current: Option<Value>, patch: &Value) -> Result<Value, PatchError> {
    match (current, patch) {
        (Some(Value::Object(current)), Value::Object(patch)) => {
            merge_map(shape, current, patch).map(Value::Object)
        }
        // Merging into nothing drops nulls and obeys directives.
        (_, Value::Object(patch)) => merge_map(shape, Map::new(), patch).map(Value::Object),
        (current, Value::Array(patch)) => {
            let current = match current {
                Some(Value::Array(current)) => current,
                _ => Vec::new(),
            };
            let merged = match shape.list_patch() {
                ListPatch::Replace => patch.clone(),
                ListPatch::Union => merge_scalars(&current, patch),
                ListPatch::MergeBy { key, .. } => merge_list(shape, key, &current, patch)?,
            };
            Ok(Value::Array(merged))
        }
        (_, patch) => Ok(patch.clone()),
    }
}

fn merge_scalars(current: &[Value], patch: &[Value]) -> Vec<Value> {
    let mut known: HashSet<&Value> = current.iter().collect();
    let added = patch.iter().filter(|value| known.insert(value));
    let merged = current.iter().chain(added).cloned().collect();
    arrange(merged, patch, current, Identity::Whole)
}

fn merge_list(
    shape: &Shape,
    key: &'static str,
    current: &[Value],
    patch: &[Value],
) -> Result<Vec<Value>, PatchError> {
    let mut plain = Vec::new();
    let mut deleted = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(malformed(format!(
                "an element of a list merged by {key} is not an object"
            )));
        };
        match fields.get(PATCH).map(Value::as_str) {
            None | Some(Some("merge")) => plain.push(item.clone()),
            // The element itself only carries the directive.
            Some(Some("replace")) => replace = true,
            Some(Some("delete")) => {
                deleted.insert(key_of(item, key)?);
            }
            Some(other) => return Err(unknown_directive(other)),
        }
    }
    if replace {
        let cleaned = plain
            .iter()
            .map(|item| merge_value(shape.element(), None, item));
        return cleaned.collect();
    }
    let mut merged = Vec::with_capacity(current.len() + plain.len());
    let mut places = HashMap::with_capacity(current.len() + plain.len());
    for item in current {
        let id = item.get(key);
        if id.is_some_and(|id| deleted.contains(id)) {
            continue;
        }
        if let Some(id) = id {
            places.entry(id).or_insert(merged.len());
        }
        merged.push(item.clone());
    }
    for item in &plain {
        let id = key_of(item, key)?;
        let place = places.get(id).copied();
        let before = place.map(|at| merged[at].take());
        let after = merge_value(shape.element(), before, item)?;
        match place {
            Some(at) => merged[at] = after,
            None => {
                places.insert(id, merged.len());
                merged.push(after);
            }
        }
    }
    Ok(arrange(merged, &plain, current, Identity::Field(key)))
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, PatchError> {
    item.get(key).ok_or_else(|| {
        malformed(format!(
            "map: {item} does not contain declared merge key: {key}"
        ))
    })
}

fn delete_from(
    current: &mut Map<String, Value>,
    key: &str,
    values: &Value,
) -> Result<(), PatchError> {
    let Value::Array(values) = values else {
        return Err(malformed(format!("{DELETE_FROM}{key} is not a list")));
    };
    if let Some(Value::Array(list)) = current.get_mut(key) {
        let values: HashSet<&Value> = values.iter().collect();
        list.retain(|value| !values.contains(value));
    }
    Ok(())
}

fn set_order(shape: &Shape, merged: Vec<Value>, wanted: &[Value], server: &[Value]) -> Vec<Value> {
    let identity = match shape.list_patch() {
        ListPatch::MergeBy { key, .. } => Identity::Field(key),
        ListPatch::Union | ListPatch::Replace => Identity::Whole,
    };
    arrange(merged, wanted, server, identity)
}

fn retain_keys(
    current: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    names: &Value,
) -> Result<(), PatchError> {
    let names: HashSet<&str> = match names {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return Err(malformed(format!("{RETAIN_KEYS} is not a list"))),
    };
    let stray = patch
        .iter()
        .find(|(key, value)| {
            !key.starts_with('$') && !value.is_null() && !names.contains(key.as_str())
        })
        .map(|(key, _)| key);
    if let Some(key) = stray {
        return Err(malformed(format!(
            "{RETAIN_KEYS} does not name the field {key} that the patch sets"
        )));
    }
    current.retain(|key, _| names.contains(key.as_str()));
    Ok(())
}
