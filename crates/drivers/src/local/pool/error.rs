//! Why a pool's files could not be opened, read or written, and what that means to callers.

use std::io;
use std::path::PathBuf;

use orlop_host::LockError;
use orlop_host::filesystem::MakeError;
use orlop_host::tree::RemoveTreeError;
use tonic::Code;

use crate::local::home::Home;

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
    /// Another pool of this driver is there.
    #[error(
        "{one} and {other} are one folder, {}; give each pool a folder of its own",
        folder.display()
    )]
    Twice {
        /// A pool.
        one: Home,
        /// Another.
        other: Home,
        /// Where both are.
        folder: PathBuf,
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
    /// Its marker is lost, and it holds volumes or snapshots of several pools.
    #[error("the pool {} does not tell which it is", .0.display())]
    Nameless(PathBuf),
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

impl OpenError {
    /// The system's error, if the pool cannot be had because of its disk.
    pub(super) fn trouble(&self) -> Option<&io::Error> {
        let source = match self {
            Self::Locked {
                source: LockError::Io { source, .. },
                ..
            }
            | Self::Directory { source, .. }
            | Self::Clean {
                source: RemoveTreeError::Io { source, .. },
                ..
            } => source,
            Self::Locked { .. } | Self::Clean { .. } | Self::Nameless(_) | Self::Twice { .. } => {
                return None;
            }
        };
        is_trouble(source).then_some(source)
    }
}

/// What the kernel says of a disk or a file system that no longer works: `EIO`, `ENXIO`, `ENODEV`,
/// `ENOTCONN`, `ESHUTDOWN`, `ESTALE`, `EUCLEAN`, `EREMOTEIO`, `ENOMEDIUM`.
const FAILING: [i32; 9] = [5, 6, 19, 107, 108, 116, 117, 121, 123];

/// Whether an error is that of a disk which is read-only or does not work: the pool is not to be had
/// now, and may be later.
pub(in crate::local) fn is_trouble(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
        || error.raw_os_error().is_some_and(|it| FAILING.contains(&it))
}

/// Why a volume's files could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The pool's file system is full.
    #[error("the pool is full; free some space in its file system")]
    Full(#[source] io::Error),
    /// The pool's file system is read-only.
    #[error(
        "the pool is read-only; if it was mounted writable, the kernel's log tells what happened \
         to its disk: repair it, then mount it writable again"
    )]
    ReadOnly(#[source] io::Error),
    /// The pool's disk does not answer, or its file system has given up.
    #[error(
        "the pool's disk fails, or its file system has shut down; the kernel's log tells why: \
         repair it, unmount it and mount it again"
    )]
    Failing(#[source] io::Error),
    /// Another directory, or none, is where the pool was.
    #[error("the pool is no longer at {}; mount its file system there again", .0.display())]
    Gone(PathBuf),
    /// A bare folder is where the pool was when the driver ran last.
    #[error(
        "the pool is not at {}, where it was on another file system; mount its disk there; if it \
         is gone for good, remove {} and restart the driver",
        pool.display(),
        memory.display()
    )]
    Missing {
        /// Where it was.
        pool: PathBuf,
        /// The file that remembers it.
        memory: PathBuf,
    },
    /// Its marker is lost, and what is in it is of several pools.
    #[error(
        "the file pool.json in {} is missing or damaged, and what is in there is of several pools; \
         restore it from a backup, or take out what is not of this pool",
        .0.display()
    )]
    Nameless(PathBuf),
    /// The pool's file system holds no file of this size.
    #[error("the pool's file system holds no file as large as this; ask for less")]
    TooLarge(#[source] io::Error),
    /// The volume's record is there, and its image is not.
    #[error("the image {} is missing; restore it from a backup", .0.display())]
    NoImage(PathBuf),
    /// The image is smaller than what was written to it.
    #[error(
        "the image {} was cut off: it has {has} of at least {least} bytes; restore it from a backup",
        image.display()
    )]
    Truncated {
        /// Which.
        image: PathBuf,
        /// Its size.
        has: u64,
        /// The size of what was in it.
        least: u64,
    },
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
            _ if source
                .raw_os_error()
                .is_some_and(|it| FAILING.contains(&it)) =>
            {
                Self::Failing(source)
            }
            _ => Self::Io { what, source },
        }
    }

    /// What it means that a tree could not be removed.
    pub(super) fn removal(error: RemoveTreeError) -> Self {
        match error {
            RemoveTreeError::Io { source, .. } if is_trouble(&source) => {
                Self::at("remove the volume's files")(source)
            }
            other => Self::Remove(other),
        }
    }

    /// How callers should take it.
    pub(in crate::local) fn code(&self) -> Code {
        match self {
            Self::Full(_) => Code::ResourceExhausted,
            // Over as soon as the disk is well again: nothing is wrong with what was asked for.
            Self::ReadOnly(_)
            | Self::Failing(_)
            | Self::Gone(_)
            | Self::Missing { .. }
            | Self::Nameless(_) => Code::Unavailable,
            Self::TooLarge(_) => Code::OutOfRange,
            Self::NoImage(_) | Self::Truncated { .. } => Code::DataLoss,
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
