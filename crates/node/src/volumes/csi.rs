//! The four calls that bring a CSI volume to a pod and take it away, each with what is
//! written down before it and what is removed after it.
//!
//! Nothing here decides or retries. The order within each function is the contract:
//! look everything up, put the intent on record, make the call, note what is known now.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use orlop_csi::access::AccessModeError;
use orlop_csi::client::NodeCapability;
use orlop_csi::{CallError, Driver, DriverInfo, Retry, proto};
use orlop_model::{CsiDriver, Key};
use orlop_runtime::ApiError;

use super::lookup::{capability, csi_source};
use super::tokens::{ForDriver, Found};
use super::{DeviceKey, Hold, Lifetime, Publication, Shape, Volumes, Want, inline};
use crate::layout::PodUid;
use crate::words::chain;

/// A step that failed, in the words of an event.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) doing: &'static str,
    pub(super) cause: Cause,
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
pub(super) enum Cause {
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
    #[error(transparent)]
    Lifetime(#[from] inline::LifetimeError),
    #[error("volume {0} is not a CSI volume")]
    NotCsi(String),
    #[error(transparent)]
    Hung(#[from] crate::workers::Hung),
    #[error("applyFSGroup failed for vol {volume}")]
    Group {
        volume: String,
        #[source]
        source: io::Error,
    },
}

pub(super) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Cause {
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
            // What may be staged is so with one label, which who comes now has to share.
            let fits = |want: &&std::sync::Arc<Want>| {
                device.staging.is_none() || want.label == device.label
            };
            let want = device.wants.values().find(fits)?.clone();
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
            publish_context: self.publish_context(key, want.lifetime).await?,
            staging_target_path: text(&self.staging_target(key, shape)),
            volume_capability: Some(capability(want, source, &info)?),
            secrets: self
                .secrets(source.node_stage_secret_ref.as_ref())
                .await?
                .into_request(),
            volume_context: source.volume_attributes.clone(),
        };
        self.announce_staging(key, shape, want.label.as_deref())?;
        self.note(key, |device| {
            device.staging = Some(Hold::Uncertain);
            device.label = want.label.clone();
        });
        match driver.node_stage_volume(request).await {
            Ok(_) => {
                let size = self.size_now(want);
                self.note(key, |device| {
                    device.staging = Some(Hold::Certain);
                    // What may have been there before may be smaller than the claim says.
                    if before.is_none() {
                        device.size = size;
                    }
                });
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
            key, shape, pod, ..
        } = *published;
        let driver = self.driver(key)?;
        let info = driver.info().await?;
        let source = csi_source(want)?;
        let traits = self.parts.csi_drivers.named(&key.driver);
        inline::check(want.lifetime, &key.driver, traits.as_deref())?;
        let target = self.target(published);
        let staging = if stages(&info) && want.lifetime == Lifetime::Persistent {
            text(&self.staging_target(key, shape))
        } else {
            String::new()
        };
        let mut secrets = self
            .secrets(source.node_publish_secret_ref.as_ref())
            .await?
            .into_request();
        let mut volume_context = self.volume_context(key, want, source);
        let with = (&self.parts.cluster, self.parts.clock);
        let tokens = self
            .tokens
            .for_driver(with, (pod, &want.pod), traits.as_deref());
        if let Some(ForDriver {
            found,
            entry: (name, value),
        }) = tokens.await?
        {
            match found {
                Found::InContext => volume_context.insert(name, value),
                Found::InSecrets => secrets.insert(name, value),
            };
        }
        let request = proto::NodePublishVolumeRequest {
            volume_id: key.handle.clone(),
            publish_context: self.publish_context(key, want.lifetime).await?,
            staging_target_path: staging,
            target_path: text(&target),
            volume_capability: Some(capability(want, source, &info)?),
            readonly: want.read_only || source.read_only,
            secrets,
            volume_context,
        };
        // Asking again takes nothing away: whatever becomes of it, the pod has its volume.
        let again = before == Some(Hold::Certain);
        if !self.begin_publication(published, want, again) {
            return Ok(());
        }
        self.announce_publication(published, want.lifetime, want.label.as_deref())?;
        match driver.node_publish_volume(request).await {
            Ok(_) => {
                self.map(published).await?;
                let first = (before.is_none() && !stages(&info)).then(|| self.size_now(want));
                let group = self.grouped(key, want, &info);
                let again_at = self.again_at(traits.as_deref());
                self.note(key, |device| {
                    device.trouble = None;
                    if let Some(size) = first
                        && device.publications.len() == 1
                    {
                        device.size = size;
                    }
                    if let Some(publication) = device.publications.get_mut(pod) {
                        publication.hold = Hold::Certain;
                        publication.again_at = again_at;
                        if !again {
                            publication.group = group;
                        }
                    }
                });
                self.arrival.notify_one();
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

    /// Notes that the volume may be in the pod from now on, unless the pod has given it up while all
    /// else was looked up: who finds nothing of it in the pod removes the pod's folder, and nothing
    /// is written there afterwards.
    fn begin_publication(&self, published: &Published<'_>, want: &Want, again: bool) -> bool {
        let Published {
            key,
            shape,
            pod,
            volume,
        } = *published;
        let mut state = self.state();
        let Some(device) = state.devices.get_mut(key) else {
            return false;
        };
        if !device.wants.contains_key(pod) {
            return false;
        }
        if !again {
            let publication = Publication::maybe(volume.to_owned());
            device.publications.insert(pod.clone(), publication);
            device.label = want.label.clone();
        }
        // A device's checkpoint is one for staging and publishing.
        if matches!(shape, Shape::Block { .. }) && device.staging.is_none() {
            device.staging = Some(Hold::Uncertain);
        }
        true
    }

    /// When the driver wants to be asked again for what is published now.
    fn again_at(&self, traits: Option<&CsiDriver>) -> Option<Timestamp> {
        let again = traits?.spec.requires_republish == Some(true);
        let at = self.parts.clock.now().checked_add(self.parts.republish);
        at.ok().filter(|_| again)
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
        self.unmap(published).await?;
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

    pub(super) fn look<T>(
        &self,
        key: &DeviceKey,
        at: impl FnOnce(&super::Device) -> Option<T>,
    ) -> Option<T> {
        at(self.state().devices.get(key)?)
    }

    pub(super) fn driver(&self, key: &DeviceKey) -> Result<Driver, Cause> {
        self.parts
            .drivers
            .get(&key.driver)
            .ok_or_else(|| Cause::NoDriver(key.driver.clone()))
    }
}

/// A volume's place in a pod, by what its paths go by.
#[derive(Clone, Copy)]
pub(super) struct Published<'a> {
    pub(super) key: &'a DeviceKey,
    pub(super) shape: &'a Shape,
    pub(super) pod: &'a PodUid,
    pub(super) volume: &'a str,
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
