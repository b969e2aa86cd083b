//! Roles that gather the rules of others keep up with them.

use serde_json::Value;

use super::options;
use crate::access::gathered;
use crate::kinds;
use crate::refusal::Refusal;
use crate::registry::{Part, Registry, Target, text};

/// The resource whose changes matter here.
pub(super) const RESOURCE: &str = "clusterroles.rbac.authorization.k8s.io";

/// Gathers anew what has changed. A role that others gather in turn brings this back.
pub(super) async fn tend(registry: &Registry) -> Result<(), Refusal> {
    let all: Vec<Value> = {
        let state = registry.store.read();
        let roles = state.list(RESOURCE, None);
        roles.map(|(_, _, role)| role.value()).collect()
    };
    let kind = kinds::find("rbac.authorization.k8s.io", "v1", "clusterroles");
    let kind = kind.ok_or_else(Refusal::no_such_path)?;
    for role in &all {
        let Some(rules) = gathered(role, &all).map(Value::from) else {
            continue;
        };
        let own = role["rules"].as_array().map_or(&[][..], Vec::as_slice);
        if rules.as_array().map(Vec::as_slice) == Some(own) {
            continue;
        }
        let target = Target {
            kind,
            namespace: String::new(),
            name: text(role, "/metadata/name").to_owned(),
        };
        let edit = |current: &Value| {
            let mut next = current.clone();
            if current["aggregationRule"] == role["aggregationRule"] {
                next["rules"].clone_from(&rules);
            }
            Ok(next)
        };
        let options = options();
        match registry.change(&target, Part::Main, &options, edit).await {
            Err(refusal) if !matches!(refusal.reason, "NotFound" | "Conflict") => {
                return Err(refusal);
            }
            _ => {}
        }
    }
    Ok(())
}
