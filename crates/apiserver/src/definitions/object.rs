//! What becomes of a definition: its defaults, and what the server says of it in the status.

use serde_json::{Value, json};

use super::RESOURCE;
use super::approval::{Approval, is_protected};
use crate::kinds::KindInfo;
use crate::registry::{section, text};
use crate::store::State;

/// Holds a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether objects of this kind define kinds.
pub(crate) fn is_definition(kind: &KindInfo) -> bool {
    (kind.group, kind.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// Whether a condition holds.
pub(super) fn is_true(definition: &Value, condition: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == condition && one["status"] == "True")
}

/// The version that objects are stored in.
pub(super) fn storage_version(spec: &Value) -> &str {
    let versions = spec["versions"].as_array();
    let mut versions = versions.into_iter().flatten();
    let version = versions.find(|version| version["storage"] == true);
    version.map_or("", |version| text(version, "/name"))
}

/// Fills in what was left out.
pub(crate) fn defaults(object: &mut Value) {
    let kind = text(object, "/spec/names/kind").to_owned();
    let spec = section(object, "spec");
    spec.entry("conversion")
        .or_insert_with(|| json!({ "strategy": "None" }));
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        names
            .entry("singular")
            .or_insert_with(|| kind.to_lowercase().into());
        names
            .entry("listKind")
            .or_insert_with(|| format!("{kind}List").into());
    }
}

/// Says in the status what the server makes of a definition.
pub(crate) fn settle(state: &State, before: Option<&Value>, object: &mut Value, now: &str) {
    let taken = taken_name(state, object);
    let established = before.is_some_and(|before| is_true(before, "Established"));
    let accepted = taken.is_none();
    let (reason, message) = match &taken {
        None => ("NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => (*reason, message.clone()),
    };
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        let old = before.and_then(|before| before["status"]["conditions"].as_array());
        let mut old = old.into_iter().flatten();
        let same = old.find(|one| one["type"] == kind && one["status"] == status);
        let since = same.map_or(now, |one| text(one, "/lastTransitionTime"));
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since,
        })
    };
    let mut conditions = vec![condition("NamesAccepted", accepted, reason, &message)];
    conditions.push(if established || accepted {
        let message = "the initial names have been accepted";
        condition("Established", true, "InitialNamesAccepted", message)
    } else {
        condition(
            "Established",
            false,
            "NotAccepted",
            "not all names are accepted",
        )
    });
    if is_protected(text(object, "/spec/group")) {
        let approval = Approval::of(object);
        let holds = matches!(approval, Approval::Approved(_));
        let kind = "KubernetesAPIApprovalPolicyConformant";
        conditions.push(condition(
            kind,
            holds,
            approval.reason(),
            &approval.to_string(),
        ));
    }
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        let message = "CustomResource deletion is in progress";
        conditions.push(condition(
            "Terminating",
            true,
            "InstanceDeletionInProgress",
            message,
        ));
    }
    let old = before.map_or(&Value::Null, |before| &before["status"]);
    let mut stored = old["storedVersions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let storage = Value::from(storage_version(&object["spec"]));
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    let names = if accepted {
        object["spec"]["names"].clone()
    } else {
        old["acceptedNames"].clone()
    };
    object["status"] = json!({ "conditions": conditions, "storedVersions": stored });
    if names.is_object() {
        object["status"]["acceptedNames"] = names;
    }
}

/// Says in the status that a definition, and all that it defines, is to go.
pub(crate) fn terminate(object: &mut Value, now: &str) {
    let conditions = section(object, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|one| one["type"] != "Terminating");
        conditions.push(json!({
            "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will \
                        begin soon",
            "lastTransitionTime": now,
        }));
    }
}

/// A name that another definition of the group has already.
fn taken_name(state: &State, object: &Value) -> Option<(&'static str, String)> {
    let resources = |object: &Value| -> Vec<(&'static str, String)> {
        let names = &object["spec"]["names"];
        let short = names["shortNames"].as_array().into_iter().flatten();
        let short = short.map(|name| ("ShortNamesConflict", name));
        [
            ("PluralConflict", &names["plural"]),
            ("SingularConflict", &names["singular"]),
        ]
        .into_iter()
        .chain(short)
        .filter_map(|(reason, name)| Some((reason, name.as_str()?.to_owned())))
        .collect()
    };
    let kinds = |object: &Value| -> Vec<(&'static str, String)> {
        let names = &object["spec"]["names"];
        [
            ("KindConflict", &names["kind"]),
            ("ListKindConflict", &names["listKind"]),
        ]
        .into_iter()
        .filter_map(|(reason, name)| Some((reason, name.as_str()?.to_owned())))
        .collect()
    };
    let mine = [resources(object), kinds(object)];
    let mut told = None;
    for (_, name, stored) in state.list(RESOURCE, None) {
        let other = stored.value();
        let same_group = other["spec"]["group"] == object["spec"]["group"];
        if **name == *text(object, "/metadata/name") || !same_group {
            continue;
        }
        let theirs = [resources(&other), kinds(&other)];
        for (mine, theirs) in mine.iter().zip(&theirs) {
            let taken = |(_, name): &&(&str, String)| theirs.iter().any(|(_, other)| other == name);
            // Of several, the original tells the last.
            if let Some((reason, name)) = mine.iter().rfind(taken) {
                told = Some((*reason, format!("\"{name}\" is already in use")));
            }
        }
    }
    told
}
