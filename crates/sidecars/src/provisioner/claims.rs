//! Carries out what is decided for claims.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use orlop_csi::{
    CallError, Driver, DriverInfo,
    proto::{CreateVolumeRequest, DeleteVolumeRequest},
};
use orlop_model::{Claim, Key, Kind, StorageClass, Volume, well_known::PROVISIONING};
use orlop_runtime::{ApiError, Cache, Cluster, EventType, Outcome, Recorder};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    AGAIN, Config,
    decide::{self, Intent, Step, Verdict, View},
    intent::{self, Keep},
    places::Places,
    request::{Ask, Plan, Refusal},
    topology::TopologyError,
    volume::{self, AnswerError, Made},
};
use crate::{
    credentials::{self, CredentialsError},
    insist::insist,
};

/// What the provisioner of claims works with.
pub(super) struct Claims {
    pub(super) cluster: Cluster,
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) claims: Cache<Claim>,
    pub(super) classes: Cache<StorageClass>,
    pub(super) volumes: Cache<Volume>,
    /// `None` for a driver whose volumes are the same everywhere.
    pub(super) places: Option<Places>,
    pub(super) recorder: Recorder,
    pub(super) config: Config,
    pub(super) plans: Plans,
}

/// The calls whose outcome isn't known, by claim uid: a repetition must carry the same
/// arguments even if nodes and labels changed since. Lost in a crash; the place that
/// matters most is on the claim too.
#[derive(Default)]
pub(super) struct Plans(Mutex<BTreeMap<String, Arc<Plan>>>);

impl Plans {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Plan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why no call could be made.
#[derive(Debug, thiserror::Error)]
enum Unready {
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Whether a change of a claim can change what is decided. Our own marks and the status of
/// a claim that isn't bound can't, and must not cut a backoff short.
pub(super) fn stirs(old: &Claim, new: &Claim) -> bool {
    fn matters(claim: &Claim) -> impl PartialEq {
        (
            claim.metadata.uid.clone(),
            claim.metadata.is_deleting(),
            claim.spec.volume_name.clone(),
            claim.phase(),
            claim.provisioner().map(str::to_owned),
            claim.selected_node().map(str::to_owned),
            claim.class().map(str::to_owned),
        )
    }
    matters(old) != matters(new)
}

impl Claims {
    /// Waits for everything that decisions read.
    pub(super) async fn synced(&self) {
        self.claims.synced().await;
        self.classes.synced().await;
        self.volumes.synced().await;
        if let Some(places) = &self.places {
            places.synced().await;
        }
    }

    /// One look at one claim.
    pub(super) async fn turn(&self, key: Key) -> Outcome {
        let Some(claim) = self.claims.get(&key) else {
            return Outcome::Done;
        };
        let class = claim.class().and_then(|name| self.classes.named(name));
        let volume_name = self.config.volume_name(&claim);
        let volume = self.volumes.named(&volume_name);
        let view = View {
            driver: &self.name,
            deployment: &self.config.deployment,
            claim: &claim,
            class: class.as_deref(),
            volume_name: &volume_name,
            volume: volume.as_deref(),
        };
        let result = match decide::decide(&view) {
            Step::Leave(because) => {
                debug!(claim = %key, ?because, "left alone");
                return Outcome::Done;
            }
            Step::Provision(class, intent) => self.provision(&claim, class, intent).await,
            Step::Settle => self.settle(&claim).await,
            Step::Undo(class) => self.undo(&claim, class).await,
            Step::Stuck => Ok(self.stuck(&claim)),
        };
        result.unwrap_or_else(|error: ApiError| {
            warn!(claim = %key, error = error.chain(), "will try again");
            Outcome::Retry
        })
    }

    async fn provision(
        &self,
        claim: &Claim,
        class: &StorageClass,
        intent: Intent,
    ) -> Result<Outcome, ApiError> {
        let begun = Instant::now();
        let (plan, request) = match self.prepare(claim, class).await {
            Ok(ready) => ready,
            Err(error) => return self.unready(claim, class, intent, error).await,
        };
        let recorded = match intent {
            Intent::ToRecord => self.record_intent(claim, &plan).await?,
            Intent::OnRecord => self.confirm_intent(claim).await?,
        };
        let Some(claim) = recorded else {
            return Ok(AGAIN);
        };
        let text = format!(
            "External provisioner is provisioning volume for claim \"{}\"",
            claim.key()
        );
        self.recorder
            .say(&claim, EventType::Normal, "Provisioning", text);
        self.plans
            .lock()
            .insert(claim.metadata.uid.clone(), plan.clone());
        match self.driver.create_volume(request).await {
            Ok(reply) => {
                let answer = reply.volume.unwrap_or_default();
                let made = Made {
                    driver: &self.name,
                    identity: self.identity(),
                    claim: &claim,
                    class,
                    plan: &plan,
                    answer: &answer,
                };
                self.record_volume(&made, begun).await
            }
            Err(error) => self.failed(&claim, class, intent, &error).await,
        }
    }

    fn identity(&self) -> &str {
        match self.config.identity.as_str() {
            "" => &self.name,
            identity => identity,
        }
    }

    /// The call and its credentials.
    async fn prepare(
        &self,
        claim: &Claim,
        class: &StorageClass,
    ) -> Result<(Arc<Plan>, CreateVolumeRequest), Unready> {
        let remembered = self.plans.lock().get(&claim.metadata.uid).cloned();
        let plan = match remembered {
            Some(plan) => plan,
            None => {
                let info = self.driver.info().await?;
                Arc::new(self.plan(&info, claim, class)?)
            }
        };
        let secret = plan.provision_secret.as_ref();
        let secrets = credentials::referenced(&self.cluster, secret).await?;
        let mut request = plan.request.clone();
        request.secrets = secrets.into_request();
        Ok((plan, request))
    }

    fn plan(
        &self,
        driver: &DriverInfo,
        claim: &Claim,
        class: &StorageClass,
    ) -> Result<Plan, Unready> {
        let place = match &self.places {
            None => None,
            Some(places) => places.requirement(&self.name, &self.config, claim, class)?,
        };
        let ask = Ask {
            driver,
            config: &self.config,
            claim,
            class,
            place,
        };
        Ok(ask.plan()?)
    }

    /// Puts the intent on the claim; `None` if the claim has changed.
    async fn record_intent(&self, claim: &Claim, plan: &Plan) -> Result<Option<Claim>, ApiError> {
        let patch = intent::on(claim, plan);
        match self.cluster.patch::<Claim>(&claim.key(), &patch).await {
            Ok(recorded) => {
                self.claims.absorb(recorded.clone());
                Ok(Some(recorded))
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                self.refresh(claim).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the intent that the cache shows still stands; `None` if it doesn't. A stale
    /// cache must not bring a volume into being that nothing tells of.
    async fn confirm_intent(&self, claim: &Claim) -> Result<Option<Claim>, ApiError> {
        let live = self.cluster.get::<Claim>(&claim.key()).await?;
        let stands = |live: &Claim| {
            live.metadata.uid == claim.metadata.uid
                && live.metadata.has_finalizer(PROVISIONING)
                && !stirs(claim, live)
        };
        match live {
            Some(live) if stands(&live) => Ok(Some(live)),
            Some(live) => {
                self.claims.absorb(live);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    async fn refresh(&self, claim: &Claim) -> Result<(), ApiError> {
        if let Some(live) = self.cluster.get::<Claim>(&claim.key()).await? {
            self.claims.absorb(live);
        }
        Ok(())
    }

    /// The driver made the volume: puts it on record.
    async fn record_volume(&self, made: &Made<'_>, begun: Instant) -> Result<Outcome, ApiError> {
        let (claim, class) = (made.claim, made.class);
        if let Err(error) = volume::check(made.plan, made.answer) {
            return self.unusable(made, &error).await;
        }
        let volume = made.volume();
        match self.cluster.create(&volume).await {
            Ok(created) => self.volumes.absorb(created),
            Err(error) if error.is_already_exists() => {
                if let Some(outcome) = self.reconcile_record(made, &volume).await? {
                    return Ok(outcome);
                }
            }
            Err(error) => {
                self.fail_event(
                    claim,
                    class,
                    &format!("could not save it: {}", error.chain()),
                );
                return Err(error);
            }
        }
        self.plans.lock().remove(&claim.metadata.uid);
        self.config
            .metrics
            .provisioned(&class.metadata.name, begun.elapsed());
        let text = format!("Successfully provisioned volume {}", volume.metadata.name);
        self.recorder
            .say(claim, EventType::Normal, "ProvisioningSucceeded", text);
        // The binder takes over; the intent is taken off when the claim is bound.
        Ok(Outcome::Done)
    }

    /// A volume object of that name is there. If it tells of another volume, the one that
    /// was just made has no owner.
    async fn reconcile_record(
        &self,
        made: &Made<'_>,
        volume: &Volume,
    ) -> Result<Option<Outcome>, ApiError> {
        let Some(live) = self.cluster.get::<Volume>(&volume.key()).await? else {
            return Ok(Some(AGAIN));
        };
        let handle = |v: &Volume| v.spec.csi.as_ref().map(|c| c.volume_handle.clone());
        let same = handle(&live) == handle(volume);
        self.volumes.absorb(live);
        if !same && let Err(error) = self.delete(made.plan, &made.answer.volume_id).await {
            self.cleanup_event(made.claim, &error.to_string());
            return Ok(Some(Outcome::Retry));
        }
        Ok(None)
    }

    /// The driver made something that can't be used.
    async fn unusable(&self, made: &Made<'_>, error: &AnswerError) -> Result<Outcome, ApiError> {
        self.fail_event(made.claim, made.class, &error.to_string());
        if *error == AnswerError::NoId {
            // Nothing to delete it by: the intent stays, and the driver may do better.
            return Ok(Outcome::Retry);
        }
        if let Err(error) = self.delete(made.plan, &made.answer.volume_id).await {
            self.cleanup_event(made.claim, &error.to_string());
            return Ok(Outcome::Retry);
        }
        self.take_off(made.claim, Keep::Place).await?;
        Ok(Outcome::Retry)
    }

    async fn failed(
        &self,
        claim: &Claim,
        class: &StorageClass,
        intent: Intent,
        error: &CallError,
    ) -> Result<Outcome, ApiError> {
        self.fail_event(claim, class, &error.to_string());
        let placed = self.places.is_some() && claim.selected_node().is_some();
        match decide::judge(error, intent, placed) {
            Verdict::Unknown => Ok(Outcome::Retry),
            Verdict::Nothing => {
                self.take_off(claim, Keep::Place).await?;
                Ok(Outcome::Retry)
            }
            Verdict::Infeasible => {
                self.take_off(claim, Keep::Place).await?;
                Ok(Outcome::After(self.config.retry.most))
            }
            Verdict::NothingHere => {
                self.take_off(claim, Keep::Nothing).await?;
                Ok(Outcome::Done)
            }
        }
    }

    async fn unready(
        &self,
        claim: &Claim,
        class: &StorageClass,
        intent: Intent,
        error: Unready,
    ) -> Result<Outcome, ApiError> {
        self.fail_event(claim, class, &chain(&error));
        match error {
            Unready::Refused(_) => Ok(Outcome::After(self.config.retry.most)),
            Unready::Topology(TopologyError::NoNode(_)) if intent == Intent::ToRecord => {
                self.take_off(claim, Keep::Nothing).await?;
                Ok(Outcome::Done)
            }
            Unready::Driver(_) | Unready::Topology(_) | Unready::Credentials(_) => {
                Ok(Outcome::Retry)
            }
        }
    }

    /// Nobody wants the volume: asks for it once more to learn its id, and deletes it.
    async fn undo(&self, claim: &Claim, class: &StorageClass) -> Result<Outcome, ApiError> {
        let Some(live) = self.confirm_intent(claim).await? else {
            return Ok(AGAIN);
        };
        let name = self.config.volume_name(&live);
        if let Some(volume) = self.cluster.get::<Volume>(&Key::cluster(name)).await? {
            // On record after all: it is reclaimed like any other.
            self.volumes.absorb(volume);
            return Ok(AGAIN);
        }
        let (plan, request) = match self.prepare(&live, class).await {
            Ok(ready) => ready,
            Err(error) => {
                self.cleanup_event(&live, &chain(&error));
                return Ok(Outcome::Retry);
            }
        };
        match self.driver.create_volume(request).await {
            Ok(reply) => {
                let id = reply.volume.unwrap_or_default().volume_id;
                if let Err(error) = self.delete(&plan, &id).await {
                    self.cleanup_event(&live, &error.to_string());
                    return Ok(Outcome::Retry);
                }
            }
            Err(error) => match decide::judge(&error, Intent::OnRecord, false) {
                Verdict::Unknown => {
                    self.cleanup_event(&live, &error.to_string());
                    return Ok(Outcome::Retry);
                }
                Verdict::Nothing | Verdict::NothingHere | Verdict::Infeasible => {}
            },
        }
        self.settle(&live).await
    }

    async fn delete(&self, plan: &Plan, volume_id: &str) -> Result<(), Unready> {
        let secret = plan.provision_secret.as_ref();
        let secrets = credentials::referenced(&self.cluster, secret).await?;
        let request = DeleteVolumeRequest {
            volume_id: volume_id.to_owned(),
            secrets: secrets.into_request(),
        };
        self.driver.delete_volume(request).await?;
        Ok(())
    }

    async fn settle(&self, claim: &Claim) -> Result<Outcome, ApiError> {
        self.take_off(claim, Keep::Place).await?;
        Ok(Outcome::Done)
    }

    /// Takes the intent off the claim.
    async fn take_off(&self, claim: &Claim, keep: Keep) -> Result<(), ApiError> {
        self.plans.lock().remove(&claim.metadata.uid);
        let changed = insist(&self.cluster, claim, |now: &Claim| intent::off(now, keep)).await?;
        if let Some(changed) = changed {
            self.claims.absorb(changed);
        }
        Ok(())
    }

    fn stuck(&self, claim: &Claim) -> Outcome {
        let class = claim.class().unwrap_or_default();
        self.cleanup_event(
            claim,
            &format!(
                "it is not known whether a volume was made, and StorageClass {class:?} is gone; \
                 create the class again, or remove the finalizer {PROVISIONING} if there is none"
            ),
        );
        Outcome::Retry
    }

    fn fail_event(&self, claim: &Claim, class: &StorageClass, reason: &str) {
        let class = &class.metadata.name;
        self.config.metrics.provision_failed(class);
        let text = format!("failed to provision volume with StorageClass \"{class}\": {reason}");
        self.recorder
            .say(claim, EventType::Warning, "ProvisioningFailed", text);
    }

    fn cleanup_event(&self, claim: &Claim, reason: &str) {
        let text = format!("the volume that was asked for could not be deleted yet: {reason}");
        self.recorder
            .say(claim, EventType::Warning, "ProvisioningCleanupFailed", text);
    }
}

/// An error and its causes, for an event.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
