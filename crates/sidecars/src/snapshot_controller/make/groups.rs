//! Contents for groups.
//!
//! Which volumes are cut together stands on the group from before its content is there: a content that
//! somebody takes away by force during the cut can be made once more, for the same volumes, whatever the
//! selector finds by then. A group is a user's object, so that what stands on it is believed only as far as
//! volumes bear it out that belong to claims of its namespace.

use std::sync::Arc;

use orlop_model::{
    Claim, Kind as _, Volume, VolumeGroupSnapshot, VolumeGroupSnapshotContent,
    group_snapshot::{GroupContentSource, GroupContentSpec},
    snapshot::DeletionPolicy,
    well_known as names,
};
use orlop_runtime::{ApiError, Outcome};
use serde_json::json;

use super::{
    AGAIN, Bench, Obstacle, Purpose, Recipe, Refusal, Source, Wish, anew, create, creation_failed,
    held, lost, recipe, same_driver, secret, volume_of,
};

/// What a group needs.
struct Order {
    class: String,
    /// Its content, unless something stands against it.
    content: Result<VolumeGroupSnapshotContent, Obstacle>,
}

/// The volumes that are on record as cut together.
fn recorded(group: &VolumeGroupSnapshot) -> Option<Vec<String>> {
    let text = group.metadata.annotation(names::GROUP_SNAPSHOT_VOLUMES)?;
    let handles: Vec<String> = serde_json::from_str(text).ok()?;
    (!handles.is_empty()).then_some(handles)
}

/// Whether a volume belongs, or belonged, to a claim of this namespace.
fn is_of(volume: &Volume, namespace: &str) -> bool {
    let owner = volume.spec.claim_ref.as_ref();
    owner.is_some_and(|owner| owner.namespace == namespace)
}

/// Looks everything up that a content is made of.
async fn order(
    bench: &Bench<VolumeGroupSnapshot>,
    wish: &VolumeGroupSnapshot,
) -> Result<Result<Order, Refusal>, ApiError> {
    let (shop, words) = (&bench.shop, &VolumeGroupSnapshot::WORDS);
    let selector = wish.spec.source.selector.clone().unwrap_or_default();
    let namespace = &wish.metadata.namespace;
    let claims: Vec<Arc<Claim>> = shop
        .claims
        .all()
        .into_iter()
        .filter(|claim| claim.metadata.namespace == *namespace)
        .filter(|claim| selector.matches(&claim.metadata.labels))
        .collect();
    let mut volumes: Vec<Option<Arc<Volume>>> = Vec::new();
    for claim in &claims {
        volumes.push(shop.volume(claim).await?);
    }
    let found = || {
        if claims.is_empty() {
            let labels = selector.match_labels.iter();
            let labels: Vec<String> = labels.map(|(k, v)| format!("{k}={v}")).collect();
            return Err(Obstacle::NobodySelected(labels.join(",")));
        }
        claims
            .iter()
            .zip(&volumes)
            .map(|(claim, volume)| volume_of(claim, volume.as_deref(), words.word))
            .collect::<Result<Vec<_>, _>>()
    };
    let classes = bench.classes.all();
    let recipes: Vec<Recipe<'_>> = classes
        .iter()
        .map(|class| Recipe {
            name: &class.metadata.name,
            driver: &class.driver,
            is_default: class.is_default(),
            policy: class.deletion_policy,
            parameters: &class.parameters,
        })
        .collect();
    let driver = || {
        let all = found()?;
        let first = all.first().map(|(_, csi)| csi.driver.clone());
        Ok(first.unwrap_or_default())
    };
    let recipe = match recipe(words, wish.class_name(), &recipes, driver) {
        Ok(recipe) => recipe,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let is_theirs = |handle: &String| {
        let volume = shop.volume_of(recipe.driver, handle);
        volume.is_some_and(|volume| is_of(&volume, namespace))
    };
    let recorded = recorded(wish).filter(|handles| handles.iter().all(is_theirs));
    let handles = match recorded {
        Some(recorded) => Ok(recorded),
        None => found().and_then(|all| {
            for (volume, csi) in &all {
                same_driver(&recipe, volume, csi)?;
            }
            let handles = all.iter().map(|(_, csi)| csi.volume_handle.clone());
            Ok(handles.collect())
        }),
    };
    let content_name = VolumeGroupSnapshot::content_name(wish);
    let wanted = handles.and_then(|handles| {
        let (parameters, owner) = (recipe.parameters, wish.key());
        let secret = secret(parameters, Purpose::Group, &content_name, Some(&owner))?;
        Ok((handles, secret))
    });
    let secrets = [
        names::GROUP_SNAPSHOT_SECRET_NAME,
        names::GROUP_SNAPSHOT_SECRET_NAMESPACE,
    ];
    let content = wanted.map(|(volume_handles, secret)| VolumeGroupSnapshotContent {
        metadata: held::<VolumeGroupSnapshotContent>(&content_name, secret.as_ref(), secrets),
        spec: GroupContentSpec {
            volume_group_snapshot_ref: wish.reference(),
            deletion_policy: recipe.policy,
            driver: recipe.driver.to_owned(),
            volume_group_snapshot_class_name: Some(recipe.name.to_owned()),
            source: GroupContentSource {
                volume_handles,
                group_snapshot_handles: None,
            },
        },
        status: None,
    });
    Ok(Ok(Order {
        class: recipe.name.to_owned(),
        content,
    }))
}

pub(in crate::snapshot_controller) async fn group(
    bench: &Bench<VolumeGroupSnapshot>,
    wish: &VolumeGroupSnapshot,
) -> Result<Outcome, ApiError> {
    let words = &VolumeGroupSnapshot::WORDS;
    let order = match order(bench, wish).await? {
        Ok(order) => order,
        Err(refusal) => return bench.refuse(wish, &refusal).await,
    };
    if wish.class_name().is_none() {
        let body = json!({"spec": {"volumeGroupSnapshotClassName": order.class}});
        bench.write(wish, body).await?;
        return Ok(AGAIN);
    }
    let mut content = match order.content {
        Ok(content) => content,
        Err(obstacle) => return bench.refuse(wish, &creation_failed(words, &obstacle)).await,
    };
    let Some(wish) = record(bench, wish, &content).await? else {
        return Ok(AGAIN);
    };
    content.spec.volume_group_snapshot_ref = wish.reference();
    create(bench, &wish, &content).await
}

/// From here on a deletion is seen, and it is known what is cut; `None` if the group has changed.
async fn record(
    bench: &Bench<VolumeGroupSnapshot>,
    wish: &VolumeGroupSnapshot,
    content: &VolumeGroupSnapshotContent,
) -> Result<Option<VolumeGroupSnapshot>, ApiError> {
    let volumes = &content.spec.source.volume_handles;
    let mut finalizers = wish.metadata.finalizers.clone();
    let missing = VolumeGroupSnapshot::finalizers(content.spec.deletion_policy)
        .into_iter()
        .filter(|name| !wish.metadata.has_finalizer(name));
    finalizers.extend(missing.map(str::to_owned));
    if finalizers == wish.metadata.finalizers && recorded(wish).as_ref() == Some(volumes) {
        return Ok(Some(wish.clone()));
    }
    let volumes = json!(volumes).to_string();
    let body = json!({"metadata": {
        "finalizers": finalizers,
        "annotations": {names::GROUP_SNAPSHOT_VOLUMES: volumes},
    }});
    bench.write(wish, body).await
}

/// As for a single snapshot: makes the content of a group that goes once more, for the volumes on record.
pub(in crate::snapshot_controller) async fn again(
    bench: &Bench<VolumeGroupSnapshot>,
    wish: &VolumeGroupSnapshot,
) -> Result<Option<Outcome>, ApiError> {
    // Without a record there was no content either.
    if wish.view(None).source != Source::Claims || wish.is_created() || recorded(wish).is_none() {
        return Ok(None);
    }
    let mut content = match order(bench, wish).await? {
        Ok(order) => match order.content {
            Ok(content) => content,
            Err(obstacle) => return Ok(lost(wish, &obstacle.to_string())),
        },
        Err(refusal) => return Ok(lost(wish, &refusal.message)),
    };
    if recorded(wish).as_ref() != Some(&content.spec.source.volume_handles) {
        return Ok(lost(wish, "volumes that it was of are gone"));
    }
    if content.spec.deletion_policy != DeletionPolicy::Delete {
        return Ok(None);
    }
    for name in [
        names::GROUP_SNAPSHOT_BEING_CREATED,
        names::GROUP_SNAPSHOT_BEING_DELETED,
    ] {
        let annotations = &mut content.metadata.annotations;
        annotations.insert(name.to_owned(), "yes".to_owned());
    }
    anew(bench, wish, &content).await
}

#[cfg(test)]
mod tests {
    use orlop_model::ObjectRef;

    use super::*;

    #[test]
    fn only_a_volume_of_a_claim_in_the_namespace_is_a_groups() {
        let mut volume = Volume::default();
        assert!(!is_of(&volume, "here"), "nobody's");
        volume.spec.claim_ref = Some(ObjectRef {
            namespace: "here".into(),
            ..ObjectRef::default()
        });
        assert!(is_of(&volume, "here"));
        assert!(!is_of(&volume, "elsewhere"), "another tenant's");
    }

    #[test]
    fn a_record_that_can_not_be_read_is_none() {
        let mut group = VolumeGroupSnapshot::default();
        assert_eq!(recorded(&group), None);
        for (text, read) in [
            ("[]", None),
            ("nonsense", None),
            (r#"["a","b"]"#, Some(vec!["a".to_owned(), "b".to_owned()])),
        ] {
            let record = (names::GROUP_SNAPSHOT_VOLUMES.to_owned(), text.to_owned());
            group.metadata.annotations = [record].into();
            assert_eq!(recorded(&group), read, "{text}");
        }
    }
}
