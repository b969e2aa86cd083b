//! The four calls that bring a CSI volume to a pod and take it away, each with what is
//! written down before it and what is removed after it.
//!
//! Nothing here decides or retries. The order within each function is the contract:
//! look everything up, put the intent on record, make the call, note what is known now.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use orlop_csi::access::{AccessModeError, SingleNode};
use orlop_csi::client::NodeCapability;
use orlop_csi::{CallError, Driver, DriverInfo, Retry, Secrets, access, proto};
use orlop_model::volume::SecretRef;
use orlop_model::{Key, Secret, VolumeAttachment, volume::CsiSource};
use orlop_runtime::ApiError;

use super::{DeviceKey, Hold, Publication, Shape, Volumes, Want};
use crate::checkpoint::{self, VolumeData, gone, make_folder};
use crate::layout::{PodUid, attachment_name};
use crate::words::chain;

/// A step that failed, in the words of an event.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) doing: &'static str,
    cause: Cause,
}

impl Trouble {
    /// The event's reason.
    pub(super) fn reason(&self) -> &'static str {
        if self.doing.starts_with("Map") {
            "FailedMapVolume"
        } else {
            "FailedMount"
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(&self.cause))
    }
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("{0}")]
    Access(#[from] AccessModeError),
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("driver {0} has gone away")]
    NoDriver(String),
    #[error("the volume is not attached yet: VolumeAttachment {0} does not say so")]
    NotAttached(String),
    #[error("secret {0} does not exist; create it or correct the volume's reference")]
    NoSecret(Key),
    #[error("secret {0} has a value that is not text; CSI drivers take text only")]
    BinarySecret(Key),
    #[error("volume {0} is not a CSI volume")]
    NotCsi(String),
}

fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Cause {
    move |source| Cause::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// Whether the driver stages volumes.
pub(super) fn stages(info: &DriverInfo) -> bool {
    info.node_can(NodeCapability::StageUnstageVolume)
}

impl Volumes {
    pub(super) async fn stage(&self, key: &DeviceKey) -> Result<(), Trouble> {
        let Some((shape, want, before)) = self.look(key, |device| {
            let want = device.wants.values().next()?.clone();
            Some((device.shape.clone(), want, device.staging))
        }) else {
            return Ok(());
        };
        let doing = match shape {
            Shape::Files => "MountVolume.MountDevice failed",
            Shape::Block { .. } => "MapVolume.SetUpDevice failed",
        };
        self.try_stage(key, &shape, &want, before)
            .await
            .map_err(|cause| Trouble { doing, cause })
    }

    async fn try_stage(
        &self,
        key: &DeviceKey,
        shape: &Shape,
        want: &Want,
        before: Option<Hold>,
    ) -> Result<(), Cause> {
        let driver = self.driver(key)?;
        let info = driver.info().await?;
        let source = csi_source(want)?;
        let request = proto::NodeStageVolumeRequest {
            volume_id: key.handle.clone(),
            publish_context: self.publish_context(key).await?,
            staging_target_path: text(&self.staging_target(key, shape)),
            volume_capability: Some(capability(want, source, &info)?),
            secrets: self
                .secrets(source.node_stage_secret_ref.as_ref())
                .await?
                .into_request(),
            volume_context: source.volume_attributes.clone(),
        };
        self.announce_staging(key, shape)?;
        self.note(key, |device| device.staging = Some(Hold::Uncertain));
        match driver.node_stage_volume(request).await {
            Ok(_) => {
                self.note(key, |device| device.staging = Some(Hold::Certain));
                Ok(())
            }
            // Nothing is under way, and nothing was before: nothing is there. Otherwise
            // an earlier call may have done something that this answer is silent about.
            Err(error) if error.retry != Retry::Uncertain && before.is_none() => {
                self.clear_staging(key, shape)?;
                self.note(key, |device| device.staging = None);
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn unstage(&self, key: &DeviceKey) -> Result<(), Trouble> {
        let Some(shape) = self.look(key, |device| Some(device.shape.clone())) else {
            return Ok(());
        };
        self.try_unstage(key, &shape)
            .await
            .map_err(|cause| Trouble {
                doing: "UnmountVolume.UnmountDevice failed",
                cause,
            })
    }

    async fn try_unstage(&self, key: &DeviceKey, shape: &Shape) -> Result<(), Cause> {
        let driver = self.driver(key)?;
        self.note(key, |device| device.staging = Some(Hold::Uncertain));
        if stages(&*driver.info().await?) {
            let request = proto::NodeUnstageVolumeRequest {
                volume_id: key.handle.clone(),
                staging_target_path: text(&self.staging_target(key, shape)),
            };
            driver.node_unstage_volume(request).await?;
        }
        self.clear_staging(key, shape)?;
        self.note(key, |device| {
            device.staging = None;
            device.trouble = None;
        });
        Ok(())
    }

    pub(super) async fn publish(&self, key: &DeviceKey, pod: &PodUid) -> Result<(), Trouble> {
        let Some((shape, want, before)) = self.look(key, |device| {
            let want = device.wants.get(pod)?.clone();
            let before = device
                .publications
                .get(pod)
                .map(|publication| publication.hold);
            Some((device.shape.clone(), want, before))
        }) else {
            return Ok(());
        };
        let doing = match shape {
            Shape::Files => "MountVolume.SetUp failed",
            Shape::Block { .. } => "MapVolume.MapPodDevice failed",
        };
        let published = Published {
            key,
            shape: &shape,
            pod,
            volume: &want.volume.metadata.name,
        };
        self.try_publish(&published, &want, before)
            .await
            .map_err(|cause| Trouble { doing, cause })
    }

    async fn try_publish(
        &self,
        published: &Published<'_>,
        want: &Want,
        before: Option<Hold>,
    ) -> Result<(), Cause> {
        let Published {
            key,
            shape,
            pod,
            volume,
        } = *published;
        let driver = self.driver(key)?;
        let info = driver.info().await?;
        let source = csi_source(want)?;
        let target = self.target(published);
        let staging = if stages(&info) {
            text(&self.staging_target(key, shape))
        } else {
            String::new()
        };
        let request = proto::NodePublishVolumeRequest {
            volume_id: key.handle.clone(),
            publish_context: self.publish_context(key).await?,
            staging_target_path: staging,
            target_path: text(&target),
            volume_capability: Some(capability(want, source, &info)?),
            readonly: want.read_only || source.read_only,
            secrets: self
                .secrets(source.node_publish_secret_ref.as_ref())
                .await?
                .into_request(),
            volume_context: self.volume_context(key, want, source),
        };
        self.announce_publication(published)?;
        let publication = Publication {
            volume: volume.to_owned(),
            hold: Hold::Uncertain,
        };
        self.note(key, |device| {
            device.publications.insert(pod.clone(), publication);
            // A device's checkpoint is one for staging and publishing.
            if matches!(shape, Shape::Block { .. }) && device.staging.is_none() {
                device.staging = Some(Hold::Uncertain);
            }
        });
        match driver.node_publish_volume(request).await {
            Ok(_) => {
                self.note(key, |device| {
                    device.trouble = None;
                    if let Some(publication) = device.publications.get_mut(pod) {
                        publication.hold = Hold::Certain;
                    }
                });
                Ok(())
            }
            Err(error) if error.retry != Retry::Uncertain && before.is_none() => {
                self.clear_publication(published)?;
                self.note(key, |device| {
                    device.publications.remove(pod);
                });
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn unpublish(&self, key: &DeviceKey, pod: &PodUid) -> Result<(), Trouble> {
        let Some((shape, publication)) = self.look(key, |device| {
            Some((device.shape.clone(), device.publications.get(pod)?.clone()))
        }) else {
            return Ok(());
        };
        let published = Published {
            key,
            shape: &shape,
            pod,
            volume: &publication.volume,
        };
        self.try_unpublish(&published)
            .await
            .map_err(|cause| Trouble {
                doing: "UnmountVolume.TearDown failed",
                cause,
            })
    }

    async fn try_unpublish(&self, published: &Published<'_>) -> Result<(), Cause> {
        let Published { key, pod, .. } = *published;
        let driver = self.driver(key)?;
        self.note(key, |device| {
            if let Some(publication) = device.publications.get_mut(pod) {
                publication.hold = Hold::Uncertain;
            }
        });
        let request = proto::NodeUnpublishVolumeRequest {
            volume_id: key.handle.clone(),
            target_path: text(&self.target(published)),
        };
        driver.node_unpublish_volume(request).await?;
        self.clear_publication(published)?;
        self.note(key, |device| {
            device.publications.remove(pod);
        });
        Ok(())
    }

    /// Where a volume is seen by a pod's containers.
    pub(crate) fn pod_path(&self, volume: &orlop_model::Volume, pod: &PodUid) -> PathBuf {
        let name = &volume.metadata.name;
        match volume.volume_mode() {
            orlop_model::VolumeMode::Filesystem => self.parts.layout.csi_target(pod, name),
            orlop_model::VolumeMode::Block => self.parts.layout.block_target(name, pod),
        }
    }

    fn look<T>(&self, key: &DeviceKey, at: impl FnOnce(&super::Device) -> Option<T>) -> Option<T> {
        at(self.state().devices.get(key)?)
    }

    fn driver(&self, key: &DeviceKey) -> Result<Driver, Cause> {
        self.parts
            .drivers
            .get(&key.driver)
            .ok_or_else(|| Cause::NoDriver(key.driver.clone()))
    }

    fn staging_target(&self, key: &DeviceKey, shape: &Shape) -> PathBuf {
        match shape {
            Shape::Files => self.parts.layout.staging_target(&key.driver, &key.handle),
            Shape::Block { volume } => self.parts.layout.block_staging(volume),
        }
    }

    fn target(&self, published: &Published<'_>) -> PathBuf {
        match published.shape {
            Shape::Files => self
                .parts
                .layout
                .csi_target(published.pod, published.volume),
            Shape::Block { volume } => self.parts.layout.block_target(volume, published.pod),
        }
    }

    fn announce_staging(&self, key: &DeviceKey, shape: &Shape) -> Result<(), Cause> {
        let folder = match shape {
            Shape::Files => self.parts.layout.staging_folder(&key.driver, &key.handle),
            Shape::Block { volume } => self.parts.layout.block_data(volume),
        };
        VolumeData::staged(key)
            .write(&folder)
            .map_err(at("write the checkpoint in", &folder))?;
        let target = self.staging_target(key, shape);
        make_folder(&target).map_err(at("make", &target))
    }

    /// Only ever removes empty folders: a mount that is still there is an error.
    fn clear_staging(&self, key: &DeviceKey, shape: &Shape) -> Result<(), Cause> {
        let target = self.staging_target(key, shape);
        gone(std::fs::remove_dir(&target)).map_err(at("remove", &target))?;
        let layout = &self.parts.layout;
        match shape {
            Shape::Files => {
                let folder = layout.staging_folder(&key.driver, &key.handle);
                checkpoint::remove(&folder).map_err(at("remove", &folder))
            }
            Shape::Block { volume } => {
                let folder = layout.block_data(volume);
                let publications = layout.block_publications(volume);
                gone(std::fs::remove_dir(&publications)).map_err(at("remove", &publications))?;
                checkpoint::remove(&folder).map_err(at("remove", &folder))?;
                folder.parent().map_or(Ok(()), |own| {
                    gone(std::fs::remove_dir(own)).map_err(at("remove", own))
                })
            }
        }
    }

    fn announce_publication(&self, published: &Published<'_>) -> Result<(), Cause> {
        let Published {
            key,
            shape,
            pod,
            volume,
        } = *published;
        let layout = &self.parts.layout;
        let node = &self.parts.node_name;
        let data = VolumeData {
            attachment_id: attachment_name(&key.handle, &key.driver, node),
            node_name: node.clone(),
            spec_volume: volume.to_owned(),
            volume_lifecycle_mode: "Persistent".to_owned(),
            ..VolumeData::staged(key)
        };
        match shape {
            Shape::Files => {
                let folder = layout.csi_volumes(pod).join(volume);
                data.write(&folder)
                    .map_err(at("write the checkpoint in", &folder))
            }
            Shape::Block { .. } => {
                let folder = layout.block_data(volume);
                data.write(&folder)
                    .map_err(at("write the checkpoint in", &folder))?;
                let publications = layout.block_publications(volume);
                make_folder(&publications).map_err(at("make", &publications))?;
                let link = layout.pod_device(pod, volume);
                let target = layout.block_target(volume, pod);
                link.parent()
                    .map_or(Ok(()), make_folder)
                    .map_err(at("make the folder of", &link))?;
                match std::os::unix::fs::symlink(target, &link) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        Err(at("make", &link)(error))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn clear_publication(&self, published: &Published<'_>) -> Result<(), Cause> {
        let Published {
            shape, pod, volume, ..
        } = *published;
        let target = self.target(published);
        match shape {
            Shape::Files => {
                gone(std::fs::remove_dir(&target)).map_err(at("remove", &target))?;
                let folder = self.parts.layout.csi_volumes(pod).join(volume);
                checkpoint::remove(&folder).map_err(at("remove", &folder))
            }
            Shape::Block { .. } => {
                gone(std::fs::remove_file(&target)).map_err(at("remove", &target))?;
                let link = self.parts.layout.pod_device(pod, volume);
                gone(std::fs::remove_file(&link)).map_err(at("remove", &link))
            }
        }
    }

    /// What attaching told, read afresh: it must be of this very attachment.
    async fn publish_context(&self, key: &DeviceKey) -> Result<BTreeMap<String, String>, Cause> {
        if !self.is_attachable(&key.driver) {
            return Ok(BTreeMap::new());
        }
        let name = attachment_name(&key.handle, &key.driver, &self.parts.node_name);
        let found = self
            .parts
            .cluster
            .get::<VolumeAttachment>(&Key::cluster(&name))
            .await?;
        match found {
            Some(attachment)
                if attachment.status.attached && !attachment.metadata.is_deleting() =>
            {
                Ok(attachment.status.attachment_metadata)
            }
            _ => Err(Cause::NotAttached(name)),
        }
    }

    async fn secrets(&self, reference: Option<&SecretRef>) -> Result<Secrets, Cause> {
        let Some(reference) = reference.filter(|reference| !reference.name.is_empty()) else {
            return Ok(Secrets::none());
        };
        let key = Key::namespaced(&reference.namespace, &reference.name);
        let secret = self.parts.cluster.get::<Secret>(&key).await?;
        let secret = secret.ok_or_else(|| Cause::NoSecret(key.clone()))?;
        let decoded = secret.data.into_iter().map(|(name, value)| {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(value)
                .ok()?;
            Some((name, String::from_utf8(bytes).ok()?))
        });
        decoded
            .collect::<Option<Secrets>>()
            .ok_or(Cause::BinarySecret(key))
    }

    fn volume_context(
        &self,
        key: &DeviceKey,
        want: &Want,
        source: &CsiSource,
    ) -> BTreeMap<String, String> {
        let mut context = source.volume_attributes.clone();
        let traits = self.parts.csi_drivers.named(&key.driver);
        if traits.is_some_and(|driver| driver.spec.pod_info_on_mount == Some(true)) {
            let meta = &want.pod.metadata;
            let account = &want.pod.spec.service_account_name;
            for (name, value) in [
                ("pod.name", meta.name.as_str()),
                ("pod.namespace", &meta.namespace),
                ("pod.uid", &meta.uid),
                (
                    "serviceAccount.name",
                    if account.is_empty() {
                        "default"
                    } else {
                        account
                    },
                ),
                ("ephemeral", "false"),
            ] {
                let prefix = orlop_model::well_known::CSI_PARAMETER_PREFIX;
                context.insert(format!("{prefix}{name}"), value.to_owned());
            }
        }
        context
    }
}

/// A volume's place in a pod, by what its paths go by.
#[derive(Clone, Copy)]
struct Published<'a> {
    key: &'a DeviceKey,
    shape: &'a Shape,
    pod: &'a PodUid,
    volume: &'a str,
}

fn csi_source(want: &Want) -> Result<&CsiSource, Cause> {
    let volume = &want.volume;
    volume
        .spec
        .csi
        .as_ref()
        .ok_or_else(|| Cause::NotCsi(volume.metadata.name.clone()))
}

/// How the pod uses the volume. The kubelet takes the volume's first mode alone.
fn capability(
    want: &Want,
    source: &CsiSource,
    info: &Arc<DriverInfo>,
) -> Result<proto::VolumeCapability, Cause> {
    use proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
    let volume = &want.volume;
    let modes: Vec<String> = volume
        .spec
        .access_modes
        .iter()
        .take(1)
        .map(|mode| format!("{mode:?}"))
        .collect();
    let mode = access::mode(&modes, SingleNode::of_node(info))?;
    let access_type = match volume.volume_mode() {
        orlop_model::VolumeMode::Block => AccessType::Block(BlockVolume {}),
        orlop_model::VolumeMode::Filesystem => AccessType::Mount(MountVolume {
            fs_type: source.fs_type.clone(),
            mount_flags: volume.spec.mount_options.clone(),
            volume_mount_group: mount_group(want, info),
        }),
    };
    Ok(proto::VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(access_type),
    })
}

/// The pod's fsGroup, for drivers that apply it themselves.
fn mount_group(want: &Want, info: &DriverInfo) -> String {
    let group = want
        .pod
        .spec
        .security_context
        .as_ref()
        .and_then(|context| context.fs_group);
    match group {
        Some(group) if info.node_can(NodeCapability::VolumeMountGroup) => group.to_string(),
        _ => String::new(),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
