//! A look at the disks that volumes stand for.

use std::path::Path;

use orlop_host::place::is_plain_name;
use orlop_model::{Kind, Volume, well_known};
use orlop_runtime::{ApiError, Patch};
use serde_json::json;
use tracing::{info, warn};

use super::{Me, Provisioner, Wrongs, blocking, path_of};
use crate::{
    config::ClassConfig,
    disks,
    missing::{self, Need},
};

/// The name of a volume's disk right in its class's folder, as the host calls it.
pub(super) fn file_in<'v>(folder: &Path, volume: &'v Volume) -> Option<&'v str> {
    let path = volume.spec.local.as_ref().map(|local| local.path.as_str());
    let file = Path::new(path?).strip_prefix(folder).ok()?.as_os_str();
    // As it was found: a volume made by hand may say anything.
    file.to_str().filter(|_| is_plain_name(file))
}

impl Provisioner {
    /// Looks whether the disks of a class's volumes are still there. What can't be looked at is
    /// left alone.
    pub(super) async fn look_after_volumes(
        &self,
        me: &Me,
        (name, class): (&str, &ClassConfig),
        wrongs: &mut Wrongs,
    ) -> Result<(), ApiError> {
        for volume in self.volumes_by_maker.get(&me.identity.name()) {
            let file = file_in(&class.host_dir, &volume);
            let Some(file) = file.filter(|_| volume.class() == name) else {
                continue;
            };
            let (folder, file) = (class.mount_dir.clone(), file.to_owned());
            let there = match blocking(move || disks::look_for(&folder, &file)).await {
                Ok(there) => there,
                Err(error) => {
                    let volume = &volume.metadata.name;
                    warn!(volume, %error, "its disk can't be looked at");
                    continue;
                }
            };
            let done = match missing::judge(&volume, there.as_ref()) {
                Need::Nothing => Ok(()),
                Need::Mark => self.mark(&volume).await,
                Need::Withdraw => {
                    let path = path_of(&volume).pop().unwrap_or_default();
                    let volume_name = &volume.metadata.name;
                    info!(volume = volume_name, path, "withdrawn: its disk is gone");
                    self.delete(&volume).await
                }
                Need::Tell(missing) => {
                    wrongs.add_of(&volume, missing.to_string());
                    Ok(())
                }
            };
            if let Err(error) = done {
                // One volume's trouble is not the others'.
                let why = error.told().ok_or(error)?;
                wrongs.add(format!("volume {}: {why}", volume.metadata.name));
            }
        }
        Ok(())
    }

    async fn mark(&self, volume: &Volume) -> Result<(), ApiError> {
        let mark = json!({"metadata": {
            "annotations": {well_known::LOCAL_MOUNT_POINT: "true"},
        }});
        let mark = Patch::merge_on(volume, mark);
        let marked = self.cluster.patch::<Volume>(&volume.key(), &mark).await?;
        self.volumes.absorb(marked);
        Ok(())
    }
}
