//! File systems on a device or in an image: recognise, make, check, grow, measure.
//!
//! Never decides whether a device may be formatted: [`make()`] destroys what is there, and its caller
//! must know from a record of its own that nothing is.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::program::{Program, ProgramError};

mod make;

pub(crate) use make::copy_data;
pub use make::{MakeError, make, make_image, try_options};

const E2FSCK: Program = Program {
    path: "/usr/sbin/e2fsck",
    package: "e2fsprogs",
};
const RESIZE2FS: Program = Program {
    path: "/usr/sbin/resize2fs",
    package: "e2fsprogs",
};
const BTRFS: Program = Program {
    path: "/usr/bin/btrfs",
    package: "btrfs-progs",
};
const XFS_GROWFS: Program = Program {
    path: "/usr/sbin/xfs_growfs",
    package: "xfsprogs",
};

/// The file systems that we make.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    /// ext4, the default.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

impl FsKind {
    /// The kernel's and Kubernetes' name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The file system with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs, Self::Btrfs]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// The smallest device that it can be made on.
    #[must_use]
    pub fn smallest(self) -> u64 {
        match self {
            Self::Ext4 => 8 << 20,
            // What mkfs.xfs insists on.
            Self::Xfs => 300 << 20,
            // What mkfs.btrfs insists on is a little less.
            Self::Btrfs => 128 << 20,
        }
    }
}

impl std::fmt::Display for FsKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What the first blocks of a device say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// Nothing was ever written: the file is one hole.
    Hole,
    /// One of our kinds.
    Known {
        /// Which.
        kind: FsKind,
        /// Whether the file system itself noted that it is damaged.
        damaged: bool,
    },
    /// Data of some other kind, or zeros that somebody wrote.
    Other,
}

/// Looks at the superblocks of a device or image.
pub fn probe(file: &File) -> io::Result<Signature> {
    /// Past every superblock that we know but Btrfs'.
    const HEAD: usize = 4096;
    /// Btrfs' superblock is at 64 KiB, its magic 64 bytes further.
    const BTRFS_MAGIC: u64 = 65536 + 64;
    let mut head = [0u8; HEAD];
    let length = read_at(file, &mut head, 0)?;
    let mut magic = [0u8; 8];
    let far = read_at(file, &mut magic, BTRFS_MAGIC)?;
    let btrfs = (magic[..far] == *b"_BHRfS_M").then_some((FsKind::Btrfs, false));
    match btrfs.or_else(|| recognise(&head[..length])) {
        Some((kind, damaged)) => Ok(Signature::Known { kind, damaged }),
        None if is_hole(file)? => Ok(Signature::Hole),
        None => Ok(Signature::Other),
    }
}

fn read_at(file: &File, head: &mut [u8], from: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < head.len() {
        match file.read_at(&mut head[filled..], from + filled as u64)? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}

fn recognise(head: &[u8]) -> Option<(FsKind, bool)> {
    // ext: superblock at 1024; magic at 56, state (bit 1: errors) at 58.
    if let Some(&[0x53, 0xef, state, _]) = head.get(1080..1084) {
        return Some((FsKind::Ext4, state & 2 != 0));
    }
    head.starts_with(b"XFSB").then_some((FsKind::Xfs, false))
}

/// Whether a file has no data at all. A device, or a file system that cannot tell, says no.
fn is_hole(file: &File) -> io::Result<bool> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)) {
        Ok(_) | Err(rustix::io::Errno::INVAL) => Ok(false),
        Err(rustix::io::Errno::NXIO) => Ok(file.metadata()?.is_file()),
        Err(error) => Err(error.into()),
    }
}

/// Repairs what can be repaired without asking. The device must not be mounted.
pub fn repair(kind: FsKind, device: &Path) -> Result<(), ProgramError> {
    match kind {
        FsKind::Ext4 => {
            match E2FSCK.run(&["-p".as_ref(), "--".as_ref(), device.as_os_str()]) {
                // 1: errors were corrected.
                Err(ProgramError::Failed { code: Some(1), .. }) => Ok(()),
                other => other,
            }
        }
        // Both replay their logs at mount; their repair programs are for a person to run.
        FsKind::Xfs | FsKind::Btrfs => Ok(()),
    }
}

/// Why a file system could not be grown.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The kernel lets only the holders of a capability do it.
    #[error(
        "growing a mounted {kind} needs {capability}, which this process lacks; give it the \
         capability, or unstage the volume: it grows when it is staged again"
    )]
    NotAllowed {
        /// The file system.
        kind: FsKind,
        /// What is lacking.
        capability: &'static str,
    },
    /// Our capabilities could not be read.
    #[error("could not read the capabilities of this process")]
    Capabilities(#[source] io::Error),
    /// The program failed.
    #[error("could not grow the {kind} file system")]
    Program {
        /// The file system.
        kind: FsKind,
        /// How.
        #[source]
        source: ProgramError,
    },
}

/// Whether the kernel would let this process grow a mounted file system of this kind.
pub fn may_grow(kind: FsKind) -> io::Result<bool> {
    use rustix::thread::CapabilitySet;
    match kind {
        FsKind::Ext4 => {
            let held = rustix::thread::capabilities(None)?.effective;
            Ok(held.contains(CapabilitySet::SYS_RESOURCE))
        }
        // Whoever could mount it can grow it.
        FsKind::Xfs | FsKind::Btrfs => Ok(true),
    }
}

/// Grows a mounted file system to the size of its device. Fine if it is that large already.
pub fn grow(kind: FsKind, device: &Path, mounted_at: &Path) -> Result<(), GrowError> {
    if !may_grow(kind).map_err(GrowError::Capabilities)? {
        return Err(GrowError::NotAllowed {
            kind,
            capability: "CAP_SYS_RESOURCE",
        });
    }
    match kind {
        FsKind::Ext4 => RESIZE2FS.run(&["--".as_ref(), device.as_os_str()]),
        FsKind::Xfs => XFS_GROWFS.run(&["-d".as_ref(), "--".as_ref(), mounted_at.as_os_str()]),
        FsKind::Btrfs => {
            let fixed = ["filesystem", "resize", "--", "max"].map(AsRef::as_ref);
            BTRFS.run(&[&fixed[..], &[mounted_at.as_os_str()]].concat())
        }
    }
    .map_err(|source| GrowError::Program { kind, source })
}

/// Grows a file system in an image that is not mounted, if its kind can be grown so: nothing else
/// than ext4, which needs no capability for it that way.
pub fn grow_image(kind: FsKind, image: &Path) -> Result<Grown, GrowError> {
    match kind {
        FsKind::Ext4 => {
            let fixed = ["-f", "-p", "--"].map(OsStr::new);
            let checked = match E2FSCK.run(&[&fixed[..], &[image.as_os_str()]].concat()) {
                // 1: errors were corrected.
                Err(ProgramError::Failed { code: Some(1), .. }) => Ok(()),
                other => other,
            };
            checked
                .and_then(|()| RESIZE2FS.run(&["--".as_ref(), image.as_os_str()]))
                .map_err(|source| GrowError::Program { kind, source })?;
            Ok(Grown::Now)
        }
        FsKind::Xfs | FsKind::Btrfs => Ok(Grown::OnlyMounted),
    }
}

/// What became of a wish to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grown {
    /// It is done.
    Now,
    /// This kind grows while mounted, and only then.
    OnlyMounted,
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes that an ordinary user can still write.
    pub available_bytes: u64,
    /// Bytes taken.
    pub used_bytes: u64,
    /// All inodes.
    pub total_inodes: u64,
    /// Inodes left.
    pub free_inodes: u64,
}

/// Measures the file system that a path is on.
pub fn usage(path: &Path) -> io::Result<Usage> {
    Ok(from_statvfs(&rustix::fs::statvfs(path)?))
}

/// Measures the file system that a descriptor is on.
pub fn usage_of(fd: impl AsFd) -> io::Result<Usage> {
    Ok(from_statvfs(&rustix::fs::fstatvfs(fd)?))
}

/// Which file system a path is on. Other numbers mean other file systems; not all keep theirs over a
/// reboot.
pub fn id(path: &Path) -> io::Result<u64> {
    Ok(rustix::fs::statvfs(path)?.f_fsid)
}

fn from_statvfs(stat: &rustix::fs::StatVfs) -> Usage {
    Usage {
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        used_bytes: stat
            .f_blocks
            .saturating_sub(stat.f_bfree)
            .saturating_mul(stat.f_frsize),
        total_inodes: stat.f_files,
        free_inodes: stat.f_ffree,
    }
}
