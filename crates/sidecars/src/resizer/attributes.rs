//! Carries out what is decided for claims whose attributes class changes.

use std::{sync::Arc, time::Duration};

use orlop_csi::{CallError, Driver, Secrets, code_name, proto};
use orlop_model::{
    Claim, Key, Kind, ModifyStatus, Volume, VolumeAttributesClass, resize,
    well_known::{CSI_PARAMETER_PREFIX, MODIFY_SECRET_NAME, MODIFY_SECRET_NAMESPACE},
};
use orlop_runtime::{ApiError, Cache, Clock, Cluster, EventType, Message, Outcome, Patch};
use serde_json::{Value, json};
use tracing::info;

use super::{
    AGAIN, Config,
    area::Area,
    desk::Desk,
    setbacks::{Setbacks, Verdict},
};
use crate::{
    credentials::{self, CredentialsError},
    insist::insist,
    patience::{Patience, Setback},
    words::words,
};

mod decide;

use decide::{Intent, Step, View, decide, differs, is_begun};

type Goal<'a> = decide::Goal<'a, Arc<VolumeAttributesClass>>;

/// Condition: a change of attributes is under way.
const MODIFYING: &str = "ModifyingVolume";
/// Condition: it failed.
const MODIFY_ERROR: &str = "ModifyVolumeError";

/// What the changer of attributes works with.
pub(super) struct Attributes {
    pub(super) cluster: Cluster,
    pub(super) desk: Desk,
    pub(super) clock: Clock,
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) area: Area,
    pub(super) volumes: Cache<Volume>,
    pub(super) classes: Cache<VolumeAttributesClass>,
    pub(super) setbacks: Setbacks<String>,
    pub(super) patience: Patience,
    pub(super) config: Config,
}

/// Why a volume's attributes did not change.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Whether a change of a claim can change what is decided. What we write ourselves must not
/// cut a backoff short.
pub(super) fn stirs(old: Option<&Claim>, new: &Claim) -> bool {
    fn matters(claim: &Claim) -> impl PartialEq {
        (
            claim.metadata.uid.clone(),
            claim.spec.volume_name.clone(),
            claim.phase(),
            claim.spec.volume_attributes_class_name.clone(),
            claim.status.current_volume_attributes_class_name.clone(),
        )
    }
    old.is_none_or(|old| matters(old) != matters(new))
}

impl Attributes {
    /// One look at one claim.
    pub(super) async fn turn(&self, key: Key) -> Outcome {
        let Some(claim) = self.desk.claims.get(&key) else {
            self.setbacks.forget(&key);
            self.patience.forget(&who(&key));
            return Outcome::Done;
        };
        let step = self.step(&claim).await;
        self.patience.conclude_aloud(&who(&key), step, |refused| {
            self.desk
                .say(&claim, EventType::Warning, "VolumeModifyFailed", refused);
        })
    }

    async fn step(&self, claim: &Claim) -> Result<Outcome, ApiError> {
        let volume = self.volumes.named(&claim.spec.volume_name);
        let volume = volume.filter(|volume| self.area.has(volume));
        let view = View {
            driver: &self.name,
            claim,
            volume: volume.as_deref(),
            class: |name: &str| self.classes.named(name),
            setback: self.setbacks.of(claim),
        };
        match decide(&view) {
            Step::Leave => Ok(Outcome::Done),
            Step::Later(rest) => Ok(Outcome::After(rest)),
            Step::Wait { class } => self.wait(claim, class).await,
            Step::Refuse { class } => self.refuse(claim, class).await,
            Step::Cancel => self.cancel(claim).await,
            Step::Settle { class } => self.conclude(claim, class).await,
            Step::Modify(goal) => self.modify(claim, goal).await,
        }
    }

    async fn wait(&self, claim: &Claim, class: &str) -> Result<Outcome, ApiError> {
        let message = format!(
            "VAC {class} does not exist. It is waited for; create it, or choose another in \
             spec.volumeAttributesClassName"
        );
        self.desk
            .say(claim, EventType::Warning, "VolumeModifyFailed", message);
        let status = json!({"modifyVolumeStatus": {
            "status": ModifyStatus::Pending,
            "targetVolumeAttributesClassName": class,
        }});
        let written = self.write(claim, status).await?;
        // The class's creation wakes the claim.
        Ok(written.map_or(AGAIN, |_| Outcome::Done))
    }

    async fn refuse(&self, claim: &Claim, class: &str) -> Result<Outcome, ApiError> {
        let why = format!(
            "VolumeAttributesClass {class} is not one of driver {}; choose another",
            self.name
        );
        self.say_infeasible(claim, class, "InvalidArgument", &why)
            .await
    }

    async fn cancel(&self, claim: &Claim) -> Result<Outcome, ApiError> {
        let status = json!({
            "modifyVolumeStatus": null,
            "conditions": [resize::gone(MODIFYING), resize::gone(MODIFY_ERROR)],
        });
        let Some(claim) = self.write(claim, status).await? else {
            return Ok(AGAIN);
        };
        self.setbacks.forget(&claim.key());
        let message = "the change of the volume's attributes is no longer asked for";
        self.desk
            .say(&claim, EventType::Normal, "VolumeModifyCanceled", message);
        Ok(Outcome::Done)
    }

    async fn modify(&self, claim: &Claim, goal: Goal<'_>) -> Result<Outcome, ApiError> {
        let recorded = match goal.intent {
            Intent::ToRecord => self.record(claim, goal.name).await?,
            Intent::OnRecord => self.desk.unchanged(claim).await?,
            Intent::ToRepair => {
                // The cache may be behind.
                let live = self.cluster.get::<Volume>(&goal.volume.key()).await?;
                let Some(live) = live.filter(|live| differs(live, goal.name)) else {
                    return Ok(Outcome::Done);
                };
                self.volumes.absorb(live);
                self.record(claim, goal.name).await?
            }
        };
        let Some(claim) = recorded else {
            return Ok(AGAIN);
        };
        let (key, name) = (claim.key(), goal.name);
        let message = format!("external resizer is modifying volume {key} with vac {name}");
        self.desk
            .say(&claim, EventType::Normal, "VolumeModify", message);
        match self.ask(&claim, &goal).await {
            Ok(()) => {
                info!(claim = %key, class = name, "modified");
                self.settle(&claim, &goal).await
            }
            Err(failure) => self.fail(&claim, &goal, &failure).await,
        }
    }

    /// Puts the class on the claim; `None` if the claim has changed.
    async fn record(&self, claim: &Claim, class: &str) -> Result<Option<Claim>, ApiError> {
        let now = self.clock.now_seconds();
        let message = "ModifyVolume operation in progress.";
        let status = json!({
            "modifyVolumeStatus": {
                "status": ModifyStatus::InProgress,
                "targetVolumeAttributesClassName": class,
            },
            "conditions": [
                resize::holds(MODIFYING, "", message, now),
                resize::gone(MODIFY_ERROR),
            ],
        });
        self.write(claim, status).await
    }

    async fn ask(&self, claim: &Claim, goal: &Goal<'_>) -> Result<(), Failure> {
        let mut parameters = goal.class.parameters.clone();
        if self.config.extra_modify_metadata {
            for (key, value) in [
                ("pvc/name", &claim.metadata.name),
                ("pvc/namespace", &claim.metadata.namespace),
                ("pv/name", &goal.volume.metadata.name),
            ] {
                parameters.insert(format!("{CSI_PARAMETER_PREFIX}{key}"), value.clone());
            }
        }
        let request = proto::ControllerModifyVolumeRequest {
            volume_id: goal.csi.volume_handle.clone(),
            secrets: self.secrets(goal).await?.into_request(),
            mutable_parameters: parameters,
        };
        self.driver.controller_modify_volume(request).await?;
        Ok(())
    }

    async fn secrets(&self, goal: &Goal<'_>) -> Result<Secrets, CredentialsError> {
        let meta = &goal.volume.metadata;
        let named = (
            meta.annotation(MODIFY_SECRET_NAME),
            meta.annotation(MODIFY_SECRET_NAMESPACE),
        );
        if let (Some(name), Some(namespace)) = named {
            let key = Key::namespaced(namespace, name);
            return credentials::fetch(&self.cluster, &key).await;
        }
        let secret = goal.csi.controller_expand_secret_ref.as_ref();
        credentials::referenced(&self.cluster, secret).await
    }

    /// Says what is true now: first on the volume, then on the claim.
    async fn settle(&self, claim: &Claim, goal: &Goal<'_>) -> Result<Outcome, ApiError> {
        let tell = |now: &Volume| {
            let has = now.spec.volume_attributes_class_name.as_deref();
            let body = json!({"spec": {"volumeAttributesClassName": goal.name}});
            (has != Some(goal.name)).then(|| Patch::merge_on(now, body))
        };
        let seen = &goal.volume.spec.volume_attributes_class_name;
        let told = insist(&self.cluster, goal.volume, |now: &Volume| {
            let alone = now.spec.volume_attributes_class_name == *seen;
            alone.then(|| tell(now))?
        })
        .await?;
        let Some(mut told) = told else {
            return Ok(Outcome::Done);
        };
        if differs(&told, goal.name) {
            // Another leader's call came in between, and nobody knows whose was the last.
            let live = self.cluster.get::<Claim>(&claim.key()).await?;
            let ours = live.is_some_and(|live| {
                live.metadata.uid == claim.metadata.uid && is_begun(&live, goal.name)
            });
            if !ours {
                // The claim has other attributes by now. That the volume may have these is
                // told all the same: whoever is in charge changes it back.
                let Some(marked) = insist(&self.cluster, &told, tell).await? else {
                    return Ok(Outcome::Done);
                };
                told = marked;
            }
            self.volumes.absorb(told);
            return Ok(AGAIN);
        }
        self.volumes.absorb(told);
        self.conclude(claim, goal.name).await
    }

    /// Says on the claim that it has a class.
    async fn conclude(&self, claim: &Claim, class: &str) -> Result<Outcome, ApiError> {
        let status = json!({
            "currentVolumeAttributesClassName": class,
            "modifyVolumeStatus": null,
            "conditions": [resize::gone(MODIFYING), resize::gone(MODIFY_ERROR)],
        });
        let Some(claim) = self.write_outcome(claim, status).await? else {
            return Ok(AGAIN);
        };
        self.setbacks.forget(&claim.key());
        let message = format!(
            "external resizer modified volume {} with vac {class} successfully",
            claim.key(),
        );
        self.desk
            .say(&claim, EventType::Normal, "VolumeModifySuccessful", message);
        // Meanwhile another class may be asked for.
        Ok(AGAIN)
    }

    async fn fail(
        &self,
        claim: &Claim,
        goal: &Goal<'_>,
        failure: &Failure,
    ) -> Result<Outcome, ApiError> {
        let why = words(failure);
        let (verdict, code, setback) = match failure {
            Failure::Driver(error) => (
                Verdict::of(error),
                code_name(error.code),
                Setback::of_call(error),
            ),
            Failure::Credentials(_) => (None, "", Setback::Waiting),
        };
        if verdict == Some(Verdict::Infeasible) {
            return self.say_infeasible(claim, goal.name, code, &why).await;
        }
        let wait = self.say_failed(claim, &why, setback);
        let Some(verdict) = verdict else {
            self.setbacks.forget(&claim.key());
            return Ok(Outcome::After(wait));
        };
        let name = goal.name.to_owned();
        let news = self.setbacks.remember(claim, name, verdict, wait, &why);
        if news {
            let status = json!({"conditions": [self.error(code, &why)]});
            if self.write_outcome(claim, status).await?.is_none() {
                self.setbacks.forget(&claim.key());
            }
        }
        Ok(Outcome::After(wait))
    }

    /// Says what went wrong and when it is tried again.
    fn say_failed(&self, claim: &Claim, why: &str, setback: Setback) -> Duration {
        let wait = self.patience.after(&who(&claim.key()), setback);
        let message = Message::until_next_try(why, wait);
        self.desk
            .say(claim, EventType::Warning, "VolumeModifyFailed", message);
        wait
    }

    async fn say_infeasible(
        &self,
        claim: &Claim,
        class: &str,
        code: &str,
        why: &str,
    ) -> Result<Outcome, ApiError> {
        let rest = self.say_failed(claim, why, Setback::Infeasible);
        let verdict = Verdict::Infeasible;
        let news = self
            .setbacks
            .remember(claim, class.to_owned(), verdict, rest, why);
        let known = claim.status.modify_volume_status.as_ref();
        let known = known.is_some_and(|s| s.status == ModifyStatus::Infeasible);
        if news || !known {
            let status = json!({
                "modifyVolumeStatus": {
                    "status": ModifyStatus::Infeasible,
                    "targetVolumeAttributesClassName": class,
                },
                "conditions": [self.error(code, why)],
            });
            if self.write_outcome(claim, status).await?.is_none() {
                self.setbacks.forget(&claim.key());
                return Ok(AGAIN);
            }
        }
        Ok(Outcome::After(rest))
    }

    fn error(&self, code: &str, why: &str) -> Value {
        let message = format!("ModifyVolume failed with error: {why}. Waiting for retry.");
        resize::holds(MODIFY_ERROR, code, &message, self.clock.now_seconds())
    }

    /// Writes what a call has led to; `None` if something has become of the change meanwhile.
    async fn write_outcome(&self, claim: &Claim, status: Value) -> Result<Option<Claim>, ApiError> {
        let stands = |now: &Claim| is_at_the_same_point(claim, now);
        let body = json!({"status": status});
        self.desk.write_outcome(claim, &body, stands).await
    }

    /// Writes on the very version of the claim that was looked at; `None` if it has changed.
    async fn write(&self, claim: &Claim, status: Value) -> Result<Option<Claim>, ApiError> {
        self.desk.write(claim, json!({"status": status})).await
    }
}

/// Whether nothing has become of a change of attributes since the claim was looked at.
fn is_at_the_same_point(seen: &Claim, now: &Claim) -> bool {
    fn point(claim: &Claim) -> impl PartialEq {
        (
            claim.spec.volume_name.clone(),
            claim.status.current_volume_attributes_class_name.clone(),
            claim.status.modify_volume_status.clone(),
        )
    }
    point(seen) == point(now)
}

/// Whose waits these are, among the resizer's.
fn who(claim: &Key) -> String {
    format!("attributes of {claim}")
}
