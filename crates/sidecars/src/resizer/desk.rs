//! Claims, as both halves of the resizer read them, write on them and speak about them.

use orlop_model::{Claim, Kind};
use orlop_runtime::{ApiError, Cache, Cluster, EventType, Message, Patch, Recorder};
use serde_json::Value;

use super::look_again;

/// What it takes to do so.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) cluster: Cluster,
    pub(super) claims: Cache<Claim>,
    pub(super) recorder: Recorder,
}

impl Desk {
    /// The claim if it is as we know it; `None` if it has changed.
    pub(super) async fn unchanged(&self, claim: &Claim) -> Result<Option<Claim>, ApiError> {
        let live = self.cluster.get::<Claim>(&claim.key()).await?;
        let Some(live) = live else { return Ok(None) };
        self.claims.absorb(live.clone());
        Ok((live.metadata.resource_version == claim.metadata.resource_version).then_some(live))
    }

    /// Writes on the very version of the claim that was looked at; `None` if it has changed.
    pub(super) async fn write(
        &self,
        claim: &Claim,
        body: Value,
    ) -> Result<Option<Claim>, ApiError> {
        let patch = Patch::strategic_on(claim, body);
        let key = claim.key();
        match self.cluster.patch_status::<Claim>(&key, &patch).await {
            Ok(written) => {
                self.claims.absorb(written.clone());
                Ok(Some(written))
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                look_again(&self.cluster, &self.claims, &key).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Tells whoever looks at the claim.
    pub(super) fn say(
        &self,
        claim: &Claim,
        type_: EventType,
        reason: &str,
        message: impl Into<Message>,
    ) {
        self.recorder.say(claim, type_, reason, message);
    }
}
