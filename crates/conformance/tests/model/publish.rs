//! NodePublishVolume and NodeUnpublishVolume.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use orlop_csi::proto::volume_capability::AccessType;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use orlop_csi::proto::*;
use orlop_host::loopdev::{Access, Lifetime};
use orlop_host::mount::{self, Depth, Restrictions};
use orlop_host::place::Kind;
use orlop_host::{LoopDevice, Occupant, Place};
use tonic::Status;

use super::refuse::{self, internal, no_volume};
use super::stage::{check_context, free_folder, show, take_away};
use super::state::{Published, State, Volume};
use super::store::{self, Form};
use super::{Fault, Profile, Shared};

impl Shared {
    pub(super) fn node_publish_volume(
        &self,
        state: &mut State,
        request: &NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Status> {
        let done = Ok(NodePublishVolumeResponse {});
        let id = &request.volume_id;
        match self.fault {
            Some(Fault::PublishWithoutId) if id.is_empty() => return done,
            Some(Fault::PublishWithoutPath) if request.target_path.is_empty() => return done,
            Some(Fault::PublishWithoutCapability) if request.volume_capability.is_none() => {
                return done;
            }
            Some(Fault::PublishLongPathRefused) if request.target_path.len() > 128 => {
                return Err(refuse::invalid("target_path is too long"));
            }
            _ => {}
        }
        refuse::required("volume_id", id)?;
        refuse::present("target_path", &request.target_path)?;
        let capability = request.volume_capability.as_ref();
        let capability =
            capability.ok_or_else(|| refuse::invalid("volume_capability is missing"))?;
        let form = refuse::capability(capability)?;
        let Some(volume) = state.volumes.get_mut(id) else {
            return Err(match self.has(Fault::PublishUnknownIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(id),
            });
        };
        let target = refuse::path("target_path", &request.target_path)?;
        check_context(volume, &request.volume_context)?;
        self.check_staged(volume, &request.staging_target_path)?;
        if form != volume.form {
            return Err(Status::failed_precondition(
                "the volume has another access type",
            ));
        }
        let readonly = request.readonly;
        if let Some(found) = volume.published.get(&target) {
            let same = found.capability == *capability && found.readonly == readonly;
            return match self.fault {
                Some(Fault::PublishRepeatFails) => Err(Status::internal("the target is busy")),
                Some(Fault::PublishRepeatStacks) if form == Form::Mount => {
                    let _ = show(&self.data(volume), &target, Restrictions::default());
                    done
                }
                Some(Fault::PublishOtherArguments) => done,
                _ if same => done,
                _ => Err(Status::already_exists(format!(
                    "volume {id} is published here in another way"
                ))),
            };
        }
        let mut others = volume.published.values();
        let alone =
            others.any(|other| !many_targets(&other.capability) || !many_targets(capability));
        if (alone && !self.has(Fault::PublishSecondPath))
            || (!volume.published.is_empty() && self.has(Fault::PublishSecondPathRefused))
        {
            return Err(Status::failed_precondition(format!(
                "volume {id} is published at another path and may not be at two"
            )));
        }
        let device = self.put(volume, &target, capability, readonly)?;
        volume.published.insert(
            target,
            Published {
                capability: capability.clone(),
                readonly,
                device,
            },
        );
        done
    }

    fn check_staged(&self, volume: &Volume, staging: &str) -> Result<(), Status> {
        if self.profile == Profile::Least || self.has(Fault::PublishUnstaged) {
            return Ok(());
        }
        let not =
            || Status::failed_precondition(format!("volume {} is not staged there", volume.id));
        if staging.is_empty() {
            return Err(not());
        }
        let path = refuse::path("staging_target_path", staging)?;
        match &volume.staged {
            Some(staged) if staged.path == path => Ok(()),
            _ => Err(not()),
        }
    }

    /// Makes the target and shows the volume there.
    fn put(
        &self,
        volume: &Volume,
        target: &Path,
        capability: &VolumeCapability,
        readonly: bool,
    ) -> Result<Option<LoopDevice>, Status> {
        let reader = matches!(
            refuse::mode(capability),
            Some(Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
        );
        let flagged = match &capability.access_type {
            Some(AccessType::Mount(mount)) => mount.mount_flags.iter().any(|flag| flag == "ro"),
            _ => false,
        };
        let read_only = match self.fault {
            Some(Fault::PublishReadonlyWritable) if volume.form == Form::Mount => reader || flagged,
            Some(Fault::BlockReadonlyWritable) if volume.form == Form::Block => reader,
            Some(Fault::PublishReaderWritable) => readonly || flagged,
            _ => readonly || reader || flagged,
        };
        let real = match fs::canonicalize(target) {
            Ok(real) if self.has(Fault::PublishFollowsLink) => real,
            _ => target.to_owned(),
        };
        match volume.form {
            Form::Mount => {
                free_folder("target_path", &real)?;
                self.size_as_promised(volume)
                    .map_err(|error| internal("size the volume", &error))?;
                let restrictions = Restrictions {
                    read_only,
                    no_suid: true,
                    no_dev: true,
                    ..Restrictions::default()
                };
                let from = match self.has(Fault::PublishOtherVolume) {
                    true => self.empty_folder(),
                    false => Ok(self.data(volume)),
                };
                from.and_then(|from| show(&from, &real, restrictions))
                    .map_err(|error| internal("mount the volume", &error))?;
                Ok(None)
            }
            Form::Block => self.put_device(volume, &real, read_only),
        }
    }

    fn put_device(
        &self,
        volume: &Volume,
        target: &Path,
        read_only: bool,
    ) -> Result<Option<LoopDevice>, Status> {
        let look = || Place::at(target)?.look();
        match look() {
            Ok(Occupant::Absent | Occupant::Plain(Kind::File)) => {}
            Ok(Occupant::Plain(Kind::Symlink)) => {
                return Err(refuse::invalid("target_path is a symbolic link"));
            }
            Ok(_) => return Err(Status::failed_precondition("target_path is taken")),
            Err(error) => {
                return Err(Status::failed_precondition(format!(
                    "target_path cannot be reached: {error}"
                )));
            }
        }
        self.size_as_promised(volume)
            .map_err(|error| internal("size the volume", &error))?;
        let attach = || {
            let access = match read_only {
                true => Access::ReadOnly,
                false => Access::ReadWrite,
            };
            let image = File::options()
                .read(true)
                .write(!read_only)
                .open(self.data(volume))?;
            LoopDevice::attach(&image, access, Lifetime::LastClose).map_err(io::Error::other)
        };
        let device = attach().map_err(|error| internal("attach the image", &error))?;
        let bind = || {
            let place = Place::at(target)?;
            place.make_file(0o600)?;
            let source = match self.has(Fault::BlockIsFile) {
                true => self.data(volume),
                false => device.path(),
            };
            mount::bind(
                Place::at(&source)?.open()?,
                place.open()?,
                Depth::One,
                Restrictions::default(),
            )
        };
        bind().map_err(|error| internal("show the device", &error))?;
        Ok(Some(device))
    }

    fn empty_folder(&self) -> io::Result<PathBuf> {
        let at = self.store.root().join("empty");
        fs::create_dir_all(&at)?;
        Ok(at)
    }

    pub(super) fn node_unpublish_volume(
        &self,
        state: &mut State,
        request: &NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Status> {
        let done = Ok(NodeUnpublishVolumeResponse {});
        let id = &request.volume_id;
        match self.fault {
            Some(Fault::UnpublishWithoutId) if id.is_empty() => return done,
            Some(Fault::UnpublishWithoutPath) if request.target_path.is_empty() => return done,
            _ => {}
        }
        refuse::required("volume_id", id)?;
        refuse::present("target_path", &request.target_path)?;
        let Some(volume) = state.volumes.get_mut(id) else {
            return Err(match self.has(Fault::UnpublishUnknownIsInternal) {
                true => Status::internal("no rows"),
                false => no_volume(id),
            });
        };
        let target = refuse::path("target_path", &request.target_path)?;
        let real = match fs::canonicalize(&target) {
            Ok(real) if self.has(Fault::UnpublishFollowsLink) => real,
            _ => target.clone(),
        };
        if self.has(Fault::UnpublishLosesData) && volume.form == Form::Mount {
            let _ = store::wipe(&real, Form::Mount);
        }
        let Some(published) = volume.published.remove(&target) else {
            if self.has(Fault::UnpublishRepeatFails) {
                return Err(Status::internal("the target is not mounted"));
            }
            if self.has(Fault::UnpublishRemovesForeign) || self.has(Fault::UnpublishFollowsLink) {
                let _ = fs::remove_dir_all(&real);
            }
            // An earlier life may have left an empty target behind; anything else is not ours.
            remove_empty(&target).map_err(|error| internal("remove the target", &error))?;
            return done;
        };
        if self.has(Fault::UnpublishTakesAll) {
            for other in std::mem::take(&mut volume.published).into_keys() {
                let _ = take_away(&other);
                let _ = remove_empty(&other);
            }
        }
        if self.has(Fault::UnpublishKeepsMount) {
            return done;
        }
        self.take_away_what_is_known(&real)
            .map_err(|error| internal("unmount the volume", &error))?;
        drop(published.device);
        if !self.has(Fault::UnpublishKeepsFolder) {
            remove_empty(&real).map_err(|error| internal("remove the target", &error))?;
        }
        done
    }
}

/// Removes an empty folder or an empty file; leaves everything else.
fn remove_empty(at: &Path) -> io::Result<()> {
    let place = match Place::at(at) {
        Ok(place) => place,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let empty = match place.look()? {
        Occupant::Plain(Kind::Directory) => at.read_dir()?.next().is_none(),
        Occupant::Plain(Kind::File) => fs::symlink_metadata(at)?.len() == 0,
        _ => false,
    };
    match empty {
        true => place.remove(),
        false => Ok(()),
    }
}

/// Whether a volume may be at several targets of a node at once.
fn many_targets(capability: &VolumeCapability) -> bool {
    matches!(
        refuse::mode(capability),
        Some(
            Mode::MultiNodeReaderOnly
                | Mode::MultiNodeSingleWriter
                | Mode::MultiNodeMultiWriter
                | Mode::SingleNodeMultiWriter
        )
    )
}
