//! Cleaning a disk: a file system is emptied, a device wiped. Blocking, and to be stopped at
//! any time; what is done stays done.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use orlop_host::{
    BlockDevice, DeviceNumber, DiskId, MountTable,
    block::{self, Mark},
    cleaner::{Cleaner, CleanerError},
    disk, filesystem,
    scrub::{Folder, Go, ScrubError},
};
use orlop_model::VolumeMode;

use crate::{
    config::{BlockCleaner, Wipe},
    record::Record,
    wipe::{self, Action, Piece},
};

mod error;

pub use error::CleanError;

/// Below such a folder a kubelet mounts local volumes for pods, and binds devices.
const IN_PODS: &str = "kubernetes.io~local-volume";
/// How the environment of a command calls the device.
const DEVICE: &str = "LOCAL_PV_BLKDEVICE";
/// Files removed between two reports.
const FILES: u64 = 256;

/// What is to be cleaned off a disk.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The uid of the claim that had it.
    pub claim: String,
    /// How far an earlier try came.
    pub before: Option<Record>,
    /// Says that nobody waits for the outcome any more.
    pub stop: Arc<AtomicBool>,
}

impl Job {
    fn go(&self) -> Go {
        match self.stop.load(Ordering::Relaxed) {
            true => Go::Stop,
            false => Go::On,
        }
    }
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

/// A disk that nobody else cleans or offers while this lives.
///
/// Whoever takes a disk has to ask afterwards whether it is to be cleaned: until then another
/// may have cleaned it, and somebody may have been given it since. And it is to be kept until
/// the outcome is on record, for whoever takes it next asks the record.
#[derive(Debug)]
pub struct Taken {
    path: PathBuf,
    id: DiskId,
    disk: Disk,
}

#[derive(Debug)]
enum Disk {
    Files(Folder),
    Device(BlockDevice, Wipe),
    Command(Mark, Vec<String>),
}

/// Takes a disk.
///
/// # Errors
/// It isn't there, or somebody else has it.
pub fn take(path: &Path, cleaner: &BlockCleaner) -> Result<Taken, CleanError> {
    let look = |source| CleanError::Look {
        path: path.to_owned(),
        source,
    };
    let busy = |source| CleanError::Take {
        path: path.to_owned(),
        source,
    };
    let (disk, id) = match (block::size_of(path).map_err(look)?, cleaner) {
        (Some(_), cleaner) => {
            let alone = BlockDevice::open_alone(path).map_err(busy)?;
            let id = DiskId::Device(alone.number().map_err(look)?);
            let disk = match cleaner {
                BlockCleaner::Wipe(wipe) => Disk::Device(alone, *wipe),
                BlockCleaner::Command(argv) => {
                    Disk::Command(alone.into_mark().map_err(busy)?, argv.clone())
                }
            };
            (disk, id)
        }
        (None, _) => {
            let folder = Folder::take(path).map_err(|source| CleanError::Scrub {
                path: path.to_owned(),
                source,
            })?;
            let id = disk_of(&folder, path)?;
            (Disk::Files(folder), id)
        }
    };
    is_unused(path, &id)?;
    Ok(Taken {
        path: path.to_owned(),
        id,
        disk,
    })
}

/// Whether a disk could be taken; or what is in the way.
///
/// # Errors
/// Somebody has it, or it isn't there.
pub fn is_free(path: &Path) -> Result<(), CleanError> {
    take(path, &BlockCleaner::Wipe(Wipe::Zero)).map(drop)
}

impl Taken {
    /// Which disk it is.
    pub fn disk(&self) -> &DiskId {
        &self.id
    }

    /// Cleans the disk, and tells how far it has come.
    ///
    /// # Errors
    /// It isn't clean.
    pub fn clean(&self, job: &Job, mut told: impl FnMut(&Record)) -> Result<Cleaned, CleanError> {
        let cleaned = match &self.disk {
            Disk::Files(folder) => {
                let cleaned = self.empty(folder, job, &mut told)?;
                disk_of(folder, &self.path)?;
                cleaned
            }
            Disk::Device(device, wipe) => {
                let cleaned = self.wipe(device, (*wipe, job), &mut told)?;
                self.is_still(device.number())?;
                cleaned
            }
            Disk::Command(mark, argv) => {
                let cleaned = self.run((mark, argv), job, &mut told)?;
                self.is_still(mark.number())?;
                cleaned
            }
        };
        // Whoever came meanwhile may have written behind the cleaning's back.
        is_unused(&self.path, &self.id)?;
        Ok(cleaned)
    }

    /// Whoever gets the disk next finds it by its path.
    fn is_still(&self, cleaned: io::Result<DeviceNumber>) -> Result<(), CleanError> {
        let there = block::number(&self.path).map_err(|e| self.look(e))?;
        match there == cleaned.map_err(|e| self.look(e))? {
            true => Ok(()),
            false => Err(CleanError::Exchanged {
                path: self.path.clone(),
            }),
        }
    }

    fn look(&self, source: io::Error) -> CleanError {
        CleanError::Look {
            path: self.path.clone(),
            source,
        }
    }

    fn empty(
        &self,
        folder: &Folder,
        job: &Job,
        told: &mut impl FnMut(&Record),
    ) -> Result<Cleaned, CleanError> {
        let usage = filesystem::usage(&self.path).map_err(|e| self.look(e))?;
        let mut record = Record {
            claim: job.claim.clone(),
            how: "scrub".to_owned(),
            of: usage.total_inodes.saturating_sub(usage.free_inodes),
            ..Record::default()
        };
        let result = folder.empty(|removed| {
            if removed % FILES == 0 {
                record.done = removed.min(record.of);
                told(&record);
            }
            job.go()
        });
        match result {
            Ok(()) => Ok(finished(VolumeMode::Filesystem, record)),
            Err(ScrubError::Stopped) => Err(CleanError::Stopped),
            Err(source) => Err(CleanError::Scrub {
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn wipe(
        &self,
        device: &BlockDevice,
        (wipe, job): (Wipe, &Job),
        told: &mut impl FnMut(&Record),
    ) -> Result<Cleaned, CleanError> {
        let size = device.size().map_err(|e| self.look(e))?;
        let mut record = Record {
            claim: job.claim.clone(),
            disk: device.identity().map_err(|e| self.look(e))?,
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
            record.done += piece.bytes;
            if record.done <= resumed {
                continue;
            }
            wipe_piece(device, piece, &self.path)?;
            told(&record);
            if job.go() == Go::Stop {
                return Err(CleanError::Stopped);
            }
        }
        device.sync().map_err(|e| self.look(e))?;
        Ok(finished(VolumeMode::Block, record))
    }

    fn run(
        &self,
        (mark, argv): (&Mark, &[String]),
        job: &Job,
        told: &mut impl FnMut(&Record),
    ) -> Result<Cleaned, CleanError> {
        let mut record = Record {
            claim: job.claim.clone(),
            how: argv.first().cloned().unwrap_or_default(),
            of: 100,
            ..Record::default()
        };
        // Not by the path, which is a link that may be changed meanwhile.
        let device = mark.path().map_err(|e| self.look(e))?;
        let cleaner = Cleaner {
            argv,
            environment: &[(DEVICE, device.as_os_str())],
        };
        let heard = |line: &str| {
            tracing::info!(device = %self.path.display(), "the cleaner says: {line}");
            record.done = percent(line).unwrap_or(record.done);
            told(&record);
            job.go()
        };
        let run = cleaner.run(mark, heard, || job.go());
        match run {
            Ok(()) => Ok(finished(VolumeMode::Block, record)),
            Err(CleanerError::Stopped) => Err(CleanError::Stopped),
            Err(error) => Err(error.into()),
        }
    }
}

/// The last number of a line that a percent sign follows: how far a command says that it is.
fn percent(line: &str) -> Option<u64> {
    let (before, _) = line.rsplit_once('%')?;
    let before = before.trim_end();
    let whole = match before.rsplit_once('.') {
        // 12.5 %
        Some((whole, rest)) if rest.bytes().all(|b| b.is_ascii_digit()) => whole,
        _ => before,
    };
    let digits = whole.bytes().rev().take_while(u8::is_ascii_digit).count();
    let percent: u64 = whole[whole.len() - digits..].parse().ok()?;
    (percent <= 100).then_some(percent)
}

/// The disk that was opened, if it is the one that is found by the path: a folder that nothing is mounted at
/// is not the disk, and whoever gets the disk next finds it by its path.
fn disk_of(folder: &Folder, path: &Path) -> Result<DiskId, CleanError> {
    let look = |source| CleanError::Look {
        path: path.to_owned(),
        source,
    };
    let real = std::fs::canonicalize(path).map_err(look)?;
    let table = MountTable::read().map_err(look)?;
    let (Some(here), Some(disk)) = (table.at(&real), DiskId::of_mount(&real, &table)) else {
        return Err(CleanError::NotMounted {
            path: path.to_owned(),
        });
    };
    match table.holding(folder).map_err(look)? {
        Some(opened) if opened.id == here.id => Ok(disk),
        _ => Err(CleanError::Exchanged {
            path: path.to_owned(),
        }),
    }
}

/// What a pod has is not to be touched, nor what anybody writes to: a pod that is deleted by force is
/// gone from the API server before its processes are.
fn is_unused(path: &Path, id: &DiskId) -> Result<(), CleanError> {
    let look = |source| CleanError::Look {
        path: path.to_owned(),
        source,
    };
    if let Some(at) = disk::mounted_below(IN_PODS, id).map_err(look)? {
        return Err(CleanError::InUse {
            path: path.to_owned(),
            at,
        });
    }
    let DiskId::Device(number) = id else {
        return Ok(());
    };
    match disk::writer(*number).map_err(look)? {
        None => Ok(()),
        Some(writer) => Err(CleanError::Written {
            path: path.to_owned(),
            program: writer.program,
            pid: writer.pid,
        }),
    }
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
