//! What quotas tell of themselves: how much there may be, and how much there is.

use serde_json::{Value, json};

use super::options;
use crate::kinds;
use crate::quota::RESOURCE;
use crate::refusal::Refusal;
use crate::registry::{Part, Registry, Target, text};

/// Brings the status of a namespace's quotas up to date.
pub(super) async fn tend(registry: &Registry, namespace: &str) -> Result<(), Refusal> {
    for (quota, used) in registry.quotas.used(&registry.store, namespace) {
        let hard = &quota["spec"]["hard"];
        let used: serde_json::Map<String, Value> = used
            .into_iter()
            .map(|(name, amount)| (name, amount.to_string().into()))
            .collect();
        let mut status = json!({});
        if hard.is_object() {
            status = json!({ "hard": hard, "used": used });
        }
        if quota["status"] == status {
            continue;
        }
        let target = Target {
            kind: kinds::find("", "v1", RESOURCE).ok_or_else(Refusal::no_such_path)?,
            namespace: namespace.to_owned(),
            name: text(&quota, "/metadata/name").to_owned(),
        };
        let edit = |current: &Value| {
            let mut told = current.clone();
            // What changed meanwhile brings this task back.
            if current["spec"] == quota["spec"] {
                told["status"].clone_from(&status);
            }
            Ok(told)
        };
        let options = options();
        let changed = registry.change(&target, Part::Status, &options, edit);
        match changed.await {
            Err(refusal) if !matches!(refusal.reason, "NotFound" | "Conflict") => {
                return Err(refusal);
            }
            _ => {}
        }
    }
    Ok(())
}
