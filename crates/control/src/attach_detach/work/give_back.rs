//! Giving attachments back, and learning what became of it when the answer is lost.

use orlop_model::{Kind, VolumeAttachment};
use orlop_runtime::{ApiError, Preconditions};
use tracing::info;

use super::{AttachDetach, Fate};

impl AttachDetach {
    /// Asks the server about deletions whose answers were lost.
    pub(super) async fn clear_doubts(&self, node: &str) -> Result<(), ApiError> {
        for attachment in self.attachments_by_node.get(node) {
            let uid = &attachment.metadata.uid;
            if self.given_back().get(uid) == Some(&Fate::Doubtful) {
                self.learn_fate(&attachment).await?;
            }
        }
        Ok(())
    }

    /// Deletes an attachment, exactly as it was seen: one that the attacher has touched
    /// since must be looked at again.
    pub(super) async fn give_back(&self, attachment: &VolumeAttachment) -> Result<(), ApiError> {
        let uid = &attachment.metadata.uid;
        self.given_back().insert(uid.clone(), Fate::Sent);
        let only_if = Preconditions::unchanged(attachment);
        let key = attachment.key();
        let deleted = self
            .cluster
            .delete::<VolumeAttachment>(&key, &only_if)
            .await;
        if deleted.is_ok() {
            let (volume, node) = (attachment.volume_name(), &attachment.spec.node_name);
            info!(volume, node, "attachment given back");
            return deleted;
        }
        self.given_back().insert(uid.clone(), Fate::Doubtful);
        self.learn_fate(attachment).await?;
        deleted
    }

    /// Reads whether a deletion was carried out, and lets go of it if it wasn't.
    async fn learn_fate(&self, attachment: &VolumeAttachment) -> Result<(), ApiError> {
        let uid = &attachment.metadata.uid;
        let key = attachment.key();
        let now = self.cluster.get::<VolumeAttachment>(&key).await?;
        let stands = now
            .as_ref()
            .is_some_and(|a| a.metadata.uid == *uid && !a.metadata.is_deleting());
        if stands {
            self.given_back().remove(uid);
        } else {
            self.given_back().insert(uid.clone(), Fate::Sent);
        }
        if let Some(now) = now {
            self.attachments.absorb(now);
        }
        Ok(())
    }
}
