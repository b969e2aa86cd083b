//! Block devices: how large they are, whether anybody uses them, and emptying them.
//!
//! Ranges are in bytes and must be multiples of the device's block size, as its whole size is.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::{BootId, DeviceNumber};

mod kernel;

/// An open block device that nobody else uses.
#[derive(Debug)]
pub struct BlockDevice {
    file: File,
}

/// Why a block device could not be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is mounted, or part of something else such as a volume group, or being cleaned.
    #[error("the device is in use: it is mounted, part of another device, or being cleaned")]
    InUse,
    /// It is something else.
    #[error("it is no block device")]
    NoDevice,
    /// The system refused.
    #[error("the device could not be opened")]
    Io(#[source] io::Error),
}

impl BlockDevice {
    /// Opens a device to write to, links followed, unless somebody else has a use for it. As long
    /// as this lives, nobody can mount it, and no other process can open it this way.
    pub fn open_alone(path: &Path) -> Result<Self, OpenError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_EXCL)
            .open(path);
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => OpenError::InUse,
            Some(libc::EISDIR) => OpenError::NoDevice,
            _ => OpenError::Io(error),
        })?;
        if !file
            .metadata()
            .map_err(OpenError::Io)?
            .file_type()
            .is_block_device()
        {
            return Err(OpenError::NoDevice);
        }
        lock(&file)?;
        Ok(Self { file })
    }

    /// Its size in bytes.
    pub fn size(&self) -> io::Result<u64> {
        Ok(kernel::size(self.file.as_fd())?)
    }

    /// What no other disk is called while this system runs, not even one that takes its place.
    pub fn identity(&self) -> io::Result<String> {
        let boot = BootId::current()?;
        // Kernels before 5.15 count no disks; the number is the next best.
        let disk = match kernel::sequence(self.file.as_fd()) {
            Ok(sequence) => sequence.to_string(),
            Err(Errno::NOTTY | Errno::INVAL) => number_of(&self.file)?.to_string(),
            Err(error) => return Err(error.into()),
        };
        Ok(format!("{boot}/{disk}"))
    }

    /// Tells the device that a range is not needed. What it reads as afterwards is the device's
    /// business. False if it has no use for the news.
    pub fn discard(&self, from: u64, bytes: u64) -> io::Result<bool> {
        match kernel::discard(self.file.as_fd(), from, bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a range read as zeros, by whatever means is quickest for the device.
    pub fn zero(&self, from: u64, bytes: u64) -> io::Result<()> {
        Ok(kernel::zero(self.file.as_fd(), from, bytes)?)
    }

    /// Writes random bytes over a range.
    pub fn randomise(&self, from: u64, bytes: u64) -> io::Result<()> {
        const PIECE: usize = 1 << 20;
        let mut source = File::open("/dev/urandom")?;
        let mut piece = vec![0; PIECE];
        let (mut at, end) = (from, from + bytes);
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            source.read_exact(&mut piece[..length])?;
            self.file.write_all_at(&piece[..length], at)?;
            at += length as u64;
        }
        self.file.sync_data()
    }

    /// Everything that was written is on the device when this returns.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Lets others use the device, and keeps only the mark that it is being cleaned: no
    /// [`BlockDevice::open_alone`] succeeds while this, or a copy that a child has, is open.
    pub fn into_mark(self) -> Result<Mark, OpenError> {
        // Its path may lead elsewhere by now; this is the very device.
        let file = File::open(own_path(self.file.as_fd())).map_err(OpenError::Io)?;
        drop(self);
        lock(&file)?;
        Ok(Mark(file))
    }

    /// Its number.
    pub fn number(&self) -> io::Result<DeviceNumber> {
        number_of(&self.file)
    }
}

/// Marks a device as being cleaned, by whoever has a copy of it.
#[derive(Debug)]
pub struct Mark(File);

impl Mark {
    /// The number of the device.
    pub fn number(&self) -> io::Result<DeviceNumber> {
        number_of(&self.0)
    }

    /// A path by which a child that has a copy of this finds the device, and no other, whatever
    /// happens to links meanwhile: no other gets its number while this is open.
    pub fn path(&self) -> io::Result<PathBuf> {
        let number = self.number()?;
        let by_number = PathBuf::from(format!("/dev/block/{number}"));
        // Containers don't always have it.
        match self::number(&by_number) {
            Ok(found) if found == number => Ok(by_number),
            Ok(_) | Err(_) => Ok(own_path(self.0.as_fd())),
        }
    }
}

impl AsFd for Mark {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What whoever has the descriptor calls what it stands for.
fn own_path(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn lock(file: &File) -> Result<(), OpenError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN) => Err(OpenError::InUse),
        Err(error) => Err(OpenError::Io(error.into())),
    }
}

/// The size of a block device in bytes, links followed; none if it is something else.
pub fn size_of(path: &Path) -> io::Result<Option<u64>> {
    if !std::fs::metadata(path)?.file_type().is_block_device() {
        return Ok(None);
    }
    Ok(Some(kernel::size(File::open(path)?.as_fd())?))
}

/// The number of a block device, links followed.
pub fn number(path: &Path) -> io::Result<DeviceNumber> {
    number_of(&File::open(path)?)
}

fn number_of(file: &File) -> io::Result<DeviceNumber> {
    let number = file.metadata()?.rdev();
    Ok(DeviceNumber {
        major: rustix::fs::major(number),
        minor: rustix::fs::minor(number),
    })
}

#[cfg(test)]
mod tests;
