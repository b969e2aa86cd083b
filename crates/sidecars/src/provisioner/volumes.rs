//! Carries out what is decided for volumes.

use std::{sync::Arc, time::Duration};

use orlop_csi::{CallError, Driver, Secrets, proto::DeleteVolumeRequest};
use orlop_model::{
    Claim, Key, Kind, StorageClass, Volume, VolumeAttachment,
    migration::in_the_drivers_words,
    volume::SecretRef,
    well_known::{DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE, EXTERNAL_PROVISIONER},
};
use orlop_runtime::{
    ApiError, Cache, Cluster, EventType, Index, Joint, Message, Outcome, Preconditions, Recorder,
    letting_go, with_finalizer, without_finalizer,
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    AGAIN, Config, ParameterError, migration,
    reclaim::{self, Step, View},
    request, topology,
};
use crate::{
    credentials::{self, CredentialsError},
    insist::insist,
    patience::{Patience, Setback},
    words::words,
};

/// A volume that is to be deleted and stays attached for so long is told of: before, it is just
/// being detached.
const DETACHING: Duration = Duration::from_secs(8);

/// What the reclaimer of volumes works with.
pub(super) struct Volumes {
    pub(super) cluster: Cluster,
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) place: topology::Segment,
    pub(super) volumes: Cache<Volume>,
    pub(super) claims: Cache<Claim>,
    /// The attacher's finalizer, where the attacher puts it on before the driver attaches.
    pub(super) attacher: Option<String>,
    pub(super) classes: Cache<StorageClass>,
    pub(super) attachments: Index<VolumeAttachment>,
    /// All attachments as they are, for many volumes at once.
    pub(super) attached: Joint<VolumeAttachment>,
    pub(super) recorder: Recorder,
    pub(super) patience: Patience,
    pub(super) config: Config,
}

/// Attachments by the volume that they name.
pub(crate) fn by_volume(cache: &Cache<VolumeAttachment>) -> Index<VolumeAttachment> {
    cache.index("sidecars.volume", |attachment| {
        vec![attachment.volume_name().to_owned()]
    })
}

/// Why a volume wasn't deleted.
#[derive(Debug, thiserror::Error)]
enum DeleteError {
    #[error(
        "persistentvolume {volume} is still attached to node {node}; it is deleted once it is detached: \
         end what uses it there"
    )]
    Attached { volume: String, node: String },
    #[error("claim {0} still exists; the volume is deleted once it is gone")]
    ClaimExists(Key),
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("the class's secret can not be found out")]
    Parameters(#[from] ParameterError),
}

impl DeleteError {
    fn attached(volume: &Volume, attachment: &VolumeAttachment) -> Self {
        Self::Attached {
            volume: volume.metadata.name.clone(),
            node: attachment.spec.node_name.clone(),
        }
    }

    fn setback(&self) -> Setback {
        match self {
            Self::Attached { .. } | Self::ClaimExists(_) => Setback::Waiting,
            Self::Driver(error) => match Setback::of_call(error) {
                // What may not be deleted today, because a snapshot needs it, may be tomorrow.
                Setback::Infeasible => Setback::Failed,
                other => other,
            },
            Self::Credentials(_) | Self::Parameters(_) => Setback::Failed,
        }
    }
}

impl Volumes {
    /// One look at one volume.
    pub(super) async fn turn(&self, name: String) -> Outcome {
        let Some(volume) = self.volumes.named(&name) else {
            self.patience.forget(&who(&name));
            return Outcome::Done;
        };
        let told = in_the_drivers_words(volume.clone());
        let step = reclaim::decide(&self.view(&volume, &told));
        let reason = match step {
            Step::Delete(_) => "VolumeFailedDelete",
            _ => "VolumeUpdateFailed",
        };
        let result = match step {
            Step::Leave => Ok(Outcome::Done),
            Step::WaitForDetach => Ok(self.wait_for_detach(&volume)),
            Step::Guard => self.guard(&volume).await,
            Step::Unguard => self.unguard(&volume).await.map(|()| Outcome::Done),
            Step::Delete(_) => self.delete(&volume).await,
        };
        self.patience
            .conclude_aloud(&who(&name), result, |refused| {
                self.recorder
                    .say(&*volume, EventType::Warning, reason, refused);
            })
    }

    /// Its attachment's end wakes it; that there is none for long is told.
    fn wait_for_detach(&self, volume: &Volume) -> Outcome {
        let attachments = self.attachments.get(&volume.metadata.name);
        let wait = self
            .patience
            .after(&who(&volume.metadata.name), Setback::Waiting);
        if wait >= DETACHING
            && let Some(attachment) = attachments.first()
        {
            let error = DeleteError::attached(volume, attachment);
            self.say_failed(volume, &error, wait);
        }
        Outcome::After(wait)
    }

    fn say_failed(&self, volume: &Volume, error: &DeleteError, wait: Duration) {
        let message = Message::until_next_try(words(error), wait);
        self.recorder
            .say(volume, EventType::Warning, "VolumeFailedDelete", message);
    }

    /// What is known of a volume, of which the driver is told in its own words.
    fn view<'a>(&'a self, seen: &Volume, volume: &'a Volume) -> View<'a> {
        View {
            driver: &self.name,
            deployment: &self.config.deployment,
            place: &self.place,
            volume,
            of_plugin: seen.spec.csi.is_none(),
            attached: !self.attachments.get(&volume.metadata.name).is_empty(),
        }
    }

    async fn guard(&self, volume: &Volume) -> Result<Outcome, ApiError> {
        let Some(patch) = with_finalizer(volume, EXTERNAL_PROVISIONER) else {
            return Ok(Outcome::Done);
        };
        match self.cluster.patch::<Volume>(&volume.key(), &patch).await {
            Ok(guarded) => self.volumes.absorb(guarded),
            Err(error) if error.is_conflict() || error.is_not_found() => {
                return self.refresh(volume).await;
            }
            Err(error) => return Err(error),
        }
        Ok(Outcome::Done)
    }

    async fn refresh(&self, volume: &Volume) -> Result<Outcome, ApiError> {
        if let Some(live) = self.cluster.get::<Volume>(&volume.key()).await? {
            self.volumes.absorb(live);
        }
        Ok(AGAIN)
    }

    async fn unguard(&self, volume: &Volume) -> Result<(), ApiError> {
        let changed = insist(&self.cluster, volume, |now: &Volume| {
            without_finalizer(now, EXTERNAL_PROVISIONER)
        })
        .await?;
        if let Some(changed) = changed {
            self.volumes.absorb(changed);
        }
        Ok(())
    }

    async fn delete(&self, volume: &Volume) -> Result<Outcome, ApiError> {
        let begun = Instant::now();
        // The cache may be behind: data is destroyed on live reads only.
        let live = match self.cluster.get::<Volume>(&volume.key()).await? {
            Some(live) if live.metadata.uid == volume.metadata.uid => live,
            _ => return Ok(Outcome::Done),
        };
        let live = Arc::new(live);
        let told = in_the_drivers_words(live.clone());
        let Step::Delete(csi) = reclaim::decide(&self.view(&live, &told)) else {
            self.volumes.absorb((*live).clone());
            return Ok(AGAIN);
        };
        let class = live.class();
        let deleted = match self.check(&live).await? {
            Ok(()) => self.delete_behind(&live, &csi.volume_handle).await,
            Err(error) => Err(error),
        };
        if let Err(error) = deleted {
            if matches!(error, DeleteError::Driver(_)) {
                self.config.metrics.delete_failed(class);
            }
            let wait = self
                .patience
                .after(&who(&live.metadata.name), error.setback());
            self.say_failed(&live, &error, wait);
            return Ok(Outcome::After(wait));
        }
        info!(
            volume = live.metadata.name,
            volume_id = csi.volume_handle,
            "deleted"
        );
        self.let_go(&live).await?;
        self.config.metrics.deleted(class, begun.elapsed());
        Ok(Outcome::Done)
    }

    /// Ends the object of a volume that is gone.
    async fn let_go(&self, volume: &Volume) -> Result<(), ApiError> {
        // Nobody has to keep it for a detachment any more, so the attacher's hold goes with ours; and
        // before the deletion, so that nobody takes the trouble to look for attachments once more. Ended
        // in between, it is still there as released, and all of this is done again.
        let both = [Some(EXTERNAL_PROVISIONER), self.attacher.as_deref()];
        let holds: Vec<&str> = both.into_iter().flatten().collect();
        // Others let go of it at the same time, and must not get into each other's way.
        let free = insist(&self.cluster, volume, |now: &Volume| {
            letting_go(now, &holds)
        });
        let Some(volume) = free.await? else {
            return Ok(());
        };
        if volume.metadata.is_deleting() {
            self.volumes.absorb_or_end(volume);
            return Ok(());
        }
        let (key, only_if) = (volume.key(), Preconditions::same_object(&volume));
        let held = self.cluster.delete_held::<Volume>(&key, &only_if).await?;
        match held.filter(|held| !held.metadata.finalizers.is_empty()) {
            Some(held) => self.volumes.absorb(held),
            None => self.volumes.end(&volume),
        }
        Ok(())
    }

    /// That nobody has the volume, by live reads and what is true for good.
    async fn check(&self, volume: &Volume) -> Result<Result<(), DeleteError>, ApiError> {
        if let Some(reference) = &volume.spec.claim_ref
            && !self.claims.saw_end_of(&reference.uid)
        {
            let claim = self.cluster.get::<Claim>(&reference.key()).await?;
            if claim.is_some_and(|c| c.metadata.uid == reference.uid) {
                return Ok(Err(DeleteError::ClaimExists(reference.key())));
            }
        }
        // What was never attached has no attachments to be looked for.
        let finalizer = self.attacher.as_ref();
        if finalizer.is_some_and(|finalizer| !volume.metadata.has_finalizer(finalizer)) {
            return Ok(Ok(()));
        }
        let all = self.attached.list(None).await?;
        let mut all = all.iter();
        if let Some(one) = all.find(|a| a.volume_name() == volume.metadata.name) {
            return Ok(Err(DeleteError::attached(volume, one)));
        }
        Ok(Ok(()))
    }

    async fn delete_behind(&self, volume: &Volume, handle: &str) -> Result<(), DeleteError> {
        let request = DeleteVolumeRequest {
            volume_id: handle.to_owned(),
            secrets: self.secrets(volume).await?.into_request(),
        };
        let driver = self.driver.for_migrated(volume.spec.csi.is_none());
        driver.delete_volume(request).await?;
        Ok(())
    }

    /// The credentials that the volume names, or else its class. A secret that is gone is
    /// no reason not to try: many drivers don't need it for deleting.
    async fn secrets(&self, volume: &Volume) -> Result<Secrets, DeleteError> {
        let meta = &volume.metadata;
        let names = (
            meta.annotation(DELETION_SECRET_NAME),
            meta.annotation(DELETION_SECRET_NAMESPACE),
        );
        let reference = match names {
            (Some(name), Some(namespace)) => Some(SecretRef {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            })
            .filter(|r| !r.name.is_empty()),
            _ => self.class_secret(volume)?,
        };
        match credentials::referenced(&self.cluster, reference.as_ref()).await {
            Err(CredentialsError::Missing(secret)) => {
                warn!(volume = meta.name, %secret, "deleting without the missing secret");
                Ok(Secrets::none())
            }
            other => Ok(other?),
        }
    }

    fn class_secret(&self, volume: &Volume) -> Result<Option<SecretRef>, ParameterError> {
        let class: Option<Arc<StorageClass>> = self.classes.named(volume.class());
        let (Some(class), Some(claim)) = (class, &volume.spec.claim_ref) else {
            return Ok(None);
        };
        let class = migration::translate(&class, &self.name)?;
        request::deletion_secret(&class, &volume.metadata.name, &claim.key())
    }
}

/// Whom a volume's waits are of, among the provisioner's.
fn who(name: &str) -> String {
    format!("PersistentVolume {name}")
}
