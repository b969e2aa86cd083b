//! Cleaning a disk: a file system is emptied, a device wiped. Blocking, and to be stopped at
//! any time; what is done stays done.

use std::{
    io,
    path::{Path, PathBuf},
};

use orlop_host::{
    BlockDevice, MountTable, block,
    block::OpenError,
    cleaner::{Cleaner, CleanerError},
    filesystem,
    scrub::{self, Go, ScrubError},
};
use orlop_model::VolumeMode;

use crate::{
    config::{BlockCleaner, Wipe},
    record::Record,
    wipe::{self, Action, Piece},
};

/// Where a kubelet mounts local volumes for pods.
const IN_PODS: &str = "kubernetes.io~local-volume";
/// How the environment of a command calls the device.
const DEVICE: &str = "LOCAL_PV_BLKDEVICE";
/// Files removed between two reports.
const FILES: u64 = 256;

/// A disk to clean.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where it is.
    pub path: PathBuf,
    /// How devices are cleaned.
    pub cleaner: BlockCleaner,
    /// The uid of the claim that had it.
    pub claim: String,
    /// How far an earlier try came.
    pub before: Option<Record>,
}

/// What was cleaned, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// Files or a device.
    pub mode: VolumeMode,
    /// How.
    pub how: String,
    /// The record that stands for it.
    pub record: Record,
}

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
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CleanerError),
    /// It was stopped.
    #[error("it was stopped")]
    Stopped,
}

/// Cleans a disk; tells how far it has come, and asks whether to go on.
///
/// # Errors
/// It isn't clean.
pub fn clean(job: &Job, mut told: impl FnMut(&Record) -> Go) -> Result<Cleaned, CleanError> {
    let look = |source| CleanError::Look {
        path: job.path.clone(),
        source,
    };
    match block::size_of(&job.path).map_err(look)? {
        Some(_) => match &job.cleaner {
            BlockCleaner::Wipe(wipe) => wipe_device(job, *wipe, &mut told),
            BlockCleaner::Command(argv) => run(job, argv),
        },
        None => empty(job, &mut told),
    }
}

fn empty(job: &Job, told: &mut impl FnMut(&Record) -> Go) -> Result<Cleaned, CleanError> {
    let look = |source| CleanError::Look {
        path: job.path.clone(),
        source,
    };
    is_mounted_here_only(&job.path)?;
    let usage = filesystem::usage(&job.path).map_err(look)?;
    let mut record = Record {
        claim: job.claim.clone(),
        how: "scrub".to_owned(),
        of: usage.total_inodes.saturating_sub(usage.free_inodes),
        ..Record::default()
    };
    let result = scrub::empty(&job.path, |removed| {
        if removed % FILES == 0 {
            record.done = removed.min(record.of);
            return told(&record);
        }
        Go::On
    });
    match result {
        Ok(()) => {}
        Err(ScrubError::Stopped) => return Err(CleanError::Stopped),
        Err(source) => {
            return Err(CleanError::Scrub {
                path: job.path.clone(),
                source,
            });
        }
    }
    Ok(finished(VolumeMode::Filesystem, record))
}

/// A folder that nothing is mounted at is not the disk; and what a pod has is not to be touched.
fn is_mounted_here_only(path: &Path) -> Result<(), CleanError> {
    let look = |source| CleanError::Look {
        path: path.to_owned(),
        source,
    };
    let real = std::fs::canonicalize(path).map_err(look)?;
    let table = MountTable::read().map_err(look)?;
    let Some(here) = table.at(&real) else {
        return Err(CleanError::NotMounted {
            path: path.to_owned(),
        });
    };
    let in_pod = table.of_device(here.device).find(|mount| {
        mount.root.starts_with(&here.root) && mount.point.iter().any(|part| part == IN_PODS)
    });
    match in_pod {
        None => Ok(()),
        Some(mount) => Err(CleanError::InUse {
            path: path.to_owned(),
            at: mount.point.clone(),
        }),
    }
}

fn take(path: &Path) -> Result<BlockDevice, CleanError> {
    BlockDevice::open_alone(path).map_err(|source| CleanError::Take {
        path: path.to_owned(),
        source,
    })
}

fn wipe_device(
    job: &Job,
    wipe: Wipe,
    told: &mut impl FnMut(&Record) -> Go,
) -> Result<Cleaned, CleanError> {
    let device = take(&job.path)?;
    let look = |source| CleanError::Look {
        path: job.path.clone(),
        source,
    };
    let size = device.size().map_err(look)?;
    let mut record = Record {
        claim: job.claim.clone(),
        disk: device.identity().map_err(look)?,
        how: wipe::name(wipe),
        of: wipe::total(wipe, size),
        ..Record::default()
    };
    let before = job.before.as_ref().filter(|before| {
        before.claim == record.claim
            && before.disk == record.disk
            && before.how == record.how
            && before.of == record.of
    });
    let resumed = before.map_or(0, |before| before.done);
    for piece in wipe::pieces(wipe, size) {
        if record.done + piece.bytes > resumed {
            wipe_piece(&device, piece, &job.path)?;
        }
        record.done += piece.bytes;
        if told(&record) == Go::Stop {
            return Err(CleanError::Stopped);
        }
    }
    device.sync().map_err(look)?;
    Ok(finished(VolumeMode::Block, record))
}

fn wipe_piece(device: &BlockDevice, piece: Piece, path: &Path) -> Result<(), CleanError> {
    let Piece {
        action,
        from,
        bytes,
    } = piece;
    let failed = |source| CleanError::Wipe {
        path: path.to_owned(),
        at: from,
        source,
    };
    match action {
        Action::Zero => device.zero(from, bytes).map_err(failed)?,
        Action::Randomise => device.randomise(from, bytes).map_err(failed)?,
        Action::TryDiscard => drop(device.discard(from, bytes).map_err(failed)?),
        Action::Discard => {
            if !device.discard(from, bytes).map_err(failed)? {
                return Err(CleanError::NoDiscard {
                    path: path.to_owned(),
                });
            }
        }
    }
    // What a record says is done must be so after a power cut.
    device.sync().map_err(failed)
}

fn run(job: &Job, argv: &[String]) -> Result<Cleaned, CleanError> {
    let mark = take(&job.path)?.into_mark(&job.path);
    let mark = mark.map_err(|source| CleanError::Take {
        path: job.path.clone(),
        source,
    })?;
    let cleaner = Cleaner {
        argv,
        environment: &[(DEVICE, job.path.as_os_str())],
    };
    cleaner.run(&mark, |line| {
        tracing::info!(device = %job.path.display(), "the cleaner says: {line}");
    })?;
    let record = Record {
        claim: job.claim.clone(),
        how: argv.first().cloned().unwrap_or_default(),
        ..Record::default()
    };
    Ok(finished(VolumeMode::Block, record))
}

fn finished(mode: VolumeMode, record: Record) -> Cleaned {
    Cleaned {
        mode,
        how: record.how.clone(),
        record: Record {
            done: record.of,
            clean: true,
            ..record
        },
    }
}

#[cfg(test)]
mod tests;
