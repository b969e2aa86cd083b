//! The files and folders around the calls: announced before, cleared after.
//!
//! Only ever removes links, checkpoints and empty folders; a mount that is still there is
//! an error.

use std::io;
use std::path::PathBuf;

use super::csi::{Cause, Published, at};
use super::{DeviceKey, Lifetime, Shape, Volumes};
use crate::checkpoint::{self, VolumeData, gone, make_folder, make_point};
use crate::layout::attachment_name;

impl Volumes {
    pub(super) fn staging_target(&self, key: &DeviceKey, shape: &Shape) -> PathBuf {
        match shape {
            Shape::Files => self.parts.layout.staging_target(&key.driver, &key.handle),
            Shape::Block { volume } => self.parts.layout.block_staging(volume),
        }
    }

    pub(super) fn target(&self, published: &Published<'_>) -> PathBuf {
        match published.shape {
            Shape::Files => self
                .parts
                .layout
                .csi_target(published.pod, published.volume),
            Shape::Block { volume } => self.parts.layout.block_target(volume, published.pod),
        }
    }

    pub(super) fn announce_staging(
        &self,
        key: &DeviceKey,
        shape: &Shape,
        label: Option<&str>,
    ) -> Result<(), Cause> {
        let folder = match shape {
            Shape::Files => self.parts.layout.staging_folder(&key.driver, &key.handle),
            Shape::Block { volume } => self.parts.layout.block_data(volume),
        };
        VolumeData::staged(key)
            .labelled(label)
            .write(&folder)
            .map_err(at("write the checkpoint in", &folder))?;
        let target = self.staging_target(key, shape);
        make_point(&target).map_err(at("make", &target))
    }

    /// Only ever removes empty folders: a mount that is still there is an error.
    pub(super) fn clear_staging(&self, key: &DeviceKey, shape: &Shape) -> Result<(), Cause> {
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
                let maps = layout.block_maps(volume);
                gone(std::fs::remove_dir(&maps)).map_err(at("remove", &maps))?;
                checkpoint::remove(&folder).map_err(at("remove", &folder))?;
                folder.parent().map_or(Ok(()), |own| {
                    gone(std::fs::remove_dir(own)).map_err(at("remove", own))
                })
            }
        }
    }

    pub(super) fn announce_publication(
        &self,
        published: &Published<'_>,
        lifetime: Lifetime,
        label: Option<&str>,
    ) -> Result<(), Cause> {
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
            volume_lifecycle_mode: lifetime.word().to_owned(),
            ..VolumeData::staged(key).labelled(label)
        };
        match shape {
            Shape::Files => {
                let folder = layout.csi_volumes(pod).join(volume);
                data.write(&folder)
                    .map_err(at("write the checkpoint in", &folder))
            }
            Shape::Block { .. } => {
                let folder = layout.block_data(volume);
                // The kubelet tells of files alone how long they live.
                let data = VolumeData {
                    volume_lifecycle_mode: String::new(),
                    ..data
                };
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

    pub(super) fn clear_publication(&self, published: &Published<'_>) -> Result<(), Cause> {
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
}
