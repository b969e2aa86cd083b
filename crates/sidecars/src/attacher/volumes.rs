//! Lets volumes go that are deleted and not attached.

use orlop_model::{Volume, VolumeAttachment};
use orlop_runtime::{ApiError, Cache, Cluster, Index, Joint, Outcome, letting_go};
use tracing::warn;

use crate::insist::insist;

/// What the attacher of volumes works with.
pub(super) struct Volumes {
    pub(super) cluster: Cluster,
    pub(super) finalizer: String,
    pub(super) volumes: Cache<Volume>,
    pub(super) attachments: Index<VolumeAttachment>,
    /// All attachments as they are, for many volumes at once.
    pub(super) attached: Joint<VolumeAttachment>,
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
        let all = self.attached.list(None).await?;
        if all.iter().any(|a| a.volume_name() == volume.metadata.name) {
            return Ok(Outcome::Retry);
        }
        // What is deleted is never attached again, whatever else changes on it meanwhile.
        let released = insist(&self.cluster, volume, |now: &Volume| {
            letting_go(now, &[&self.finalizer])
        })
        .await?;
        if let Some(released) = released {
            self.volumes.absorb_or_end(released);
        }
        Ok(Outcome::Done)
    }
}
