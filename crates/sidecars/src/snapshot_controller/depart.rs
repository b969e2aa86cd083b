//! The end of snapshots and groups: in which order who goes (pure), and how.

use std::sync::Arc;

use orlop_model::{
    Key, Kind as _, VolumeGroupSnapshot, VolumeSnapshot,
    snapshot::DeletionPolicy,
    well_known::{GROUP_SNAPSHOT_BOUND, SNAPSHOT_AS_SOURCE, SNAPSHOT_BOUND, SNAPSHOT_IN_GROUP},
};
use orlop_runtime::{ApiError, EventType, Message, Outcome, Patch, Preconditions};
use serde_json::json;

use super::{
    AGAIN,
    bench::Bench,
    metrics::Operation,
    shop::Shop,
    wish::{Half, Wish},
};
use crate::{insist::insist, patience::Setback};

/// A content of one that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leaving {
    policy: DeletionPolicy,
    marked: bool,
    deleting: bool,
}

impl Leaving {
    fn of<K: Half>(content: &K) -> Self {
        Self {
            policy: content.policy(),
            marked: content.meta().annotation(K::BEING_DELETED).is_some(),
            deleting: content.meta().is_deleting(),
        }
    }
}

/// What stands against a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hindrance {
    None,
    /// A volume is being made from it.
    Restoring,
    /// Its group is there, and nobody deletes it.
    Group,
    /// Its group goes, and takes it along.
    GroupGoes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It may not go yet.
    Hold,
    /// The content is told that it may go.
    Mark,
    /// The content is deleted.
    Delete,
    /// The content is on its way.
    Wait,
    /// It may go.
    LetGo,
}

fn decide(content: Option<Leaving>, hindrance: Hindrance) -> Step {
    match (content, hindrance) {
        (_, Hindrance::Group | Hindrance::GroupGoes) | (Some(_), Hindrance::Restoring) => {
            Step::Hold
        }
        (None, _) => Step::LetGo,
        (Some(content), Hindrance::None) => match content {
            Leaving { marked: false, .. } => Step::Mark,
            Leaving {
                policy: DeletionPolicy::Retain,
                ..
            } => Step::LetGo,
            Leaving {
                deleting: false, ..
            } => Step::Delete,
            Leaving { deleting: true, .. } => Step::Wait,
        },
    }
}

pub(super) async fn single(
    bench: &Bench<VolumeSnapshot>,
    seen: &VolumeSnapshot,
) -> Result<Outcome, ApiError> {
    const OURS: [&str; 3] = [SNAPSHOT_AS_SOURCE, SNAPSHOT_BOUND, SNAPSHOT_IN_GROUP];
    let shop = &bench.shop;
    if !holds(seen, &OURS) {
        return Ok(Outcome::Done);
    }
    // A deletion is for good, and nobody can lay claim to what is deleted: whoever restores from it stands
    // on every version from then on. So it need not be read again.
    let snapshot = seen;
    let status = snapshot.status.as_ref();
    let group = status.and_then(|status| status.volume_group_snapshot_name.as_deref());
    let hindrance = match group.or(snapshot.group_owner()) {
        Some(group) => {
            let key = Key::namespaced(&snapshot.metadata.namespace, group);
            match shop.cluster.get::<VolumeGroupSnapshot>(&key).await? {
                Some(group) if group.metadata.is_deleting() => Hindrance::GroupGoes,
                Some(_) => Hindrance::Group,
                None => Hindrance::None,
            }
        }
        None => Hindrance::None,
    };
    let hindrance = match hindrance {
        Hindrance::None if shop.is_being_restored(snapshot) => Hindrance::Restoring,
        other => other,
    };
    let text = match hindrance {
        Hindrance::Restoring => {
            restoring(shop, snapshot, "Snapshot is being used to restore a PVC")
        }
        Hindrance::Group => format!(
            "deletion of the individual volume snapshot {} is not allowed as it belongs to group \
             snapshot {}/{}. Deleting the group snapshot will trigger the deletion of all the \
             individual volume snapshots that are part of the group.",
            snapshot.key(),
            snapshot.metadata.namespace,
            group.or(snapshot.group_owner()).unwrap_or_default(),
        ),
        Hindrance::GroupGoes | Hindrance::None => String::new(),
    };
    follow(bench, snapshot, hindrance, text, &OURS).await
}

/// That a snapshot is kept, for whom, and what to do about it.
fn restoring(shop: &Shop, snapshot: &VolumeSnapshot, said: &str) -> String {
    match shop.restored_to(snapshot) {
        Some(claim) => format!(
            "{said}: {claim}. It is deleted once that claim is bound; if it can't be made or is not \
             wanted, delete that claim"
        ),
        None => said.to_owned(),
    }
}

pub(super) async fn group(
    bench: &Bench<VolumeGroupSnapshot>,
    seen: &VolumeGroupSnapshot,
) -> Result<Outcome, ApiError> {
    const OURS: [&str; 1] = [GROUP_SNAPSHOT_BOUND];
    let shop = &bench.shop;
    let Some(group) = live(bench, seen, &OURS).await? else {
        return Ok(Outcome::Done);
    };
    let namespace = &group.metadata.namespace;
    let all = shop.cluster.list::<VolumeSnapshot>(Some(namespace)).await?;
    let uid = &group.metadata.uid;
    let is_member = |one: &&VolumeSnapshot| {
        let mut owners = one.metadata.owner_references.iter();
        owners.any(|owner| owner.uid == *uid)
    };
    let members: Vec<&VolumeSnapshot> = all.iter().filter(is_member).collect();
    let used = members.iter().find(|member| shop.is_being_restored(member));
    let (hindrance, text) = match used {
        Some(member) => {
            let text = format!(
                "Snapshot {} belonging to VolumeGroupSnapshot {} is being used to restore a PVC",
                member.key(),
                group.key()
            );
            (Hindrance::Restoring, restoring(shop, member, &text))
        }
        None => (Hindrance::None, String::new()),
    };
    if hindrance == Hindrance::None {
        for member in members.iter().filter(|one| !one.metadata.is_deleting()) {
            let only_if = Preconditions::same_object(*member);
            let key = member.key();
            let deleted = shop.cluster.delete::<VolumeSnapshot>(&key, &only_if).await;
            if let Err(error) = deleted {
                let text = format!(
                    "failed to delete snapshot API object {} part of group snapshot {}: {}",
                    member.key(),
                    group.key(),
                    error.chain()
                );
                let recorder = &shop.recorder;
                recorder.say(&group, EventType::Warning, "SnapshotDeleteError", text);
                return Err(error);
            }
        }
    }
    follow(bench, &group, hindrance, text, &OURS).await
}

/// Whether one of ours keeps it.
fn holds<W: Wish>(wish: &W, ours: &[&str]) -> bool {
    ours.iter().any(|name| wish.meta().has_finalizer(name))
}

/// The very object that was seen, as it is now, if it goes and we hold it.
async fn live<W: Wish>(bench: &Bench<W>, seen: &W, ours: &[&str]) -> Result<Option<W>, ApiError> {
    if !holds(seen, ours) {
        return Ok(None);
    }
    let live = bench.shop.cluster.get::<W>(&seen.key()).await?;
    Ok(live.filter(|live| {
        live.meta().uid == seen.meta().uid && live.meta().is_deleting() && holds(live, ours)
    }))
}

/// The other half of one that goes.
enum Other<C> {
    There(Arc<C>),
    /// It was led to its end.
    SeenOff,
    Missing,
}

/// The content of one that goes, if it points back. What the cache says of it is good enough: it is written
/// to at the very version that was looked at, or not at all.
async fn content_of<W: Wish>(bench: &Bench<W>, wish: &W) -> Result<Other<W::Content>, ApiError> {
    let key = Key::cluster(wish.content_name());
    let is_ours = |content: &Arc<W::Content>| {
        let half = wish.view(Some(content)).content;
        half.is_some_and(|half| half.bound)
    };
    if let Some(content) = bench.contents.get(&key).filter(is_ours) {
        return Ok(Other::There(content));
    }
    if bench.parting.is_over(wish, &bench.contents) {
        return Ok(Other::SeenOff);
    }
    let live = bench.shop.cluster.get::<W::Content>(&key).await?;
    let live = live.map(Arc::new).filter(is_ours);
    Ok(live.map_or(Other::Missing, Other::There))
}

/// Goes as far as the content can be led.
async fn follow<W: Wish>(
    bench: &Bench<W>,
    wish: &W,
    hindrance: Hindrance,
    text: String,
    ours: &[&str],
) -> Result<Outcome, ApiError> {
    let shop = &bench.shop;
    let (content, missing) = match content_of(bench, wish).await? {
        Other::There(content) => (Some(content), false),
        Other::SeenOff => (None, false),
        Other::Missing => (None, true),
    };
    let step = decide(content.as_deref().map(Leaving::of), hindrance);
    if step != Step::Hold {
        let driver = content.as_deref().map(Half::driver);
        bench.begin(wish, Operation::Delete, driver);
    }
    match (step, content) {
        (Step::Hold, _) => {
            let wait = shop.wait::<W>(&wish.key(), Setback::Waiting);
            if !text.is_empty() {
                let (recorder, text) = (&shop.recorder, Message::until_next_try(text, wait));
                recorder.say(wish, EventType::Warning, "SnapshotDeletePending", text);
            }
            Ok(Outcome::After(wait))
        }
        (Step::Mark, Some(content)) => {
            let body = json!({"metadata": {"annotations": {W::Content::BEING_DELETED: "yes"}}});
            let mark = |now: &W::Content| {
                let mark = !Leaving::of(now).marked;
                mark.then(|| Patch::merge_on(now, body.clone()))
            };
            let Some(marked) = insist(&shop.cluster, &*content, mark).await? else {
                return Ok(AGAIN);
            };
            bench.contents.absorb(marked.clone());
            match decide(Some(Leaving::of(&marked)), hindrance) {
                Step::Delete => delete(bench, wish, &marked).await,
                Step::LetGo => let_go(bench, wish, Some(&marked), ours).await,
                Step::Hold | Step::Mark | Step::Wait => Ok(AGAIN),
            }
        }
        (Step::Delete, Some(content)) => delete(bench, wish, &content).await,
        (Step::LetGo, None) if missing => match W::search(bench, wish).await? {
            Some(outcome) => Ok(outcome),
            None => let_go(bench, wish, None, ours).await,
        },
        (Step::LetGo, content) => let_go(bench, wish, content.as_deref(), ours).await,
        (Step::Wait, Some(content)) => {
            bench.parting.begun(wish, &*content);
            Ok(Outcome::Done)
        }
        (Step::Wait | Step::Mark | Step::Delete, None) => Ok(AGAIN),
    }
}

async fn delete<W: Wish>(
    bench: &Bench<W>,
    wish: &W,
    content: &W::Content,
) -> Result<Outcome, ApiError> {
    let (shop, key) = (&bench.shop, content.key());
    // What the content says of its snapshot may have changed.
    let only_if = Preconditions::unchanged(content);
    bench.parting.begun(wish, content);
    let deleted = shop.cluster.delete_held::<W::Content>(&key, &only_if).await;
    match deleted {
        // Its end wakes us.
        Ok(held) => {
            match held.filter(|held| !held.meta().finalizers.is_empty()) {
                Some(held) => bench.contents.absorb(held),
                None => bench.contents.end(content),
            }
            Ok(Outcome::Done)
        }
        Err(error) if error.is_conflict() => {
            if let Some(live) = shop.cluster.get::<W::Content>(&key).await? {
                bench.contents.absorb(live);
            }
            Ok(AGAIN)
        }
        Err(error) => {
            let word = W::WORDS.word;
            let text = format!("Failed to delete {word} content API object");
            let reason = format!("{}SnapshotContentObjectDeleteError", W::WORDS.prefix);
            shop.recorder.say(wish, EventType::Warning, &reason, text);
            Err(error)
        }
    }
}

async fn let_go<W: Wish>(
    bench: &Bench<W>,
    wish: &W,
    content: Option<&W::Content>,
    ours: &[&str],
) -> Result<Outcome, ApiError> {
    let finalizers = wish.meta().finalizers.iter();
    let left: Vec<&String> = finalizers
        .filter(|name| !ours.contains(&name.as_str()))
        .collect();
    let body = json!({"metadata": {"finalizers": left}});
    if bench.write(wish, body).await?.is_none() {
        return Ok(AGAIN);
    }
    bench.parting.over(&wish.key());
    let (metrics, driver) = (&bench.shop.config.metrics, content.map(Half::driver));
    metrics.succeed(&wish.meta().uid, Operation::Delete, driver);
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Leaving = Leaving {
        policy: DeletionPolicy::Delete,
        marked: false,
        deleting: false,
    };

    #[test]
    fn a_content_is_marked_then_deleted_then_waited_for() {
        let marked = Leaving {
            marked: true,
            ..FRESH
        };
        let going = Leaving {
            deleting: true,
            ..marked
        };
        assert_eq!(decide(Some(FRESH), Hindrance::None), Step::Mark);
        assert_eq!(decide(Some(marked), Hindrance::None), Step::Delete);
        assert_eq!(decide(Some(going), Hindrance::None), Step::Wait);
        assert_eq!(decide(None, Hindrance::None), Step::LetGo);
    }

    #[test]
    fn a_content_that_is_kept_is_marked_and_stays() {
        let kept = Leaving {
            policy: DeletionPolicy::Retain,
            ..FRESH
        };
        assert_eq!(decide(Some(kept), Hindrance::None), Step::Mark);
        let marked = Leaving {
            marked: true,
            ..kept
        };
        assert_eq!(decide(Some(marked), Hindrance::None), Step::LetGo);
    }

    #[test]
    fn a_deleted_content_is_marked_all_the_same() {
        let deleted_first = Leaving {
            deleting: true,
            ..FRESH
        };
        assert_eq!(decide(Some(deleted_first), Hindrance::None), Step::Mark);
    }

    #[test]
    fn what_is_used_or_in_a_group_stays() {
        assert_eq!(decide(Some(FRESH), Hindrance::Restoring), Step::Hold);
        assert_eq!(decide(Some(FRESH), Hindrance::Group), Step::Hold);
        assert_eq!(decide(None, Hindrance::Group), Step::Hold);
        assert_eq!(decide(Some(FRESH), Hindrance::GroupGoes), Step::Hold);
        assert_eq!(
            decide(None, Hindrance::Restoring),
            Step::LetGo,
            "without a content nothing can be restored"
        );
    }
}
