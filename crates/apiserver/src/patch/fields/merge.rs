//! Merging an applied configuration into the live object: what is applied
//! wins, what is not is left as it is.

use super::set::Step;
use super::{Walk, step_to, walk};
use crate::schema::Shape;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The live object with the configuration's fields; duplicates in the
/// configuration must have been refused before.
pub(crate) fn merged(shape: &Shape, live: &Value, applied: &Value) -> Value {
    merge(shape, Some(live), Some(applied)).unwrap_or_else(|| Value::Object(Map::new()))
}

/// `None` when nothing is left; an applied null says so of a field.
fn merge(shape: &Shape, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    match walk(shape, live, applied) {
        Walk::Leaf => applied.or(live).filter(|value| !value.is_null()).cloned(),
        Walk::Maps(live, applied) => {
            let mut result = Map::new();
            let entries = |map: Option<&Map<String, Value>>| {
                map.into_iter()
                    .flat_map(|map| map.keys().cloned())
                    .collect::<Vec<_>>()
            };
            let names: BTreeSet<String> =
                entries(live).into_iter().chain(entries(applied)).collect();
            for name in names {
                let live = live.and_then(|map| map.get(&name));
                let applied = applied.and_then(|map| map.get(&name));
                if let Some(value) = merge(shape.entry(&name).0, live, applied) {
                    result.insert(name, value);
                }
            }
            Some(Value::Object(result))
        }
        Walk::Lists(live, applied) => Some(Value::Array(merge_lists(shape, live, applied))),
    }
}

/// Applied elements stand in the applied order; the live list's own elements
/// stay before the applied ones they stood before.
fn merge_lists(shape: &Shape, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let keyed = |items: &[Value]| -> Vec<Option<Step>> {
        items.iter().map(|item| step_to(shape, item).ok()).collect()
    };
    let (live_steps, steps) = (keyed(live), keyed(applied));
    let wanted: HashSet<&Step> = steps.iter().flatten().collect();
    let is_applied = |at: usize| live_steps[at].as_ref().is_some_and(|s| wanted.contains(s));
    let mut places: HashMap<&Step, usize> = HashMap::new();
    for (at, step) in live_steps.iter().enumerate() {
        if let Some(step) = step {
            places.entry(step).or_insert(at);
        }
    }
    let place = |step: &Option<Step>| places.get(step.as_ref()?).copied();
    // For each applied element, the first from there on that the live list has, too.
    let mut shared: Vec<Option<&Step>> = vec![None; steps.len()];
    let mut next = None;
    for (at, step) in steps.iter().enumerate().rev() {
        if place(step).is_some() {
            next = step.as_ref();
        }
        shared[at] = next;
    }

    let mut result = Vec::with_capacity(live.len().max(applied.len()));
    let mut emitted: HashSet<&Step> = HashSet::new();
    let mut left = 0;
    for (right, item) in applied.iter().enumerate() {
        while left < live.len() {
            if !is_applied(left) {
                result.extend(merge(shape.element(), Some(&live[left]), None));
            } else if let Some(step) = &live_steps[left]
                && shared[right] == Some(step)
                && !emitted.contains(step)
            {
                break;
            }
            left += 1;
        }
        let before = place(&steps[right]).map(|at| &live[at]);
        result.extend(merge(shape.element(), before, Some(item)));
        emitted.extend(&steps[right]);
        if left < live.len() && live_steps[left] == steps[right] {
            left += 1;
        }
    }
    for (at, item) in live.iter().enumerate().skip(left) {
        if !is_applied(at) {
            result.extend(merge(shape.element(), Some(item), None));
        }
    }
    result
}
