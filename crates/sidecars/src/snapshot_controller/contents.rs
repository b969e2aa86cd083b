//! Contents: each is held by a finalizer, and one that was made for nobody goes.

use std::{sync::Arc, time::Duration};

use orlop_model::{
    Key, Kind, VolumeGroupSnapshotContent, VolumeSnapshotContent, snapshot::DeletionPolicy,
    well_known,
};
use orlop_runtime::{ApiError, EventType, Outcome, Patch, Preconditions, with_finalizer};
use serde_json::json;
use tracing::info;

use super::{
    AGAIN,
    bench::Bench,
    wish::{Half, Wish},
};

/// How often it is told again what a content waits for.
const REMINDER: Duration = Duration::from_secs(300);

/// Whether a content may go, by its other half's word.
fn is_marked<K: Half>(content: &K) -> bool {
    content.meta().annotation(K::BEING_DELETED).is_some()
}

impl Half for VolumeSnapshotContent {
    const FINALIZER: &'static str = well_known::SNAPSHOT_CONTENT_BOUND;
    const BEING_DELETED: &'static str = well_known::SNAPSHOT_BEING_DELETED;
    const OWNER_FIELD: &'static str = "volumeSnapshotRef";
    const CLASS_FIELD: &'static str = "volumeSnapshotClassName";
    const UNCLEAR: (&'static str, &'static str) = (
        "ContentValidationError",
        "Exactly one of VolumeHandle and SnapshotHandle should be specified",
    );

    fn policy(&self) -> DeletionPolicy {
        self.spec.deletion_policy
    }

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn owner_uid(&self) -> &str {
        &self.spec.volume_snapshot_ref.uid
    }

    fn is_clear(&self) -> bool {
        let source = &self.spec.source;
        source.volume_handle.is_some() != source.snapshot_handle.is_some()
    }

    fn is_empty(&self) -> bool {
        let found = self.spec.source.snapshot_handle.is_some();
        !found && !self.is_group_member() && self.handle().is_none()
    }
}

impl Half for VolumeGroupSnapshotContent {
    const FINALIZER: &'static str = well_known::GROUP_SNAPSHOT_CONTENT_BOUND;
    const BEING_DELETED: &'static str = well_known::GROUP_SNAPSHOT_BEING_DELETED;
    const OWNER_FIELD: &'static str = "volumeGroupSnapshotRef";
    const CLASS_FIELD: &'static str = "volumeGroupSnapshotClassName";
    const UNCLEAR: (&'static str, &'static str) = (
        "GroupContentValidationError",
        "Exactly one of GroupSnapshotHandles and VolumeHandles should be specified",
    );

    fn policy(&self) -> DeletionPolicy {
        self.spec.deletion_policy
    }

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn owner_uid(&self) -> &str {
        &self.spec.volume_group_snapshot_ref.uid
    }

    fn is_clear(&self) -> bool {
        let source = &self.spec.source;
        source.volume_handles.is_empty() == source.group_snapshot_handles.is_some()
    }

    fn is_empty(&self) -> bool {
        self.spec.source.group_snapshot_handles.is_none() && self.handle().is_none()
    }
}

impl<W: Wish> Bench<W> {
    /// One look at one content.
    pub(super) async fn content_turn(&self, key: Key) -> Outcome {
        let Some(content) = self.contents.get(&key) else {
            return self.shop.conclude::<W::Content>(&key, Ok(Outcome::Done));
        };
        let step = self.content_step(&content).await;
        self.shop.conclude_aloud(&*content, step)
    }

    async fn content_step(&self, content: &W::Content) -> Result<Outcome, ApiError> {
        if !content.is_clear() {
            let (reason, text) = W::Content::UNCLEAR;
            let recorder = &self.shop.recorder;
            recorder.say(content, EventType::Warning, reason, text);
            return Ok(Outcome::Done);
        }
        // One that waits for its other half is nobody's yet.
        if content.owner_uid().is_empty() {
            return Ok(Outcome::Done);
        }
        if !content.meta().is_deleting()
            && let Some(patch) = with_finalizer(content, W::Content::FINALIZER)
        {
            return self.change(content, &patch).await;
        }
        if content.is_empty() {
            return self.tidy(content).await;
        }
        if content.meta().is_deleting() && !is_marked(content) {
            return self.unbidden(content).await;
        }
        // Whatever is or was a snapshot stays without its other half: it may be all that is left
        // of somebody's data.
        Ok(Outcome::Done)
    }

    /// Lets go of a content that was made for a wish which was gone by then.
    async fn tidy(&self, content: &W::Content) -> Result<Outcome, ApiError> {
        // It was there before its content: if it isn't now, it never comes back.
        if self.other_half(content).await?.is_some() {
            return Ok(Outcome::Done);
        }
        if !is_marked(content) {
            return self.mark(content).await;
        }
        let key = W::owner(content);
        if content.meta().is_deleting() {
            return Ok(Outcome::Done);
        }
        info!(content = %content.key(), owner = %key, "made for one that is gone; it goes too");
        let only_if = Preconditions::unchanged(content);
        let cluster = &self.shop.cluster;
        match cluster.delete::<W::Content>(&content.key(), &only_if).await {
            Err(error) if error.is_conflict() => Ok(AGAIN),
            other => other.map(|()| Outcome::Done),
        }
    }

    /// The very wish that a content belongs to, if it is there.
    async fn other_half(&self, content: &W::Content) -> Result<Option<Arc<W>>, ApiError> {
        let key = W::owner(content);
        let is_ours = |wish: &Arc<W>| wish.meta().uid == content.owner_uid();
        let known = self.wishes.get(&key).filter(is_ours);
        if known.is_some() {
            return Ok(known);
        }
        let live = self.shop.cluster.get::<W>(&key).await?;
        Ok(live.map(Arc::new).filter(is_ours))
    }

    /// Says on a content that it may go.
    async fn mark(&self, content: &W::Content) -> Result<Outcome, ApiError> {
        let body = json!({"metadata": {"annotations": {W::Content::BEING_DELETED: "yes"}}});
        self.change(content, &Patch::merge_on(content, body)).await
    }

    /// Somebody has deleted a content, and not its other half with it. Where nothing is deleted at
    /// the driver it goes; otherwise whoever wants that must say so, and is told how: it may be all
    /// that is left of somebody's data.
    async fn unbidden(&self, content: &W::Content) -> Result<Outcome, ApiError> {
        let (kind, owner) = (W::KIND, W::owner(content));
        let why = match (self.other_half(content).await?, content.policy()) {
            // It is about to mark its content.
            (Some(wish), _) if wish.meta().is_deleting() => return Ok(Outcome::Done),
            (Some(_), _) => format!(
                "it is deleted together with {kind} {owner}, which is bound to it; delete that \
                 {kind}"
            ),
            (None, DeletionPolicy::Retain) => {
                info!(content = %content.key(), %owner, "its other half is gone, and it is kept at the driver: let go");
                return self.mark(content).await;
            }
            (None, DeletionPolicy::Delete) => format!(
                "its {kind} {owner} is gone without having said that the data may be deleted. To \
                 delete it at the driver, too: kubectl annotate {plural}.{group} {name} {mark}=yes. \
                 To keep it there: set spec.deletionPolicy of this object to Retain. Either lets this \
                 object go",
                plural = W::Content::PLURAL,
                group = W::Content::GROUP,
                name = content.meta().name,
                mark = W::Content::BEING_DELETED,
            ),
        };
        let recorder = &self.shop.recorder;
        recorder.say(content, EventType::Warning, "DeletionWaits", why);
        Ok(Outcome::After(REMINDER))
    }

    async fn change(&self, content: &W::Content, patch: &Patch) -> Result<Outcome, ApiError> {
        let cluster = &self.shop.cluster;
        match cluster.patch::<W::Content>(&content.key(), patch).await {
            Ok(changed) => self.contents.absorb(changed),
            Err(error) if error.is_not_found() => return Ok(Outcome::Done),
            Err(error) if error.is_conflict() => {
                if let Some(live) = cluster.get::<W::Content>(&content.key()).await? {
                    self.contents.absorb(live);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(AGAIN)
    }
}
