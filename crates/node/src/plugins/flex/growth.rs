//! Growth: a claim that waits for its node is led to its size by the volume's driver.
//!
//! The original asks the driver twice, in two places: `expandvolume` where its controllers run, and
//! `expandfs` on the node. Drivers are on nodes, so both are asked here, one after the other. The claim
//! says that a node is at it before the driver is called, and has its new size only afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlop_host::{FsKind, MountTable};
use orlop_model::{Claim, Key, Kind as _, Quantity, ResizeStatus, Volume, resize};
use orlop_runtime::{ApiError, Cache, Change, EventType, Outcome, Patch, Recorder, work};
use serde_json::{Value, json};

use super::calls::Purpose;
use super::options::Options;
use super::{Flex, FlexError, FlexVolume, is_mounted};
use crate::layout::{Layout, PodUid};
use crate::words::chain;

const AT_ONCE: usize = 4;

/// Whether a claim waits for a node.
fn waits(claim: &Claim) -> bool {
    matches!(
        claim.resize_status(),
        Some(ResizeStatus::NodeResizePending | ResizeStatus::NodeResizeInProgress)
    )
}

/// What is to be grown.
struct Growing {
    claim: Claim,
    volume: Volume,
    /// A pod that has it, and where.
    user: PodUid,
    target: PathBuf,
}

impl Flex {
    /// Leads claims to their sizes, for ever.
    pub(crate) async fn grow(self: Arc<Self>, claims: Cache<Claim>, recorder: Recorder) {
        claims.synced().await;
        let queue = self.growth.clone();
        claims.subscribe(move |change| {
            if let Change::Applied { new, .. } = change
                && waits(new)
            {
                queue.add(new.key());
            }
        });
        let turn = async |key: Key| self.lead(&key, &recorder).await;
        work(self.growth.clone(), AT_ONCE, turn).await;
    }

    async fn lead(&self, key: &Key, recorder: &Recorder) -> Outcome {
        let growing = match self.find_growing(key).await {
            Ok(Some(growing)) => growing,
            Ok(None) => return Outcome::Done,
            Err(error) => {
                tracing::warn!(claim = %key, error = chain(&error), "could not look at a claim");
                return Outcome::Retry;
            }
        };
        let name = growing.volume.metadata.name.clone();
        let claim = growing.claim.clone();
        match self.expand(growing).await {
            Ok(()) => {
                let node = &self.node_name;
                let message =
                    format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {node}");
                let reason = "FileSystemResizeSuccessful";
                recorder.say(&claim, EventType::Normal, reason, message);
                Outcome::Done
            }
            Err(error) => {
                let (node, error) = (&self.node_name, chain(&error));
                let message =
                    format!("NodeExpandVolume failed for volume {name:?} on {node}: {error}");
                recorder.say(&claim, EventType::Warning, "VolumeResizeFailed", message);
                Outcome::Retry
            }
        }
    }

    /// Claim and volume as they are now; none if there is nothing to do here.
    async fn find_growing(&self, key: &Key) -> Result<Option<Growing>, FlexError> {
        let claim = self.cluster.get::<Claim>(key).await?;
        let Some(claim) = claim.filter(waits) else {
            return Ok(None);
        };
        let name = Key::cluster(&claim.spec.volume_name);
        let Some(volume) = self.cluster.get::<Volume>(&name).await? else {
            return Ok(None);
        };
        let owner = volume.spec.claim_ref.as_ref();
        let ours = owner.is_some_and(|owner| owner.uid == claim.metadata.uid);
        let Some(source) = volume.spec.flex_volume.as_ref().filter(|_| ours) else {
            return Ok(None);
        };
        for (uid, _) in Layout::entries(&self.layout.pods()) {
            let Some(user) = PodUid::new(uid) else {
                continue;
            };
            let target = self.layout.flex_target(&user, &source.driver, &name.name);
            // Who mounts it later asks again.
            if is_mounted(&target)? {
                return Ok(Some(Growing {
                    claim,
                    volume,
                    user,
                    target,
                }));
            }
        }
        Ok(None)
    }

    async fn expand(&self, growing: Growing) -> Result<(), FlexError> {
        let Growing {
            mut claim,
            volume,
            user,
            target,
        } = growing;
        let Some(source) = &volume.spec.flex_volume else {
            return Ok(());
        };
        let name = volume.metadata.name.as_str();
        let purpose = Purpose {
            pod: &user,
            called: name,
            volume: name,
        };
        let driver = self.driver(&source.driver, purpose).await?;
        let turn = self.turn(&source.driver, Some(name));
        let _held = turn.lock().await;
        if claim.resize_status() == Some(ResizeStatus::NodeResizePending) {
            let status = ResizeStatus::NodeResizeInProgress;
            let body = json!({"allocatedResourceStatuses": {"storage": status}});
            claim = self.write_claim(&claim, body).await?;
        }
        let asked = FlexVolume {
            name,
            called: name,
            source,
            read_only: false,
        };
        let options = Options::of(asked, None, &Default::default()).text();
        let at = match driver.capabilities.attach {
            true => self.layout.flex_global(&source.driver, name),
            false => target,
        };
        let (new, old) = (volume.capacity_bytes(), claim.capacity_bytes());
        let sizes = [new.to_string(), old.to_string()];
        let mut arguments = vec![options.clone(), at.display().to_string()];
        arguments.extend(sizes.clone());
        driver.try_call("expandvolume", &arguments).await?;
        if driver.capabilities.requires_fs_resize {
            let device = device_of(&at)?;
            let mut arguments = vec![options, device.clone(), at.display().to_string()];
            arguments.extend(sizes);
            let done = driver.try_call("expandfs", &arguments).await?;
            if done.is_none() {
                self.grow_files(&user, &source.fs_type, (device.into(), at))
                    .await?;
            }
        }
        let over = resize::over(&Quantity::bytes(new));
        self.write_claim(&claim, over).await?;
        Ok(())
    }

    /// What the kubelet does where the driver leaves it to others.
    async fn grow_files(
        &self,
        pod: &PodUid,
        fs_type: &str,
        (device, at): (PathBuf, PathBuf),
    ) -> Result<(), FlexError> {
        let fs_type = if fs_type.is_empty() { "ext4" } else { fs_type };
        let Some(kind) = FsKind::by_name(fs_type).filter(|_| device.starts_with("/dev")) else {
            return Ok(());
        };
        let work = move || orlop_host::filesystem::grow(kind, &device, &at);
        let grown = self.for_pods.run(pod, "grow a file system", work);
        Ok(grown.await??)
    }

    /// Writes the status of the very version of the claim that was looked at.
    async fn write_claim(&self, claim: &Claim, status: Value) -> Result<Claim, ApiError> {
        let patch = Patch::strategic_on(claim, json!({"status": status}));
        self.cluster
            .patch_status::<Claim>(&claim.key(), &patch)
            .await
    }
}

/// What is mounted at a path, as the kernel tells.
fn device_of(path: &Path) -> Result<String, FlexError> {
    let table = MountTable::read().map_err(super::at("look for mounts at", path))?;
    let source = table.at(path).map(|mount| mount.source.clone());
    Ok(source.unwrap_or_default().to_string_lossy().into_owned())
}
