//! Server-side apply, and the record that ordinary writes leave for it.
//!
//! A manager who applies a configuration owns the fields in it. Applying again
//! without a field removes it, unless somebody else owns it too; changing a
//! field that somebody else owns is a conflict, unless forced.

mod last_applied;
#[cfg(test)]
mod tests;

use super::fields::compare::changes;
use super::fields::managers::{Manager, Managers, Share};
use super::fields::merge::merged;
use super::fields::record::{Written, amend};
use super::fields::remove::without;
use super::fields::set::FieldSet;
use super::fields::{fields_of, with_parents};
use super::{ApplyError, ApplyOptions, FieldConflict, UpdateOptions};
use crate::kinds::KindInfo;
use crate::schema::{self, Shape, schema};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Fields that identify an object or that the server keeps: nobody's.
const UNOWNED: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

static UNOWNED_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&UNOWNED));
/// What there was before an object was made.
static NOTHING: LazyLock<Value> = LazyLock::new(|| json!({}));

/// The owner of what an object without a record had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Applies a configuration; the caller stores the result as the new object.
///
/// The result is the live object itself, record included, when the
/// configuration changes nothing.
pub fn server_side_apply(
    kind: &KindInfo,
    current: Option<&Value>,
    applied: &Value,
    options: ApplyOptions<'_>,
) -> Result<Value, ApplyError> {
    let shape = schema().of(kind);
    check_configuration(kind, applied)?;
    let config =
        fields_of(&shape, applied).map_err(|error| untyped(kind, applied, &error.to_string()))?;
    let live = without_record(current.unwrap_or(&json!({})));
    let mut managers = current.map_or_else(Managers::default, |object| {
        Managers::of(object).unwrap_or_else(|| before_first_apply(kind, &shape, &live))
    });

    let me = Manager::applier(options.manager, options.subresource);
    let last = managers.shares.remove(&me);
    let ignored = ignored(kind, options.subresource);
    let mine = config.without_subtrees(&ignored);

    let whole = merged(&shape, &live, applied);
    let new = match &last {
        Some(last) => prune(&shape, &whole, &last.fields, &managers, &mine),
        None => whole,
    };
    let found = changes(&shape, &live, &new).excluding(&ignored);
    let contested =
        found
            .written()
            .difference(&last_applied::own_fields(&shape, &live, options.manager));
    let conflicts = conflicts(&managers, &contested);
    if !options.force && !conflicts.is_empty() {
        return Err(ApplyError::Conflict(conflicts));
    }
    managers.take(&found.written(), None);
    managers.take(&found.removed, None);

    let fields = mine.minus(&UNOWNED_FIELDS);
    if !fields.is_empty() {
        let unchanged = last.filter(|last| new == live && last.fields == fields);
        let time = unchanged.map_or_else(|| options.now.to_owned(), |last| last.time);
        let share = Share {
            fields,
            api_version: kind.api_version(),
            time,
        };
        managers.shares.insert(me, share);
    }
    let mut result = new;
    last_applied::follow(&mut result, applied, options.manager);
    managers.store(&mut result);
    Ok(result)
}

/// Keeps the record of `after` true after an ordinary write.
///
/// A client may send a record of its own: an unreadable or absent one means the
/// current one, a single empty entry starts a new one.
pub fn track_update(
    kind: &KindInfo,
    before: Option<&Value>,
    after: &mut Value,
    options: UpdateOptions<'_>,
) {
    let shape = schema().of(kind);
    let ignored = ignored(kind, options.subresource);
    // The record stands on both sides, mostly the same: neither needs a copy without it.
    let found = changes(&shape, before.unwrap_or(&NOTHING), after).excluding(&ignored);
    // It is written anew below.
    let mut sent = take_record(after);
    let (written, removed) = (found.added.join(found.modified), found.removed);
    let fields = written.clone().minus(&UNOWNED_FIELDS);
    let by = (!fields.is_empty()).then(|| {
        let me = Manager::updater(options.manager, options.subresource, &kind.api_version());
        let share = Share {
            fields,
            api_version: kind.api_version(),
            time: options.now.to_owned(),
        };
        (me, share)
    });
    // What the server wrote itself can be read, and needn't be.
    let kept = before.and_then(|before| before.pointer("/metadata/managedFields"));
    let entries = match (sent.as_ref() == kept, options.subresource) {
        (true, _) => sent.take(),
        (false, Some(_)) => kept.cloned(),
        (false, None) => None,
    };
    if let Some(Value::Array(entries)) = entries {
        let write = Written {
            written: &written,
            removed: &removed,
            by: by.as_ref(),
        };
        if let Some(amended) = amend(entries, &write) {
            if let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut)
                && !amended.is_empty()
            {
                metadata.insert("managedFields".to_owned(), Value::Array(amended));
            }
            return;
        }
    }

    let current = || before.and_then(Managers::of).unwrap_or_default();
    let mut managers = match options.subresource {
        Some(_) => current(),
        None if sent.as_ref() == Some(&json!([{}])) => Managers::default(),
        // One that is as it was needs no other reading than the current one.
        None => sent
            .as_ref()
            .and_then(Managers::of_record)
            .unwrap_or_else(current),
    };
    managers.take(&written, None);
    managers.take(&removed, None);
    if let Some((me, mut share)) = by {
        if let Some(previous) = managers.shares.remove(&me) {
            share.fields = previous.fields.join(share.fields);
        }
        managers.shares.insert(me, share);
        managers.cap_updaters();
    }
    managers.store(after);
}

/// A copy without its record, which is most of an object and isn't copied first.
fn without_record(object: &Value) -> Value {
    let Some(fields) = object.as_object() else {
        return object.clone();
    };
    let bare = |metadata: &Value| match metadata.as_object() {
        Some(fields) => {
            let rest = fields.iter().filter(|(name, _)| *name != "managedFields");
            Value::Object(
                rest.map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            )
        }
        None => metadata.clone(),
    };
    let fields = fields.iter().map(|(name, value)| match name.as_str() {
        "metadata" => (name.clone(), bare(value)),
        _ => (name.clone(), value.clone()),
    });
    Value::Object(fields.collect())
}

fn take_record(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields")
}

fn before_first_apply(kind: &KindInfo, shape: &Shape, live: &Value) -> Managers {
    let mut managers = Managers::default();
    let fields = changes(shape, &json!({}), live)
        .added
        .minus(&UNOWNED_FIELDS);
    if !fields.is_empty() {
        let share = Share {
            fields,
            api_version: kind.api_version(),
            time: String::new(),
        };
        let manager = Manager::updater(BEFORE_FIRST_APPLY, None, &kind.api_version());
        managers.shares.insert(manager, share);
    }
    managers
}

/// What a request to this resource or subresource cannot write, or nobody can.
fn ignored(kind: &KindInfo, subresource: Option<&str>) -> FieldSet {
    const RECORD: &str = "metadata.managedFields";
    match subresource {
        Some("status") => FieldSet::of_fields(&["spec", RECORD]),
        None if kind.status => FieldSet::of_fields(&["status", RECORD]),
        _ => FieldSet::of_fields(&[RECORD]),
    }
}

fn check_configuration(kind: &KindInfo, applied: &Value) -> Result<(), ApplyError> {
    if !applied.is_object() {
        return Err(ApplyError::Invalid(
            "an applied configuration is an object".to_owned(),
        ));
    }
    if applied
        .pointer("/metadata/managedFields")
        .is_some_and(|v| !v.is_null())
    {
        return Err(ApplyError::Invalid(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    let (version, expected) = (
        applied["apiVersion"].as_str().unwrap_or(""),
        kind.api_version(),
    );
    if version != expected {
        return Err(ApplyError::Invalid(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, \
             expected: {expected}"
        )));
    }
    let problems = schema::check(kind, applied);
    if let Some(path) = problems.unknown.first() {
        let what = format!(".{path}: field not declared in schema");
        return Err(untyped(kind, applied, &what));
    }
    if let Some(mistake) = problems.mistyped.first() {
        return Err(untyped(kind, applied, &format!(".{mistake}")));
    }
    Ok(())
}

fn untyped(kind: &KindInfo, applied: &Value, what: &str) -> ApplyError {
    let text = |path: &str| {
        applied
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    let slash = if kind.group.is_empty() { "/" } else { "" };
    ApplyError::Untyped(format!(
        "failed to create typed patch object ({}/{}; {slash}{}, Kind={}): {what}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        kind.api_version(),
        kind.kind,
    ))
}

/// Removes what was applied last time, is not now, and nobody else owns.
fn prune(
    shape: &Shape,
    whole: &Value,
    last: &FieldSet,
    others: &Managers,
    mine: &FieldSet,
) -> Value {
    let all = |object: &Value| {
        fields_of(shape, object)
            .map(|set| with_parents(shape, &set))
            .unwrap_or_default()
    };
    let last = with_parents(shape, last);
    let everything = all(whole);
    let pruned = without(shape, whole, &last);

    // Put back what anyone owns, this configuration included.
    let owned = others
        .shares
        .values()
        .fold(mine.clone(), |owned, share| owned.union(&share.fields));
    let keep = all(&pruned).union(&with_parents(shape, &owned));
    let pruned = without(shape, whole, &everything.difference(&keep));

    // And what went along with its parent, but was never applied by us.
    let gone = everything.difference(&all(&pruned)).intersection(&last);
    without(shape, whole, &gone)
}

fn conflicts(managers: &Managers, contested: &FieldSet) -> Vec<FieldConflict> {
    let mut conflicts: Vec<FieldConflict> = managers
        .shares
        .iter()
        .flat_map(|(manager, share)| {
            let fields = share.fields.intersection(contested).paths();
            fields.into_iter().map(|field| FieldConflict {
                manager: manager.describe(),
                field,
            })
        })
        .collect();
    conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
    conflicts
}
