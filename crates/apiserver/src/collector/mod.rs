//! The collector: deletes what nothing holds any more.
//!
//! It owns seven chores of the cluster: objects whose owners are gone, the contents of
//! namespaces and the objects of defined kinds that are being deleted, what every namespace
//! has, what quotas tell of themselves, roles that gather the rules
//! of others, and old events. It follows the store's own
//! events and starts from all objects, so a crash at any point is made up for at the next
//! start. It must never delete what still has an owner that is present.

mod definitions;
mod events;
mod namespaces;
mod owners;
mod quotas;
mod residents;
mod roles;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use self::owners::{Owner, Verdict};
use crate::definitions::RESOURCE as DEFINITIONS;
use crate::document::Source;
use crate::kinds::{KindInfo, Kinds};
use crate::quota;
use crate::refusal::Refusal;
use crate::registry::{
    DeleteOptions, FOREGROUND, ORPHAN, Part, Registry, Target, Warnings, WriteOptions, resource_of,
    text,
};
use crate::schema::FieldValidation;
use crate::store::{Event, Key, State, Stored};

/// How often old events are looked for.
const EVENT_SWEEP: Duration = Duration::from_mins(10);

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// A namespace that is being deleted, or one that is new.
    Namespace(Arc<str>),
    /// An object with owners.
    Dependent(Key),
    /// An object that waits for what depends on it.
    Owner(Key),
    /// A definition that is being deleted.
    Definition(Arc<str>),
    /// The quotas of a namespace.
    Quotas(Arc<str>),
    /// The roles that gather others.
    Roles,
}

/// Runs until it is ended, or the store is closed.
pub(crate) async fn run(registry: Registry) {
    let mut changes = registry.store.alarm(matters);
    let mut health = registry.store.health();
    let mut seen = None;
    // What could not be done for want of room.
    let mut left = BTreeSet::new();
    let mut sweep = tokio::time::interval(EVENT_SWEEP);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        changes.note();
        let kinds = registry.kinds();
        let (tasks, revision) = due(&kinds, &registry.store.read(), seen);
        seen = Some(revision);
        health.borrow_and_update();
        for task in tasks.into_iter().chain(std::mem::take(&mut left)) {
            match carry_out(&registry, &task).await {
                Ok(()) => {}
                Err(refusal) if refusal.is_for_room() => drop(left.insert(task)),
                Err(refusal) if refusal.code == http::StatusCode::SERVICE_UNAVAILABLE => return,
                Err(refusal) => tracing::warn!(?task, %refusal, "could not collect"),
            }
        }
        tokio::select! {
            biased;
            () = changes.rung() => {}
            _ = health.changed(), if !left.is_empty() => {}
            _ = sweep.tick() => events::forget_old(&registry).await,
        }
    }
}

/// What the changes since a revision call for; without one, or if it is too old, what all
/// objects call for.
fn due(kinds: &Kinds, state: &State, seen: Option<u64>) -> (BTreeSet<Task>, u64) {
    let mut tasks = BTreeSet::new();
    for resource in state.resources() {
        let events = seen.and_then(|seen| state.events_after(resource, seen).ok());
        match events {
            Some(events) => {
                for event in events {
                    let due = tasks_of_event(kinds, state, event);
                    debug_assert!(due.is_empty() || matters(state, event), "{due:?}");
                    tasks.extend(due);
                }
            }
            None => {
                for (key, object) in state.entries(resource, None) {
                    tasks.extend(tasks_of_object(&key, &object));
                }
            }
        }
    }
    (tasks, state.revision())
}

/// Whether an event may call for anything. Most don't: a look at all resources for each would cost
/// more than the write itself.
fn matters(state: &State, event: &Event) -> bool {
    let object = &event.object;
    let of_ownership = match &event.before {
        _ if event.deleted || object.meta.deleting() => true,
        Some(before) => !before.meta.owners().eq(object.meta.owners()) || before.meta.deleting(),
        None => object.meta.owners().next().is_some() || &*event.key.resource == "namespaces",
    };
    of_ownership
        || matches!(&*event.key.resource, roles::RESOURCE | quota::RESOURCE)
        || residents::are_touched_by(event)
        || !event.key.namespace.is_empty() && quota::are_in(state, &event.key.namespace)
}

fn tasks_of_object(key: &Key, object: &Stored) -> Vec<Task> {
    let mut tasks = Vec::new();
    if &*key.resource == "namespaces" {
        tasks.push(Task::Namespace(Arc::clone(&key.name)));
    }
    if &*key.resource == roles::RESOURCE {
        tasks.push(Task::Roles);
    }
    if &*key.resource == quota::RESOURCE {
        tasks.push(Task::Quotas(Arc::clone(&key.namespace)));
    }
    if object.meta.owners().next().is_some() {
        tasks.push(Task::Dependent(key.clone()));
    }
    if object.meta.deleting() {
        tasks.push(Task::Owner(key.clone()));
        if &*key.resource == DEFINITIONS {
            tasks.push(Task::Definition(Arc::clone(&key.name)));
        }
    }
    tasks
}

fn tasks_of_event(kinds: &Kinds, state: &State, event: &Event) -> Vec<Task> {
    let mut tasks = ownership_tasks(kinds, state, event);
    if &*event.key.resource == roles::RESOURCE {
        tasks.push(Task::Roles);
    }
    let namespace = &event.key.namespace;
    if !namespace.is_empty() && quota::are_in(state, namespace) {
        tasks.push(Task::Quotas(Arc::clone(namespace)));
    }
    if residents::are_touched_by(event) {
        tasks.push(Task::Namespace(Arc::clone(&event.key.namespace)));
    }
    tasks
}

fn ownership_tasks(kinds: &Kinds, state: &State, event: &Event) -> Vec<Task> {
    if !event.deleted {
        let same = |before: &Arc<Stored>| {
            before.meta.owners().eq(event.object.meta.owners())
                && before.meta.deleting() == event.object.meta.deleting()
        };
        if event.before.as_ref().is_some_and(same) && !event.object.meta.deleting() {
            return Vec::new();
        }
        let mut tasks = tasks_of_object(&event.key, &event.object);
        tasks.extend(leaving_owners(kinds, state, event));
        if event.object.meta.deleting() {
            tasks.extend(
                state
                    .dependents(event.object.meta.uid())
                    .cloned()
                    .map(Task::Dependent),
            );
        }
        return tasks;
    }
    let mut tasks: Vec<Task> = state
        .dependents(event.object.meta.uid())
        .cloned()
        .map(Task::Dependent)
        .collect();
    tasks.extend(leaving_owners(kinds, state, event));
    let namespace = Key::new("namespaces", "", &event.key.namespace);
    if state
        .get(&namespace)
        .is_some_and(|namespace| namespace.meta.deleting())
    {
        tasks.push(Task::Namespace(Arc::clone(&event.key.namespace)));
    }
    // A definition has the name of the resource that it defines.
    let definition = Key::new(DEFINITIONS, "", &event.key.resource);
    if state
        .get(&definition)
        .is_some_and(|definition| definition.meta.deleting())
    {
        tasks.push(Task::Definition(definition.name));
    }
    tasks
}

/// The owners of a changed object that wait for it.
fn leaving_owners(kinds: &Kinds, state: &State, event: &Event) -> Vec<Task> {
    if event.object.meta.owners().next().is_none() {
        return Vec::new();
    }
    let object = event.object.value();
    references(&object)
        .filter_map(|reference| owner_key(kinds, &event.key, reference))
        .filter(|(key, _)| state.get(key).is_some_and(|owner| owner.meta.deleting()))
        .map(|(key, _)| Task::Owner(key))
        .collect()
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
}

/// Where an owner is stored; none if its kind isn't served.
fn owner_key(
    kinds: &Kinds,
    dependent: &Key,
    reference: &Value,
) -> Option<(Key, &'static KindInfo)> {
    let kind = kinds.by_kind(text(reference, "/apiVersion"), text(reference, "/kind"))?;
    let namespace = if kind.namespaced {
        &*dependent.namespace
    } else {
        ""
    };
    Some((
        Key::new(&resource_of(kind), namespace, text(reference, "/name")),
        kind,
    ))
}

async fn carry_out(registry: &Registry, task: &Task) -> Result<(), Refusal> {
    let outcome = match task {
        Task::Namespace(name) => namespaces::tend(registry, name).await,
        Task::Dependent(key) => dependent(registry, key).await,
        Task::Owner(key) => owner(registry, key).await,
        Task::Definition(name) => definitions::tend(registry, name).await,
        Task::Quotas(namespace) => quotas::tend(registry, namespace).await,
        Task::Roles => roles::tend(registry).await,
    };
    match outcome {
        // Somebody else was faster; what they did brings its own event.
        Err(refusal) if matches!(refusal.reason, "NotFound" | "Conflict") => Ok(()),
        other => other,
    }
}

fn target(registry: &Registry, key: &Key) -> Option<Target> {
    let kinds = registry.kinds();
    let kind = kinds.all().find(|kind| kind.resource() == *key.resource)?;
    Some(Target {
        kind,
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
    })
}

fn options() -> WriteOptions {
    WriteOptions {
        dry_run: false,
        validation: FieldValidation::Ignore,
        source: Source::default(),
        warnings: Warnings::default(),
        manager: "orlop-collector".to_owned(),
    }
}

/// Deletes an object only if it is still the one that was decided on.
fn exactly(object: &Stored) -> DeleteOptions {
    DeleteOptions {
        uid: Some(object.meta.uid().to_owned()),
        ..Default::default()
    }
}

/// Does what an object's owners call for. A writer that comes in between changes the object
/// under the decision: most often its status, which brings no further look at its owners, so
/// the decision is made again here.
async fn dependent(registry: &Registry, key: &Key) -> Result<(), Refusal> {
    loop {
        let (Some(stored), Some(target)) = (registry.store.get(key), target(registry, key)) else {
            return Ok(());
        };
        match settle(registry, key, &stored, &target).await {
            Err(refusal) if refusal.reason == "Conflict" => {}
            other => return other,
        }
    }
}

/// One look at an object as it was read, and the step that follows; a conflict if it is
/// another by then.
async fn settle(
    registry: &Registry,
    key: &Key,
    stored: &Stored,
    target: &Target,
) -> Result<(), Refusal> {
    let object = stored.value();
    let kinds = registry.kinds();
    let verdict = {
        let state = registry.store.read();
        let owners: Vec<(&Value, Owner)> = references(&object)
            .map(|reference| (reference, owner_state(&kinds, &state, key, reference)))
            .collect();
        owners::decide(&owners)
    };
    match verdict {
        Verdict::Keep => Ok(()),
        Verdict::Delete if stored.meta.deleting() => Ok(()),
        Verdict::Delete => {
            // The owners may change between the look and the deletion.
            let mut options = exactly(stored);
            options.resource_version = Some(stored.revision.to_string());
            registry.delete(target, &options).await.map(|_| ())
        }
        Verdict::Release { uids } => {
            let edit = |current: &Value| Ok(owners::without_owners(current, &uids));
            let changed = registry.change(target, Part::Main, &options(), edit).await;
            changed.map(|_| ())
        }
    }
}

fn owner_state(kinds: &Kinds, state: &State, dependent: &Key, reference: &Value) -> Owner {
    let Some((key, _)) = owner_key(kinds, dependent, reference) else {
        return Owner::Unknown;
    };
    match state.get(&key) {
        Some(owner) if owner.meta.uid() == text(reference, "/uid") => {
            if owner.meta.deleting() && has_finalizer(&owner.value(), FOREGROUND) {
                Owner::Waiting
            } else {
                Owner::Present
            }
        }
        _ => Owner::Absent,
    }
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == finalizer))
}

/// Lets an owner go once its dependents are gone, or once they are on their own.
async fn owner(registry: &Registry, key: &Key) -> Result<(), Refusal> {
    let (Some(stored), Some(target)) = (registry.store.get(key), target(registry, key)) else {
        return Ok(());
    };
    let object = stored.value();
    let uid = stored.meta.uid();
    let dependents: Vec<Key> = registry.store.read().dependents(uid).cloned().collect();
    if has_finalizer(&object, ORPHAN) {
        let uids = [uid.to_owned()];
        for dependent in dependents {
            let Some(target) = self::target(registry, &dependent) else {
                continue;
            };
            let edit = |current: &Value| Ok(owners::without_owners(current, &uids));
            match registry.change(&target, Part::Main, &options(), edit).await {
                Err(refusal) if refusal.reason != "NotFound" => return Err(refusal),
                _ => {}
            }
        }
        return drop_finalizer(registry, &target, ORPHAN).await;
    }
    if !has_finalizer(&object, FOREGROUND) {
        return Ok(());
    }
    let blocked = {
        let state = registry.store.read();
        dependents
            .iter()
            .filter_map(|key| state.get(key))
            .any(|dependent| {
                let dependent = dependent.value();
                references(&dependent).any(|reference| {
                    text(reference, "/uid") == uid && reference["blockOwnerDeletion"] == true
                })
            })
    };
    for key in &dependents {
        carry_out_dependent(registry, key).await?;
    }
    if blocked {
        Ok(())
    } else {
        drop_finalizer(registry, &target, FOREGROUND).await
    }
}

async fn carry_out_dependent(registry: &Registry, key: &Key) -> Result<(), Refusal> {
    match dependent(registry, key).await {
        Err(refusal) if matches!(refusal.reason, "NotFound" | "Conflict") => Ok(()),
        other => other,
    }
}

async fn drop_finalizer(
    registry: &Registry,
    target: &Target,
    finalizer: &str,
) -> Result<(), Refusal> {
    let edit = |current: &Value| {
        let mut freed = current.clone();
        if let Some(all) = freed["metadata"]["finalizers"].as_array_mut() {
            all.retain(|one| one != finalizer);
        }
        Ok(freed)
    };
    let changed = registry.change(target, Part::Main, &options(), edit).await;
    changed.map(|_| ())
}
