//! Claims, as both halves of the resizer read them, write on them and speak about them.

use orlop_model::{Claim, Kind};
use orlop_runtime::{ApiError, Cache, Cluster, EventType, Message, Patch, Recorder};
use serde_json::Value;

use super::look_again;

/// More writes of others in a row than this are not bad luck: the turn ends.
const TRIES: usize = 8;

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

    /// Writes what a call has led to; `None` if the claim is no longer as it was when the call
    /// was made. What others write meanwhile on other parts of the claim is no reason to make
    /// the call once more: as long as `stands` finds what it was made for, its outcome is
    /// written on the newer version.
    pub(super) async fn write_outcome(
        &self,
        claim: &Claim,
        body: &Value,
        stands: impl Fn(&Claim) -> bool,
    ) -> Result<Option<Claim>, ApiError> {
        let mut seen = claim.clone();
        for _ in 0..TRIES {
            if let Some(written) = self.write(&seen, body.clone()).await? {
                return Ok(Some(written));
            }
            match self.claims.get(&claim.key()) {
                Some(now) if now.metadata.uid == claim.metadata.uid && stands(&now) => {
                    seen = (*now).clone();
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
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
