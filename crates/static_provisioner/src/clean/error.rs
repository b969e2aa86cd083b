//! What can be in the way of cleaning a disk.

use std::{io, path::PathBuf};

use orlop_host::{block::OpenError, cleaner::CleanerError, scrub::ScrubError};

/// Why a disk could not be cleaned.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// The disk isn't there.
    #[error(
        "nothing is mounted at {}: the disk that was there is not clean; mount it again, or delete \
         the volume's finalizer by hand if the disk is gone for good",
        path.display()
    )]
    NotMounted {
        /// Where it should be.
        path: PathBuf,
    },
    /// A pod has it still.
    #[error("{} is still mounted for a pod, at {}", path.display(), at.display())]
    InUse {
        /// The disk.
        path: PathBuf,
        /// Where the pod has it.
        at: PathBuf,
    },
    /// A process writes to it.
    #[error("{} is still open for writing, by {program} (process {pid})", path.display())]
    Written {
        /// The disk.
        path: PathBuf,
        /// Whose program it is.
        program: String,
        /// Which process.
        pid: u32,
    },
    /// Another volume stands for the same disk.
    #[error(
        "the disk is that of volume {volume}, too, at {}: cleaning it would take what may be that one's \
         data. Delete that volume if it is free or its data is not needed",
        path.display()
    )]
    Shared {
        /// Where the other has it.
        path: PathBuf,
        /// The other.
        volume: String,
    },
    /// Its place isn't known.
    #[error("{0}")]
    NoPlace(String),
    /// It can't be looked at.
    #[error("could not look at {}", path.display())]
    Look {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The device can't be had.
    #[error("could not take {}", path.display())]
    Take {
        /// The device.
        path: PathBuf,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The device can't be told that it is empty.
    #[error("{} can't discard; configure blockCleaner: zero", path.display())]
    NoDiscard {
        /// The device.
        path: PathBuf,
    },
    /// The device failed.
    #[error("could not wipe {} at byte {at}", path.display())]
    Wipe {
        /// The device.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file system failed, or something is mounted in it.
    #[error("could not empty {}", path.display())]
    Scrub {
        /// Where it is mounted.
        path: PathBuf,
        /// Why.
        #[source]
        source: ScrubError,
    },
    /// What was cleaned is not what is there now.
    #[error(
        "{} leads to another disk than when its cleaning began: what is there now is not clean",
        path.display()
    )]
    Exchanged {
        /// Where it was.
        path: PathBuf,
    },
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CleanerError),
    /// It was stopped.
    #[error("it was stopped")]
    Stopped,
    /// The fault is ours.
    #[error("cleaning broke off")]
    Broken(#[source] io::Error),
}

impl CleanError {
    /// Whether somebody may have written to what was cleaned already.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::Written { .. })
    }
}
