//! What cases are made of: volumes, snapshots, and their ways to a path.

use std::path::PathBuf;

use orlop_csi::client::{ControllerCapability, NodeCapability};
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;
use proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use tonic::Code;

use crate::answer::Answer;
use crate::case::Trouble;
use crate::trial::Trial;

pub(crate) fn io(what: &'static str) -> impl Fn(std::io::Error) -> Trouble {
    move |error| Trouble::Against(format!("{what}: {error}"))
}

/// A capability with a file system.
pub(crate) fn mount_capability(mode: Mode, fs_type: &str) -> proto::VolumeCapability {
    capability(
        mode,
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            ..Default::default()
        }),
    )
}

/// A capability without one.
pub(crate) fn block_capability(mode: Mode) -> proto::VolumeCapability {
    capability(mode, AccessType::Block(BlockVolume {}))
}

fn capability(mode: Mode, access: AccessType) -> proto::VolumeCapability {
    proto::VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

pub(crate) fn exactly(bytes: i64) -> proto::CapacityRange {
    proto::CapacityRange {
        required_bytes: bytes,
        limit_bytes: bytes,
    }
}

pub(crate) fn at_least(bytes: i64) -> proto::CapacityRange {
    proto::CapacityRange {
        required_bytes: bytes,
        limit_bytes: 0,
    }
}

pub(crate) fn from_snapshot(id: &str) -> proto::VolumeContentSource {
    use proto::volume_content_source::{SnapshotSource, Type};
    proto::VolumeContentSource {
        r#type: Some(Type::Snapshot(SnapshotSource {
            snapshot_id: id.to_owned(),
        })),
    }
}

pub(crate) fn from_volume(id: &str) -> proto::VolumeContentSource {
    use proto::volume_content_source::{Type, VolumeSource};
    proto::VolumeContentSource {
        r#type: Some(Type::Volume(VolumeSource {
            volume_id: id.to_owned(),
        })),
    }
}

/// A volume on its way to a path of this node.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) volume: proto::Volume,
    pub(crate) capability: proto::VolumeCapability,
    pub(crate) publish_context: std::collections::BTreeMap<String, String>,
    /// Empty for a driver that has no staging.
    pub(crate) staging: String,
}

impl Placed {
    pub(crate) fn id(&self) -> String {
        self.volume.volume_id.clone()
    }

    pub(crate) fn stage_request(&self) -> proto::NodeStageVolumeRequest {
        proto::NodeStageVolumeRequest {
            volume_id: self.id(),
            publish_context: self.publish_context.clone(),
            staging_target_path: self.staging.clone(),
            volume_capability: Some(self.capability.clone()),
            volume_context: self.volume.volume_context.clone(),
            ..Default::default()
        }
    }

    pub(crate) fn unstage_request(&self) -> proto::NodeUnstageVolumeRequest {
        proto::NodeUnstageVolumeRequest {
            volume_id: self.id(),
            staging_target_path: self.staging.clone(),
        }
    }

    pub(crate) fn publish_request(&self, target: &str) -> proto::NodePublishVolumeRequest {
        proto::NodePublishVolumeRequest {
            volume_id: self.id(),
            publish_context: self.publish_context.clone(),
            staging_target_path: self.staging.clone(),
            target_path: target.to_owned(),
            volume_capability: Some(self.capability.clone()),
            readonly: false,
            volume_context: self.volume.volume_context.clone(),
            ..Default::default()
        }
    }

    pub(crate) fn unpublish_request(&self, target: &str) -> proto::NodeUnpublishVolumeRequest {
        proto::NodeUnpublishVolumeRequest {
            volume_id: self.id(),
            target_path: target.to_owned(),
        }
    }
}

impl Trial {
    pub(crate) fn size(&self) -> i64 {
        self.bench().settings.volume_size
    }

    /// The capability that test volumes have unless a case is about another.
    pub(crate) fn capability(&self) -> proto::VolumeCapability {
        self.capability_for(Mode::SingleNodeWriter)
    }

    pub(crate) fn capability_for(&self, mode: Mode) -> proto::VolumeCapability {
        if self.bench().settings.block {
            block_capability(mode)
        } else {
            mount_capability(mode, &self.bench().settings.fs_type)
        }
    }

    /// A request for a volume that nothing is wrong with.
    pub(crate) fn create_request(&self, tag: &str) -> proto::CreateVolumeRequest {
        let bench = self.bench();
        let with_topology =
            bench.serves(orlop_csi::client::PluginService::VolumeAccessibilityConstraints);
        let here = bench.topology.clone().filter(|_| with_topology);
        proto::CreateVolumeRequest {
            name: self.name(tag),
            capacity_range: Some(at_least(self.size())),
            volume_capabilities: vec![self.capability()],
            parameters: bench.settings.parameters.clone(),
            accessibility_requirements: here.map(|here| proto::TopologyRequirement {
                requisite: vec![here.clone()],
                preferred: vec![here],
            }),
            ..Default::default()
        }
    }

    pub(crate) async fn create(
        &self,
        request: proto::CreateVolumeRequest,
    ) -> Result<proto::Volume, Trouble> {
        Self::created(self.call(request).await)
    }

    /// The volume in `CreateVolume`'s answer.
    pub(crate) fn created(
        answer: Answer<proto::CreateVolumeRequest>,
    ) -> Result<proto::Volume, Trouble> {
        let reply = answer.ok()?;
        reply
            .volume
            .filter(|volume| !volume.volume_id.is_empty())
            .ok_or_else(|| Trouble::Against("CreateVolume's reply has no volume_id".to_owned()))
    }

    pub(crate) async fn volume(&self, tag: &str) -> Result<proto::Volume, Trouble> {
        self.create(self.create_request(tag)).await
    }

    /// A new volume for an access mode, or a skip for a driver that has no such mode.
    pub(crate) async fn volume_for(
        &self,
        tag: &str,
        mode: Mode,
    ) -> Result<(proto::Volume, proto::VolumeCapability), Trouble> {
        let capability = self.capability_for(mode);
        let request = proto::CreateVolumeRequest {
            volume_capabilities: vec![capability.clone()],
            ..self.create_request(tag)
        };
        let answer = self.call(request).await;
        let made = answer.ok_or_any(&[Code::InvalidArgument], "the mode may be unsupported")?;
        match made.and_then(|reply| reply.volume) {
            Some(volume) => Ok((volume, capability)),
            None => Err(Trouble::Skip(format!(
                "the driver makes no volumes for {}",
                mode.as_str_name()
            ))),
        }
    }

    pub(crate) fn delete_request(&self, volume_id: &str) -> proto::DeleteVolumeRequest {
        proto::DeleteVolumeRequest {
            volume_id: volume_id.to_owned(),
            ..Default::default()
        }
    }

    pub(crate) fn snapshot_request(&self, source: &str, tag: &str) -> proto::CreateSnapshotRequest {
        proto::CreateSnapshotRequest {
            source_volume_id: source.to_owned(),
            name: self.name(tag),
            parameters: self.bench().settings.snapshot_parameters.clone(),
            ..Default::default()
        }
    }

    /// A snapshot that can be used.
    pub(crate) async fn snapshot(
        &self,
        source: &str,
        tag: &str,
    ) -> Result<proto::Snapshot, Trouble> {
        let request = self.snapshot_request(source, tag);
        let answer = self.call(request.clone()).await;
        self.ready(request, answer).await
    }

    /// The snapshot of a first answer, once it can be used.
    pub(crate) async fn ready(
        &self,
        request: proto::CreateSnapshotRequest,
        mut answer: Answer<proto::CreateSnapshotRequest>,
    ) -> Result<proto::Snapshot, Trouble> {
        let ends = tokio::time::Instant::now() + self.bench().settings.timeout;
        loop {
            let snapshot = answer.ok()?.snapshot.ok_or_else(|| {
                Trouble::Against("CreateSnapshot's reply has no snapshot".to_owned())
            })?;
            if snapshot.ready_to_use {
                return Ok(snapshot);
            }
            if tokio::time::Instant::now() >= ends {
                return Err(Trouble::Against(format!(
                    "snapshot {} did not become ready_to_use in time",
                    snapshot.snapshot_id
                )));
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            answer = self.call(request.clone()).await;
        }
    }

    pub(crate) fn attach_request(
        &self,
        volume: &proto::Volume,
        node_id: &str,
    ) -> proto::ControllerPublishVolumeRequest {
        proto::ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: node_id.to_owned(),
            volume_capability: Some(self.capability()),
            volume_context: volume.volume_context.clone(),
            ..Default::default()
        }
    }

    pub(crate) fn stages(&self) -> bool {
        self.bench().node_can(NodeCapability::StageUnstageVolume)
    }

    pub(crate) fn attaches(&self) -> bool {
        self.bench()
            .can(ControllerCapability::PublishUnpublishVolume)
    }

    /// Everything that comes before staging: the volume is attached if the driver attaches.
    pub(crate) async fn attached(
        &self,
        volume: proto::Volume,
        capability: proto::VolumeCapability,
    ) -> Result<Placed, Trouble> {
        let mut publish_context = std::collections::BTreeMap::new();
        if self.attaches() {
            let request = proto::ControllerPublishVolumeRequest {
                volume_capability: Some(capability.clone()),
                ..self.attach_request(&volume, &self.bench().node_id)
            };
            publish_context = self.call(request).await.ok()?.publish_context;
        }
        let staging = if self.stages() {
            let path = self.folder().staging(&volume_tag(&volume.volume_id));
            text(path.map_err(io("could not make a staging folder"))?)
        } else {
            String::new()
        };
        Ok(Placed {
            volume,
            capability,
            publish_context,
            staging,
        })
    }

    /// Attached and staged.
    pub(crate) async fn staged(
        &self,
        volume: proto::Volume,
        capability: proto::VolumeCapability,
    ) -> Result<Placed, Trouble> {
        let placed = self.attached(volume, capability).await?;
        if self.stages() {
            self.call(placed.stage_request()).await.ok()?;
        }
        Ok(placed)
    }

    /// A new volume, attached and staged.
    pub(crate) async fn staged_volume(&self, tag: &str) -> Result<Placed, Trouble> {
        let volume = self.volume(tag).await?;
        self.staged(volume, self.capability()).await
    }

    /// A new volume with this capability, attached and staged.
    pub(crate) async fn staged_with(
        &self,
        tag: &str,
        capability: proto::VolumeCapability,
    ) -> Result<Placed, Trouble> {
        let request = proto::CreateVolumeRequest {
            volume_capabilities: vec![capability.clone()],
            ..self.create_request(tag)
        };
        let volume = self.create(request).await?;
        self.staged(volume, capability).await
    }

    /// A target path that the driver may make.
    pub(crate) fn target(&self, tag: &str) -> Result<String, Trouble> {
        let path = self.folder().target(tag);
        Ok(text(path.map_err(io("could not make a target's parent"))?))
    }

    /// A new volume, published for writing; with its target.
    pub(crate) async fn published(&self, tag: &str) -> Result<(Placed, String), Trouble> {
        let placed = self.staged_volume(tag).await?;
        let target = self.target(tag)?;
        self.call(placed.publish_request(&target)).await.ok()?;
        Ok((placed, target))
    }

    /// Undoes publishing, staging and attaching.
    pub(crate) async fn take_down(&self, placed: &Placed, target: &str) -> Result<(), Trouble> {
        self.call(placed.unpublish_request(target)).await.ok()?;
        self.unplace(placed).await
    }

    /// Undoes staging and attaching.
    pub(crate) async fn unplace(&self, placed: &Placed) -> Result<(), Trouble> {
        if self.stages() {
            self.call(placed.unstage_request()).await.ok()?;
        }
        if self.attaches() {
            let request = proto::ControllerUnpublishVolumeRequest {
                volume_id: placed.id(),
                node_id: self.bench().node_id.clone(),
                ..Default::default()
            };
            self.call(request).await.ok()?;
        }
        Ok(())
    }
}

/// Enough of an id for a folder's name.
fn volume_tag(volume_id: &str) -> String {
    let plain = volume_id.chars().filter(char::is_ascii_alphanumeric);
    let tail: String = plain.collect();
    tail[tail.len().saturating_sub(32)..].to_owned()
}

pub(crate) fn text(path: PathBuf) -> String {
    path.into_os_string()
        .into_string()
        .unwrap_or_else(|path| path.to_string_lossy().into_owned())
}
