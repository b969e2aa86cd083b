//! Why a volume could not be staged, and what that means to the caller.

use std::io;
use std::path::PathBuf;

use orlop_csi::server::CsiError;
use orlop_host::FsKind;
use orlop_host::filesystem::GrowError;
use orlop_host::loopdev::AttachError;
use orlop_host::mount::MountError;
use orlop_host::program::ProgramError;
use tonic::Code;

use crate::local::capability::{CapabilityError, OptionRefused};
use crate::local::fields::FieldError;
use crate::local::node::ObserveError;
use crate::local::parameters::ParameterError;
use crate::local::pool::{FormatError, StoreError};
use crate::local::pools::FindError;
use crate::local::volume::VolumeId;

/// Why a volume was not staged.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The capability cannot be had.
    #[error("volume {id} cannot be used like this")]
    Capability {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: CapabilityError,
    },
    /// A mount option is not allowed.
    #[error("volume {id} cannot be mounted like this")]
    Option {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: OptionRefused,
    },
    /// It is staged there in another way.
    #[error("volume {id} is already staged there in another way; unstage it first")]
    Differs {
        /// The volume.
        id: VolumeId,
    },
    /// It is staged at another path.
    #[error("volume {id} is already staged at {}; unstage it first", at.display())]
    Elsewhere {
        /// The volume.
        id: VolumeId,
        /// Where.
        at: PathBuf,
    },
    /// The path is taken.
    #[error("something else is mounted at {}; unmount it first", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// It holds something else.
    #[error("volume {id} holds {holds} and is never formatted over it")]
    Holds {
        /// The volume.
        id: VolumeId,
        /// What it holds.
        holds: String,
    },
    /// It is too small for the file system.
    #[error("volume {id} is too small for {kind}, which needs {} bytes", kind.smallest())]
    TooSmall {
        /// The volume.
        id: VolumeId,
        /// The file system.
        kind: FsKind,
    },
    /// Its file system is gone.
    #[error("volume {id} should hold {kind} and does not; restore its image from a backup")]
    Corrupt {
        /// The volume.
        id: VolumeId,
        /// What should be there.
        kind: FsKind,
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
    /// The image could not be read.
    #[error("could not read the image of volume {id}")]
    Probe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its class' options are for another file system.
    #[error("volume {id} cannot be formatted as its class says")]
    Mkfs {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ParameterError,
    },
    /// Formatting failed.
    #[error("could not give volume {id} a file system")]
    Format {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: FormatError,
    },
    /// A record could not be written.
    #[error("could not record the staging of volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// There is no loop device for it.
    #[error("could not get a loop device for volume {id}")]
    Attach {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: AttachError,
    },
    /// Its damaged file system could not be repaired.
    #[error("volume {id} is damaged; repair it by hand")]
    Repair {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// Its file system did not follow its image.
    #[error("could not grow the file system of volume {id}")]
    Grow {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: GrowError,
    },
    /// The staging path cannot be used.
    #[error("could not use the staging path {}", path.display())]
    Place {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It could not be mounted.
    #[error("could not mount volume {id}")]
    Mount {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: MountError,
    },
}

/// What a damaged file system makes the kernel say: `EUCLEAN`, `EBADMSG`.
const DAMAGE: [i32; 2] = [117, 74];

impl CsiError for StageError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Capability { .. } | Self::Option { .. } | Self::Mkfs { .. } => {
                Code::InvalidArgument
            }
            Self::Find(source) => source.code(),
            Self::Corrupt { .. } | Self::Repair { .. } => Code::DataLoss,
            Self::Differs { .. } => Code::AlreadyExists,
            Self::Elsewhere { .. }
            | Self::Occupied { .. }
            | Self::Holds { .. }
            | Self::TooSmall { .. } => Code::FailedPrecondition,
            Self::Format { source, .. } => source.code(),
            Self::Observe { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
            Self::Attach {
                source:
                    AttachError::Contended { .. }
                    | AttachError::NoneLeft(_)
                    | AttachError::OpenDevice { .. },
                ..
            } => Code::ResourceExhausted,
            Self::Mount {
                source: MountError::Open { source, .. },
                ..
            } if source.raw_os_error().is_some_and(|it| DAMAGE.contains(&it)) => Code::DataLoss,
            Self::Grow { .. }
            | Self::Probe { .. }
            | Self::Attach { .. }
            | Self::Place { .. }
            | Self::Mount { .. } => Code::Internal,
        }
    }
}
