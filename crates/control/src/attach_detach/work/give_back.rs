//! Giving attachments back, and learning what became of it when the answer is lost.

use orlop_model::{Kind, VolumeAttachment};
use orlop_runtime::{ApiError, Preconditions};
use tracing::{info, warn};

use super::{AttachDetach, memory::Fate};
use crate::attach_detach::{
    by_word,
    decide::{Force, Release},
};

impl AttachDetach {
    /// Asks the server about deletions whose answers were lost.
    pub(super) async fn clear_doubts(&self, node: &str) -> Result<(), ApiError> {
        for attachment in self.known.attachments_by_node.get(node) {
            let uid = &attachment.metadata.uid;
            let fate = self.memory.lock().given_back.get(uid).copied();
            if fate == Some(Fate::Doubtful) {
                self.learn_fate(&attachment).await?;
            }
        }
        Ok(())
    }

    /// Deletes an attachment, exactly as it was seen: one that the attacher has touched
    /// since must be looked at again.
    pub(super) async fn give_back(&self, release: &Release) -> Result<(), ApiError> {
        let attachment = &*release.attachment;
        if by_word::is_word(attachment) {
            self.take_back_the_word(release);
            return Ok(());
        }
        let uid = &attachment.metadata.uid;
        self.decide_fate(uid, Fate::Sent);
        let only_if = Preconditions::unchanged(attachment);
        let key = attachment.key();
        // However many are given back at once, who attaches never waits behind all of them.
        let place = self.lane.acquire().await;
        let deleted = self
            .cluster
            .delete::<VolumeAttachment>(&key, &only_if)
            .await;
        drop(place);
        if deleted.is_ok() {
            self.told_to_go(release);
            return deleted;
        }
        self.decide_fate(uid, Fate::Doubtful);
        self.learn_fate(attachment).await?;
        deleted
    }

    /// The node isn't told of the disk any more: it may go elsewhere.
    fn take_back_the_word(&self, release: &Release) {
        let attachment = &release.attachment;
        let node = &attachment.spec.node_name;
        let at = format!("@{node}");
        if let Some(disk) = attachment.metadata.name.strip_suffix(&at) {
            let word = (disk.to_owned(), node.clone());
            self.memory.lock().granted.remove(&word);
            self.volume_queue.add(word.0);
        }
        self.told_to_go(release);
    }

    fn told_to_go(&self, release: &Release) {
        let attachment = &release.attachment;
        let (volume, node) = (attachment.volume_name(), &attachment.spec.node_name);
        if let Some(force) = release.force {
            self.metrics.forced(force);
        }
        match release.force {
            None => info!(volume, node, "attachment given back"),
            Some(Force::OutOfService) => {
                info!(volume, node, "attachment given back: the node is off");
            }
            Some(Force::Timeout) => warn!(
                volume,
                node,
                "attachment given back under a node that isn't ready and may still use the volume"
            ),
        }
    }

    fn decide_fate(&self, uid: &str, fate: Fate) {
        self.memory.lock().given_back.insert(uid.to_owned(), fate);
    }

    /// Reads whether a deletion was carried out, and lets go of it if it wasn't.
    async fn learn_fate(&self, attachment: &VolumeAttachment) -> Result<(), ApiError> {
        let uid = &attachment.metadata.uid;
        let key = attachment.key();
        let now = self.cluster.get::<VolumeAttachment>(&key).await?;
        let stands = now
            .as_ref()
            .is_some_and(|a| a.metadata.uid == *uid && !a.metadata.is_deleting());
        match stands {
            true => drop(self.memory.lock().given_back.remove(uid)),
            false => self.decide_fate(uid, Fate::Sent),
        }
        if let Some(now) = now {
            self.known.attachments.absorb(now);
        }
        Ok(())
    }
}
