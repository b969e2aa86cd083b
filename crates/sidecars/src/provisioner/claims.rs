//! Carries out what is decided for claims.

use std::{sync::Arc, time::Duration};

use orlop_csi::{CallError, Driver, proto::DeleteVolumeRequest};
use orlop_model::{
    Claim, Key, Kind, StorageClass, Volume,
    well_known::{EXTERNAL_PROVISIONER, PROVISIONING, SELECTED_NODE},
};
use orlop_runtime::{ApiError, Cache, Cluster, EventType, Message, Outcome, Patch, Recorder};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info};

use super::{
    AGAIN, Config, Deployment,
    bids::Bids,
    decide::{self, Because, Intent, Step, Unasked, Verdict, View},
    intent::{self, Keep},
    no_room::{Next, NoRoom},
    prepare::{Prepare, Ready, Unready},
    request::Plan,
    source::{self, Wish},
    sources::Sources,
    topology::TopologyError,
    unasked::{Binder, Shelves},
    volume::{self, AnswerError, Made},
};
use crate::{
    credentials,
    insist::insist,
    patience::{Patience, Setback},
    words::words,
};

/// That a volume is being made, and then that it was, is told only if it takes longer than this or
/// failed before: an event is a request like any other.
const QUICK: Duration = Duration::from_millis(500);

/// How often a record is tried while another of its name is going, and how long it is waited for each time.
const TRIES: u32 = 8;
const SOON: Duration = Duration::from_millis(100);

mod stirs;

pub(super) use stirs::{asks_the_same, stirs};

/// What becomes of a volume whose name has a record already.
enum Record {
    /// It, or another in its place, is on record.
    Stands,
    /// The record is that of a volume which is deleted, and goes.
    Goes,
    /// It is one too many, and could not be deleted yet.
    Unfinished(Outcome),
}

/// What the provisioner of claims works with.
pub(super) struct Claims {
    pub(super) cluster: Cluster,
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) claims: Cache<Claim>,
    pub(super) classes: Cache<StorageClass>,
    pub(super) volumes: Cache<Volume>,
    pub(super) prepare: Prepare,
    pub(super) sources: Arc<Sources>,
    pub(super) recorder: Recorder,
    /// In the name that the original hands claims off under.
    pub(super) herald: Recorder,
    pub(super) patience: Patience,
    /// Who makes volumes, as these tell.
    pub(super) maker: String,
    pub(super) bids: Bids,
    pub(super) no_room: Arc<NoRoom>,
    pub(super) binder: Binder,
    pub(super) shelves: Shelves,
    pub(super) config: Config,
}

impl Claims {
    /// Waits for everything that decisions read.
    pub(super) async fn synced(&self) {
        self.claims.synced().await;
        self.classes.synced().await;
        self.volumes.synced().await;
        if let Some(places) = &self.prepare.places {
            places.synced().await;
        }
    }

    /// One look at one claim.
    pub(super) async fn turn(&self, key: Key) -> Outcome {
        let who = key.to_string();
        let Some(claim) = self.claims.get(&key) else {
            self.patience.forget(&who);
            self.bids.forget(&key);
            self.no_room.forget(&key);
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
            unasked: match self.binder.gives_way() && self.config.deployment == Deployment::Central
            {
                true => self.shelves.unasked(&claim, class.as_deref()),
                false => Unasked::Wait,
            },
        };
        let result = match decide::decide(&view) {
            Step::Leave(because) => {
                debug!(claim = %key, ?because, "left alone");
                if because != Because::NoConsumerYet {
                    self.no_room.forget(&key);
                }
                Ok(Outcome::Done)
            }
            Step::Provision(class, intent) => self.provision(&claim, class, intent).await,
            Step::Settle => self.settle(&claim).await,
            Step::Undo(class) => self.undo(&claim, class).await,
            Step::Stuck => Ok(self.stuck(&claim)),
            Step::Bid(class) => self.bid(&claim, class).await,
            Step::HandOff => {
                let text = "Assuming an external populator will provision the volume";
                self.herald
                    .say(&*claim, EventType::Normal, "Provisioning", text);
                Ok(Outcome::Done)
            }
        };
        self.patience.conclude_aloud(&who, result, |refused| {
            self.recorder
                .say(&*claim, EventType::Warning, "ProvisioningFailed", refused);
        })
    }

    async fn provision(
        &self,
        claim: &Claim,
        class: &StorageClass,
        intent: Intent,
    ) -> Result<Outcome, ApiError> {
        let begun = Instant::now();
        let beginning = self.sources.begin(claim);
        let Ready {
            plan,
            request,
            keep,
        } = match self.prepare.call(claim, class).await {
            Ok(ready) => ready,
            Err(error) => return self.unready(claim, class, intent, error).await,
        };
        if intent == Intent::ToRecord && class.waits_for_consumer() {
            match self.no_room.next(claim, class, &plan.place()) {
                Next::Ask => {}
                Next::Wait(wait) => return Ok(self.wait_for_room(claim, class, wait)),
                Next::GiveBack => {
                    self.take_off(claim, Keep::Nothing).await?;
                    return Ok(Outcome::Done);
                }
            }
        }
        if let Some(found) = keep
            && !self.sources.keep(&found).await?
        {
            return Ok(AGAIN);
        }
        let recorded = match intent {
            Intent::ToRecord => self.record_intent(claim, &plan).await?,
            Intent::OnRecord => self.confirm_intent(claim).await?,
        };
        let Some(claim) = recorded else {
            return Ok(AGAIN);
        };
        drop(beginning);
        self.prepare.plans.remember(&claim, plan.clone());
        let driver = self.calls_for(class);
        let mut call = std::pin::pin!(driver.create_volume(request));
        let answer = match timeout(QUICK, &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!(
                    "External provisioner is provisioning volume for claim \"{}\"",
                    claim.key()
                );
                self.recorder
                    .say(&claim, EventType::Normal, "Provisioning", text);
                call.await
            }
        };
        match answer {
            Ok(reply) => {
                let answer = reply.volume.unwrap_or_default();
                let made = Made {
                    driver: &self.name,
                    identity: &self.maker,
                    claim: &claim,
                    class,
                    plan: &plan,
                    answer: &answer,
                };
                self.record_volume(&made, begun).await
            }
            Err(error) => self.failed(&claim, class, &plan, intent, &error).await,
        }
    }

    /// The claim's node was chosen though there was no room a short while ago.
    fn wait_for_room(&self, claim: &Claim, class: &StorageClass, wait: Duration) -> Outcome {
        let node = claim.selected_node().unwrap_or_default();
        let reason = format!(
            "node {node} was chosen again, and there was no room for it there. It is tried sooner \
             if a volume is deleted, a node added or more capacity told; free some room, or make \
             the claim anew with less"
        );
        self.fail_event(claim, class, &reason, Some(wait));
        Outcome::After(wait)
    }

    /// The driver, whose calls are counted by whose claims they are for: its own, or those of the
    /// plugin whose place it took.
    fn calls_for(&self, class: &StorageClass) -> Driver {
        self.driver.for_migrated(class.provisioner != self.name)
    }

    /// Puts the intent on the claim; `None` if the claim has changed.
    async fn record_intent(&self, claim: &Claim, plan: &Plan) -> Result<Option<Claim>, ApiError> {
        let patch = intent::on(claim, plan, &self.name);
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
        let mut tries = 0;
        loop {
            match self.cluster.create(&volume).await {
                Ok(created) => {
                    self.volumes.absorb(created);
                    break;
                }
                Err(error) if error.is_already_exists() => {
                    match self.reconcile_record(made, &volume).await? {
                        Record::Stands => break,
                        Record::Unfinished(outcome) => return Ok(outcome),
                        // Its own volume is deleted, and the one that was made since has no other record:
                        // a claim that is gone brings no further turn.
                        Record::Goes if tries < TRIES => {
                            tries += 1;
                            sleep(self.config.retry.after(tries).min(SOON)).await;
                        }
                        Record::Goes => return Ok(AGAIN),
                    }
                }
                Err(error) => {
                    let reason = format!("could not save it: {}", error.chain());
                    let setback = Setback::of_api(&error);
                    return Ok(self.try_later(claim, class, setback, &reason));
                }
            }
        }
        info!(
            claim = %claim.key(),
            volume = volume.metadata.name,
            volume_id = made.answer.volume_id,
            took = ?begun.elapsed(),
            "provisioned"
        );
        self.prepare.plans.forget(claim);
        self.config
            .metrics
            .provisioned(&class.metadata.name, source_of(claim), begun.elapsed());
        // Of a claim that is bound at once nobody needs to be told.
        if begun.elapsed() >= QUICK || self.patience.has_failed(&claim.key().to_string()) {
            let text = format!("Successfully provisioned volume {}", volume.metadata.name);
            self.recorder
                .say(claim, EventType::Normal, "ProvisioningSucceeded", text);
        }
        // The binder takes over; the intent is taken off when the claim is bound.
        Ok(Outcome::Done)
    }

    /// A volume object of that name is there. If it tells of another volume, the one that
    /// was just made has no owner.
    async fn reconcile_record(&self, made: &Made<'_>, volume: &Volume) -> Result<Record, ApiError> {
        let Some(live) = self.cluster.get::<Volume>(&volume.key()).await? else {
            return Ok(Record::Goes);
        };
        let handle = |v: &Volume| v.spec.csi.as_ref().map(|c| c.volume_handle.clone());
        let same = handle(&live) == handle(volume);
        let deleted =
            live.metadata.is_deleting() && !live.metadata.has_finalizer(EXTERNAL_PROVISIONER);
        self.volumes.absorb(live);
        if deleted {
            return Ok(Record::Goes);
        }
        if !same && let Err(error) = self.delete(made.plan, &made.answer.volume_id).await {
            return Ok(Record::Unfinished(self.clean_up_later(made.claim, &error)));
        }
        Ok(Record::Stands)
    }

    /// The driver made something that can't be used.
    async fn unusable(&self, made: &Made<'_>, error: &AnswerError) -> Result<Outcome, ApiError> {
        // Without an id there is nothing to delete it by: the intent stays, and the driver
        // may do better.
        if *error != AnswerError::NoId {
            if let Err(error) = self.delete(made.plan, &made.answer.volume_id).await {
                return Ok(self.clean_up_later(made.claim, &error));
            }
            self.take_off(made.claim, Keep::Place).await?;
        }
        let reason = error.to_string();
        Ok(self.try_later(made.claim, made.class, Setback::Failed, &reason))
    }

    async fn failed(
        &self,
        claim: &Claim,
        class: &StorageClass,
        plan: &Plan,
        intent: Intent,
        error: &CallError,
    ) -> Result<Outcome, ApiError> {
        let placed = self.prepare.places.is_some() && claim.selected_node().is_some();
        let reason = error.to_string();
        let setback = match decide::judge(error, intent, placed) {
            Verdict::Unknown => Setback::of_call(error),
            Verdict::Nothing => {
                self.take_off(claim, Keep::Place).await?;
                Setback::Failed
            }
            Verdict::Infeasible => {
                self.take_off(claim, Keep::Place).await?;
                Setback::Infeasible
            }
            Verdict::NothingHere => {
                self.no_room.refused(claim, class, &plan.place());
                let reason = format!("{reason}; another node is asked for");
                self.fail_event(claim, class, &reason, None);
                self.take_off(claim, Keep::Nothing).await?;
                return Ok(Outcome::Done);
            }
        };
        Ok(self.try_later(claim, class, setback, &reason))
    }

    async fn unready(
        &self,
        claim: &Claim,
        class: &StorageClass,
        intent: Intent,
        error: Unready,
    ) -> Result<Outcome, ApiError> {
        let reason = words(&error);
        if let Unready::Topology(TopologyError::NoNode(_)) = error
            && intent == Intent::ToRecord
        {
            let reason = format!("{reason}; another node is asked for");
            self.fail_event(claim, class, &reason, None);
            self.take_off(claim, Keep::Nothing).await?;
            return Ok(Outcome::Done);
        }
        Ok(self.try_later(claim, class, error.setback(), &reason))
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
        let Ready { plan, request, .. } = match self.prepare.call(&live, class).await {
            Ok(ready) => ready,
            Err(error) => return Ok(self.clean_up_later(&live, &error)),
        };
        match self.calls_for(class).create_volume(request).await {
            Ok(reply) => {
                let id = reply.volume.unwrap_or_default().volume_id;
                if id.is_empty() {
                    // Who knows what a driver deletes that is asked to delete nothing.
                    return Ok(self.clean_up_later(&live, &AnswerError::NoId.into()));
                }
                if let Err(error) = self.delete(&plan, &id).await {
                    return Ok(self.clean_up_later(&live, &error));
                }
                info!(claim = %live.key(), volume_id = id, "undone: nobody wants it any more");
            }
            Err(error) => match decide::judge(&error, Intent::OnRecord, false) {
                Verdict::Unknown => return Ok(self.clean_up_later(&live, &error.into())),
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
        self.prepare.plans.forget(claim);
        let changed = insist(&self.cluster, claim, |now: &Claim| intent::off(now, keep)).await?;
        if let Some(changed) = changed {
            self.claims.absorb(changed);
        }
        Ok(())
    }

    /// Any node may take the claim: waits its turn, and takes it if there is room.
    async fn bid(&self, claim: &Claim, class: &StorageClass) -> Result<Outcome, ApiError> {
        let Deployment::Node {
            name,
            immediate: Some(waits),
        } = &self.config.deployment
        else {
            return Ok(Outcome::Done);
        };
        let left = self.bids.wait(name, claim, *waits);
        if !left.is_zero() {
            return Ok(Outcome::After(left));
        }
        match self.prepare.has_room(claim, class).await {
            Ok(true) => {}
            Ok(false) => return Ok(Outcome::After(self.bids.again(name, claim, *waits))),
            Err(error) => return Ok(self.try_later(claim, class, error.setback(), &words(&error))),
        }
        let body = json!({"metadata": {"annotations": {SELECTED_NODE: name}}});
        let patch = Patch::merge_on(claim, body);
        // Should it come back, others are to be quicker.
        self.bids.again(name, claim, *waits);
        match self.cluster.patch::<Claim>(&claim.key(), &patch).await {
            Ok(taken) => self.claims.absorb(taken),
            Err(error) if error.is_conflict() || error.is_not_found() => {
                self.refresh(claim).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(AGAIN)
    }

    fn stuck(&self, claim: &Claim) -> Outcome {
        let class = claim.class().unwrap_or_default();
        let wait = self.wait(claim, Setback::Waiting);
        let why = format!(
            "it is not known whether a volume was made, and StorageClass {class:?} is gone; \
             create the class again, or remove the finalizer {PROVISIONING} if there is none"
        );
        self.cleanup_event(claim, &why, wait);
        Outcome::After(wait)
    }

    fn wait(&self, claim: &Claim, setback: Setback) -> Duration {
        self.patience.after(&claim.key().to_string(), setback)
    }

    /// Says what went wrong and when it is tried again.
    fn try_later(
        &self,
        claim: &Claim,
        class: &StorageClass,
        setback: Setback,
        reason: &str,
    ) -> Outcome {
        let wait = self.wait(claim, setback);
        self.fail_event(claim, class, reason, Some(wait));
        Outcome::After(wait)
    }

    fn clean_up_later(&self, claim: &Claim, error: &Unready) -> Outcome {
        let setback = match error.setback() {
            Setback::Taken => Setback::Taken,
            // What may be there is looked for, whatever the driver says.
            _ => Setback::Uncertain,
        };
        let wait = self.wait(claim, setback);
        self.cleanup_event(claim, &words(error), wait);
        Outcome::After(wait)
    }

    fn fail_event(
        &self,
        claim: &Claim,
        class: &StorageClass,
        reason: &str,
        wait: Option<Duration>,
    ) {
        let class = &class.metadata.name;
        self.config
            .metrics
            .provision_failed(class, source_of(claim));
        let text = format!("failed to provision volume with StorageClass \"{class}\": {reason}");
        let message = match wait {
            Some(wait) => Message::until_next_try(text, wait),
            None => text.into(),
        };
        self.recorder
            .say(claim, EventType::Warning, "ProvisioningFailed", message);
    }

    fn cleanup_event(&self, claim: &Claim, why: &str, wait: Duration) {
        let text = format!("the volume that was asked for could not be deleted yet: {why}");
        let message = Message::until_next_try(text, wait);
        let reason = "ProvisioningCleanupFailed";
        self.recorder
            .say(claim, EventType::Warning, reason, message);
    }
}

/// The kind that a claim's volume is filled from, as metrics name it.
fn source_of(claim: &Claim) -> &'static str {
    match source::wish(claim, true) {
        Ok(Wish::From(origin)) => origin.kind().1,
        _ => "",
    }
}
