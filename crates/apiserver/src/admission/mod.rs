//! The rules of single kinds: defaults, admission and validation.
//!
//! Everything here is a function of the object and of a look at the store. It must never
//! write, and never read the time.

mod accounts;
mod claims;
mod classes;
mod cluster;
mod containers;
mod data;
mod defaults;
mod drivers;
mod events;
mod fields;
mod limits;
mod metadata;
mod namespaces;
mod pod_volumes;
mod pods;
mod priorities;
mod quotas;
mod roles;
mod selectors;
mod storage;
mod volumes;
mod workloads;

use orlop_model::well_known;
use serde_json::Value;

use crate::definitions;
use crate::kinds::KindInfo;
use crate::refusal::{FieldError, Refusal};
use crate::registry::{Part, Target};
use crate::store::{Key, State};

pub(crate) use accounts::{TOKEN_VOLUME, admit as admit_account};
pub(crate) use defaults::defaults;
pub(crate) use limits::admit as admit_limits;
pub(crate) use metadata::{LABEL_VALUE, key_fault};
pub(crate) use namespaces::{admit_delete, refusal as namespace_refusal};
pub(crate) use pods::qos_class;
pub(crate) use priorities::system as system_priorities;
pub(crate) use workloads::{first_status, select_by_uid};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Changes a new object as the cluster's policy says, or refuses it.
pub(crate) fn admit_create(
    state: &State,
    target: &Target,
    object: &mut Value,
) -> Result<(), Refusal> {
    namespaces::admit_create(state, target)?;
    if target.kind.custom.is_some() {
        let definition = Key::new(definitions::RESOURCE, "", &target.kind.resource());
        return match state.get(&definition) {
            Some(definition) if !definition.meta.deleting() => Ok(()),
            _ => Err(Refusal::terminating()),
        };
    }
    match (target.kind.group, target.kind.kind) {
        ("", "PersistentVolumeClaim") => {
            claims::drop_unknown_source(object);
            classes::set_default_class(state, object);
            storage::protect(object, well_known::PVC_PROTECTION);
        }
        ("", "PersistentVolume") => storage::protect(object, well_known::PV_PROTECTION),
        ("apiextensions.k8s.io", _) => storage::protect(object, definitions::FINALIZER),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            storage::protect(object, "kubernetes.io/vac-protection");
        }
        ("", "Pod") => {
            priorities::admit_pod(state, target, object)?;
            pods::tolerate_absence(object);
            limits::fill(state, target, object);
        }
        ("scheduling.k8s.io", _) => priorities::admit_class(state, target, object)?,
        _ => {}
    }
    Ok(())
}

/// Refuses a change that the cluster's policy doesn't allow.
pub(crate) fn admit_update(
    state: &State,
    target: &Target,
    part: Part,
    (before, after): (&Value, &Value),
) -> Result<(), Refusal> {
    if target.kind.custom.is_some() {
        return Ok(());
    }
    match (target.kind.kind, part) {
        ("PersistentVolumeClaim", Part::Main) => {
            classes::admit_resize(state, target, before, after)
        }
        ("PriorityClass", _) => priorities::admit_class(state, target, after),
        _ => Ok(()),
    }
}

/// What is wrong with a new object, in its stored form, that was sent as this kind.
pub(crate) fn validate_create(kind: &KindInfo, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate(object);
    match kind.custom {
        Some(custom) => errors.extend(custom.validate(None, object)),
        None => errors.extend(validate(kind, object)),
    }
    if kind.group == "events.k8s.io" {
        errors.extend(events::validate_new(object));
    }
    errors
}

/// What is wrong with a changed object, in its stored form, that was sent as this kind: its part
/// and the change itself.
pub(crate) fn validate_update(
    kind: &KindInfo,
    part: Part,
    before: &Value,
    after: &Value,
) -> Vec<FieldError> {
    let mut errors = metadata::validate(after);
    errors.extend(metadata::validate_change(before, after));
    if let Some(custom) = kind.custom {
        errors.extend(custom.validate(Some(before), after));
        return errors;
    }
    // Whether the rest is right was decided when it was written; a rule that came later
    // must not keep a finalizer from going.
    if part == Part::Main && before["spec"] != after["spec"]
        || !kind.status && contents(before) != contents(after)
    {
        errors.extend(validate(kind, after));
    }
    match (kind.group, kind.kind, part) {
        ("", "PersistentVolumeClaim", Part::Main) => {
            errors.extend(claims::validate_change(before, after));
        }
        ("", "PersistentVolume", Part::Main) => {
            errors.extend(volumes::validate_change(before, after));
        }
        ("", "Pod", Part::Main) => errors.extend(pods::validate_change(before, after)),
        ("storage.k8s.io", "CSIDriver", _) => {
            errors.extend(drivers::validate_change(before, after));
        }
        ("storage.k8s.io", "CSINode", Part::Main) => {
            errors.extend(storage::validate_node_change(before, after));
        }
        ("storage.k8s.io", "CSIStorageCapacity", _) => {
            errors.extend(storage::validate_capacity_change(before, after));
        }
        ("storage.k8s.io", "StorageClass", _) => {
            errors.extend(classes::validate_change(before, after));
        }
        ("storage.k8s.io", "VolumeAttributesClass", _) => {
            for field in ["driverName", "parameters"] {
                if before[field] != after[field] {
                    let why = format!("updates to {field} are forbidden.");
                    errors.push(FieldError::forbidden(field, why));
                }
            }
        }
        ("storage.k8s.io", "VolumeAttachment", Part::Main) => {
            errors.extend(storage::validate_attachment_change(before, after));
        }
        ("storage.k8s.io", "VolumeAttachment", Part::Status)
            if before["status"] != after["status"] =>
        {
            errors.extend(storage::attachment_status_errors(&after["status"]));
        }
        (RBAC, "RoleBinding" | "ClusterRoleBinding", _) => {
            errors.extend(roles::validate_binding_change(before, after));
        }
        ("apiextensions.k8s.io", _, Part::Main) => {
            errors.extend(definitions::validate_definition_change(before, after));
        }
        ("apps" | "batch", other, Part::Main) => {
            errors.extend(workloads::validate_change(other, before, after));
        }
        ("", "ResourceQuota", Part::Main) => {
            errors.extend(quotas::validate_change(before, after));
        }
        ("", "ResourceQuota", Part::Status) => errors.extend(quotas::validate_status(after)),
        ("scheduling.k8s.io", _, _) => {
            errors.extend(priorities::validate_change(before, after));
        }
        ("", "ConfigMap" | "Secret", _) => {
            errors.extend(data::validate_change(before, after));
        }
        ("events.k8s.io", _, _) => errors.extend(events::validate_change(before, after)),
        _ => {}
    }
    errors
}

/// All of an object but its metadata.
fn contents(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "metadata").collect()
}

fn validate(kind: &KindInfo, object: &Value) -> Vec<FieldError> {
    match (kind.group, kind.kind) {
        ("apiextensions.k8s.io", _) => definitions::validate_definition(object),
        ("", "PersistentVolumeClaim") => claims::validate(object),
        ("", "PersistentVolume") => volumes::validate(object),
        ("", "Pod") => pods::validate(object),
        ("apps" | "batch", _) => workloads::validate(kind, object),
        ("", "ConfigMap") => data::validate_map(object),
        ("", "Secret") => data::validate_secret(object),
        ("", "Node") => cluster::validate_node(object),
        ("", "Service") => cluster::validate_service(object),
        ("", "Event") => events::validate(object, events::Came::Core),
        ("events.k8s.io", "Event") => events::validate(object, events::Came::Events),
        ("coordination.k8s.io", "Lease") => cluster::validate_lease(object),
        ("", "ResourceQuota") => quotas::validate(object),
        ("", "LimitRange") => limits::validate(object),
        ("scheduling.k8s.io", _) => priorities::validate(object),
        ("storage.k8s.io", "StorageClass") => classes::validate(object),
        ("storage.k8s.io", "VolumeAttributesClass") => classes::validate_attributes(object),
        ("storage.k8s.io", "VolumeAttachment") => storage::validate_attachment(object),
        ("storage.k8s.io", "CSIDriver") => drivers::validate(object),
        ("storage.k8s.io", "CSINode") => storage::validate_node(object),
        ("storage.k8s.io", "CSIStorageCapacity") => storage::validate_capacity(object),
        (RBAC, "Role" | "ClusterRole") => roles::validate_rules(object, kind.namespaced),
        (RBAC, _) => roles::validate_binding(object, kind.namespaced),
        _ => Vec::new(),
    }
}
