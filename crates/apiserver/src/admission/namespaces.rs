//! NamespaceLifecycle: nothing comes to be in a namespace that is absent or on its way out.

use crate::kinds;
use crate::refusal::Refusal;
use crate::registry::Target;
use crate::store::{Key, State};

/// Namespaces that the cluster itself needs.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn admit_create(state: &State, target: &Target) -> Result<(), Refusal> {
    if !target.kind.namespaced {
        return Ok(());
    }
    let namespace = state.get(&Key::new("namespaces", "", &target.namespace));
    match namespace {
        Some(namespace) if !namespace.meta.deleting() => Ok(()),
        _ => Err(refusal(state, target)),
    }
}

/// Why an object can't be created in its namespace.
pub(crate) fn refusal(state: &State, target: &Target) -> Refusal {
    let namespace = &target.namespace;
    match state.get(&Key::new("namespaces", "", namespace)) {
        Some(_) => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being \
                 terminated"
            );
            let mut refusal = Refusal::forbidden(target.kind, &target.name, why);
            refusal.details["causes"] = serde_json::json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
            refusal
        }
        None => match kinds::find("", "v1", "namespaces") {
            Some(kind) => Refusal::not_found(kind, namespace),
            None => Refusal::no_such_path(),
        },
    }
}

/// Refuses to delete the namespaces that the cluster itself needs.
pub(crate) fn admit_delete(target: &Target) -> Result<(), Refusal> {
    if target.kind.kind == "Namespace" && IMMORTAL.contains(&target.name.as_str()) {
        return Err(Refusal::forbidden(
            target.kind,
            &target.name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}
