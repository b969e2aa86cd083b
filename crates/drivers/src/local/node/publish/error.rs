//! Why a volume could not be published, and what that means to the caller.

use std::io;
use std::path::PathBuf;

use orlop_csi::server::CsiError;
use orlop_host::loopdev::AttachError;
use tonic::Code;

use crate::local::capability::{CapabilityError, OptionRefused};
use crate::local::fields::FieldError;
use crate::local::node::{InlineError, ObserveError};
use crate::local::pool::StoreError;
use crate::local::pools::FindError;
use crate::local::volume::VolumeId;

/// Why a volume was not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
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
    /// An inline volume could not be made or mounted.
    #[error(transparent)]
    Inline(#[from] InlineError),
    /// It is not staged there.
    #[error("volume {id} is not staged at that path; call NodeStageVolume first")]
    NotStaged {
        /// The volume.
        id: VolumeId,
    },
    /// It is staged in another form.
    #[error("volume {id} is staged in another form; unstage it first")]
    OtherForm {
        /// The volume.
        id: VolumeId,
    },
    /// It is published there in another way.
    #[error("volume {id} is already published there in another way; unpublish it first")]
    Differs {
        /// The volume.
        id: VolumeId,
    },
    /// Its access mode allows one target only.
    #[error("volume {id} is already published at {} and its access mode allows no second", at.display())]
    SecondTarget {
        /// The volume.
        id: VolumeId,
        /// Where it is published.
        at: PathBuf,
    },
    /// The path is taken.
    #[error("something else is at {}; remove it first", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
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
    #[error("could not record the publication of volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// There is no loop device for it.
    #[error("could not get a read-only loop device for volume {id}")]
    Attach {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: AttachError,
    },
    /// The target could not be made, or the volume not be shown there.
    #[error("could not publish volume {id} at {}", path.display())]
    Bind {
        /// The volume.
        id: VolumeId,
        /// The target path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl CsiError for PublishError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Capability { .. } | Self::Option { .. } => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::NotStaged { .. }
            | Self::OtherForm { .. }
            | Self::SecondTarget { .. }
            | Self::Occupied { .. } => Code::FailedPrecondition,
            Self::Differs { .. } => Code::AlreadyExists,
            Self::Inline(source) => source.code(),
            Self::Attach {
                source:
                    AttachError::Contended { .. }
                    | AttachError::NoneLeft(_)
                    | AttachError::OpenDevice { .. },
                ..
            } => Code::ResourceExhausted,
            Self::Observe { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
            Self::Attach { .. } | Self::Bind { .. } => Code::Internal,
        }
    }
}
