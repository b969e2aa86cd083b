//! Names that lead to one disk: two links to a device, a file system that is mounted twice. The first
//! counts, and a volume that is there before any that is not: cleaning one takes the other's data.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use orlop_host::DiskId;
use orlop_model::Volume;
use tracing::warn;

use super::{Me, Provisioner, absent, blocking, path_of};
use crate::{
    clean::CleanError,
    config::{ClassConfig, Config},
    disks, identity,
    offer::Wrong,
    volume::{self, Step},
};

/// A disk, and where it is offered.
#[derive(Debug, Clone)]
struct Named {
    disk: DiskId,
    path: PathBuf,
    /// The volume that stands for it, if it is there already.
    volume: Option<Arc<Volume>>,
}

/// The disks that are known by some name.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Named>);

impl Names {
    /// Notes that a disk is offered at a path, unless it is at another.
    pub(super) fn add(&mut self, disk: DiskId, path: &Path) -> Result<(), Wrong> {
        let known = self.0.iter().find(|known| known.disk.overlaps(&disk));
        match known {
            Some(known) if known.path == path => Ok(()),
            Some(known) => Err(Wrong::Same {
                path: path.to_string_lossy().into_owned(),
                other: known.path.to_string_lossy().into_owned(),
                volume: known.volume.as_ref().map(|v| v.metadata.name.clone()),
            }),
            None => {
                self.0.push(Named {
                    disk,
                    path: path.to_owned(),
                    volume: None,
                });
                Ok(())
            }
        }
    }
}

impl Provisioner {
    /// The disks that volumes of this node stand for. One that can't be looked at is nobody's.
    pub(super) async fn names(&self, me: &Me, config: &Config) -> Names {
        let node = &me.node.metadata;
        let mut names = Names::default();
        for volume in self.volumes.all() {
            let here = identity::may_be_of(&volume, &node.name)
                || volume.reachable_from(&node.name, &node.labels);
            let place = here.then(|| place_of(&volume, config)).flatten();
            let Some((folder, file)) = place else {
                continue;
            };
            match blocking(move || disks::disk_at(&folder, &file)).await {
                Ok(Some(disk)) => names.0.push(Named {
                    disk,
                    path: path_of(&volume).pop().unwrap_or_default().into(),
                    volume: Some(volume),
                }),
                Ok(None) => {}
                Err(error) => {
                    let volume = &volume.metadata.name;
                    warn!(volume, %error, "its disk can't be looked at");
                }
            }
        }
        // Of several that were made before, one that a claim has.
        names.0.sort_by_key(|named| {
            let volume = named.volume.as_deref();
            let claimed = volume.is_some_and(|volume| volume.spec.claim_ref.is_some());
            (!claimed, named.path.clone())
        });
        names
    }

    /// Notes what is found at a name of a class's folder, unless it is offered by another name.
    pub(super) async fn name(
        &self,
        names: &mut Names,
        class: &ClassConfig,
        file: &str,
    ) -> Result<(), Wrong> {
        let path = class.host_dir.join(file);
        let (folder, file) = (class.mount_dir.clone(), file.to_owned());
        match blocking(move || disks::disk_at(&folder, &file)).await {
            Ok(Some(disk)) => names.add(disk, &path),
            // It went meanwhile; if a volume stands for it, that is looked after.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// That no other volume stands for a disk that is to be cleaned, but such as are to be cleaned, too.
    pub(super) async fn is_alone(&self, volume: &Volume, disk: &DiskId) -> Result<(), CleanError> {
        let Some(me) = self.shared().me.clone() else {
            return Ok(());
        };
        let config = self.shared().config.clone();
        let names = self.names(&me, &config).await;
        let mut others = names.0.into_iter().filter_map(|named| {
            let other = named.volume.filter(|_| named.disk.overlaps(disk))?;
            let is_other = other.metadata.name != volume.metadata.name;
            // Its data is to go as well, or it goes itself.
            let step = volume::decide(&other, me.identity.whose(&other));
            let goes = matches!(step, Step::Clean | Step::Delete | Step::LetGo);
            (is_other && !goes).then(|| (named.path, other.metadata.name.clone()))
        });
        match others.next() {
            None => Ok(()),
            Some((path, volume)) => Err(CleanError::Shared { path, volume }),
        }
    }
}

/// Where a volume's disk is, as we call it.
fn place_of(volume: &Volume, config: &Config) -> Option<(PathBuf, String)> {
    let own = config.classes.get(volume.class());
    own.into_iter()
        .chain(config.classes.values())
        .find_map(|class| {
            let file = absent::file_in(&class.host_dir, volume)?;
            Some((class.mount_dir.clone(), file.to_owned()))
        })
}
