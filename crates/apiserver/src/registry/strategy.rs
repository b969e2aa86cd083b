//! Which parts of an object a request may set: the server's own fields, the status apart
//! from the rest, and what a new object of a kind starts with.

use serde_json::{Map, Value, json};

use super::{Part, metadata, section, text};
use crate::admission;
use crate::kinds::KindInfo;

/// Sets what a client may not choose on a new object.
pub(super) fn before_create(kind: &KindInfo, object: &mut Value, now: &str) {
    if kind.custom.is_some() {
        metadata(object).insert("generation".to_owned(), 1.into());
        if kind.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        return;
    }
    match (kind.group, kind.kind) {
        ("apiextensions.k8s.io" | "scheduling.k8s.io", _) => {
            metadata(object).insert("generation".to_owned(), 1.into());
        }
        ("", "Event") => fill_event(object),
        ("", "Pod") => {
            let qos = admission::qos_class(object);
            object["status"] = json!({ "phase": "Pending", "qosClass": qos });
            metadata(object).insert("generation".to_owned(), 1.into());
        }
        ("", "PersistentVolume") => {
            object["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": now });
        }
        ("", "PersistentVolumeClaim") => {
            object["status"] = json!({ "phase": "Pending" });
            mirror_source(section(object, "spec"));
        }
        ("storage.k8s.io", "CSINode") => object["status"] = json!({}),
        ("", "Namespace") => {
            object["status"] = json!({ "phase": "Active" });
            let finalizers = &mut object["spec"]["finalizers"];
            let theirs = finalizers.as_array().cloned().unwrap_or_default();
            if !theirs.iter().any(|finalizer| finalizer == "kubernetes") {
                let mut all = theirs;
                all.push("kubernetes".into());
                *finalizers = all.into();
            }
        }
        ("apps", "ControllerRevision") => {}
        ("apps" | "batch", _) => {
            metadata(object).insert("generation".to_owned(), 1.into());
            object["status"] = admission::first_status(kind.kind);
            if kind.kind == "Job" {
                admission::select_by_uid(object);
            }
        }
        ("", "ResourceQuota") => {
            section(object, "spec");
            object["status"] = json!({});
        }
        ("", "Service") => object["status"] = json!({ "loadBalancer": {} }),
        ("storage.k8s.io", "VolumeAttachment") => object["status"] = json!({ "attached": false }),
        _ => {}
    }
}

/// Takes back what this part of the object doesn't include.
pub(super) fn before_update(
    kind: &KindInfo,
    part: Part,
    (before, after): (&Value, &mut Value),
    now: &str,
) {
    match part {
        Part::Main if kind.status => keep(before, after, "status"),
        Part::Status => keep_all_but_status(kind, before, after),
        Part::Finalize => {
            keep(before, after, "status");
            keep(before, after, "metadata");
        }
        Part::Main | Part::Binding => {}
    }
    match (kind.group, kind.kind, part) {
        ("", "PersistentVolume", Part::Status) => stamp_phase(before, after, now),
        ("", "PersistentVolumeClaim", Part::Main) => mirror_source(section(after, "spec")),
        ("", "Event", _) => fill_event(after),
        _ => {}
    }
    if kind.kind == "Namespace" && part == Part::Main {
        // Only the finalize subresource changes them.
        keep(before, after, "spec");
    }
    let theirs = metadata(after);
    let ours = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ];
    for field in ours {
        match before["metadata"].get(field) {
            Some(value) => theirs.insert(field.to_owned(), value.clone()),
            None => theirs.remove(field),
        };
    }
}

/// Counts a change of what the object asks for. Defaults must be filled in before: an apply
/// leaves out what nobody manages.
pub(super) fn count_generation(kind: &KindInfo, part: Part, before: &Value, after: &mut Value) {
    let changed = match kind.custom {
        None => {
            // A deployment's annotations are its ReplicaSets', too.
            let annotations = kind.kind == "Deployment"
                && part == Part::Main
                && before["metadata"]["annotations"] != after["metadata"]["annotations"];
            has_generation(kind) && (before["spec"] != after["spec"] || annotations)
        }
        Some(_) => contents(kind, before) != contents(kind, after),
    };
    if part != Part::Binding && changed {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        metadata(after).insert("generation".to_owned(), generation.into());
    }
}

/// What a defined kind's generation counts the changes of: all but metadata and status.
fn contents(kind: &KindInfo, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("metadata");
        if kind.status {
            fields.remove("status");
        }
    }
    object
}

/// A claim names its source twice, for clients that know either field.
fn mirror_source(spec: &mut Map<String, Value>) {
    const CORE: &[&str] = &["PersistentVolumeClaim"];
    const SNAPSHOTS: &[&str] = &["VolumeSnapshot"];
    let known = |source: &Value| {
        let kind = text(source, "/kind");
        match text(source, "/apiGroup") {
            "" => CORE.contains(&kind),
            "snapshot.storage.k8s.io" => SNAPSHOTS.contains(&kind),
            _ => false,
        }
    };
    // The older field takes two kinds only; others it says nothing of.
    if spec.get("dataSource").is_some_and(|source| !known(source))
        && spec.contains_key("dataSourceRef")
    {
        spec.remove("dataSource");
    }
    match (spec.get("dataSource"), spec.get("dataSourceRef")) {
        (Some(source), None) => {
            let source = source.clone();
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if text(reference, "/namespace").is_empty() => {
            let mut source = reference.clone();
            if let Some(fields) = source.as_object_mut() {
                fields.remove("namespace");
            }
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

/// A volume tells since when it has been in its phase, unless the writer says so itself.
fn stamp_phase(before: &Value, after: &mut Value, now: &str) {
    const SINCE: &str = "lastPhaseTransitionTime";
    let (old, new) = (&before["status"], &mut after["status"]);
    if old["phase"] == new["phase"] {
        return;
    }
    if new[SINCE].is_null() || new[SINCE] == old[SINCE] {
        new[SINCE] = now.into();
    }
}

fn has_generation(kind: &KindInfo) -> bool {
    matches!(kind.kind, "Pod" | "CSIDriver" | "CustomResourceDefinition")
        || matches!(kind.group, "apps" | "batch") && kind.status
}

fn keep(before: &Value, after: &mut Value, field: &str) {
    let Some(fields) = after.as_object_mut() else {
        return;
    };
    match before.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

fn keep_all_but_status(kind: &KindInfo, before: &Value, after: &mut Value) {
    let mut kept = before.clone();
    match after.get_mut("status") {
        Some(status) => kept["status"] = status.take(),
        None => {
            section(&mut kept, "status").clear();
        }
    }
    let mut theirs = vec!["managedFields"];
    // The status of an attachment is the attacher's alone, its metadata are not.
    if kind.kind != "VolumeAttachment" {
        theirs.extend(["labels", "annotations", "finalizers"]);
        if kind.kind != "Pod" {
            theirs.push("ownerReferences");
        }
    }
    let kept_metadata = metadata(&mut kept);
    for field in theirs {
        match after["metadata"].get(field) {
            Some(value) => kept_metadata.insert(field.to_owned(), value.clone()),
            None => kept_metadata.remove(field),
        };
    }
    *after = kept;
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(super) fn is_finished(kind: &KindInfo, object: &Value) -> bool {
    let none = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
    };
    let grace = object["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0);
    !text(object, "/metadata/deletionTimestamp").is_empty()
        && grace == 0
        && none("/metadata/finalizers")
        && (kind.kind != "Namespace" || none("/spec/finalizers"))
}

/// Whether an object of this kind may be replaced without naming its revision.
pub(super) fn allows_unconditional_update(kind: &KindInfo) -> bool {
    kind.custom.is_none()
        && !matches!(
            kind.kind,
            "Lease" | "VolumeAttachment" | "CSIDriver" | "CSINode" | "CSIStorageCapacity"
        )
}

/// Whether a PUT makes the object if it isn't there.
pub(super) fn allows_create_on_update(kind: &KindInfo) -> bool {
    kind.custom.is_none() && matches!(kind.kind, "Lease" | "Event" | "Endpoints")
}

/// What every event of the original has, if empty.
fn fill_event(event: &mut Value) {
    for (field, empty) in [
        ("involvedObject", json!({})),
        ("source", json!({})),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
    ] {
        if event[field].is_null() {
            event[field] = empty;
        }
    }
}
