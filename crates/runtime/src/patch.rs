//! Changes to objects, as patches: a role writes the fields that it owns and no others.

use orlop_model::{Kind, Meta};
use serde_json::{Value, json};

/// A change to an object.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 7386: what is given replaces what is there; null removes.
    Merge(Value),
    /// RFC 6902: a list of operations, `test` among them.
    Json(Value),
    /// Kubernetes' own: lists merge by their keys.
    Strategic(Value),
}

impl Patch {
    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Self::Merge(_) => "application/merge-patch+json",
            Self::Json(_) => "application/json-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
        }
    }

    pub(crate) fn body(&self) -> &Value {
        match self {
            Self::Merge(body) | Self::Json(body) | Self::Strategic(body) => body,
        }
    }

    /// A merge patch that only applies to the very version of the object that was looked
    /// at: the server answers with a conflict if it has changed since.
    pub fn merge_on<K: Kind>(seen: &K, mut body: Value) -> Self {
        pin(seen.meta(), &mut body);
        Self::Merge(body)
    }

    /// As [`Patch::merge_on`], with Kubernetes' own way of merging lists.
    pub fn strategic_on<K: Kind>(seen: &K, mut body: Value) -> Self {
        pin(seen.meta(), &mut body);
        Self::Strategic(body)
    }
}

fn pin(meta: &Meta, body: &mut Value) {
    body["metadata"]["resourceVersion"] = json!(meta.resource_version);
    body["metadata"]["uid"] = json!(meta.uid);
}

/// What a merge patch makes of an object.
pub(crate) fn merge(object: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *object = change.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let Some(members) = object.as_object_mut() else {
        return;
    };
    for (name, value) in change {
        if value.is_null() {
            members.remove(name);
        } else {
            merge(members.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Adds a finalizer to the very version that was looked at; `None` if it is there.
pub fn with_finalizer<K: Kind>(seen: &K, finalizer: &str) -> Option<Patch> {
    let meta = seen.meta();
    if meta.has_finalizer(finalizer) {
        return None;
    }
    let mut all = meta.finalizers.clone();
    all.push(finalizer.to_owned());
    Some(Patch::merge_on(
        seen,
        json!({"metadata": {"finalizers": all}}),
    ))
}

/// Removes a finalizer from the very version that was looked at; `None` if it isn't there.
pub fn without_finalizer<K: Kind>(seen: &K, finalizer: &str) -> Option<Patch> {
    let meta = seen.meta();
    if !meta.has_finalizer(finalizer) {
        return None;
    }
    let rest: Vec<&String> = meta.finalizers.iter().filter(|f| *f != finalizer).collect();
    Some(Patch::merge_on(
        seen,
        json!({"metadata": {"finalizers": rest}}),
    ))
}

/// Removes finalizers from this very object, whatever else changed on it since it was looked at; `None`
/// if none of them is there. For what is decided for good, and for kinds of Kubernetes' own: others don't
/// merge lists.
pub fn letting_go<K: Kind>(seen: &K, finalizers: &[&str]) -> Option<Patch> {
    let meta = seen.meta();
    let here: Vec<&&str> = finalizers
        .iter()
        .filter(|f| meta.has_finalizer(f))
        .collect();
    let body = json!({"metadata": {
        "uid": meta.uid,
        "$deleteFromPrimitiveList/finalizers": here,
    }});
    (!here.is_empty()).then_some(Patch::Strategic(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_replaces_what_is_given_and_removes_what_is_null() {
        for (before, change, after) in [
            (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": 1}), json!({"a": null}), json!({})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({}), json!({"a": {"b": null}}), json!({"a": {}})),
            (
                json!({"a": "b"}),
                json!({"a": {"c": 1}}),
                json!({"a": {"c": 1}}),
            ),
            (json!({"a": {"b": 1}}), json!({"a": 2}), json!({"a": 2})),
        ] {
            let mut object = before.clone();
            merge(&mut object, &change);
            assert_eq!(object, after, "{before} with {change}");
        }
    }
}
