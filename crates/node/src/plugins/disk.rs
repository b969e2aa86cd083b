//! A disk that has to be mounted, and before that, if nothing was ever written to it, formatted.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use orlop_host::filesystem::{self, Signature};
use orlop_host::mount::{AccessTimes, FsOption, MountError, NewMount};
use orlop_host::{FsKind, Place, Restrictions};

use crate::checkpoint::make_folder;

/// The kubelet's.
const USUAL: &str = "ext4";

/// How much of a disk has to be zero before it counts as empty.
const HEAD: u64 = 1 << 20;

/// A disk and where its files shall be.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) device: PathBuf,
    pub(super) target: PathBuf,
    /// Empty for the usual one.
    pub(super) fs_type: String,
    pub(super) read_only: bool,
    pub(super) options: Vec<String>,
}

/// Why a disk is not mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a block device", .0.display())]
    NotADisk(PathBuf),
    #[error("file system {0:?} is not known here; use ext4, xfs or btrfs")]
    UnknownKind(String),
    #[error("{} holds {found}, not {wanted}; set fsType to what it holds", device.display())]
    OtherKind {
        device: PathBuf,
        found: &'static str,
        wanted: &'static str,
    },
    #[error(
        "{} holds data that is no file system known here; if it may be lost, clear it with wipefs",
        .0.display()
    )]
    Foreign(PathBuf),
    #[error("{} is empty, and read-only it can't be formatted", .0.display())]
    EmptyButReadOnly(PathBuf),
    #[error("could not format {}", device.display())]
    Format {
        device: PathBuf,
        #[source]
        source: filesystem::MakeError,
    },
    #[error("could not mount {} at {}", device.display(), target.display())]
    Mount {
        device: PathBuf,
        target: PathBuf,
        #[source]
        source: MountError,
    },
}

fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// Mounts a disk; what holds data is never formatted.
pub(super) fn mount(disk: &Disk) -> Result<(), DiskError> {
    let Disk { device, target, .. } = disk;
    let wanted = match disk.fs_type.as_str() {
        "" => USUAL,
        named => named,
    };
    let wanted =
        FsKind::by_name(wanted).ok_or_else(|| DiskError::UnknownKind(wanted.to_owned()))?;
    let mut file = File::open(device).map_err(at("open", device))?;
    let kind = file.metadata().map_err(at("look at", device))?.file_type();
    if !kind.is_block_device() {
        return Err(DiskError::NotADisk(device.clone()));
    }
    match filesystem::probe(&file).map_err(at("read", device))? {
        Signature::Known { kind, .. } if kind == wanted => {
            if !disk.read_only {
                // What can't be repaired without asking is refused by the mount, or mounts.
                let _the_mount_tells = filesystem::repair(kind, device);
            }
        }
        Signature::Known { kind, .. } => {
            return Err(DiskError::OtherKind {
                device: device.clone(),
                found: kind.name(),
                wanted: wanted.name(),
            });
        }
        Signature::Hole | Signature::Other => {
            if !is_empty(&mut file).map_err(at("read", device))? {
                return Err(DiskError::Foreign(device.clone()));
            }
            if disk.read_only {
                return Err(DiskError::EmptyButReadOnly(device.clone()));
            }
            filesystem::make(wanted, device, &[]).map_err(|source| DiskError::Format {
                device: device.clone(),
                source,
            })?;
        }
    }
    drop(file);
    make_folder(target).map_err(at("make", target))?;
    let (mut restrictions, options) = parse(&disk.options);
    restrictions.read_only |= disk.read_only;
    let new = NewMount {
        fs_type: wanted.name(),
        source: device,
        restrictions,
        options: &options,
    };
    let place = Place::at(target).map_err(at("look at", target))?;
    let held = place.open().map_err(at("open", target))?;
    orlop_host::mount::mount(&new, held).map_err(|source| DiskError::Mount {
        device: device.clone(),
        target: target.clone(),
        source,
    })
}

fn is_empty(file: &mut File) -> io::Result<bool> {
    use std::io::Seek as _;
    file.rewind()?;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    Ok(head.iter().all(|byte| *byte == 0))
}

/// What `mount -o` would make of options.
pub(super) fn parse(options: &[String]) -> (Restrictions, Vec<FsOption>) {
    let mut restrictions = Restrictions::default();
    let mut own = Vec::new();
    for option in options.iter().flat_map(|list| list.split(',')) {
        match option {
            "" | "rw" | "defaults" | "suid" | "dev" | "exec" | "auto" | "nofail" | "_netdev" => {}
            "ro" => restrictions.read_only = true,
            "nosuid" => restrictions.no_suid = true,
            "nodev" => restrictions.no_dev = true,
            "noexec" => restrictions.no_exec = true,
            "noatime" => restrictions.access_times = AccessTimes::Never,
            "nodiratime" => restrictions.access_times = AccessTimes::NeverForDirectories,
            "strictatime" => restrictions.access_times = AccessTimes::Always,
            "relatime" => restrictions.access_times = AccessTimes::Relative,
            option => {
                let (key, value) = match option.split_once('=') {
                    Some((key, value)) => (key, Some(value.to_owned())),
                    None => (option, None),
                };
                own.push(FsOption {
                    key: key.to_owned(),
                    value,
                });
            }
        }
    }
    (restrictions, own)
}
