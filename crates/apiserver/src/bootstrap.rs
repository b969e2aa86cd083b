//! What every cluster has from its first moment: its namespaces, its default roles and the
//! priorities of its own pods.

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::access;
use crate::admission;
use crate::document::Source;
use crate::kinds;
use crate::refusal::Refusal;
use crate::registry::{Part, Registry, Target, Warnings, WriteOptions, text};
use crate::schema::FieldValidation;
use crate::store::Health;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
const SCHEDULING: &str = "scheduling.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Creates what is missing, all at once so that it is made durable at once.
pub(crate) async fn write(registry: &Registry) -> Result<(), Refusal> {
    let namespaces = NAMESPACES.map(|name| json!({ "metadata": { "name": name } }));
    let namespaces = namespaces
        .into_iter()
        .map(|object| ("", "namespaces", object));
    let roles = access::default_roles();
    let roles = roles
        .into_iter()
        .map(|(plural, object)| (RBAC, plural, object));
    let priorities = admission::system_priorities();
    let priorities = priorities.map(|object| (SCHEDULING, "priorityclasses", object));
    let objects = namespaces.chain(roles).chain(priorities);
    try_join_all(objects.map(|object| create(registry, object))).await?;
    Ok(())
}

/// Creates what is missing once there is room for it.
pub(crate) async fn write_when_there_is_room(registry: Registry) {
    let mut health = registry.store.health();
    while health.wait_for(Health::is_well).await.is_ok() {
        match write(&registry).await {
            Err(refusal) if refusal.is_for_room() => {}
            Err(refusal) => {
                return tracing::error!(%refusal, "could not write what every cluster has");
            }
            Ok(()) => return,
        }
    }
}

async fn create(
    registry: &Registry,
    (group, plural, object): (&str, &str, Value),
) -> Result<(), Refusal> {
    let kind = kinds::find(group, "v1", plural).ok_or_else(Refusal::no_such_path)?;
    let options = WriteOptions {
        dry_run: false,
        validation: FieldValidation::Ignore,
        source: Source::default(),
        warnings: Warnings::default(),
        manager: "orlop".to_owned(),
    };
    match registry.create(kind, "", object.clone(), &options).await {
        Err(refusal) if refusal.reason == "AlreadyExists" && group == RBAC => {
            let target = Target {
                kind,
                namespace: String::new(),
                name: text(&object, "/metadata/name").to_owned(),
            };
            let mend = |current: &Value| Ok(access::mended_role(current, &object));
            let mended = registry.change(&target, Part::Main, &options, mend);
            mended.await.map(|_| ())
        }
        Err(refusal) if refusal.reason != "AlreadyExists" => Err(refusal),
        _ => Ok(()),
    }
}
