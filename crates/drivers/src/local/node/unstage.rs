//! NodeUnstageVolume: the staging mount and the devices go.

use std::io;
use std::path::PathBuf;

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use orlop_host::mount;
use tonic::Code;

use super::Here;
use super::observe::{ObserveError, Shown, Use};
use crate::local::fields::{self, FieldError};
use crate::local::pool::StoreError;
use crate::local::pools::FindError;
use crate::local::volume::VolumeId;

/// Why a volume is still staged.
#[derive(Debug, thiserror::Error)]
pub enum UnstageError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// It is published.
    #[error("volume {id} is published at {}; unpublish it first", at.display())]
    Published {
        /// The volume.
        id: VolumeId,
        /// Where.
        at: PathBuf,
    },
    /// Its state could not be seen, or its devices not be given back.
    #[error("could not release volume {id}")]
    Observe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ObserveError,
    },
    /// It could not be unmounted.
    #[error("could not unmount volume {id} from {}", path.display())]
    Unmount {
        /// The volume.
        id: VolumeId,
        /// The staging path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record could not be written.
    #[error("could not record that volume {id} is unstaged")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for UnstageError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Published { .. } => Code::FailedPrecondition,
            Self::Observe { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
            Self::Unmount { .. } => Code::Internal,
        }
    }
}

pub(super) fn unstage(
    here: Here<'_>,
    request: &proto::NodeUnstageVolumeRequest,
) -> Result<proto::NodeUnstageVolumeResponse, UnstageError> {
    let done = proto::NodeUnstageVolumeResponse {};
    let id = fields::volume_id(&request.volume_id)?;
    fields::path("staging_target_path", &request.staging_target_path)?;
    let volume = match here.find(id) {
        Err(error) if error.unread().is_some() => return unread(here, request, error),
        other => other?,
    };
    let id = volume.record.id.clone();
    let path = here
        .reach()
        .absolute("staging_target_path", &request.staging_target_path)?;
    let observe = |source| UnstageError::Observe {
        id: id.clone(),
        source,
    };
    let mut found = Use::observe(here.pools, &volume).map_err(observe)?;
    match &found.record.staged {
        // Staged elsewhere: not staged here, and not ours to take away there.
        Some(staged) if staged.path != path => return Ok(done),
        Some(_) | None => {}
    }
    for target in found.record.targets.keys() {
        if matches!(
            found.shown_at(target).map_err(observe)?,
            Shown::Volume | Shown::Unreachable
        ) {
            return Err(UnstageError::Published {
                id,
                at: target.clone(),
            });
        }
    }
    if let Some(at) = found.unrecorded_besides(&path) {
        let at = at.to_owned();
        return Err(UnstageError::Published { id, at });
    }
    let meant_here = found.record.staged.is_some();
    match found.shown_at(&path).map_err(observe)? {
        Shown::Volume => unmount(here, &id, &path)?,
        Shown::Unreachable if meant_here => unmount(here, &id, &path)?,
        // Perhaps it is the volume after all: nobody can know.
        Shown::Foreign | Shown::Unreachable if here.pools.pool_of(&volume).check().is_err() => {
            let gone = here.pools.pool_of(&volume).check();
            gone.map_err(|source| observe(ObserveError::Store(source)))?;
        }
        Shown::Nothing | Shown::Plain(_) | Shown::Foreign | Shown::Unreachable => {}
    }
    found.record.staged = None;
    found.record.targets.clear();
    let record = found.record.clone();
    found.release_devices().map_err(observe)?;
    here.pools
        .pool_of(&volume)
        .reduce_node_record(&id, &record)
        .map_err(|source| UnstageError::Store { id, source })?;
    Ok(done)
}

/// Takes away what is there of a volume whose pool or record cannot be read.
fn unread(
    here: Here<'_>,
    request: &proto::NodeUnstageVolumeRequest,
    error: FindError,
) -> Result<proto::NodeUnstageVolumeResponse, UnstageError> {
    let Some(id) = error.unread().cloned() else {
        return Err(error.into());
    };
    let path = here
        .reach()
        .absolute("staging_target_path", &request.staging_target_path)?;
    let observe = |source| UnstageError::Observe {
        id: id.clone(),
        source,
    };
    let Some(found) = Use::by_name(here, &id).map_err(observe)? else {
        return Err(error.into());
    };
    if let Some(at) = found.unrecorded_besides(&path) {
        let at = at.to_owned();
        return Err(UnstageError::Published { id, at });
    }
    match found.shown_at(&path).map_err(observe)? {
        Shown::Volume => unmount(here, &id, &path)?,
        Shown::Nothing | Shown::Plain(_) => {}
        Shown::Foreign | Shown::Unreachable => return Err(error.into()),
    }
    found.release_devices().map_err(observe)?;
    Ok(proto::NodeUnstageVolumeResponse {})
}

fn unmount(here: Here<'_>, id: &VolumeId, path: &std::path::Path) -> Result<(), UnstageError> {
    here.place(path)
        .and_then(|place| mount::unmount(&place))
        .map_err(|source| UnstageError::Unmount {
            id: id.clone(),
            path: path.to_owned(),
            source,
        })
}
