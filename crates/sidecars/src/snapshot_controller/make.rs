//! Contents for snapshots and groups that ask for a cut: what they shall be (pure), and how they
//! come to be.

use std::{collections::BTreeMap, sync::Arc};

use orlop_model::{
    Claim, ClaimPhase, Key, Kind, Meta, Node, Volume, VolumeSnapshot, VolumeSnapshotContent,
    snapshot::{ContentSource, ContentSpec, DeletionPolicy},
    volume::{CsiSource, SecretRef},
    well_known as names,
};
use orlop_runtime::{ApiError, EventType, Outcome};
use serde_json::json;
use tracing::{info, warn};

use super::{
    AGAIN,
    bench::Bench,
    decide::{Refusal, Source, Words},
    sources,
    wish::{Half, Wish},
};
use crate::{
    provisioner::ParameterError,
    snapshot_parameters::{Purpose, secret},
};

/// Why a content can't be made; the words are the original's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Obstacle {
    #[error("the PVC {0} does not exist")]
    NoClaim(String),
    #[error("cannot add finalizer on claim {0} because it is being deleted")]
    ClaimGoes(String),
    #[error("the PVC {0} is not yet bound to a PV, will not attempt to take a {1}")]
    NotBound(String, &'static str),
    #[error("the PV {0} of the claim does not exist, or belongs to another")]
    NoVolume(String),
    #[error(
        "snapshotting non-CSI volumes is not supported: cannot find CSI PersistentVolumeSource for volume {0}"
    )]
    NotCsi(String),
    #[error(
        "Volume CSI driver ({volume}) mismatch with the class's ({class}): {name}; name a class of the \
         volume's driver"
    )]
    OtherDriver {
        volume: String,
        class: String,
        name: String,
    },
    #[error("label selector {0} for group snapshot not applied to any PVC")]
    NobodySelected(String),
    #[error(transparent)]
    Parameters(#[from] ParameterError),
}

/// A class, as far as a content needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe<'a> {
    name: &'a str,
    driver: &'a str,
    is_default: bool,
    policy: DeletionPolicy,
    parameters: &'a BTreeMap<String, String>,
}

/// The class to be used: the one that is named, or the one default of the volume's driver.
fn recipe<'a>(
    words: &Words,
    named: Option<&str>,
    all: &[Recipe<'a>],
    driver: impl FnOnce() -> Result<String, Obstacle>,
) -> Result<Recipe<'a>, Refusal> {
    let word = words.word;
    if let Some(name) = named {
        let found = all.iter().find(|class| class.name == name).copied();
        return found.ok_or_else(|| {
            let text = format!("Failed to get {word} class with error class {name:?} not found; create it, or name another");
            let reason = format!("Get{}SnapshotClassFailed", words.prefix);
            Refusal {
                reason,
                ..Refusal::mild(words, "", text)
            }
        });
    }
    let refuse = |why: String| Refusal {
        reason: format!("SetDefault{}SnapshotClassFailed", words.prefix),
        ..Refusal::mild(
            words,
            "",
            format!("Failed to set default {word} class with error {why}"),
        )
    };
    let driver = driver().map_err(|obstacle| refuse(obstacle.to_string()))?;
    let mut defaults: Vec<Recipe<'_>> = all
        .iter()
        .filter(|class| class.is_default && class.driver == driver)
        .copied()
        .collect();
    defaults.sort_by_key(|class| class.name);
    match &defaults[..] {
        [one] => Ok(*one),
        [] => Err(refuse(format!(
            "cannot find default {word} class; mark one of driver {driver}, or name one"
        ))),
        many => {
            let names: Vec<&str> = many.iter().map(|class| class.name).collect();
            Err(refuse(format!(
                "{} default snapshot classes were found: {}; keep one, or name one",
                many.len(),
                names.join(", ")
            )))
        }
    }
}

/// The volume to be cut, if the claim has one and it is a driver's.
fn volume_of<'a>(
    claim: &Claim,
    volume: Option<&'a Volume>,
    word: &'static str,
) -> Result<(&'a Volume, &'a CsiSource), Obstacle> {
    let name = &claim.metadata.name;
    if claim.phase() != ClaimPhase::Bound {
        return Err(Obstacle::NotBound(name.clone(), word));
    }
    let volume = volume
        .filter(|volume| volume.is_reserved_for(claim))
        .ok_or_else(|| Obstacle::NoVolume(claim.spec.volume_name.clone()))?;
    let csi = volume.spec.csi.as_ref();
    let csi = csi.ok_or_else(|| Obstacle::NotCsi(volume.metadata.name.clone()))?;
    Ok((volume, csi))
}

fn same_driver(recipe: &Recipe<'_>, volume: &Volume, csi: &CsiSource) -> Result<(), Obstacle> {
    if csi.driver == recipe.driver {
        return Ok(());
    }
    Err(Obstacle::OtherDriver {
        volume: csi.driver.clone(),
        class: recipe.driver.to_owned(),
        name: volume.metadata.name.clone(),
    })
}

fn creation_failed(words: &Words, obstacle: &Obstacle) -> Refusal {
    let text = format!(
        "Failed to create {} content with error {obstacle}",
        words.word
    );
    Refusal::new(words, "SnapshotContentCreationFailed", text)
}

/// A new content's metadata, held from its first moment on: nothing is cut for one that could go
/// unseen.
fn held<K: Half>(name: &str, secret: Option<&SecretRef>, annotations: [&str; 2]) -> Meta {
    let mut meta = Meta::named(&Key::cluster(name));
    meta.finalizers = vec![K::FINALIZER.to_owned()];
    if let Some(secret) = secret {
        let [name, namespace] = annotations.map(str::to_owned);
        meta.annotations.insert(name, secret.name.clone());
        meta.annotations.insert(namespace, secret.namespace.clone());
    }
    meta
}

/// What a snapshot of a claim needs.
struct Order {
    class: String,
    claim: Option<Arc<Claim>>,
    /// Its content, unless something stands against it.
    content: Result<VolumeSnapshotContent, Obstacle>,
}

/// Looks everything up that a content is made of.
async fn order(
    bench: &Bench<VolumeSnapshot>,
    wish: &VolumeSnapshot,
) -> Result<Result<Order, Refusal>, ApiError> {
    let (shop, words) = (&bench.shop, &VolumeSnapshot::WORDS);
    let name = wish.spec.source.persistent_volume_claim_name.clone();
    let name = name.unwrap_or_default();
    let key = Key::namespaced(&wish.metadata.namespace, &name);
    let claim = shop.claim(&key).await?;
    let volume = match &claim {
        Some(claim) => shop.volume(claim).await?,
        None => None,
    };
    let found = || {
        let claim = claim
            .as_deref()
            .ok_or_else(|| Obstacle::NoClaim(name.clone()))?;
        volume_of(claim, volume.as_deref(), words.word)
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
    let driver = || found().map(|(_, csi)| csi.driver.clone());
    let recipe = match recipe(words, wish.class_name(), &recipes, driver) {
        Ok(recipe) => recipe,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let content_name = VolumeSnapshot::content_name(wish);
    let wanted = found().and_then(|(volume, csi)| {
        same_driver(&recipe, volume, csi)?;
        let owner = wish.key();
        let parameters = recipe.parameters;
        let secret = secret(parameters, Purpose::Snapshot, &content_name, Some(&owner))?;
        Ok((volume, csi, secret))
    });
    let secrets = [
        names::SNAPSHOT_SECRET_NAME,
        names::SNAPSHOT_SECRET_NAMESPACE,
    ];
    let mut content = wanted.map(|(volume, csi, secret)| VolumeSnapshotContent {
        metadata: held::<VolumeSnapshotContent>(&content_name, secret.as_ref(), secrets),
        spec: ContentSpec {
            volume_snapshot_ref: wish.reference(),
            deletion_policy: recipe.policy,
            driver: recipe.driver.to_owned(),
            volume_snapshot_class_name: Some(recipe.name.to_owned()),
            source: ContentSource {
                volume_handle: Some(csi.volume_handle.clone()),
                snapshot_handle: None,
            },
            source_volume_mode: shop
                .config
                .prevent_volume_mode_conversion
                .then(|| volume.volume_mode()),
        },
        status: None,
    });
    if shop.config.distributed
        && let (Ok(content), Some(volume)) = (&mut content, &volume)
        && let Some(node) = managing_node(bench, volume).await?
    {
        let label = names::SNAPSHOT_MANAGED_BY.to_owned();
        content.metadata.labels.insert(label, node);
    }
    Ok(Ok(Order {
        class: recipe.name.to_owned(),
        claim: claim.clone(),
        content,
    }))
}

pub(super) async fn single(
    bench: &Bench<VolumeSnapshot>,
    wish: &VolumeSnapshot,
) -> Result<Outcome, ApiError> {
    let (shop, words) = (&bench.shop, &VolumeSnapshot::WORDS);
    let order = match order(bench, wish).await? {
        Ok(order) => order,
        Err(refusal) => return bench.refuse(wish, &refusal).await,
    };
    if wish.class_name().is_none() {
        let body = json!({"spec": {"volumeSnapshotClassName": order.class}});
        bench.write(wish, body).await?;
        return Ok(AGAIN);
    }
    let mut content = match order.content {
        Ok(content) => content,
        Err(obstacle) => return bench.refuse(wish, &creation_failed(words, &obstacle)).await,
    };
    // From here on a deletion is seen.
    let finalizers = VolumeSnapshot::finalizers(content.spec.deletion_policy);
    let Some(wish) = bench.hold(wish, &finalizers).await? else {
        return Ok(AGAIN);
    };
    if let Some(claim) = &order.claim
        && !sources::hold(shop, claim).await?
    {
        let name = claim.metadata.name.clone();
        let refusal = creation_failed(words, &Obstacle::ClaimGoes(name));
        return bench.refuse(&wish, &refusal).await;
    }
    content.spec.volume_snapshot_ref = wish.reference();
    create(bench, &wish, &content).await
}

/// Makes the content of a snapshot that goes once more, if it is missing though a cut may be under way for
/// it: somebody took it away by force. The snapshotter finds by its name what was cut, and deletes it.
/// `None` if there is nothing to be found, or no way to find it.
pub(super) async fn again(
    bench: &Bench<VolumeSnapshot>,
    wish: &VolumeSnapshot,
) -> Result<Option<Outcome>, ApiError> {
    // What was on record once was taken away with its record, which is for people to decide.
    if wish.view(None).source != Source::Claims || wish.is_created() {
        return Ok(None);
    }
    let mut content = match order(bench, wish).await? {
        Ok(order) => match order.content {
            Ok(content) => content,
            Err(obstacle) => return Ok(lost(wish, &obstacle.to_string())),
        },
        Err(refusal) => return Ok(lost(wish, &refusal.message)),
    };
    if content.spec.deletion_policy != DeletionPolicy::Delete {
        return Ok(None);
    }
    for name in [names::SNAPSHOT_BEING_CREATED, names::SNAPSHOT_BEING_DELETED] {
        let annotations = &mut content.metadata.annotations;
        annotations.insert(name.to_owned(), "yes".to_owned());
    }
    anew(bench, wish, &content).await
}

/// Says that what may have been cut for one that goes can't be looked for.
fn lost<W: Wish>(wish: &W, why: &str) -> Option<Outcome> {
    warn!(
        snapshot = %wish.key(), why,
        "its content is missing, and nobody can look for what may have been cut for it; \
         `orlop leaks` compares what the driver has with what is known"
    );
    None
}

/// Makes the content of one that goes once more, marked as under way and as to be deleted.
async fn anew<W: Wish>(
    bench: &Bench<W>,
    wish: &W,
    content: &W::Content,
) -> Result<Option<Outcome>, ApiError> {
    let key = content.key();
    match bench.shop.cluster.create(content).await {
        Ok(created) => {
            info!(snapshot = %wish.key(), content = %key, "made anew, to find what was cut");
            bench.contents.absorb(created);
            Ok(Some(AGAIN))
        }
        Err(error) if error.is_already_exists() => {
            let live = bench.shop.cluster.get::<W::Content>(&key).await?;
            let half = |live: &W::Content| wish.view(Some(live)).content.is_some_and(|h| h.bound);
            let ours = live.as_ref().is_some_and(half);
            live.into_iter().for_each(|one| bench.contents.absorb(one));
            Ok(ours.then_some(AGAIN))
        }
        // Where contents are refused a snapshot must not wait for one for ever.
        Err(error) if error.is_refused() => Ok(lost(wish, &error.chain())),
        Err(error) => Err(error),
    }
}

/// The node whose snapshotter looks after a volume's snapshots.
async fn managing_node<W: Wish>(
    bench: &Bench<W>,
    volume: &Volume,
) -> Result<Option<String>, ApiError> {
    if volume.spec.node_affinity.is_none() {
        return Ok(None);
    }
    let nodes = bench.shop.cluster.list::<Node>(None).await?;
    let node = nodes
        .into_iter()
        .find(|node| volume.reachable_from(&node.metadata.name, &node.metadata.labels));
    Ok(node.map(|node| node.metadata.name))
}

async fn create<W: Wish>(
    bench: &Bench<W>,
    wish: &W,
    content: &W::Content,
) -> Result<Outcome, ApiError> {
    let (shop, words) = (&bench.shop, W::WORDS);
    match shop.cluster.create(content).await {
        Ok(created) => {
            bench.contents.absorb(created.clone());
            let text = format!(
                "Waiting for a {} {} to be created by the CSI driver.",
                words.word,
                wish.key()
            );
            let reason = format!("Creating{}Snapshot", words.prefix);
            shop.recorder.say(wish, EventType::Normal, &reason, text);
            bench.settle(wish, &created).await
        }
        Err(error) if error.is_already_exists() => {
            if let Some(live) = shop.cluster.get::<W::Content>(&content.key()).await? {
                bench.contents.absorb(live);
            }
            Ok(AGAIN)
        }
        Err(error) => {
            let text = format!(
                "Error creating volume {} content object for {} {}: {}.",
                words.word,
                words.word,
                wish.key(),
                error.chain()
            );
            let reason = format!("Create{}SnapshotContentFailed", words.prefix);
            shop.recorder.say(wish, EventType::Warning, &reason, text);
            Err(error)
        }
    }
}

mod groups;

pub(super) use groups::{again as group_again, group};

#[cfg(test)]
mod tests;
