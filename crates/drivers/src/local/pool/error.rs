//! Why a pool's files could not be opened, read or written, and what that means to callers.

use std::io;
use std::path::PathBuf;

use orlop_host::LockError;
use orlop_host::filesystem::MakeError;
use orlop_host::tree::RemoveTreeError;
use tonic::Code;

/// Why a pool could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It belongs to another driver.
    #[error("the pool {} is in use", pool.display())]
    Locked {
        /// The pool.
        pool: PathBuf,
        /// By whom.
        #[source]
        source: LockError,
    },
    /// A directory could not be made or read.
    #[error("could not open the pool at {}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What a killed driver left could not be removed.
    #[error("could not clean up the pool {}", pool.display())]
    Clean {
        /// The pool.
        pool: PathBuf,
        /// Why.
        #[source]
        source: RemoveTreeError,
    },
}

/// Why a volume's files could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The pool's file system is full.
    #[error("the pool is full; free some space in its file system")]
    Full(#[source] io::Error),
    /// The pool's file system is read-only.
    #[error("the pool is read-only; mount its file system writable")]
    ReadOnly(#[source] io::Error),
    /// Another directory, or none, is where the pool was.
    #[error("the pool is no longer at {}; mount its file system there again", .0.display())]
    Gone(PathBuf),
    /// The pool's file system holds no file of this size.
    #[error("the pool's file system holds no file as large as this; ask for less")]
    TooLarge(#[source] io::Error),
    /// The volume's record is there, and its image is not.
    #[error("the image {} is missing; restore it from a backup", .0.display())]
    NoImage(PathBuf),
    /// Something else.
    #[error("could not {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A tree could not be removed.
    #[error("could not remove the volume's files")]
    Remove(#[source] RemoveTreeError),
}

impl StoreError {
    /// What an error means, given what was tried.
    pub(in crate::local) fn at(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(source),
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(source),
            io::ErrorKind::FileTooLarge => Self::TooLarge(source),
            _ => Self::Io { what, source },
        }
    }

    /// How callers should take it.
    pub(in crate::local) fn code(&self) -> Code {
        match self {
            Self::Full(_) => Code::ResourceExhausted,
            Self::ReadOnly(_) => Code::FailedPrecondition,
            Self::Gone(_) => Code::Unavailable,
            Self::TooLarge(_) => Code::OutOfRange,
            Self::NoImage(_) => Code::DataLoss,
            Self::Io { .. } | Self::Remove(_) => Code::Internal,
        }
    }
}

/// Why a volume could not be given a file system.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The image could not be made or put in place.
    #[error("could not prepare the image")]
    Store(#[source] StoreError),
    /// mkfs failed.
    #[error("could not format the volume")]
    Make(#[source] MakeError),
}

impl FormatError {
    /// How callers should take it.
    pub(in crate::local) fn code(&self) -> Code {
        match self {
            Self::Store(source) => source.code(),
            // Missing, say: once it is installed the same call works.
            Self::Make(_) => Code::Internal,
        }
    }
}
