//! NodeUnpublishVolume: a target path goes, whatever state it is in.

use std::io;
use std::path::{Path, PathBuf};

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use orlop_host::mount;
use orlop_host::place::Kind;
use tonic::Code;

use super::Here;
use super::inline::{self, InlineError};
use super::observe::{ObserveError, Shown, Use};
use crate::local::capability::Access;
use crate::local::fields::{self, FieldError};
use crate::local::pool::StoreError;
use crate::local::pools::FindError;
use crate::local::volume::{Lifetime, Publication, VolumeId};

/// Why a volume is still published.
#[derive(Debug, thiserror::Error)]
pub enum UnpublishError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The path holds something that is not ours.
    #[error("{} holds something other than volume {id}; remove it by hand", path.display())]
    Foreign {
        /// The volume.
        id: VolumeId,
        /// The path.
        path: PathBuf,
    },
    /// The path is not where it is published, but where it is staged.
    #[error(
        "volume {id} is staged at {}, not published; call NodeUnstageVolume to take it away",
        path.display()
    )]
    Staging {
        /// The volume.
        id: VolumeId,
        /// The path.
        path: PathBuf,
    },
    /// An inline volume could not be taken away.
    #[error(transparent)]
    Inline(#[from] InlineError),
    /// Its state could not be seen, or a device not be given back.
    #[error("could not release volume {id}")]
    Observe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ObserveError,
    },
    /// The mount or the target could not be taken away.
    #[error("could not take volume {id} away from {}", path.display())]
    Remove {
        /// The volume.
        id: VolumeId,
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record could not be written.
    #[error("could not record that volume {id} is unpublished")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for UnpublishError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Staging { .. } => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Foreign { .. } => Code::FailedPrecondition,
            Self::Inline(source) => source.code(),
            Self::Observe { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
            Self::Remove { .. } => Code::Internal,
        }
    }
}

/// What is to be done about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    UnmountAndRemove,
    Remove,
    Refuse,
}

fn plan(shown: Shown, recorded: Option<Publication>) -> Step {
    match (shown, recorded) {
        (Shown::Nothing, _) => Step::Nothing,
        (Shown::Volume, _) | (Shown::Unreachable, Some(_)) => Step::UnmountAndRemove,
        // Ours from before a reboot, or made by us just before we were killed.
        (Shown::Plain(Kind::Directory | Kind::File), _) => Step::Remove,
        (Shown::Plain(_) | Shown::Foreign, _) | (Shown::Unreachable, None) => Step::Refuse,
    }
}

pub(super) fn unpublish(
    here: Here<'_>,
    request: &proto::NodeUnpublishVolumeRequest,
) -> Result<proto::NodeUnpublishVolumeResponse, UnpublishError> {
    let id = fields::volume_id(&request.volume_id)?;
    fields::path("target_path", &request.target_path)?;
    let volume = match here.find(id) {
        // The pod's end may be told twice, and the volume ended with the pod the first time.
        Err(FindError::Unknown { .. }) if inline::is_kubelets(id) => {
            let target = here.reach().absolute("target_path", &request.target_path)?;
            inline::forget(here, &target)?;
            return Ok(proto::NodeUnpublishVolumeResponse {});
        }
        Err(error) if error.unread().is_some() => return unread(here, request, error),
        other => other?,
    };
    let id = volume.record.id.clone();
    let target = here.reach().absolute("target_path", &request.target_path)?;
    let observe = |source| UnpublishError::Observe {
        id: id.clone(),
        source,
    };
    if volume.record.lifetime == Lifetime::Inline {
        inline::unpublish(here, &volume, &target)?;
        return Ok(proto::NodeUnpublishVolumeResponse {});
    }
    let mut found = Use::observe(here.pools, &volume).map_err(observe)?;
    let staged = found.record.staged.as_ref();
    if staged.is_some_and(|staged| staged.path == target) {
        return Err(UnpublishError::Staging { id, path: target });
    }
    let recorded = found.record.targets.get(&target).copied();
    let shown = found.shown_at(&target).map_err(observe)?;
    let removed = match plan(shown, recorded) {
        Step::Nothing => Ok(()),
        Step::UnmountAndRemove => unmount_and_remove(here, &target),
        Step::Remove => remove(here, &target),
        Step::Refuse => return Err(UnpublishError::Foreign { id, path: target }),
    };
    removed.map_err(|source| UnpublishError::Remove {
        id: id.clone(),
        path: target.clone(),
        source,
    })?;
    if found.record.targets.remove(&target).is_some() {
        let record = found.record.clone();
        release_read_only(found).map_err(observe)?;
        here.pools
            .pool_of(&volume)
            .reduce_node_record(&id, &record)
            .map_err(|source| UnpublishError::Store { id, source })?;
    }
    Ok(proto::NodeUnpublishVolumeResponse {})
}

/// Takes away what is there of a volume whose pool or record cannot be read: no pod need wait for that.
fn unread(
    here: Here<'_>,
    request: &proto::NodeUnpublishVolumeRequest,
    error: FindError,
) -> Result<proto::NodeUnpublishVolumeResponse, UnpublishError> {
    let Some(id) = error.unread().cloned() else {
        return Err(error.into());
    };
    let target = here.reach().absolute("target_path", &request.target_path)?;
    let observe = |source| UnpublishError::Observe {
        id: id.clone(),
        source,
    };
    let Some(found) = Use::by_name(here, &id).map_err(observe)? else {
        return Err(error.into());
    };
    let removed = match plan(found.shown_at(&target).map_err(observe)?, None) {
        Step::Nothing => Ok(()),
        Step::UnmountAndRemove => unmount_and_remove(here, &target),
        Step::Remove => remove(here, &target),
        Step::Refuse => return Err(error.into()),
    };
    removed.map_err(|source| UnpublishError::Remove {
        id: id.clone(),
        path: target,
        source,
    })?;
    // One that was made for its pod goes with it, which it can only once its pool is there: the
    // kubelet asks again.
    match VolumeId::parse(&request.volume_id) {
        Some(_) => Ok(proto::NodeUnpublishVolumeResponse {}),
        None => Err(error.into()),
    }
}

pub(super) fn unmount_and_remove(here: Here<'_>, target: &Path) -> io::Result<()> {
    mount::unmount(&here.place(target)?)?;
    remove(here, target)
}

/// Removes an empty directory or an empty file: what we make is never filled without a mount.
pub(super) fn remove(here: Here<'_>, target: &Path) -> io::Result<()> {
    let place = match here.place(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if place.is_filled_file()? {
        return Err(io::Error::new(
            io::ErrorKind::DirectoryNotEmpty,
            "the file is not empty",
        ));
    }
    place.remove()
}

/// Gives the read-only device back once no read-only block publication is left.
fn release_read_only(found: Use) -> Result<(), ObserveError> {
    let needed =
        found.record.targets.values().any(|publication| {
            publication.read_only && publication.capability.access == Access::Block
        });
    if needed {
        return Ok(());
    }
    found
        .devices
        .into_iter()
        .filter(super::observe::Device::is_read_only)
        .try_for_each(super::observe::Device::release)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::capability::{Capability, Mode};

    #[test]
    fn the_path_decides_and_foreign_things_are_left_alone() {
        let how = Some(Publication {
            capability: Capability {
                access: Access::Block,
                mode: Mode::SingleWriter,
            },
            read_only: false,
        });
        let cases = [
            (Shown::Nothing, None, Step::Nothing),
            (Shown::Nothing, how, Step::Nothing),
            (Shown::Volume, how, Step::UnmountAndRemove),
            (Shown::Volume, None, Step::UnmountAndRemove),
            (Shown::Unreachable, how, Step::UnmountAndRemove),
            (Shown::Unreachable, None, Step::Refuse),
            (Shown::Plain(Kind::Directory), None, Step::Remove),
            (Shown::Plain(Kind::File), how, Step::Remove),
            (Shown::Plain(Kind::Symlink), None, Step::Refuse),
            (Shown::Foreign, how, Step::Refuse),
        ];
        for (shown, recorded, step) in cases {
            assert_eq!(plan(shown, recorded), step, "{shown:?} {recorded:?}");
        }
    }
}
