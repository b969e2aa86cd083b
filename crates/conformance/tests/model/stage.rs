//! NodeStageVolume and NodeUnstageVolume.

use std::io;
use std::path::Path;

use orlop_csi::proto::*;
use orlop_host::mount::{self, Depth, Restrictions};
use orlop_host::place::Kind;
use orlop_host::{Occupant, Place};
use rustix::mount::UnmountFlags;
use tonic::Status;

use super::refuse::{self, internal, no_volume};
use super::state::{Staged, State, Volume};
use super::store::{self, Form};
use super::{Fault, Shared};

impl Shared {
    pub(super) fn node_stage_volume(
        &self,
        state: &mut State,
        request: &NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Status> {
        let done = Ok(NodeStageVolumeResponse {});
        let id = &request.volume_id;
        match self.fault {
            Some(Fault::StageWithoutId) if id.is_empty() => return done,
            Some(Fault::StageWithoutPath) if request.staging_target_path.is_empty() => return done,
            Some(Fault::StageWithoutCapability) if request.volume_capability.is_none() => {
                return done;
            }
            _ => {}
        }
        refuse::required("volume_id", id)?;
        refuse::present("staging_target_path", &request.staging_target_path)?;
        let capability = request.volume_capability.as_ref();
        let capability =
            capability.ok_or_else(|| refuse::invalid("volume_capability is missing"))?;
        let form = refuse::capability(capability)?;
        let Some(volume) = state.volumes.get_mut(id) else {
            return Err(match self.has(Fault::StageUnknownIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(id),
            });
        };
        let path = refuse::path("staging_target_path", &request.staging_target_path)?;
        check_context(volume, &request.volume_context)?;
        if form != volume.form && !self.has(Fault::StageOtherCapability) {
            return Err(Status::failed_precondition(
                "the volume has another access type",
            ));
        }
        match &volume.staged {
            Some(staged) if staged.path != path => {
                return Err(Status::failed_precondition(format!(
                    "volume {id} is staged at another path"
                )));
            }
            Some(_) if self.has(Fault::StageRepeatFails) => {
                return Err(Status::internal("the volume is busy"));
            }
            Some(staged) if staged.capability == *capability => {
                if self.has(Fault::StageRepeatStacks) && form == Form::Mount {
                    let _ = show(&self.data(volume), &path, Restrictions::default());
                }
                return done;
            }
            Some(_) if self.has(Fault::StageOtherCapability) => return done,
            Some(_) => {
                return Err(Status::already_exists(format!(
                    "volume {id} is staged here with another capability"
                )));
            }
            None => {}
        }
        let follows = self.has(Fault::StageFollowsLink);
        let path = match std::fs::canonicalize(&path) {
            Ok(real) if follows => real,
            _ => path,
        };
        free_folder("staging_target_path", &path)?;
        self.size_as_promised(volume)
            .map_err(|error| internal("size the volume", &error))?;
        if self.has(Fault::StageLosesData) {
            let _ = store::wipe(&self.data(volume), form);
        }
        if form == Form::Mount {
            show(&self.data(volume), &path, Restrictions::default())
                .map_err(|error| internal("mount the volume", &error))?;
        }
        volume.staged = Some(Staged {
            path,
            capability: capability.clone(),
        });
        done
    }

    pub(super) fn node_unstage_volume(
        &self,
        state: &mut State,
        request: &NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Status> {
        let done = Ok(NodeUnstageVolumeResponse {});
        let id = &request.volume_id;
        match self.fault {
            Some(Fault::UnstageWithoutId) if id.is_empty() => return done,
            Some(Fault::UnstageWithoutPath) if request.staging_target_path.is_empty() => {
                return done;
            }
            _ => {}
        }
        refuse::required("volume_id", id)?;
        refuse::present("staging_target_path", &request.staging_target_path)?;
        let Some(volume) = state.volumes.get_mut(id) else {
            return Err(match self.has(Fault::UnstageUnknownIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(id),
            });
        };
        let path = refuse::path("staging_target_path", &request.staging_target_path)?;
        if volume
            .staged
            .as_ref()
            .is_none_or(|staged| staged.path != path)
        {
            return match self.has(Fault::UnstageRepeatFails) {
                true => Err(Status::internal("the volume is not mounted")),
                false => done,
            };
        }
        if !volume.published.is_empty() {
            return Err(Status::failed_precondition(format!(
                "volume {id} is still published; unpublish it first"
            )));
        }
        if volume.form == Form::Mount && !self.has(Fault::UnstageKeepsMount) {
            self.take_away_what_is_known(&path)
                .map_err(|error| internal("unmount the volume", &error))?;
        }
        if self.has(Fault::UnstageRemovesParent) {
            for entry in path
                .parent()
                .and_then(|parent| parent.read_dir().ok())
                .into_iter()
                .flatten()
            {
                let _ = entry.map(|entry| std::fs::remove_file(entry.path()));
            }
        }
        volume.staged = None;
        done
    }

    /// Ends the mounts at a path; one alone if the driver forgets that it mounted there twice.
    pub(super) fn take_away_what_is_known(&self, at: &Path) -> io::Result<()> {
        if self.has(Fault::StageRepeatStacks) || self.has(Fault::PublishRepeatStacks) {
            return Ok(rustix::mount::unmount(at, UnmountFlags::NOFOLLOW)?);
        }
        take_away(at)
    }

    /// Where a volume's data are.
    pub(super) fn data(&self, volume: &Volume) -> std::path::PathBuf {
        self.store
            .volume(volume.borrows.as_deref().unwrap_or(&volume.id))
    }

    /// Makes the file system or image as large as the controller has promised since.
    pub(super) fn size_as_promised(&self, volume: &Volume) -> io::Result<()> {
        let unwilling = [
            Fault::CreateFileSystemTooSmall,
            Fault::BlockTooSmall,
            Fault::RestoreStaysSmall,
            Fault::NodeExpandDoesNothing,
            Fault::CreateHugeSize,
            Fault::ExpandHugeSize,
        ];
        if unwilling.into_iter().any(|fault| self.has(fault)) {
            return Ok(());
        }
        let id = volume.borrows.as_deref().unwrap_or(&volume.id);
        self.store.resize(id, volume.form, volume.capacity)
    }
}

/// A caller's copy of the context must be the one that it was given.
pub(super) fn check_context(volume: &Volume, given: &super::Map) -> Result<(), Status> {
    for (key, value) in &volume.context {
        if given.get(key).is_some_and(|other| other != value) {
            return Err(refuse::invalid("volume_context is another volume's"));
        }
    }
    Ok(())
}

/// Nothing but an empty folder may be where a volume shall be mounted.
pub(super) fn free_folder(field: &str, path: &Path) -> Result<(), Status> {
    let look = || Place::at(path)?.look();
    match look() {
        Ok(Occupant::Absent) => Ok(()),
        Ok(Occupant::Plain(Kind::Directory)) => match path.read_dir().map(|mut all| all.next()) {
            Ok(None) => Ok(()),
            _ => Err(Status::failed_precondition(format!(
                "{field} is a folder with files"
            ))),
        },
        Ok(Occupant::Plain(Kind::Symlink)) => {
            Err(refuse::invalid(format!("{field} is a symbolic link")))
        }
        Ok(_) => Err(Status::failed_precondition(format!("{field} is taken"))),
        Err(error) => Err(Status::failed_precondition(format!(
            "{field} cannot be reached: {error}"
        ))),
    }
}

/// Shows a folder at a path.
pub(super) fn show(from: &Path, at: &Path, restrictions: Restrictions) -> io::Result<()> {
    let place = Place::at(at)?;
    place.make_directory(0o755)?;
    mount::bind(
        Place::at(from)?.open()?,
        place.open()?,
        Depth::One,
        restrictions,
    )
}

/// Ends a mount; the folder stays.
pub(super) fn take_away(at: &Path) -> io::Result<()> {
    match Place::at(at) {
        Ok(place) => mount::unmount(&place),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
