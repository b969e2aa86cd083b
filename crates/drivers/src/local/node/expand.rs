//! NodeExpandVolume: the device and the file system follow the image, while in use.

use std::io;
use std::path::PathBuf;

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use orlop_host::filesystem::{self, GrowError};
use tonic::Code;

use super::Here;
use super::observe::{ObserveError, Use};
use super::stats::form_at;
use crate::local::capability::Access;
use crate::local::fields::{self, FieldError};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Volume};
use crate::local::size::{SizeError, SizeRange};
use crate::local::volume::{Staged, VolumeId};

/// Why a volume did not grow on its node.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The sizes make no sense.
    #[error("the capacity range cannot be met")]
    Size(#[source] SizeError),
    /// It was not promised that much.
    #[error(
        "volume {id} has {has} bytes, which is not in the range; call ControllerExpandVolume first"
    )]
    NotPromised {
        /// The volume.
        id: VolumeId,
        /// Its size.
        has: u64,
    },
    /// It is not there.
    #[error("volume {id} is not at {}", path.display())]
    NotThere {
        /// The volume.
        id: VolumeId,
        /// The path.
        path: PathBuf,
    },
    /// A read-only file system cannot grow.
    #[error("volume {id} is staged read-only and cannot grow; stage it writable first")]
    ReadOnly {
        /// The volume.
        id: VolumeId,
    },
    /// Its state could not be seen.
    #[error("could not see the state of volume {id}")]
    Observe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ObserveError,
    },
    /// A record could not be written.
    #[error("could not record the growth of volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The device did not follow its image.
    #[error("could not grow the device of volume {id}")]
    Device {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file system did not follow its device.
    #[error("could not grow the file system of volume {id}")]
    Grow {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: GrowError,
    },
}

impl CsiError for ExpandError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Size(SizeError::Negative | SizeError::Empty) => {
                Code::InvalidArgument
            }
            Self::Size(SizeError::Contradiction { .. } | SizeError::OutOfRange { .. })
            | Self::NotPromised { .. } => Code::OutOfRange,
            Self::Find(source) => source.code(),
            Self::NotThere { .. } => Code::NotFound,
            Self::ReadOnly { .. }
            | Self::Grow {
                source: GrowError::NotAllowed { .. },
                ..
            } => Code::FailedPrecondition,
            Self::Observe { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
            Self::Device { .. }
            | Self::Grow {
                source: GrowError::Capabilities(_) | GrowError::Program { .. },
                ..
            } => Code::Internal,
        }
    }
}

pub(super) fn expand(
    here: Here<'_>,
    request: &proto::NodeExpandVolumeRequest,
) -> Result<proto::NodeExpandVolumeResponse, ExpandError> {
    let id = fields::volume_id(&request.volume_id)?;
    fields::path("volume_path", &request.volume_path)?;
    let volume = here.find(id)?;
    let id = volume.record.id.clone();
    // A volume is at no path that we would not have followed.
    let path = fields::absolute("volume_path", &request.volume_path).map_err(|_| {
        ExpandError::NotThere {
            id: id.clone(),
            path: (&request.volume_path).into(),
        }
    })?;
    let size = volume.record.capacity_bytes;
    if let Some(range) = &request.capacity_range {
        let range = SizeRange::parse(range).map_err(ExpandError::Size)?;
        if !range.contains(size) {
            return Err(ExpandError::NotPromised { id, has: size });
        }
    }
    // As large as promised, also if the driver was killed before it was.
    here.pools
        .pool_of(&volume)
        .open_image(&volume.record)
        .map_err(|source| ExpandError::Store {
            id: id.clone(),
            source,
        })?;
    let found = Use::observe(here.pools, &volume).map_err(|source| ExpandError::Observe {
        id: id.clone(),
        source,
    })?;
    match (
        form_at(&found.record, &path),
        &found.record.staged,
        found.writable(),
    ) {
        (Some(form), Some(staged), Some(_)) => {
            follow_image(&id, &found)?;
            grow(&volume, form, staged, &found)?;
            record_growth(here, volume)?;
        }
        _ => return Err(ExpandError::NotThere { id, path }),
    }
    Ok(proto::NodeExpandVolumeResponse {
        capacity_bytes: i64::try_from(size).unwrap_or(i64::MAX),
    })
}

/// Notes for how large a size the file system was grown, so that staging need not do it again.
fn record_growth(here: Here<'_>, mut volume: Volume) -> Result<(), ExpandError> {
    if volume.record.file_system_bytes == volume.record.capacity_bytes {
        return Ok(());
    }
    volume.record.file_system_bytes = volume.record.capacity_bytes;
    here.pools
        .save(&volume)
        .map_err(|source| ExpandError::Store {
            id: volume.record.id.clone(),
            source,
        })
}

/// Makes the devices as large as the image has become.
fn follow_image(id: &VolumeId, found: &Use) -> Result<(), ExpandError> {
    found.devices.iter().try_for_each(|device| {
        device
            .device
            .refresh_size()
            .map_err(|source| ExpandError::Device {
                id: id.clone(),
                source,
            })
    })
}

/// Makes the file system as large as its device, unless it is already.
fn grow(volume: &Volume, form: Access, staged: &Staged, found: &Use) -> Result<(), ExpandError> {
    let record = &volume.record;
    let id = || record.id.clone();
    let (Access::Mount(kind), Some(device)) = (form, found.writable()) else {
        return Ok(());
    };
    if record.file_system_bytes == record.capacity_bytes {
        return Ok(());
    }
    if staged.publication.read_only {
        return Err(ExpandError::ReadOnly { id: id() });
    }
    filesystem::grow(kind, &device.path(), &staged.path)
        .map_err(|source| ExpandError::Grow { id: id(), source })
}
