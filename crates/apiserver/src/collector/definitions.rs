//! Objects of a defined kind go with its definition.

use std::sync::Arc;

use super::{drop_finalizer, exactly};
use crate::definitions::{FINALIZER, RESOURCE};
use crate::refusal::Refusal;
use crate::registry::{Registry, Target};
use crate::store::{Key, Stored};

/// Deletes the objects of a definition that is being deleted, and lets it go once they are
/// gone.
pub(super) async fn tend(registry: &Registry, name: &str) -> Result<(), Refusal> {
    let key = Key::new(RESOURCE, "", name);
    let deleting = registry.store.get(&key);
    if !deleting.is_some_and(|definition| definition.meta.deleting()) {
        return Ok(());
    }
    let objects: Vec<(Key, Arc<Stored>)> = registry.store.read().entries(name, None).collect();
    for (key, stored) in objects.iter().filter(|(_, stored)| !stored.meta.deleting()) {
        let Some(target) = super::target(registry, key) else {
            continue;
        };
        match registry.delete(&target, &exactly(stored)).await {
            Err(refusal) if !matches!(refusal.reason, "NotFound" | "Conflict") => {
                return Err(refusal);
            }
            _ => {}
        }
    }
    if !objects.is_empty() {
        // The deletions bring events, which bring this task back.
        return Ok(());
    }
    let definition: Option<Target> = super::target(registry, &key);
    match definition {
        Some(definition) => drop_finalizer(registry, &definition, FINALIZER).await,
        None => Ok(()),
    }
}
