//! New namespaces get what each has; deleted ones are emptied.

use std::sync::Arc;

use serde_json::Value;

use super::{exactly, options, residents};
use crate::kinds::{self, KindInfo};
use crate::refusal::Refusal;
use crate::registry::{Part, Registry, Target, resource_of};
use crate::store::{Key, Stored};

/// Gives a namespace what each has; empties one that is being deleted, pods
/// first, and lets it go once it is empty.
pub(super) async fn tend(registry: &Registry, name: &str) -> Result<(), Refusal> {
    let Some(namespace) = registry.store.get(&Key::new("namespaces", "", name)) else {
        return Ok(());
    };
    if !namespace.meta.deleting() {
        return residents::settle(registry, name).await;
    }
    let contents: Vec<(Target, Arc<Stored>)> = {
        let kinds = registry.kinds();
        let state = registry.store.read();
        let kinds = kinds.all().filter(|kind| {
            // Events of the other group are the same objects.
            kind.namespaced && resource_of(kind) == kind.resource()
        });
        let of_kind = |kind: &'static KindInfo| {
            let resource = kind.resource();
            let objects = state
                .list(&resource, Some(name))
                .map(move |(_, object, stored)| {
                    let (namespace, name) = (name.to_owned(), object.to_string());
                    (
                        Target {
                            kind,
                            namespace,
                            name,
                        },
                        Arc::clone(stored),
                    )
                });
            objects.collect::<Vec<_>>()
        };
        kinds.flat_map(of_kind).collect()
    };
    let pods = contents.iter().any(|(target, _)| target.kind.kind == "Pod");
    for (target, stored) in &contents {
        if (pods && target.kind.kind != "Pod") || stored.meta.deleting() {
            continue;
        }
        match registry.delete(target, &exactly(stored)).await {
            Err(refusal) if !matches!(refusal.reason, "NotFound" | "Conflict") => {
                return Err(refusal);
            }
            _ => {}
        }
    }
    if !contents.is_empty() {
        // The deletions bring events, which bring this task back.
        return Ok(());
    }
    let target = Target {
        kind: kinds::find("", "v1", "namespaces").ok_or_else(Refusal::no_such_path)?,
        namespace: String::new(),
        name: name.to_owned(),
    };
    let edit = |current: &Value| {
        let mut freed = current.clone();
        if let Some(all) = freed["spec"]["finalizers"].as_array_mut() {
            all.retain(|one| one != "kubernetes");
        }
        Ok(freed)
    };
    registry
        .change(&target, Part::Finalize, &options(), edit)
        .await
        .map(|_| ())
}
