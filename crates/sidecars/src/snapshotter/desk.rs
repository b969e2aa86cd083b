//! Carries out what is decided for contents, of either kind.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use orlop_csi::{Driver, DriverInfo, Secrets};
use orlop_model::{Key, volume::SecretRef, well_known::SNAPSHOT_MANAGED_BY};
use orlop_runtime::{
    ApiError, Cache, Clock, Cluster, EventType, Message, Outcome, Patch, Recorder,
    without_finalizer,
};
use serde_json::{Value, json};
use tracing::info;

use super::{
    AGAIN, Config,
    content::{Content, Failure, Order, of_call, of_credentials},
    decide::{Step, decide},
    orphans::UnderWay,
};
use crate::{
    credentials::{self, CredentialsError},
    insist::{insist, insist_status},
    patience::{Patience, Setback},
    snapshot_parameters::for_driver,
    words::words,
};

/// What the snapshotter of one kind works with.
pub(super) struct Desk<K: Content> {
    pub(super) cluster: Cluster,
    pub(super) clock: Clock,
    pub(super) driver: Driver,
    pub(super) info: Arc<DriverInfo>,
    pub(super) contents: Cache<K>,
    pub(super) classes: Cache<K::Class>,
    pub(super) recorder: Recorder,
    pub(super) patience: Patience,
    pub(super) under_way: UnderWay<K>,
    pub(super) config: Config,
}

impl<K: Content> Desk<K> {
    /// One look at one content.
    pub(super) async fn turn(&self, key: Key) -> Outcome {
        let who = key.to_string();
        let content = self.contents.get(&key);
        if let Some(orphan) = self
            .under_way
            .orphan(&key, content.as_deref(), &self.config)
        {
            return self.patience.conclude(&who, self.undo(&orphan).await);
        }
        let Some(content) = content else {
            self.patience.forget(&who);
            return Outcome::Done;
        };
        let elsewhere = self
            .config
            .node
            .as_ref()
            .is_some_and(|node| content.meta().labels.get(SNAPSHOT_MANAGED_BY) != Some(node));
        if elsewhere || content.driver() != self.info.name {
            return Outcome::Done;
        }
        let result = self.step(&content).await;
        self.patience.conclude_aloud(&who, result, |refused| {
            let reason = match content.meta().is_deleting() {
                true => K::NAMES.delete_error,
                false => K::NAMES.creation_failed,
            };
            self.recorder
                .say(&*content, EventType::Warning, reason, refused);
        })
    }

    async fn step(&self, content: &K) -> Result<Outcome, ApiError> {
        match decide(&content.view()) {
            Step::Leave => Ok(Outcome::Done),
            Step::Create => self.create(content).await,
            Step::Ask => self.ask(content).await,
            Step::Tidy => {
                self.tidy(content).await?;
                Ok(AGAIN)
            }
            Step::Delete => self.delete(content).await,
            Step::LetGo => {
                let let_go = |now: &K| {
                    let still = decide(&now.view()) == Step::LetGo;
                    still.then(|| without_finalizer(now, K::NAMES.finalizer))?
                };
                // Nothing is there, or it is on record.
                self.under_way.over(&content.key());
                self.take(insist(&self.cluster, content, let_go).await?);
                Ok(Outcome::Done)
            }
        }
    }

    async fn create(&self, content: &K) -> Result<Outcome, ApiError> {
        let order = match self.order(content).await {
            Ok(order) => order,
            Err(failure) => {
                let text = format!(
                    "failed to get input parameters to create {} for content {}: {}",
                    K::NAMES.word,
                    content.meta().name,
                    words(&failure)
                );
                return self.fail_to_create(content, &text, failure.setback()).await;
            }
        };
        let afresh = !content.view().being_created;
        let Some(content) = self.begin(content).await? else {
            return Ok(AGAIN);
        };
        if !content.view().handle {
            self.under_way.begun(&content);
        }
        match K::cut(self, &content, order).await {
            Ok(told) => {
                info!(content = %content.key(), volumes = content.volumes(), "cut");
                self.under_way.made(&content, K::named(&told));
                self.record(&content, &told).await
            }
            Err(failure) => {
                let over = failure.is_the_end(afresh);
                if over && !content.view().handle {
                    self.under_way.over(&content.key());
                    let tidied = self.tidy(&content).await?;
                    if tidied.is_none_or(|now| now.meta().is_deleting()) {
                        return Ok(AGAIN);
                    }
                }
                let text = format!(
                    "failed to take {} of the volume {}: {}",
                    K::NAMES.word,
                    content.volumes(),
                    words(&failure)
                );
                self.fail_to_create(&content, &text, failure.setback())
                    .await
            }
        }
    }

    /// What the driver is asked for. Reads, and changes nothing.
    pub(super) async fn order(&self, content: &K) -> Result<Order, Failure> {
        let name = content.name(&self.config).ok_or(Failure::Unbound)?;
        let mut parameters = match self.class(content).await? {
            Some(class) => for_driver(K::parameters(&class))?,
            // What may have been cut is found by its name, though its class is gone.
            None if content.meta().is_deleting() => BTreeMap::new(),
            None => {
                let name = content.class_name().map(str::to_owned);
                return Err(name.map_or(Failure::Classless, Failure::NoClass));
            }
        };
        if self.config.extra_create_metadata {
            let more = content.metadata().into_iter();
            parameters.extend(more.map(|(key, value)| (key.to_owned(), value)));
        }
        Ok(Order {
            name,
            parameters,
            secrets: self.secrets(content).await?,
        })
    }

    async fn class(&self, content: &K) -> Result<Option<Arc<K::Class>>, CredentialsError> {
        let Some(name) = content.class_name() else {
            return Ok(None);
        };
        if let Some(class) = self.classes.named(name) {
            return Ok(Some(class));
        }
        let live = self.cluster.get::<K::Class>(&Key::cluster(name)).await;
        Ok(live.map_err(CredentialsError::Read)?.map(Arc::new))
    }

    /// The credentials that the content names.
    pub(super) async fn secrets(&self, content: &K) -> Result<Secrets, CredentialsError> {
        let names = K::NAMES;
        let annotation = |name| content.meta().annotation(name);
        let reference = annotation(names.secret_name)
            .zip(annotation(names.secret_namespace))
            .map(|(name, namespace)| SecretRef {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            });
        credentials::referenced(&self.cluster, reference.as_ref()).await
    }

    /// Puts it on record that the driver is about to be asked, and sees to it that the content
    /// can't go meanwhile; `None` if the content has changed.
    async fn begin(&self, content: &K) -> Result<Option<K>, ApiError> {
        let (view, key) = (content.view(), content.key());
        if view.handle || (view.being_created && (view.held || view.deleting)) {
            // On record: but a cache may be behind, and what is gone must not be made again.
            let live = self.cluster.get::<K>(&key).await?;
            let same = live.filter(|live| {
                let (live, seen) = (live.meta(), content.meta());
                (&live.uid, &live.resource_version) == (&seen.uid, &seen.resource_version)
            });
            if same.is_none() {
                self.look_again(&key).await?;
            }
            return Ok(same);
        }
        let mut finalizers = content.meta().finalizers.clone();
        if !view.held {
            finalizers.push(K::NAMES.finalizer.to_owned());
        }
        let body = json!({"metadata": {
            "finalizers": finalizers,
            "annotations": {K::NAMES.being_created: "yes"},
        }});
        let patch = Patch::merge_on(content, body);
        match self.cluster.patch::<K>(&key, &patch).await {
            Ok(begun) => {
                self.contents.absorb(begun.clone());
                Ok(Some(begun))
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                self.look_again(&key).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the live object in, if there is one.
    pub(super) async fn look_again(&self, key: &Key) -> Result<(), ApiError> {
        let live = self.cluster.get::<K>(key).await?;
        self.take(live);
        Ok(())
    }

    fn take(&self, changed: Option<K>) {
        if let Some(changed) = changed {
            self.contents.absorb(changed);
        }
    }

    /// Says what the driver told, and that no call is under way.
    async fn record(&self, content: &K, told: &K::Told) -> Result<Outcome, ApiError> {
        let now = self.clock.now();
        let tell = |live: &K| {
            let status = live.status(told, now)?;
            Some(Patch::merge_on(live, json!({"status": status})))
        };
        let Some(recorded) = insist_status(&self.cluster, content, tell).await? else {
            // Its end brings another turn, in which what was cut for it is undone.
            return Ok(Outcome::Done);
        };
        self.under_way.over(&recorded.key());
        self.contents.absorb(recorded.clone());
        self.tidy(&recorded).await?;
        Ok(if recorded.meta().is_deleting() {
            AGAIN
        } else if K::is_ready(told) {
            Outcome::Done
        } else {
            // No event tells when the driver is done with it.
            Outcome::After(self.wait(content, Setback::Waiting))
        })
    }

    /// Says that no call is under way; `None` if the content is gone.
    async fn tidy(&self, content: &K) -> Result<Option<K>, ApiError> {
        let name = K::NAMES.being_created;
        let tidy = |now: &K| {
            now.meta().annotation(name)?;
            let body = json!({"metadata": {"annotations": {name: Value::Null}}});
            Some(Patch::merge_on(now, body))
        };
        let tidied = insist(&self.cluster, content, tidy).await?;
        self.take(tidied.clone());
        Ok(tidied)
    }

    /// How long a content waits that met this.
    pub(super) fn wait(&self, content: &K, setback: Setback) -> Duration {
        self.patience.after(&content.key().to_string(), setback)
    }

    async fn ask(&self, content: &K) -> Result<Outcome, ApiError> {
        let asked = async {
            let mut secrets = self.secrets(content).await?;
            if let Some(name) = content.class_name() {
                let class = self.class(content).await?;
                let class = class.ok_or_else(|| Failure::NoClass(name.to_owned()))?;
                if let Some(secret) = content.list_secret(&class)? {
                    secrets = credentials::referenced(&self.cluster, Some(&secret)).await?;
                }
            }
            K::ask(self, content, secrets).await
        };
        match asked.await {
            Ok(told) => self.record(content, &told).await,
            Err(failure) => {
                let text = format!(
                    "Failed to check and update {} content: failed to list {} for content {}: {}",
                    K::NAMES.word,
                    K::NAMES.word,
                    content.meta().name,
                    words(&failure)
                );
                let reason = K::NAMES.check_failed;
                self.tell(content, reason, &text, failure.setback()).await
            }
        }
    }

    async fn delete(&self, seen: &K) -> Result<Outcome, ApiError> {
        // What can't be undone is decided on what is there now.
        let Some(content) = self.cluster.get::<K>(&seen.key()).await? else {
            return Ok(Outcome::Done);
        };
        self.contents.absorb(content.clone());
        if content.meta().uid != seen.meta().uid || decide(&content.view()) != Step::Delete {
            return Ok(AGAIN);
        }
        let say = |text: String, setback| {
            let wait = self.wait(&content, setback);
            let (reason, text) = (K::NAMES.delete_error, Message::until_next_try(text, wait));
            self.recorder
                .say(&content, EventType::Warning, reason, text);
            Ok(Outcome::After(wait))
        };
        let secrets = match self.secrets(&content).await {
            Ok(secrets) => secrets,
            Err(error) => {
                let text = format!("Failed to get snapshot credentials: {}", words(&error));
                return say(text, of_credentials(&error));
            }
        };
        if let Err(error) = K::delete(self, content.handles(), secrets).await {
            let text = format!("Failed to delete {}: {error}", K::NAMES.word);
            return say(text, of_call(&error));
        }
        info!(content = %content.key(), "deleted");
        self.under_way.over(&content.key());
        let let_go = |now: &K| without_finalizer(now, K::NAMES.finalizer);
        self.take(insist(&self.cluster, &content, let_go).await?);
        Ok(Outcome::Done)
    }

    async fn fail_to_create(
        &self,
        content: &K,
        text: &str,
        setback: Setback,
    ) -> Result<Outcome, ApiError> {
        let word = K::NAMES.word;
        let (reason, text) = if content.has_status() {
            let text = format!("Failed to check and update {word} content: {text}");
            (K::NAMES.check_failed, text)
        } else {
            let text = format!("Failed to create {word}: {text}");
            (K::NAMES.creation_failed, text)
        };
        self.tell(content, reason, &text, setback).await
    }

    /// Says a failure and when it is tried again, and puts it into the status unless the very
    /// same stands there.
    async fn tell(
        &self,
        content: &K,
        reason: &str,
        text: &str,
        setback: Setback,
    ) -> Result<Outcome, ApiError> {
        let wait = self.wait(content, setback);
        let message = Message::until_next_try(text, wait);
        self.recorder
            .say(content, EventType::Warning, reason, message);
        let time = self.clock.now_seconds();
        let failed = |now: &K| {
            if now.error_message() == Some(text) {
                return None;
            }
            let error = json!({"time": time, "message": text});
            let body = json!({"status": {"readyToUse": false, "error": error}});
            Some(Patch::merge_on(now, body))
        };
        self.take(insist_status(&self.cluster, content, failed).await?);
        Ok(Outcome::After(wait))
    }
}
