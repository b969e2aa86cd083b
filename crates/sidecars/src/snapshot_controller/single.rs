//! Single snapshots: VolumeSnapshot and VolumeSnapshotContent.

use jiff::Timestamp;
use orlop_model::{
    Key, Quantity, VolumeGroupSnapshot, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
    snapshot::DeletionPolicy,
    well_known::{SNAPSHOT_AS_SOURCE, SNAPSHOT_BOUND},
};
use orlop_runtime::{ApiError, Outcome};
use serde_json::{Map, Value, json};

use super::{
    AGAIN,
    bench::Bench,
    decide::{Half, Source, View, Words},
    depart, make,
    wish::{Prepared, Wish},
};
use crate::patience::Setback;

impl Wish for VolumeSnapshot {
    type Content = VolumeSnapshotContent;
    type Class = VolumeSnapshotClass;

    const WORDS: Words = Words {
        prefix: "",
        kind: "VolumeSnapshot",
        content: "VolumeSnapshotContent",
        word: "snapshot",
        sources: ["PersistentVolumeClaimName", "VolumeSnapshotContentName"],
    };

    fn view<'a>(&'a self, content: Option<&'a VolumeSnapshotContent>) -> View<'a> {
        let source = &self.spec.source;
        let claim = &source.persistent_volume_claim_name;
        View {
            source: match (claim, &source.volume_snapshot_content_name) {
                (Some(_), None) if self.group_owner().is_some() => Source::Group,
                (Some(_), None) => Source::Claims,
                (None, Some(_)) => Source::Content,
                (None, None) | (Some(_), Some(_)) => Source::Unclear,
            },
            settled: self.is_ready() && self.bound_content().is_some(),
            content: content.map(|content| Half {
                name: &content.metadata.name,
                found: content.spec.source.snapshot_handle.is_some(),
                bound: content.is_bound_to(self),
                may_bind: content.may_bind_to(self),
                classless: self.spec.volume_snapshot_class_name.is_some()
                    && content.spec.volume_snapshot_class_name.is_none(),
            }),
        }
    }

    fn content_name(&self) -> String {
        let named = self.spec.source.volume_snapshot_content_name.as_deref();
        match (self.bound_content().or(named), self.group_owner()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(_)) => member_content(&self.metadata.name),
            (None, None) => VolumeSnapshot::content_name(self),
        }
    }

    fn owner(content: &VolumeSnapshotContent) -> Key {
        content.owner()
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_snapshot_class_name.as_deref()
    }

    fn error_message(&self) -> Option<&str> {
        VolumeSnapshot::error_message(self)
    }

    fn is_created(&self) -> bool {
        VolumeSnapshot::is_created(self)
    }

    fn is_ready(&self) -> bool {
        VolumeSnapshot::is_ready(self)
    }

    fn finalizers(policy: DeletionPolicy) -> Vec<&'static str> {
        match policy {
            DeletionPolicy::Delete => vec![SNAPSHOT_AS_SOURCE, SNAPSHOT_BOUND],
            DeletionPolicy::Retain => vec![SNAPSHOT_AS_SOURCE],
        }
    }

    fn status(&self, content: &VolumeSnapshotContent, group: Option<&str>) -> Option<Value> {
        let old = self.status.clone().unwrap_or_default();
        let said = content.status.clone().unwrap_or_default();
        let mut news = Map::new();
        if old.bound_volume_snapshot_content_name.is_none() {
            let name = json!(content.metadata.name);
            news.insert("boundVolumeSnapshotContentName".into(), name);
        }
        let cut = said.creation_time.map(|nanos| nanos / 1_000_000_000);
        let cut = cut.and_then(|seconds| Timestamp::from_second(seconds).ok());
        if old.creation_time.is_none() && cut.is_some() {
            news.insert("creationTime".into(), json!(cut));
        }
        let ready = content.is_ready();
        if old.ready_to_use != Some(ready) {
            news.insert("readyToUse".into(), json!(ready));
        }
        let sized = old
            .restore_size
            .as_ref()
            .is_some_and(|size| size.value() > 0);
        if let (false, Some(bytes)) = (sized, said.restore_size) {
            news.insert("restoreSize".into(), json!(Quantity::bytes(bytes)));
        }
        if old.error != said.error {
            news.insert("error".into(), json!(said.error));
        }
        if let (None, Some(group)) = (&old.volume_group_snapshot_name, group) {
            news.insert("volumeGroupSnapshotName".into(), json!(group));
        }
        (!news.is_empty()).then_some(Value::Object(news))
    }

    async fn make(bench: &Bench<Self>, wish: &Self) -> Result<Outcome, ApiError> {
        make::single(bench, wish).await
    }

    async fn search(bench: &Bench<Self>, wish: &Self) -> Result<Option<Outcome>, ApiError> {
        make::again(bench, wish).await
    }

    async fn prepare(
        bench: &Bench<Self>,
        wish: &Self,
        content: &VolumeSnapshotContent,
    ) -> Result<Prepared, ApiError> {
        let Some(handle) = content.group_handle() else {
            return Ok(Prepared::Ready(None));
        };
        if let Some(owner) = wish.group_owner() {
            return Ok(Prepared::Ready(Some(owner.to_owned())));
        }
        // One that was there before belongs to the group that was there before, too.
        let groups = bench.shop.group_contents.get();
        let groups = groups.map(orlop_runtime::Cache::all).unwrap_or_default();
        let group = groups.iter().find(|group| group.handle() == Some(handle));
        Ok(match group {
            Some(group) => Prepared::Ready(Some(group.owner().name)),
            None => {
                let wait = bench
                    .shop
                    .wait::<Self>(&wish.metadata.key(), Setback::Waiting);
                Prepared::Later(Outcome::After(wait))
            }
        })
    }

    /// A member that a user made gets its group as owner, as one that we made has it.
    async fn attend(bench: &Bench<Self>, wish: &Self) -> Result<Outcome, ApiError> {
        let status = wish.status.as_ref();
        let group = status.and_then(|status| status.volume_group_snapshot_name.as_deref());
        let (Some(group), None) = (group.filter(|name| !name.is_empty()), wish.group_owner())
        else {
            return Ok(Outcome::Done);
        };
        let key = Key::namespaced(&wish.metadata.namespace, group);
        let live = bench.shop.cluster.get::<VolumeGroupSnapshot>(&key).await?;
        let Some(group) = live else {
            let wait = bench
                .shop
                .wait::<Self>(&wish.metadata.key(), Setback::Waiting);
            return Ok(Outcome::After(wait));
        };
        let mut owners = wish.metadata.owner_references.clone();
        owners.push(group.as_owner());
        let body = json!({"metadata": {"ownerReferences": owners}});
        let written = bench.write(wish, body).await?;
        Ok(written.map_or(AGAIN, |_| Outcome::Done))
    }

    async fn depart(bench: &Bench<Self>, wish: &Self) -> Result<Outcome, ApiError> {
        depart::single(bench, wish).await
    }
}

/// The content of a group's member, by the member's name.
pub(super) fn member_content(member: &str) -> String {
    let hash = member.strip_prefix("snapshot-").unwrap_or(member);
    format!("snapcontent-{hash}")
}

/// Whether a snapshot was cut with this group, or says so.
pub(super) fn is_member_of(snapshot: &VolumeSnapshot, group: &VolumeGroupSnapshot) -> bool {
    let said = snapshot.status.as_ref();
    let said = said.and_then(|status| status.volume_group_snapshot_name.as_deref());
    let name = Some(group.metadata.name.as_str());
    snapshot.metadata.namespace == group.metadata.namespace
        && (said == name || snapshot.group_owner() == name)
}

/// Whether a change can change what is decided. What we write into the status must not cut a
/// backoff short.
pub(super) fn stirs(old: &VolumeSnapshot, new: &VolumeSnapshot) -> bool {
    fn matters(snapshot: &VolumeSnapshot) -> impl PartialEq + use<> {
        let meta = &snapshot.metadata;
        (
            (meta.uid.clone(), meta.is_deleting()),
            meta.finalizers.clone(),
            snapshot.spec.clone(),
            (snapshot.is_ready(), snapshot.bound_content().is_some()),
            meta.owner_references.len(),
        )
    }
    matters(old) != matters(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (VolumeSnapshot, VolumeSnapshotContent) {
        let mut snapshot = VolumeSnapshot::default();
        snapshot.metadata.name = "cut".into();
        snapshot.metadata.uid = "u".into();
        let mut content = VolumeSnapshotContent::default();
        content.metadata.name = "snapcontent-u".into();
        (snapshot, content)
    }

    #[test]
    fn the_status_says_what_the_content_says() {
        let (mut snapshot, mut content) = pair();
        let new = snapshot.status(&content, None).expect("it is news");
        let bound = json!({"boundVolumeSnapshotContentName": "snapcontent-u", "readyToUse": false});
        assert_eq!(new, bound);
        snapshot.status = serde_json::from_value(bound).expect("a status");
        assert_eq!(snapshot.status(&content, None), None);
        content.status = serde_json::from_value(json!({
            "snapshotHandle": "h", "readyToUse": true, "restoreSize": 1 << 20,
            "creationTime": 1_700_000_000_123_456_789i64,
        }))
        .expect("a status");
        let new = snapshot.status(&content, Some("all")).expect("it is news");
        assert_eq!(
            new,
            json!({
                "readyToUse": true, "restoreSize": "1Mi", "creationTime": "2023-11-14T22:13:20Z",
                "volumeGroupSnapshotName": "all",
            })
        );
    }

    #[test]
    fn an_error_comes_and_goes_with_the_contents() {
        let (mut snapshot, mut content) = pair();
        let error = json!({"message": "no room", "time": "2026-01-01T00:00:00Z"});
        content.status =
            serde_json::from_value(json!({"readyToUse": false, "error": error})).expect("a status");
        let new = snapshot.status(&content, None).expect("it is news");
        assert_eq!(new["error"], error);
        snapshot.status = serde_json::from_value(new).expect("a status");
        content.status.as_mut().expect("it is there").error = None;
        let new = snapshot.status(&content, None).expect("it is news");
        assert_eq!(new, json!({"error": null}));
    }

    #[test]
    fn what_we_write_into_the_status_wakes_nobody() {
        let (old, _) = pair();
        let mut new = old.clone();
        new.status = serde_json::from_value(json!({"error": {"message": "no"}})).expect("a status");
        assert!(!stirs(&old, &new));
        new.metadata.finalizers.push("x".into());
        assert!(stirs(&old, &new));
    }
}
