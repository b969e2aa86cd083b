//! Loop devices: image files as block devices.
//!
//! The kernel's table of loop devices is the only state; devices are found by the identity (device
//! and inode) of the file behind them, never by its name. One image must never be behind two
//! writable devices at once, so [`LoopDevice::find`] comes before [`LoopDevice::attach`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::mountinfo::DeviceNumber;

mod activity;
mod kernel;

pub use activity::Activity;

/// The block size of every device, unless it is asked for direct I/O and needs more for that.
const SMALL_BLOCK: libc::c_ulong = 512;
const LARGE_BLOCK: libc::c_ulong = 4096;

/// The major number of all loop devices.
const LOOP_MAJOR: u32 = 7;

/// An open loop device that has a file behind it.
///
/// The kernel keeps the file attached at least while this is open.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
    number: u32,
}

/// Whether a loop device can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes.
    ReadWrite,
    /// Reads only; no mount flag or device node can lift it.
    ReadOnly,
}

/// When a loop device gives its file back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// With the last closer: a mount, or this process if it dies before mounting. Nothing leaks.
    LastClose,
    /// Only by [`LoopDevice::detach`]: for devices that are handed out as raw block volumes.
    UntilDetached,
}

/// What the kernel tells about a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    /// Device number of the file system that the image is on; 0 if its disk does not answer.
    pub backing_device: u64,
    /// The image's inode; 0 if its disk does not answer.
    pub backing_inode: u64,
    /// Its access.
    pub access: Access,
    /// Its lifetime.
    pub lifetime: Lifetime,
    /// Whether it bypasses the page cache.
    pub direct_io: bool,
}

/// Why a loop device could not be had.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The control device is not there.
    #[error("/dev/loop-control cannot be opened; load the kernel module `loop` and run as root")]
    NoControl(#[source] io::Error),
    /// Every device was taken by somebody else between the offer and our use of it.
    #[error("no free loop device after {attempts} attempts")]
    Contended {
        /// How often we tried.
        attempts: usize,
    },
    /// The kernel has no more devices.
    #[error("the kernel gives no more loop devices; detach some, or raise max_loop")]
    NoneLeft(#[source] io::Error),
    /// The device node did not open.
    #[error(
        "could not open {}; in a container, mount the host's /dev into it",
        device.display()
    )]
    OpenDevice {
        /// The node.
        device: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel refused the image.
    #[error("the kernel refused the image for {}", device.display())]
    Configure {
        /// The device that was tried.
        device: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl LoopDevice {
    /// Puts an image behind a free loop device, with direct I/O where the image's file system can.
    pub fn attach(image: &File, access: Access, lifetime: Lifetime) -> Result<Self, AttachError> {
        // Others race for the same free device; each round means that one of them got on.
        const ATTEMPTS: usize = 512;
        let control = open_node(Path::new("/dev/loop-control"), Access::ReadWrite)
            .map_err(AttachError::NoControl)?;
        for _ in 0..ATTEMPTS {
            let number =
                kernel::get_free(&control).map_err(|error| AttachError::NoneLeft(error.into()))?;
            let device = node(number);
            let file = match open_node(&device, access) {
                Ok(file) => file,
                // Removed again, or its node is not there yet.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => {
                    if !Path::new(&format!("/sys/block/loop{number}")).exists() {
                        continue;
                    }
                    return Err(AttachError::OpenDevice {
                        device,
                        source: error,
                    });
                }
                Err(source) => return Err(AttachError::OpenDevice { device, source }),
            };
            let configured = match kernel::configure(&file, image, access, lifetime, true) {
                Err(Errno::INVAL) => kernel::configure(&file, image, access, lifetime, false),
                other => other,
            };
            match configured {
                Ok(()) => return Ok(Self { file, number }),
                Err(Errno::BUSY) => {}
                Err(error) => {
                    return Err(AttachError::Configure {
                        device,
                        source: error.into(),
                    });
                }
            }
        }
        Err(AttachError::Contended { attempts: ATTEMPTS })
    }

    /// The devices that have this very file behind them, lowest number first.
    ///
    /// Only devices whose file bears the same last name are opened: an open descriptor of ours
    /// would make somebody else's detach wait for us.
    pub fn find(image: &File) -> io::Result<Vec<Self>> {
        let wanted = image.metadata()?;
        let name = std::fs::read_link(format!("/proc/self/fd/{}", image.as_raw_fd()))?;
        let mut found = Vec::new();
        for listed in list()? {
            if !same_last_name(&listed.backing_path, &name) {
                continue;
            }
            let Some(device) = Self::open(listed.number)? else {
                continue;
            };
            if let Some(status) = device.status()?
                && status.backing_device == wanted.dev()
                && status.backing_inode == wanted.ino()
            {
                found.push(device);
            }
        }
        Ok(found)
    }

    /// The devices whose file had this name when it was attached, lowest number first: for a file that
    /// is gone or cannot be opened. The kernel tells the name from the file's mount on if that mount was
    /// taken away, so the end of the name is enough.
    pub fn find_by_path(image: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for listed in list()? {
            let path = listed.backing_path.as_os_str().as_encoded_bytes();
            let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
            if is_end_of(path, image.as_os_str().as_encoded_bytes())
                && let Some(device) = Self::open(listed.number)?
            {
                found.push(device);
            }
        }
        Ok(found)
    }

    /// Opens a loop device by number; none if it does not exist or has no file.
    pub fn open(number: u32) -> io::Result<Option<Self>> {
        let file = match open_node(&node(number), Access::ReadOnly) {
            Ok(file) => file,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let device = Self { file, number };
        Ok(device.status()?.is_some().then_some(device))
    }

    /// What is behind it; none once it has been detached.
    pub fn status(&self) -> io::Result<Option<LoopStatus>> {
        match kernel::status(&self.file) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NXIO) => Ok(None),
            // Its file's disk does not answer; what the kernel knows by itself it still tells.
            Err(Errno::IO) => self.status_without_file(),
            Err(error) => Err(error.into()),
        }
    }

    fn status_without_file(&self) -> io::Result<Option<LoopStatus>> {
        let device = format!("/sys/block/loop{}", self.number);
        let is_set = |name: &str| match std::fs::read_to_string(format!("{device}/{name}")) {
            Ok(text) => Ok(Some(text.trim() == "1")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(autoclear), Some(direct_io), Some(read_only)) = (
            is_set("loop/autoclear")?,
            is_set("loop/dio")?,
            is_set("ro")?,
        ) else {
            return Ok(None);
        };
        Ok(Some(LoopStatus {
            backing_device: 0,
            backing_inode: 0,
            access: match read_only {
                true => Access::ReadOnly,
                false => Access::ReadWrite,
            },
            lifetime: match autoclear {
                true => Lifetime::LastClose,
                false => Lifetime::UntilDetached,
            },
            direct_io,
        }))
    }

    /// The device node.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        node(self.number)
    }

    /// The device number, as it stands in the mount table.
    #[must_use]
    pub fn device_number(&self) -> DeviceNumber {
        DeviceNumber {
            major: LOOP_MAJOR,
            minor: self.number,
        }
    }

    /// The device's size in bytes.
    pub fn size(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?)
    }

    /// Makes the device as large as its file has become.
    pub fn refresh_size(&self) -> io::Result<()> {
        Ok(kernel::set_capacity(&self.file)?)
    }

    /// Gets direct I/O after all, with blocks of 4 KiB, where the image needs those for it. Fine if
    /// the device has direct I/O.
    ///
    /// Nobody may use the device yet, and whoever will must need no smaller blocks: see
    /// [`crate::filesystem_unit::of`].
    pub fn insist_on_direct_io(&self) -> io::Result<()> {
        if self.status()?.is_none_or(|status| status.direct_io) {
            return Ok(());
        }
        kernel::set_block_size(&self.file, LARGE_BLOCK)?;
        if let Err(error) = kernel::set_direct_io(&self.file) {
            kernel::set_block_size(&self.file, SMALL_BLOCK)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Sets how far the kernel reads ahead on it.
    pub fn set_read_ahead(&self, kib: u32) -> io::Result<()> {
        Ok(kernel::set_read_ahead(
            &self.file,
            libc::c_ulong::from(kib) * 2,
        )?)
    }

    /// Keeps discards from making holes in the file. The device must not be mounted yet.
    pub fn forbid_discards(&self) -> io::Result<()> {
        // There is no other interface for it than this file.
        let path = format!("/sys/block/loop{}/queue/discard_max_bytes", self.number);
        std::fs::write(path, "0")
    }

    /// Gives the file back. If somebody else still has the device open, the kernel waits for them.
    pub fn detach(self) -> io::Result<()> {
        match kernel::clear(&self.file) {
            Ok(()) | Err(Errno::NXIO) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a path is another one, or what is left of that without the first folders.
fn is_end_of(path: &[u8], whole: &[u8]) -> bool {
    path.starts_with(b"/") && whole.ends_with(path)
}

/// A loop device as the system lists it, without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLoop {
    /// Its number.
    pub number: u32,
    /// The name of its file when it was attached; ` (deleted)` is appended to a removed one.
    pub backing_path: PathBuf,
}

/// All loop devices that have a file, in order.
pub fn list() -> io::Result<Vec<ListedLoop>> {
    let mut listed = Vec::new();
    for number in attached_numbers()? {
        match std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")) {
            Ok(text) => {
                let backing_path = PathBuf::from(text.trim_end_matches('\n'));
                listed.push(ListedLoop {
                    number,
                    backing_path,
                });
            }
            // Detached while we looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

fn same_last_name(one: &Path, other: &Path) -> bool {
    let last = |path: &Path| {
        let name = path
            .file_name()
            .map(|name| name.as_encoded_bytes().to_vec());
        name.map(|name| name.strip_suffix(b" (deleted)").unwrap_or(&name).to_vec())
    };
    last(one) == last(other)
}

fn attached_numbers() -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/sys/block")? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("loop")?.parse().ok());
        // The directory `loop` exists only while a file is attached.
        if let Some(number) = number
            && entry.path().join("loop").exists()
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn open_node(path: &Path, access: Access) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_block_device() || kind.is_char_device() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a device node",
        ))
    }
}

impl AsFd for LoopDevice {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for LoopDevice {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
