//! What there is when the role begins.

use orlop_model::VolumeAttachment;
use tracing::warn;

use super::AttachDetach;
use crate::turn;

impl AttachDetach {
    /// Waits until the API server has told which attachments there are by now. What the caches began
    /// with may be older than this role's last life: of an attachment that it made then, and that they
    /// don't show yet, it would make a second one, to another node.
    pub(super) async fn first_look(&self) {
        for failures in 1.. {
            match self.cluster.list::<VolumeAttachment>(None).await {
                Ok(all) => {
                    for attachment in all {
                        self.known.attachments.absorb(attachment);
                    }
                    return;
                }
                Err(error) => {
                    warn!(
                        error = error.chain(),
                        "could not list attachments; trying again"
                    );
                    tokio::time::sleep(turn::backoff().after(failures)).await;
                }
            }
        }
    }
}
