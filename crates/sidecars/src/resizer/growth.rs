//! Carries out what is decided for claims that grow.

use orlop_csi::{Driver, DriverInfo, proto};
use orlop_model::{
    Claim, Key, Kind, Quantity, ResizeStatus, Volume, migration, resize,
    well_known::{NODE_EXPANSION_NOT_REQUIRED, PRE_RESIZE_CAPACITY, STORAGE_RESIZER},
};
use orlop_runtime::{ApiError, Backoff, Cache, Clock, Cluster, EventType, Message, Outcome, Patch};
use serde_json::json;
use tracing::info;

use super::{
    AGAIN, ControllerCapability, NodeCapability, VolumeExpansion,
    area::Area,
    desk::Desk,
    in_use::Users,
    look_again,
    setbacks::{Setbacks, Verdict},
};
use crate::{
    capability::{self, Shape, SingleNode},
    credentials,
    insist::insist,
    patience::Patience,
    words::words,
};

mod decide;
mod failure;

pub(super) use decide::{Ability, Moment};
use decide::{Goal, Intent, Step, View, decide};
use failure::Failure;

impl Ability {
    /// What a driver can do; `None` if its volumes never grow.
    pub(super) fn of(info: &DriverInfo) -> Option<Self> {
        if info.can(ControllerCapability::ExpandVolume) {
            Some(Self::Controller)
        } else {
            let on_nodes = info.node_can(NodeCapability::ExpandVolume);
            on_nodes.then_some(Self::NodeOnly)
        }
    }
}

impl Moment {
    /// When a driver can do it.
    pub(super) fn of(info: &DriverInfo) -> Self {
        let says = |way| info.expansion.contains(&way);
        if says(VolumeExpansion::Offline) && !says(VolumeExpansion::Online) {
            Self::Unused
        } else {
            Self::Any
        }
    }
}

/// What the resizer of claims works with.
pub(super) struct Growth {
    pub(super) cluster: Cluster,
    pub(super) desk: Desk,
    pub(super) clock: Clock,
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) ability: Ability,
    pub(super) moment: Moment,
    pub(super) area: Area,
    pub(super) volumes: Cache<Volume>,
    pub(super) users: Users,
    pub(super) setbacks: Setbacks<i64>,
    pub(super) patience: Patience,
    pub(super) retry: Backoff,
}

/// What the driver made of it.
struct Grown {
    bytes: i64,
    on_node: bool,
}

/// Whether a change of a claim can change what is decided. What we write ourselves must not
/// cut a backoff short.
pub(super) fn stirs(old: Option<&Claim>, new: &Claim) -> bool {
    fn matters(claim: &Claim) -> impl PartialEq {
        (
            claim.metadata.uid.clone(),
            claim.spec.volume_name.clone(),
            claim.phase(),
            claim.requested_bytes(),
            claim.capacity_bytes(),
            claim.resize_status() == Some(ResizeStatus::NodeResizeInfeasible),
            claim
                .metadata
                .annotation(STORAGE_RESIZER)
                .map(str::to_owned),
        )
    }
    old.is_none_or(|old| matters(old) != matters(new))
}

impl Growth {
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
                .say(&claim, EventType::Warning, "VolumeResizeFailed", refused);
        })
    }

    async fn step(&self, claim: &Claim) -> Result<Outcome, ApiError> {
        let volume = self.volumes.named(&claim.spec.volume_name);
        let of_plugin = volume.as_ref().is_some_and(|v| v.spec.csi.is_none());
        let volume = volume.map(migration::in_the_drivers_words);
        let volume = volume.filter(|volume| self.area.has(volume));
        let view = View {
            driver: &self.name,
            ability: self.ability,
            claim,
            volume: volume.as_deref(),
            of_plugin,
            setback: self.setbacks.of(claim),
        };
        match decide(&view) {
            Step::Leave => {
                // A node that is at work may still say no.
                if claim.resize_status().is_none() {
                    self.setbacks.forget(&claim.key());
                }
                Ok(Outcome::Done)
            }
            Step::Later(rest) => Ok(Outcome::After(rest)),
            Step::Tidy(volume) => self.tidy(volume).await,
            Step::Grow(goal) => {
                let refused = view.setback.is_some_and(|setback| {
                    setback.goal == goal.bytes && setback.verdict == Verdict::InUse
                });
                if (refused || self.moment == Moment::Unused) && self.users.any(&claim.key()).await
                {
                    return Ok(self.say_in_use(claim));
                }
                self.grow(claim, goal).await
            }
        }
    }

    fn say_in_use(&self, claim: &Claim) -> Outcome {
        let message = format!(
            "Unable to expand {} because CSI driver {} only supports offline expansion and volume \
             is currently in-use; it will be expanded once no pod uses it",
            claim.key(),
            self.name,
        );
        self.desk
            .say(claim, EventType::Warning, "VolumeResizeFailed", message);
        // The end of a pod wakes the claim.
        Outcome::Done
    }

    async fn grow(&self, claim: &Claim, goal: Goal<'_>) -> Result<Outcome, ApiError> {
        let recorded = match goal.intent {
            Intent::ToRecord => self.record(claim, goal.bytes).await?,
            Intent::OnRecord => self.desk.unchanged(claim).await?,
        };
        let Some(claim) = recorded else {
            return Ok(AGAIN);
        };
        let volume = &goal.volume.metadata.name;
        let message = format!("External resizer is resizing volume {volume}");
        self.desk
            .say(&claim, EventType::Normal, "Resizing", message);
        match self.ask(goal).await {
            Ok(grown) => {
                info!(claim = %claim.key(), volume, bytes = grown.bytes, "grown");
                self.settle(&claim, goal, &grown).await
            }
            Err(failure) => self.fail(&claim, goal, &failure).await,
        }
    }

    /// Puts the goal on the claim; `None` if the claim has changed.
    async fn record(&self, claim: &Claim, bytes: i64) -> Result<Option<Claim>, ApiError> {
        let now = self.clock.now_seconds();
        let body = json!({
            "metadata": {"annotations": {NODE_EXPANSION_NOT_REQUIRED: null}},
            "status": resize::begun(&Quantity::bytes(bytes), now),
        });
        self.desk.write(claim, body).await
    }

    async fn ask(&self, goal: Goal<'_>) -> Result<Grown, Failure> {
        if self.ability == Ability::NodeOnly {
            return Ok(Grown {
                bytes: goal.bytes,
                on_node: true,
            });
        }
        let Goal {
            volume, csi, bytes, ..
        } = goal;
        let info = self.driver.info().await?;
        let mode = capability::mode(&volume.spec.access_modes, SingleNode::of(&info))?;
        let shape = Shape {
            mode: volume.volume_mode(),
            fs_type: &csi.fs_type,
            mount_options: &volume.spec.mount_options,
        };
        let secret = csi.controller_expand_secret_ref.as_ref();
        let secrets = credentials::referenced(&self.cluster, secret).await?;
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: csi.volume_handle.clone(),
            capacity_range: Some(proto::CapacityRange {
                required_bytes: bytes,
                limit_bytes: 0,
            }),
            secrets: secrets.into_request(),
            volume_capability: Some(shape.with(mode)),
        };
        let driver = self.driver.for_migrated(goal.of_plugin);
        let reply = driver.controller_expand_volume(request).await?;
        if reply.capacity_bytes < bytes {
            return Err(Failure::TooSmall {
                has: reply.capacity_bytes,
                asked: bytes,
            });
        }
        Ok(Grown {
            bytes: reply.capacity_bytes,
            on_node: reply.node_expansion_required,
        })
    }

    /// Says what is true now: first on the volume, then on the claim. A node looks at the
    /// claim, and must find the volume's size there.
    async fn settle(
        &self,
        claim: &Claim,
        goal: Goal<'_>,
        grown: &Grown,
    ) -> Result<Outcome, ApiError> {
        let enlarged = insist(&self.cluster, goal.volume, |now: &Volume| {
            self.enlarged(now, claim, grown)
        })
        .await?;
        let Some(enlarged) = enlarged else {
            return Ok(Outcome::Done);
        };
        let bytes = enlarged.capacity_bytes().max(grown.bytes);
        self.volumes.absorb(enlarged);
        let body = if grown.on_node {
            let message = "Waiting for user to (re-)start a pod to finish file system resize of \
                           volume on node.";
            let pending = resize::FILE_SYSTEM_RESIZE_PENDING;
            let now = self.clock.now_seconds();
            json!({"status": {
                "allocatedResourceStatuses": {"storage": ResizeStatus::NodeResizePending},
                "conditions": [
                    resize::holds(pending, "", message, now),
                    resize::gone(resize::CONTROLLER_RESIZE_ERROR),
                ],
            }})
        } else {
            json!({
                "metadata": {"annotations": {NODE_EXPANSION_NOT_REQUIRED: "true"}},
                "status": resize::over(&Quantity::bytes(bytes)),
            })
        };
        let asked_again = claim.resize_status() == Some(ResizeStatus::NodeResizeInfeasible);
        let stands = |now: &Claim| is_at_the_same_point(claim, now);
        let Some(claim) = self.desk.write_outcome(claim, &body, stands).await? else {
            return Ok(AGAIN);
        };
        if grown.on_node {
            // A node that says no once more is not asked again at once.
            if asked_again {
                let rest = self.retry.most;
                self.setbacks
                    .remember(&claim, goal.bytes, Verdict::Infeasible, rest, "");
            } else {
                self.setbacks.forget(&claim.key());
            }
            let message = "Require file system resize of volume on node";
            self.desk.say(
                &claim,
                EventType::Normal,
                "FileSystemResizeRequired",
                message,
            );
        } else {
            self.setbacks.forget(&claim.key());
            let message = "Resize volume succeeded";
            self.desk
                .say(&claim, EventType::Normal, "VolumeResizeSuccessful", message);
        }
        Ok(Outcome::Done)
    }

    /// The volume's object with its new size; `None` if there is nothing to write.
    fn enlarged(&self, now: &Volume, claim: &Claim, grown: &Grown) -> Option<Patch> {
        // A backend's word is never taken back. Without a backend the size is but a wish.
        let bytes = match self.ability {
            Ability::Controller => grown.bytes.max(now.capacity_bytes()),
            Ability::NodeOnly => grown.bytes,
        };
        let mut body = json!({});
        if bytes != now.capacity_bytes() {
            body["spec"]["capacity"]["storage"] = json!(Quantity::bytes(bytes));
        }
        let marked = now.metadata.annotations.contains_key(PRE_RESIZE_CAPACITY);
        if grown.on_node && !marked && claim.capacity_bytes() < bytes {
            let before = claim.status.capacity.storage();
            body["metadata"]["annotations"][PRE_RESIZE_CAPACITY] = json!(before);
        }
        let changes = body.as_object().is_some_and(|body| !body.is_empty());
        changes.then(|| Patch::merge_on(now, body))
    }

    async fn fail(
        &self,
        claim: &Claim,
        goal: Goal<'_>,
        failure: &Failure,
    ) -> Result<Outcome, ApiError> {
        let why = words(failure);
        let volume = &goal.volume.metadata.name;
        let message = format!(
            "resize volume {volume:?} by resizer {:?} failed: {why}",
            self.name
        );
        let wait = self.patience.after(&who(&claim.key()), failure.setback());
        let message = Message::until_next_try(message, wait);
        self.desk
            .say(claim, EventType::Warning, "VolumeResizeFailed", message);
        let Some(verdict) = failure.verdict() else {
            self.setbacks.forget(&claim.key());
            return Ok(Outcome::After(wait));
        };
        let news = self
            .setbacks
            .remember(claim, goal.bytes, verdict, wait, &why);
        if news {
            let error = resize::CONTROLLER_RESIZE_ERROR;
            let message = format!("failed to expand pvc with {why}");
            let now = self.clock.now_seconds();
            let mut status = json!({"conditions": [resize::holds(error, "", &message, now)]});
            if verdict == Verdict::Infeasible {
                status["allocatedResourceStatuses"] =
                    json!({"storage": ResizeStatus::ControllerResizeInfeasible});
            }
            let body = json!({"status": status});
            let stands = |now: &Claim| is_at_the_same_point(claim, now);
            let told = self.desk.write_outcome(claim, &body, stands).await?;
            if told.is_none() {
                // It is asked again, and then told.
                self.setbacks.forget(&claim.key());
            }
        }
        Ok(Outcome::After(wait))
    }

    async fn tidy(&self, volume: &Volume) -> Result<Outcome, ApiError> {
        let body = json!({"metadata": {"annotations": {PRE_RESIZE_CAPACITY: null}}});
        let patch = Patch::merge_on(volume, body);
        match self.cluster.patch::<Volume>(&volume.key(), &patch).await {
            Ok(tidied) => {
                self.volumes.absorb(tidied);
                Ok(AGAIN)
            }
            Err(error) if error.is_not_found() => Ok(Outcome::Done),
            Err(error) if error.is_conflict() => {
                look_again(&self.cluster, &self.volumes, &volume.key()).await
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether nothing has become of a claim's growth since it was looked at.
fn is_at_the_same_point(seen: &Claim, now: &Claim) -> bool {
    fn point(claim: &Claim) -> impl PartialEq {
        (
            claim.spec.volume_name.clone(),
            claim.capacity_bytes(),
            claim.allocated_bytes(),
            claim.resize_status(),
        )
    }
    point(seen) == point(now)
}

/// Whose waits these are, among the resizer's.
fn who(claim: &Key) -> String {
    format!("size of {claim}")
}
