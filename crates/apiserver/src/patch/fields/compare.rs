//! What changed between two objects, as sets of fields.

use super::set::{FieldSet, Step};
use super::{Walk, step_to, walk};
use crate::schema::Shape;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// A list that is there without anybody having set it.
static EMPTY: Value = Value::Array(Vec::new());
/// A structure that is.
static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));

/// The difference between two objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Changes {
    /// What the new object sets anew or otherwise.
    pub(crate) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }

    /// Leaves out some fields and all that is in them.
    pub(crate) fn excluding(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.cut(ignored),
            modified: self.modified.cut(ignored),
            removed: self.removed.cut(ignored),
        }
    }
}

/// Compares two objects of one shape.
pub(crate) fn changes(shape: &Shape, before: &Value, after: &Value) -> Changes {
    let mut found = Changes::default();
    compare(
        shape,
        (Some(before), Some(after)),
        &mut Vec::new(),
        &mut found,
    );
    found
}

fn compare(
    shape: &Shape,
    (before, after): (Option<&Value>, Option<&Value>),
    path: &mut Vec<Step>,
    found: &mut Changes,
) {
    // Most of an object stays as it is: nothing needs to be named there.
    if before.is_some() && before == after {
        return;
    }
    match walk(shape, before, after) {
        Walk::Leaf => {
            // What is always there is empty where nothing is said of it.
            let present = || shape.always_present().then_some(&*NOTHING);
            if let (Some(before), Some(after)) = (before.or_else(present), after.or_else(present))
                && before != after
            {
                found.modified.insert(path);
            }
        }
        Walk::Maps(left, right) => {
            let sides = [left, right].into_iter().flatten();
            let names: BTreeSet<&String> = sides.flat_map(serde_json::Map::keys).collect();
            for name in names {
                let present = || shape.has_list(name).then_some(&EMPTY);
                let pair = (
                    left.and_then(|map| map.get(name)).or_else(present),
                    right.and_then(|map| map.get(name)).or_else(present),
                );
                path.push(Step::field(name));
                compare(shape.entry(name).0, pair, path, found);
                path.pop();
            }
        }
        Walk::Lists(left, right) => {
            let (left, right) = (by_step(shape, left), by_step(shape, right));
            let steps: BTreeSet<&Step> = left.keys().chain(right.keys()).collect();
            for step in steps {
                path.push(step.clone());
                match (
                    left.get(step).map(Vec::as_slice),
                    right.get(step).map(Vec::as_slice),
                ) {
                    (None | Some([_]), None | Some([_])) => {
                        let pair = (first(&left, step), first(&right, step));
                        compare(shape.element(), pair, path, found);
                    }
                    // Duplicates have no identity of their own: as a whole.
                    (Some(before), Some(after)) if before != after => found.modified.insert(path),
                    (Some(_), Some(_)) => {}
                    (None, _) => found.added.insert(path),
                    (_, None) => found.removed.insert(path),
                }
                path.pop();
            }
        }
    }
    match (before, after) {
        _ if shape.always_present() => {}
        (None, Some(_)) => found.added.insert(path),
        (Some(_), None) => found.removed.insert(path),
        _ => {}
    }
}

fn first<'v>(items: &BTreeMap<Step, Vec<&'v Value>>, step: &Step) -> Option<&'v Value> {
    items.get(step).and_then(|found| found.first().copied())
}

/// Elements without a key cannot be owned and are left out.
fn by_step<'v>(list: &Shape, items: &'v [Value]) -> BTreeMap<Step, Vec<&'v Value>> {
    let mut found: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(step) = step_to(list, item) {
            found.entry(step).or_default().push(item);
        }
    }
    found
}
