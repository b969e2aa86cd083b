//! Lets volumes go that are deleted and not attached.

use orlop_model::{Kind, Volume, VolumeAttachment};
use orlop_runtime::{ApiError, Cache, Cluster, Index, Outcome, without_finalizer};
use tracing::warn;

use crate::insist::insist;

/// What the attacher of volumes works with.
pub(super) struct Volumes {
    pub(super) cluster: Cluster,
    pub(super) finalizer: String,
    pub(super) volumes: Cache<Volume>,
    pub(super) attachments: Index<VolumeAttachment>,
}

impl Volumes {
    /// One look at one volume.
    pub(super) async fn turn(&self, name: String) -> Outcome {
        let Some(volume) = self.volumes.named(&name) else {
            return Outcome::Done;
        };
        let held = volume.metadata.is_deleting() && volume.metadata.has_finalizer(&self.finalizer);
        if !held || !self.attachments.get(&name).is_empty() {
            return Outcome::Done;
        }
        self.release(&volume).await.unwrap_or_else(|error| {
            warn!(volume = name, error = error.chain(), "will try again");
            Outcome::Retry
        })
    }

    async fn release(&self, volume: &Volume) -> Result<Outcome, ApiError> {
        // The cache may be behind, and an attachment be there already.
        let all = self.cluster.list::<VolumeAttachment>(None).await?;
        if all.iter().any(|a| a.volume_name() == volume.metadata.name) {
            return Ok(Outcome::Retry);
        }
        let released = insist(&self.cluster, volume, |now: &Volume| {
            without_finalizer(now, &self.finalizer).filter(|_| now.meta().is_deleting())
        })
        .await?;
        if let Some(released) = released {
            self.volumes.absorb(released);
        }
        Ok(Outcome::Done)
    }
}
