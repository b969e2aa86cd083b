//! The node's part of an expansion: the file system, or the device, follows the backend.
//!
//! Whether there is something to do is read off the claim, which the resizer marks only
//! after the volume's object has its new size; so this never runs ahead of the backend.
//! The claim says that a node is at it before the driver is called, and has its new size
//! only when the driver said yes.

use std::path::Path;
use std::sync::Arc;

use orlop_csi::client::NodeCapability;
use orlop_csi::{CallError, DriverInfo, Retry, proto};
use orlop_model::well_known::PRE_RESIZE_CAPACITY;
use orlop_model::{AccessMode, Claim, Key, Kind, Quantity, ResizeStatus, Volume, resize};
use orlop_runtime::{EventType, Patch};
use serde_json::{Value, json};
use tonic::Code;

use super::csi::{Cause, Published, stages, text};
use super::lookup::{capability, csi_source};
use super::{Device, DeviceKey, Hold, Volumes, Want};
use crate::words::chain;

/// What a node has to do about a volume's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// The claim waits for a node.
    Claim,
    /// The claim has its size from another node; what is here must follow.
    Follow,
}

/// What is known of the volume's size on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Size {
    /// It is at least as large as this.
    Bytes(i64),
    /// An earlier life of this role may have left it behind another node's.
    #[default]
    Unknown,
}

/// What a claim needs of a node that has its volume. Pure.
pub(super) fn need(claim: &Claim, volume: &Volume, here: Size) -> Need {
    let ours = volume
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|owner| owner.uid == claim.metadata.uid);
    if !ours {
        return Need::Nothing;
    }
    match claim.resize_status() {
        Some(ResizeStatus::NodeResizePending | ResizeStatus::NodeResizeInProgress) => Need::Claim,
        // The backend's part is not over, or the resizer must first say "again".
        Some(_) => Need::Nothing,
        None => {
            let has = claim.capacity_bytes();
            // A volume that was kept came to a new claim before a node did its part.
            let marked = volume
                .metadata
                .annotations
                .contains_key(PRE_RESIZE_CAPACITY);
            if marked && has < volume.capacity_bytes() {
                return Need::Claim;
            }
            let shared = |mode: &AccessMode| {
                matches!(mode, AccessMode::ReadWriteMany | AccessMode::ReadOnlyMany)
            };
            match here {
                Size::Bytes(bytes) if bytes < has => Need::Follow,
                Size::Unknown if volume.spec.access_modes.iter().any(shared) => Need::Follow,
                Size::Bytes(_) | Size::Unknown => Need::Nothing,
            }
        }
    }
}

/// How trying to grow ended.
pub(super) enum Grown {
    /// There is nothing to do any more.
    Enough,
    /// It failed; trying again may help.
    TryAgain,
    /// It failed, and it is on record what must happen first.
    Wait,
}

/// Whether the driver grows volumes on nodes.
pub(super) fn expands(info: &DriverInfo) -> bool {
    info.node_can(NodeCapability::ExpandVolume)
}

/// Everything that a claim is grown with.
struct Growing {
    claim: Claim,
    volume: Volume,
    need: Need,
}

impl Device {
    /// A pod that may write to the volume; without one it can't grow here.
    fn writer(&self) -> Option<&Arc<Want>> {
        self.wants.values().find(|want| {
            let source = want.volume.spec.csi.as_ref();
            !want.read_only && !source.is_some_and(|source| source.read_only)
        })
    }
}

impl Volumes {
    /// Whether the volume is smaller here than its claim says it shall be.
    pub(super) fn grows(&self, device: &Device) -> bool {
        let Some(want) = device.writer() else {
            return false;
        };
        let claim = want.volume.spec.claim_ref.as_ref();
        let claim = claim.and_then(|claim| self.parts.claims.get(&claim.key()));
        let Some(claim) = claim else { return false };
        if need(&claim, &want.volume, device.size) == Need::Nothing {
            return false;
        }
        // A driver that refused because of its users is asked again when they are gone.
        let goal = claim.allocated_bytes();
        device.publications.is_empty() || device.refused.is_none() || device.refused != goal
    }

    /// What the claim has, for a volume that just came here.
    pub(super) fn size_now(&self, want: &Want) -> Size {
        let claim = want.volume.spec.claim_ref.as_ref();
        let claim = claim.and_then(|claim| self.parts.claims.get(&claim.key()));
        claim.map_or(Size::Unknown, |claim| Size::Bytes(claim.capacity_bytes()))
    }

    /// A claim has changed; its volume may have to grow.
    pub(crate) fn claim_changed(&self, old: Option<&Claim>, new: &Claim) {
        let facts = |claim: &Claim| {
            (
                claim.capacity_bytes(),
                claim.resize_status(),
                claim.allocated_bytes(),
            )
        };
        if old.is_some_and(|old| facts(old) == facts(new)) {
            return;
        }
        for (key, device) in &self.state().devices {
            let uses = |want: &Arc<Want>| {
                let owner = want.volume.spec.claim_ref.as_ref();
                owner.is_some_and(|owner| owner.uid == new.metadata.uid)
            };
            if device.wants.values().any(uses) {
                self.queue.add(key.clone());
            }
        }
    }

    /// Grows a volume to what its object says, if its claim still asks for it.
    pub(super) async fn grow(&self, key: &DeviceKey) -> Grown {
        let Some((want, size)) =
            self.look(key, |device| Some((device.writer()?.clone(), device.size)))
        else {
            return Grown::Enough;
        };
        match self.try_grow(key, &want, size).await {
            Ok(grown) => grown,
            Err(cause) => {
                let claim = want
                    .volume
                    .spec
                    .claim_ref
                    .as_ref()
                    .map(orlop_model::ObjectRef::key);
                self.tell_failure(key, claim.as_ref(), &chain(&cause));
                Grown::TryAgain
            }
        }
    }

    async fn try_grow(&self, key: &DeviceKey, want: &Want, size: Size) -> Result<Grown, Cause> {
        let Some(mut growing) = self.find_growing(want, size).await? else {
            return Ok(Grown::Enough);
        };
        let driver = self.driver(key)?;
        let info = driver.info().await?;
        let bytes = growing.volume.capacity_bytes();
        if expands(&info) {
            let Some(request) = self.request(key, want, &growing.volume, &info).await? else {
                return Ok(Grown::Enough);
            };
            if growing.claim.resize_status() == Some(ResizeStatus::NodeResizePending) {
                let status = ResizeStatus::NodeResizeInProgress;
                let body = json!({"allocatedResourceStatuses": {"storage": status}});
                growing.claim = self.write_claim(&growing.claim, body).await?;
            }
            if let Err(error) = driver.node_expand_volume(request).await {
                return self.refuse(key, &growing, &error).await;
            }
        }
        self.note(key, |device| {
            device.size = Size::Bytes(bytes);
            device.refused = None;
        });
        if growing.need == Need::Claim {
            let over = resize::over(&Quantity::bytes(bytes));
            self.write_claim(&growing.claim, over).await?;
        }
        self.tell_success(key, &growing);
        Ok(Grown::Enough)
    }

    /// Claim and volume as they are now, if there is still something to do: a cache may
    /// show a claim's namesake of before.
    async fn find_growing(&self, want: &Want, size: Size) -> Result<Option<Growing>, Cause> {
        let cluster = &self.parts.cluster;
        let name = Key::cluster(&want.volume.metadata.name);
        let Some(volume) = cluster.get::<Volume>(&name).await? else {
            return Ok(None);
        };
        let same = volume.metadata.uid == want.volume.metadata.uid;
        let Some(owner) = volume.spec.claim_ref.as_ref().filter(|_| same) else {
            return Ok(None);
        };
        let Some(claim) = cluster.get::<Claim>(&owner.key()).await? else {
            return Ok(None);
        };
        self.parts.claims.absorb(claim.clone());
        let need = need(&claim, &volume, size);
        Ok((need != Need::Nothing).then_some(Growing {
            claim,
            volume,
            need,
        }))
    }

    /// The call; `None` if the volume is at no path of this node.
    async fn request(
        &self,
        key: &DeviceKey,
        want: &Want,
        volume: &Volume,
        info: &DriverInfo,
    ) -> Result<Option<proto::NodeExpandVolumeRequest>, Cause> {
        let source = csi_source(want)?;
        let Some((shape, published, staged)) = self.look(key, |device| {
            let mut publications = device.publications.iter();
            let published = publications.find(|(_, p)| p.hold == Hold::Certain);
            let published = published.map(|(pod, p)| (pod.clone(), p.volume.clone()));
            let staged = device.staging == Some(Hold::Certain);
            Some((device.shape.clone(), published, staged))
        }) else {
            return Ok(None);
        };
        let staging = (stages(info) && staged).then(|| text(&self.staging_target(key, &shape)));
        let path = match &published {
            Some((pod, volume)) => {
                let published = Published {
                    key,
                    shape: &shape,
                    pod,
                    volume,
                };
                Some(text(Path::new(&self.target(&published))))
            }
            None => staging.clone(),
        };
        let Some(volume_path) = path else {
            return Ok(None);
        };
        Ok(Some(proto::NodeExpandVolumeRequest {
            volume_id: key.handle.clone(),
            volume_path,
            capacity_range: Some(proto::CapacityRange {
                required_bytes: volume.capacity_bytes(),
                limit_bytes: 0,
            }),
            staging_target_path: staging.unwrap_or_default(),
            volume_capability: Some(capability(want, source, info)?),
            secrets: self
                .secrets(source.node_expand_secret_ref.as_ref())
                .await?
                .into_request(),
        }))
    }

    /// The driver said no, or nothing: says so, and decides what must happen first.
    async fn refuse(
        &self,
        key: &DeviceKey,
        growing: &Growing,
        error: &CallError,
    ) -> Result<Grown, Cause> {
        let words = chain(error);
        self.tell_failure(key, Some(&growing.claim.key()), &words);
        let in_use = error.code == Code::FailedPrecondition;
        if in_use {
            let goal = growing.claim.allocated_bytes();
            self.note(key, |device| device.refused = goal);
        }
        if error.retry == Retry::Uncertain {
            return Ok(Grown::TryAgain);
        }
        let infeasible = error.retry == Retry::Infeasible;
        if growing.need == Need::Claim {
            let type_ = resize::NODE_RESIZE_ERROR;
            let message = format!("failed to expand pvc with {words}");
            let now = self.parts.clock.now_seconds();
            let mut status = json!({"conditions": [resize::holds(type_, "", &message, now)]});
            if infeasible && growing.claim.resize_status().is_some() {
                status["allocatedResourceStatuses"] =
                    json!({"storage": ResizeStatus::NodeResizeInfeasible});
            }
            self.write_claim(&growing.claim, status).await?;
        }
        Ok(if infeasible || in_use {
            Grown::Wait
        } else {
            Grown::TryAgain
        })
    }

    /// Writes the status of the very version of the claim that was looked at.
    async fn write_claim(&self, claim: &Claim, status: Value) -> Result<Claim, Cause> {
        let patch = Patch::strategic_on(claim, json!({"status": status}));
        let cluster = &self.parts.cluster;
        let written = cluster.patch_status::<Claim>(&claim.key(), &patch).await?;
        self.parts.claims.absorb(written.clone());
        Ok(written)
    }

    fn tell_success(&self, key: &DeviceKey, growing: &Growing) {
        let reason = "FileSystemResizeSuccessful";
        let message = format!(
            "MountVolume.NodeExpandVolume succeeded for volume {:?} {}",
            growing.volume.metadata.name, self.parts.node_name
        );
        let recorder = &self.parts.recorder;
        recorder.say(&growing.claim, EventType::Normal, reason, &*message);
        for want in self.wants_of(key) {
            recorder.say(&*want.pod, EventType::Normal, reason, &*message);
        }
        tracing::info!(
            driver = key.driver,
            volume_id = key.handle,
            bytes = growing.volume.capacity_bytes(),
            "volume grown"
        );
    }

    fn tell_failure(&self, key: &DeviceKey, claim: Option<&Key>, words: &str) {
        let reason = "VolumeResizeFailed";
        let recorder = &self.parts.recorder;
        let message = |volume: &str| {
            let node = &self.parts.node_name;
            format!("NodeExpandVolume failed for volume {volume:?} on {node}: {words}")
        };
        let wants = self.wants_of(key);
        let claim = claim.and_then(|claim| self.parts.claims.get(claim));
        if let Some(claim) = claim {
            let message = message(&claim.spec.volume_name);
            recorder.say(&*claim, EventType::Warning, reason, message);
        }
        for want in wants {
            let message = message(&want.volume.metadata.name);
            recorder.say(&*want.pod, EventType::Warning, reason, message);
        }
    }

    fn wants_of(&self, key: &DeviceKey) -> Vec<Arc<Want>> {
        let wants = self.look(key, |device| Some(device.wants.values().cloned().collect()));
        wants.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
