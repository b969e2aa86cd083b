//! Cuts of volumes in use, and at rest where a driver has them in no other way.
//!
//! A driver may refuse to snapshot or clone a volume that is in use with `FAILED_PRECONDITION`. A
//! case that isn't about that takes the volume down for the cut, and puts it up again.

use orlop_csi::{Unary, proto};
use tonic::Code;

use crate::answer::Answer;
use crate::case::Trouble;
use crate::make::Placed;
use crate::trial::Trial;

fn wants_rest<R: Unary>(answer: &Answer<R>) -> bool {
    answer.code() == Code::FailedPrecondition && !answer.is_silence()
}

impl Trial {
    /// A snapshot of a volume that is published at `target`, and is so again afterwards.
    pub(crate) async fn snapshot_of_published(
        &self,
        placed: &mut Placed,
        target: &str,
        tag: &str,
    ) -> Result<proto::Snapshot, Trouble> {
        let request = self.snapshot_request(&placed.id(), tag);
        let answer = self.call(request.clone()).await;
        if !wants_rest(&answer) {
            return self.ready(request, answer).await;
        }
        self.take_down(placed, target).await?;
        let snapshot = self.snapshot(&placed.id(), tag).await?;
        self.put_up(placed, target).await?;
        Ok(snapshot)
    }

    /// A volume made by `request` of one that is published at `target`, and is so again afterwards.
    pub(crate) async fn clone_of_published(
        &self,
        placed: &mut Placed,
        target: &str,
        request: proto::CreateVolumeRequest,
    ) -> Result<proto::Volume, Trouble> {
        let answer = self.call(request.clone()).await;
        if !wants_rest(&answer) {
            return Self::created(answer);
        }
        self.take_down(placed, target).await?;
        let clone = self.create(request).await?;
        self.put_up(placed, target).await?;
        Ok(clone)
    }

    async fn put_up(&self, placed: &mut Placed, target: &str) -> Result<(), Trouble> {
        let (volume, capability) = (placed.volume.clone(), placed.capability.clone());
        *placed = self.staged(volume, capability).await?;
        self.call(placed.publish_request(target)).await.ok()?;
        Ok(())
    }
}
