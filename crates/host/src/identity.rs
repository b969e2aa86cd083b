//! Copies of file systems that can be mounted beside what they were copied from.
//!
//! ext4 does not mind two of the same identity. XFS does unless it is told not to care, which is
//! easier than a new identity: that needs a clean log. btrfs takes two of the same identity for two
//! halves of one file system, so a copy needs a new one before it is mounted or even scanned.

use std::path::Path;

use crate::filesystem::FsKind;
use crate::mount::FsOption;
use crate::program::{Program, ProgramError};

const BTRFSTUNE: Program = Program {
    path: "/usr/bin/btrfstune",
    package: "btrfs-progs",
};

/// Gives the file system in a copied image an identity of its own, where it must have one.
///
/// Nobody may use the image. If this is cut short, the image is to be thrown away.
pub fn renew(kind: FsKind, image: &Path) -> Result<(), ProgramError> {
    match kind {
        FsKind::Ext4 | FsKind::Xfs => Ok(()),
        // Only the superblocks change: the old identity stays in what it is a checksum of.
        FsKind::Btrfs => BTRFSTUNE.run(&[
            "-f".as_ref(),
            "-m".as_ref(),
            "--".as_ref(),
            image.as_os_str(),
        ]),
    }
}

/// The mount options with which a file system mounts beside its copies.
#[must_use]
pub fn mount_options(kind: FsKind) -> Vec<FsOption> {
    match kind {
        FsKind::Ext4 | FsKind::Btrfs => Vec::new(),
        FsKind::Xfs => vec![FsOption {
            key: "nouuid".to_owned(),
            value: None,
        }],
    }
}
