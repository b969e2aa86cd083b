//! Carries out what is decided for snapshots and groups that nobody deletes.

use std::sync::Arc;

use orlop_model::{Key, Kind as _};
use orlop_runtime::{ApiError, Cache, EventType, Message, Outcome, Patch, Process};
use serde_json::{Value, json};

use super::{
    AGAIN,
    decide::{Refusal, Source, Step, decide},
    metrics::{Operation, Type},
    parting::Parting,
    shop::Shop,
    wish::{Half as _, Prepared, Wish},
};

/// Where wishes of one kind are worked on.
pub(super) struct Bench<W: Wish> {
    pub(super) shop: Arc<Shop>,
    pub(super) wishes: Cache<W>,
    pub(super) contents: Cache<W::Content>,
    pub(super) classes: Cache<W::Class>,
    pub(super) parting: Parting,
}

impl<W: Wish> Bench<W> {
    pub(super) fn new(process: &Process, shop: &Arc<Shop>) -> Self {
        Self {
            shop: shop.clone(),
            wishes: process.cache(),
            contents: process.cache(),
            classes: process.cache(),
            parting: Parting::default(),
        }
    }

    pub(super) async fn synced(&self) {
        self.wishes.synced().await;
        self.contents.synced().await;
        self.classes.synced().await;
    }

    /// One look at one wish.
    pub(super) async fn turn(&self, key: Key) -> Outcome {
        let Some(wish) = self.wishes.get(&key) else {
            self.parting.over(&key);
            return self.shop.conclude::<W>(&key, Ok(Outcome::Done));
        };
        let step = if wish.meta().is_deleting() {
            W::depart(self, &wish).await
        } else {
            self.pursue(&wish).await
        };
        self.shop.conclude::<W>(&key, step)
    }

    /// Counts the time from here on, if it isn't counted yet.
    pub(super) fn begin(&self, wish: &W, what: Operation, driver: Option<&str>) {
        let kind = match wish.view(None).source {
            Source::Content => Type::PreProvisioned,
            Source::Claims | Source::Group | Source::Unclear => Type::Dynamic,
        };
        let metrics = &self.shop.config.metrics;
        metrics.begin(&wish.meta().uid, what, (W::WORDS.prefix, kind), driver);
    }

    async fn pursue(&self, wish: &W) -> Result<Outcome, ApiError> {
        if !wish.is_ready() {
            self.begin(wish, Operation::CreateAndReady, None);
        }
        if !wish.is_created() && wish.view(None).source == Source::Claims {
            self.begin(wish, Operation::Create, None);
        }
        let content = self.content_of(wish).await?;
        let expected = wish.content_name();
        match decide(&W::WORDS, &wish.view(content.as_deref()), &expected) {
            Step::Leave => W::attend(self, wish).await,
            // Its content wakes it.
            Step::Wait => Ok(Outcome::Done),
            Step::Make => W::make(self, wish).await,
            Step::Refuse(refusal) => self.refuse(wish, &refusal).await,
            Step::Bind => match content {
                Some(content) => self.bind(wish, &content).await,
                None => Ok(AGAIN),
            },
            Step::Settle => match content {
                Some(content) => self.settle(wish, &content).await,
                None => Ok(AGAIN),
            },
        }
    }

    /// The other half. That one is missing is said only if the API server says so.
    async fn content_of(&self, wish: &W) -> Result<Option<Arc<W::Content>>, ApiError> {
        let key = Key::cluster(wish.content_name());
        if let Some(content) = self.contents.get(&key) {
            return Ok(Some(content));
        }
        let view = wish.view(None);
        let step = decide(&W::WORDS, &view, &key.name);
        if matches!(step, Step::Make | Step::Wait) || key.name.is_empty() {
            return Ok(None);
        }
        let live = self.shop.cluster.get::<W::Content>(&key).await?;
        Ok(live.map(|live| {
            self.contents.absorb(live.clone());
            Arc::new(live)
        }))
    }

    async fn bind(&self, wish: &W, content: &W::Content) -> Result<Outcome, ApiError> {
        let mut spec = json!({W::Content::OWNER_FIELD: {"uid": wish.meta().uid}});
        if let Some(class) = wish.class_name() {
            spec[W::Content::CLASS_FIELD] = json!(class);
        }
        let patch = Patch::merge_on(content, json!({"spec": spec}));
        let key = content.key();
        match self.shop.cluster.patch::<W::Content>(&key, &patch).await {
            Ok(bound) => {
                self.contents.absorb(bound);
                Ok(AGAIN)
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                if let Some(live) = self.shop.cluster.get::<W::Content>(&key).await? {
                    self.contents.absorb(live);
                }
                Ok(AGAIN)
            }
            Err(error) => {
                let (prefix, content) = (W::WORDS.prefix, W::WORDS.content);
                let error = error.chain();
                let message = format!("{prefix}Snapshot failed to bind {content}, {error}");
                let refusal = Refusal::new(&W::WORDS, "SnapshotBindFailed", message);
                self.refuse(wish, &refusal).await
            }
        }
    }

    /// Tells the user what the content says.
    pub(super) async fn settle(&self, wish: &W, content: &W::Content) -> Result<Outcome, ApiError> {
        let Some(wish) = self.hold(wish, &W::finalizers(content.policy())).await? else {
            return Ok(AGAIN);
        };
        let group = match W::prepare(self, &wish, content).await? {
            Prepared::Ready(group) => group,
            Prepared::Later(outcome) => return Ok(outcome),
        };
        let Some(status) = wish.status(content, group.as_deref()) else {
            return Ok(Outcome::Done);
        };
        let Some(told) = self.write_status(&wish, status).await? else {
            return Ok(AGAIN);
        };
        let (key, words) = (wish.key(), W::WORDS);
        let say = |reason: &str, text: String| {
            let reason = format!("{}{reason}", words.prefix);
            let recorder = &self.shop.recorder;
            recorder.say(&wish, EventType::Normal, &reason, text);
        };
        let name = format!("{}Snapshot {key}", words.prefix);
        let (metrics, uid) = (&self.shop.config.metrics, &wish.meta().uid);
        if !wish.is_created() && told.is_created() {
            metrics.succeed(uid, Operation::Create, Some(content.driver()));
            let text = format!("{name} was successfully created by the CSI driver.");
            say("SnapshotCreated", text);
        }
        if !wish.is_ready() && told.is_ready() {
            metrics.succeed(uid, Operation::CreateAndReady, Some(content.driver()));
            say("SnapshotReady", format!("{name} is ready to use."));
        }
        Ok(Outcome::Done)
    }

    /// Sees to it that these finalizers stand on it; `None` if it has changed.
    pub(super) async fn hold(
        &self,
        wish: &W,
        finalizers: &[&'static str],
    ) -> Result<Option<W>, ApiError> {
        let meta = wish.meta();
        let missing: Vec<String> = finalizers
            .iter()
            .filter(|name| !meta.has_finalizer(name))
            .map(|name| (*name).to_owned())
            .collect();
        if missing.is_empty() {
            return Ok(Some(wish.clone()));
        }
        let all = [meta.finalizers.clone(), missing].concat();
        let body = json!({"metadata": {"finalizers": all}});
        let held = self.write(wish, body).await;
        self.tell_refused(wish, &held, "SnapshotFinalizerError", |prefix| {
            let word = format!("{} snapshot", prefix.to_lowercase());
            format!("Failed to check and update {}", word.trim_start())
        });
        held
    }

    /// What the API server turned down, which it may go on to do, is told; what it has no time for, or
    /// what was lost on the way, is just tried again.
    fn tell_refused<T>(
        &self,
        wish: &W,
        written: &Result<T, ApiError>,
        reason: &str,
        what: impl FnOnce(&str) -> String,
    ) {
        let Err(error) = written else { return };
        if !error.is_refused() {
            return;
        }
        let prefix = W::WORDS.prefix;
        let text = format!("{}: {}", what(prefix), error.chain());
        let reason = format!("{prefix}{reason}");
        let recorder = &self.shop.recorder;
        recorder.say(wish, EventType::Warning, &reason, text);
    }

    /// Writes on the very version that was looked at; `None` if it has changed.
    pub(super) async fn write(&self, wish: &W, body: Value) -> Result<Option<W>, ApiError> {
        let patch = Patch::merge_on(wish, body);
        let written = self.shop.cluster.patch::<W>(&wish.key(), &patch).await;
        self.written(wish, written).await
    }

    async fn write_status(&self, wish: &W, status: Value) -> Result<Option<W>, ApiError> {
        let patch = Patch::merge_on(wish, json!({"status": status}));
        let key = wish.key();
        let written = self.shop.cluster.patch_status::<W>(&key, &patch).await;
        self.tell_refused(wish, &written, "SnapshotStatusUpdateFailed", |prefix| {
            format!("{prefix}Snapshot status update failed")
        });
        self.written(wish, written).await
    }

    async fn written(&self, wish: &W, written: Result<W, ApiError>) -> Result<Option<W>, ApiError> {
        match written {
            Ok(written) => {
                // One that nothing holds any more is not led to its end twice.
                self.wishes.absorb_or_end(written.clone());
                Ok(Some(written))
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                if let Some(live) = self.shop.cluster.get::<W>(&wish.key()).await? {
                    self.wishes.absorb(live);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Says what is wrong and when it is looked at again, and puts it into the status unless the
    /// very same stands there.
    pub(super) async fn refuse(&self, wish: &W, refusal: &Refusal) -> Result<Outcome, ApiError> {
        let Refusal {
            reason,
            message,
            unready,
            setback,
        } = refusal;
        if wish.error_message() != Some(message) {
            let time = self.shop.clock.now_seconds();
            let mut status = json!({"error": {"time": time, "message": message}});
            if *unready {
                status["readyToUse"] = json!(false);
            }
            if self.write_status(wish, status).await?.is_none() {
                return Ok(AGAIN);
            }
        }
        let wait = self.shop.wait::<W>(&wish.key(), *setback);
        let message = Message::until_next_try(message, wait);
        let recorder = &self.shop.recorder;
        recorder.say(wish, EventType::Warning, reason, message);
        Ok(Outcome::After(wait))
    }
}
