//! What there is when the role begins.

use orlop_runtime::ApiError;
use tracing::warn;

use super::AttachDetach;
use crate::turn;

impl AttachDetach {
    /// Waits until the API server has told what is attached by now. What the caches began with may be older
    /// than this role's last life: of an attachment that it made then, and that they don't show yet, it would
    /// make a second one, to another node. Of disks that nodes reach by themselves their lists tell that.
    pub(super) async fn first_look(&self) {
        for failures in 1.. {
            let Err(error) = self.look().await else {
                return;
            };
            warn!(
                error = error.chain(),
                "could not list what is attached; trying again"
            );
            tokio::time::sleep(turn::backoff().after(failures)).await;
        }
    }

    /// What nodes were told is read last: whoever gives an attachment back takes it off its node's list
    /// before, so that nothing on these lists is older than the attachments.
    async fn look(&self) -> Result<(), ApiError> {
        self.cluster.catch_up(&self.known.attachments).await?;
        self.cluster.catch_up(&self.known.nodes).await
    }
}
