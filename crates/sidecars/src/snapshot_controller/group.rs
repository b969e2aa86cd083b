//! Groups: VolumeGroupSnapshot and VolumeGroupSnapshotContent.

use orlop_model::{
    Key, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent,
    snapshot::DeletionPolicy, well_known::GROUP_SNAPSHOT_BOUND,
};
use orlop_runtime::{ApiError, Outcome};
use serde_json::{Map, Value, json};

use super::{
    bench::Bench,
    decide::{Half, Source, View, Words},
    depart, make, members,
    wish::{Prepared, Wish},
};

impl Wish for VolumeGroupSnapshot {
    type Content = VolumeGroupSnapshotContent;
    type Class = VolumeGroupSnapshotClass;

    const WORDS: Words = Words {
        prefix: "Group",
        kind: "VolumeGroupSnapshot",
        content: "VolumeGroupSnapshotContent",
        word: "group snapshot",
        sources: ["Selector", "VolumeGroupSnapshotContentName"],
    };

    fn view<'a>(&'a self, content: Option<&'a VolumeGroupSnapshotContent>) -> View<'a> {
        let source = &self.spec.source;
        View {
            source: match (&source.selector, &source.volume_group_snapshot_content_name) {
                (Some(_), None) => Source::Claims,
                (None, Some(_)) => Source::Content,
                (None, None) | (Some(_), Some(_)) => Source::Unclear,
            },
            settled: self.is_ready() && self.bound_content().is_some(),
            content: content.map(|content| Half {
                name: &content.metadata.name,
                found: content.spec.source.group_snapshot_handles.is_some(),
                bound: content.is_bound_to(self),
                may_bind: content.may_bind_to(self),
                classless: self.spec.volume_group_snapshot_class_name.is_some()
                    && content.spec.volume_group_snapshot_class_name.is_none(),
            }),
        }
    }

    fn content_name(&self) -> String {
        let named = self
            .spec
            .source
            .volume_group_snapshot_content_name
            .as_deref();
        match self.bound_content().or(named) {
            Some(name) => name.to_owned(),
            None => VolumeGroupSnapshot::content_name(self),
        }
    }

    fn owner(content: &VolumeGroupSnapshotContent) -> Key {
        content.owner()
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_group_snapshot_class_name.as_deref()
    }

    fn error_message(&self) -> Option<&str> {
        VolumeGroupSnapshot::error_message(self)
    }

    fn is_created(&self) -> bool {
        VolumeGroupSnapshot::is_created(self)
    }

    fn is_ready(&self) -> bool {
        VolumeGroupSnapshot::is_ready(self)
    }

    fn finalizers(_: DeletionPolicy) -> Vec<&'static str> {
        vec![GROUP_SNAPSHOT_BOUND]
    }

    fn status(&self, content: &VolumeGroupSnapshotContent, _: Option<&str>) -> Option<Value> {
        let old = self.status.clone().unwrap_or_default();
        let said = content.status.clone().unwrap_or_default();
        let mut news = Map::new();
        if old.bound_volume_group_snapshot_content_name.is_none() {
            let name = json!(content.metadata.name);
            news.insert("boundVolumeGroupSnapshotContentName".into(), name);
        }
        if old.creation_time.is_none() && said.creation_time.is_some() {
            news.insert("creationTime".into(), json!(said.creation_time));
        }
        let ready = content.is_ready();
        if old.ready_to_use != Some(ready) {
            news.insert("readyToUse".into(), json!(ready));
        }
        if old.error != said.error {
            news.insert("error".into(), json!(said.error));
        }
        (!news.is_empty()).then_some(Value::Object(news))
    }

    async fn make(bench: &Bench<Self>, wish: &Self) -> Result<Outcome, ApiError> {
        make::group(bench, wish).await
    }

    async fn search(bench: &Bench<Self>, wish: &Self) -> Result<Option<Outcome>, ApiError> {
        make::group_again(bench, wish).await
    }

    /// A group is told to be ready only when all its members are there.
    async fn prepare(
        bench: &Bench<Self>,
        wish: &Self,
        content: &VolumeGroupSnapshotContent,
    ) -> Result<Prepared, ApiError> {
        members::make(bench, wish, content).await
    }

    async fn attend(_: &Bench<Self>, _: &Self) -> Result<Outcome, ApiError> {
        Ok(Outcome::Done)
    }

    async fn depart(bench: &Bench<Self>, wish: &Self) -> Result<Outcome, ApiError> {
        depart::group(bench, wish).await
    }
}

/// Whether a change can change what is decided.
pub(super) fn stirs(old: &VolumeGroupSnapshot, new: &VolumeGroupSnapshot) -> bool {
    fn matters(group: &VolumeGroupSnapshot) -> impl PartialEq + use<> {
        let meta = &group.metadata;
        (
            (meta.uid.clone(), meta.is_deleting()),
            meta.finalizers.clone(),
            group.spec.clone(),
            (group.is_ready(), group.bound_content().is_some()),
        )
    }
    matters(old) != matters(new)
}
