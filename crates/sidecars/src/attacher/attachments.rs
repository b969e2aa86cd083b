//! Carries out what is decided for attachments.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use orlop_csi::{
    CallError, Driver,
    client::ControllerCapability,
    proto::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest},
};
use orlop_model::{
    CsiNode, Key, Kind, Volume, VolumeAttachment, attachment::VolumeError, migration,
    well_known::ATTACHMENT_NODE_ID,
};
use orlop_runtime::{
    ApiError, Cache, Clock, Cluster, Outcome, Patch, spoken, with_finalizer, without_finalizer,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::{
    Config,
    decide::{self, Handling, Intent, Step, View, Way},
    reconcile::Astray,
    sight::Sight,
};
use crate::{
    capability::{self, AccessError, Shape, SingleNode},
    credentials::{self, CredentialsError},
    insist::insist,
    patience::{Patience, Setback},
    words::words,
};

/// An error that is told already is told again after so long.
const FRESH: SignedDuration = SignedDuration::from_mins(5);

/// No error's text is longer, in bytes: the API server takes no more.
const LONGEST: usize = 1024;

/// Look again at once: what was decided on had changed.
const AGAIN: Outcome = Outcome::After(std::time::Duration::ZERO);

/// What the attacher of attachments works with.
pub(super) struct Attachments {
    pub(super) cluster: Cluster,
    pub(super) clock: Clock,
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) handling: Handling,
    pub(super) finalizer: String,
    pub(super) attachments: Cache<VolumeAttachment>,
    pub(super) sight: Sight,
    pub(super) volumes: Cache<Volume>,
    pub(super) csi_nodes: Cache<CsiNode>,
    pub(super) astray: Astray,
    pub(super) patience: Patience,
    /// Room for calls to the driver, for each way.
    pub(super) attaching: Semaphore,
    pub(super) detaching: Semaphore,
    pub(super) config: Config,
}

/// Why attaching or detaching failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("{0}")]
    Hindered(String),
    #[error("{0}")]
    Refused(String),
    #[error("what the driver answered to ControllerPublishVolume can not be written down")]
    Unwritable(#[source] ApiError),
}

impl Failure {
    fn code(&self) -> Option<i32> {
        match self {
            Self::Driver(error) => Some(error.code as i32),
            Self::Credentials(_)
            | Self::Access(_)
            | Self::Hindered(_)
            | Self::Refused(_)
            | Self::Unwritable(_) => None,
        }
    }

    fn setback(&self) -> Setback {
        match self {
            Self::Driver(error) => Setback::of_call(error),
            Self::Access(_) | Self::Unwritable(_) => Setback::Infeasible,
            Self::Credentials(_) | Self::Hindered(_) => Setback::Waiting,
            Self::Refused(_) => Setback::Failed,
        }
    }
}

impl Attachments {
    /// Waits for everything that decisions read.
    pub(super) async fn synced(&self) {
        self.attachments.synced().await;
        self.volumes.synced().await;
        self.csi_nodes.synced().await;
    }

    /// One look at one attachment.
    pub(super) async fn turn(&self, name: String) -> Outcome {
        let Some(attachment) = self.attachments.named(&name) else {
            self.astray.found(&name);
            self.patience.forget(&name);
            return Outcome::Done;
        };
        let mut result = self.step(&attachment).await;
        if let Some(why) = result.as_ref().err().and_then(ApiError::told) {
            // Nobody else can help but who looks at it.
            let failure = Failure::Refused(why);
            result = self.say_failed(&attachment, &failure).await;
        }
        self.patience.conclude(&name, result)
    }

    async fn step(&self, attachment: &VolumeAttachment) -> Result<Outcome, ApiError> {
        let volume = self.volumes.named(attachment.volume_name());
        let of_plugin = volume.as_ref().is_some_and(|v| v.spec.csi.is_none());
        let volume = volume.map(migration::in_the_drivers_words);
        let csi_node = self.csi_nodes.named(&attachment.spec.node_name);
        let entry = csi_node.as_ref().and_then(|n| n.driver(&self.name));
        let view = View {
            driver: &self.name,
            finalizer: &self.finalizer,
            handling: self.handling,
            attachment,
            volume: volume.as_deref(),
            of_plugin,
            node_id: entry.map(|d| d.node_id.as_str()),
            astray: self.astray.is(&attachment.metadata.name),
        };
        match decide::decide(&view) {
            Step::Leave => Ok(Outcome::Done),
            Step::MarkAttached => self.mark_attached(attachment, &BTreeMap::new()).await,
            Step::Release => self.release(attachment).await,
            Step::Attach(way, intent) => self.attach(attachment, way, intent).await,
            Step::Detach(way) => self.detach(attachment, way).await,
            Step::Hindered(hindrance) => {
                let why = hindrance.words(attachment, &self.name);
                self.say_failed(attachment, &Failure::Hindered(why)).await
            }
        }
    }

    async fn attach(
        &self,
        attachment: &VolumeAttachment,
        way: Way<'_>,
        intent: Intent,
    ) -> Result<Outcome, ApiError> {
        if let Some(volume) = way.volume
            && !self.guard(volume).await?
        {
            return Ok(AGAIN);
        }
        let recorded = match intent {
            Intent::ToRecord => self.record_intent(attachment, way.node_id).await?,
            Intent::OnRecord => self.sight.of(attachment).await?,
        };
        let Some(attachment) = recorded.filter(|a| !a.metadata.is_deleting()) else {
            return Ok(AGAIN);
        };
        match self.publish(way).await {
            Ok(metadata) => {
                info!(
                    volume_id = way.csi.volume_handle,
                    node = attachment.spec.node_name,
                    "attached"
                );
                self.mark_attached(&attachment, &metadata).await
            }
            Err(failure) => self.say_failed(&attachment, &failure).await,
        }
    }

    /// Keeps the volume object while something of it is attached: detaching needs it.
    /// `false` if it has changed.
    async fn guard(&self, volume: &Volume) -> Result<bool, ApiError> {
        let key = volume.key();
        match with_finalizer(volume, &self.finalizer) {
            Some(patch) => match self.cluster.patch::<Volume>(&key, &patch).await {
                Ok(guarded) => {
                    self.volumes.absorb(guarded);
                    Ok(true)
                }
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    if let Some(live) = self.cluster.get::<Volume>(&key).await? {
                        self.volumes.absorb(live);
                    }
                    Ok(false)
                }
                Err(error) => Err(error),
            },
            None => {
                // The cache may be behind: the finalizer may be gone, and the volume too.
                let live = self.cluster.get::<Volume>(&key).await?;
                let Some(live) = live else { return Ok(false) };
                let stands = live.metadata.uid == volume.metadata.uid
                    && !live.metadata.is_deleting()
                    && live.metadata.has_finalizer(&self.finalizer);
                self.volumes.absorb(live);
                Ok(stands)
            }
        }
    }

    /// Puts finalizer and node id on the attachment; `None` if it has changed.
    async fn record_intent(
        &self,
        attachment: &VolumeAttachment,
        node_id: &str,
    ) -> Result<Option<VolumeAttachment>, ApiError> {
        let mut finalizers = attachment.metadata.finalizers.clone();
        if !attachment.metadata.has_finalizer(&self.finalizer) {
            finalizers.push(self.finalizer.clone());
        }
        let body = json!({"metadata": {
            "finalizers": finalizers,
            "annotations": {ATTACHMENT_NODE_ID: node_id},
        }});
        let patch = Patch::merge_on(attachment, body);
        let key = attachment.key();
        match self.cluster.patch::<VolumeAttachment>(&key, &patch).await {
            Ok(recorded) => {
                self.attachments.absorb(recorded.clone());
                Ok(Some(recorded))
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                if let Some(live) = self.cluster.get::<VolumeAttachment>(&key).await? {
                    self.attachments.absorb(live);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn publish(&self, way: Way<'_>) -> Result<BTreeMap<String, String>, Failure> {
        let info = self.driver.info().await?;
        let Way {
            spec, csi, node_id, ..
        } = way;
        let mode = capability::mode(&spec.access_modes, SingleNode::of(&info))?;
        let shape = Shape {
            mode: spec.volume_mode.unwrap_or_default(),
            fs_type: match csi.fs_type.as_str() {
                "" => &self.config.default_fs_type,
                named => named,
            },
            mount_options: &spec.mount_options,
        };
        let secret = csi.controller_publish_secret_ref.as_ref();
        let secrets = credentials::referenced(&self.cluster, secret).await?;
        let request = ControllerPublishVolumeRequest {
            volume_id: csi.volume_handle.clone(),
            node_id: node_id.to_owned(),
            volume_capability: Some(shape.with(mode)),
            readonly: csi.read_only && info.can(ControllerCapability::PublishReadonly),
            secrets: secrets.into_request(),
            volume_context: csi.volume_attributes.clone(),
        };
        // It is never closed.
        let _room = self.attaching.acquire().await;
        let driver = self.driver.for_migrated(way.of_plugin);
        let reply = driver.controller_publish_volume(request).await?;
        Ok(reply.publish_context)
    }

    async fn mark_attached(
        &self,
        attachment: &VolumeAttachment,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Outcome, ApiError> {
        // A merge patch leaves keys alone that it doesn't name.
        let mut words: BTreeMap<&str, Value> = attachment
            .status
            .attachment_metadata
            .keys()
            .map(|key| (key.as_str(), Value::Null))
            .collect();
        for (key, value) in metadata {
            words.insert(key, json!(value));
        }
        let status = json!({
            "attached": true,
            "attachmentMetadata": words,
            "attachError": null,
        });
        match self.write_status(attachment, status).await {
            Ok(()) => {
                self.astray.found(&attachment.metadata.name);
                Ok(Outcome::Done)
            }
            // Attached, and detached again when the attachment goes; but no node can use it.
            Err(error) if error.is_refused() => {
                let failure = Failure::Unwritable(error);
                self.say_failed(attachment, &failure).await
            }
            Err(error) => Err(error),
        }
    }

    async fn detach(
        &self,
        attachment: &VolumeAttachment,
        way: Way<'_>,
    ) -> Result<Outcome, ApiError> {
        // Another attachment of the same name may stand there, and be in use.
        let live = self.sight.of(attachment).await?;
        let Some(live) = live.filter(|l| l.metadata.is_deleting()) else {
            return Ok(Outcome::Done);
        };
        if let Err(failure) = self.unpublish(way).await {
            return self.say_failed(&live, &failure).await;
        }
        info!(
            volume_id = way.csi.volume_handle,
            node = live.spec.node_name,
            "detached"
        );
        self.release(&live).await
    }

    async fn unpublish(&self, way: Way<'_>) -> Result<(), Failure> {
        let secret = way.csi.controller_publish_secret_ref.as_ref();
        let secrets = match credentials::referenced(&self.cluster, secret).await {
            // A namespace that is deleted takes its secrets along before its volumes.
            Err(CredentialsError::Missing(secret)) => {
                warn!(volume_id = way.csi.volume_handle, %secret, "detaching without the missing secret");
                orlop_csi::Secrets::none()
            }
            other => other?,
        };
        let request = ControllerUnpublishVolumeRequest {
            volume_id: way.csi.volume_handle.clone(),
            node_id: way.node_id.to_owned(),
            secrets: secrets.into_request(),
        };
        let _room = self.detaching.acquire().await;
        let driver = self.driver.for_migrated(way.of_plugin);
        driver.controller_unpublish_volume(request).await?;
        Ok(())
    }

    /// Takes the finalizer off; what remains, if somebody else's finalizer holds it, says
    /// that it isn't attached any more.
    async fn release(&self, attachment: &VolumeAttachment) -> Result<Outcome, ApiError> {
        let rest = insist(&self.cluster, attachment, |now: &VolumeAttachment| {
            without_finalizer(now, &self.finalizer)
        })
        .await?;
        let Some(rest) = rest.filter(|r| !r.metadata.finalizers.is_empty()) else {
            return Ok(Outcome::Done);
        };
        let status = json!({
            "attached": false,
            "attachmentMetadata": null,
            "detachError": null,
        });
        self.write_status(&rest, status).await?;
        Ok(Outcome::Done)
    }

    async fn say_failed(
        &self,
        attachment: &VolumeAttachment,
        failure: &Failure,
    ) -> Result<Outcome, ApiError> {
        let name = &attachment.metadata.name;
        let wait = self.patience.after(name, failure.setback());
        let message = told(&words(failure), &format!("; next try in {}", spoken(wait)));
        warn!(attachment = name, reason = message, "it failed");
        let now = self.clock.now_seconds();
        let status = &attachment.status;
        let told = if attachment.metadata.is_deleting() {
            status.detach_error.as_ref()
        } else {
            status.attach_error.as_ref()
        };
        let fresh = |time: &Timestamp| now.duration_since(*time) < FRESH;
        if told.is_some_and(|told| told.message == message && told.time.as_ref().is_some_and(fresh))
        {
            return Ok(Outcome::After(wait));
        }
        let error = VolumeError {
            time: Some(now),
            message,
            error_code: failure.code(),
        };
        let field = if attachment.metadata.is_deleting() {
            "detachError"
        } else {
            "attachError"
        };
        self.write_status(attachment, json!({field: error})).await?;
        Ok(Outcome::After(wait))
    }

    /// Writes the status of this very attachment, whatever else changed on it.
    async fn write_status(
        &self,
        attachment: &VolumeAttachment,
        status: Value,
    ) -> Result<(), ApiError> {
        let body = json!({"metadata": {"uid": attachment.metadata.uid}, "status": status});
        let key: Key = attachment.key();
        let written = self
            .cluster
            .patch_status::<VolumeAttachment>(&key, &Patch::Merge(body))
            .await;
        match written {
            Ok(written) => {
                self.attachments.absorb(written);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What is wrong and when it is tried again, in no more bytes than an attachment has for it.
fn told(reason: &str, next: &str) -> String {
    let end = reason.floor_char_boundary(LONGEST.saturating_sub(next.len()));
    format!("{}{next}", &reason[..end])
}
