//! New file systems: what mkfs does, and what it would do.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::FsKind;
use crate::program::{Program, ProgramError};

const MKFS_EXT4: Program = Program {
    path: "/usr/sbin/mkfs.ext4",
    package: "e2fsprogs",
};
const MKFS_XFS: Program = Program {
    path: "/usr/sbin/mkfs.xfs",
    package: "xfsprogs",
};
const MKFS_BTRFS: Program = Program {
    path: "/usr/sbin/mkfs.btrfs",
    package: "btrfs-progs",
};

/// Makes a file system, destroying what is there. The result is on disk when this returns.
///
/// Inode tables and the journal are zeroed lazily by the kernel, and nothing is discarded: on a
/// fresh sparse image all of it is zero already. Options are handed to mkfs as they are.
pub fn make(kind: FsKind, device: &Path, options: &[String]) -> Result<(), MakeError> {
    run_mkfs(kind, device, options).map_err(MakeError::Program)?;
    File::open(device)
        .and_then(|file| file.sync_all())
        .map_err(MakeError::Sync)
}

/// Makes a file system in an image that is one hole, writing no more than it needs.
///
/// mkfs.ext4 syncs again and again, which takes most of its time. So it works in memory, and what
/// is not zero is copied into the image and synced once: half the time, measured. The others are left
/// to themselves: in an image mkfs.xfs gets its log's zeros from the file system, in memory it writes
/// them.
pub fn make_image(kind: FsKind, image: &Path, options: &[String]) -> Result<(), MakeError> {
    /// Up to here a new file system's own data is a few megabytes.
    const LARGEST_IN_MEMORY: u64 = 64 << 30;
    let target = OpenOptions::new()
        .write(true)
        .open(image)
        .map_err(MakeError::Sync)?;
    let size = target.metadata().map_err(MakeError::Sync)?.len();
    if kind != FsKind::Ext4 || size > LARGEST_IN_MEMORY {
        return make(kind, image, options);
    }
    let memory = memory_of(size)?;
    run_mkfs(kind, &path_of(&memory), options).map_err(MakeError::Program)?;
    copy_data(&memory, &target, size).map_err(MakeError::Sync)?;
    target.sync_all().map_err(MakeError::Sync)
}

/// Whether mkfs would make a file system of this size with these options. Nothing is written to any
/// disk, whatever they say.
pub fn try_options(kind: FsKind, size: u64, options: &[String]) -> Result<(), MakeError> {
    let memory = memory_of(size)?;
    let dry = match kind {
        FsKind::Ext4 => Some("-n"),
        FsKind::Xfs => Some("-N"),
        // Has no such option; what it writes to memory is little.
        FsKind::Btrfs => None,
    };
    let options: Vec<_> = dry
        .map(str::to_owned)
        .into_iter()
        .chain(options.iter().cloned())
        .collect();
    run_mkfs(kind, &path_of(&memory), &options).map_err(MakeError::Program)
}

/// A file of this size in memory, all of it a hole.
fn memory_of(size: u64) -> Result<File, MakeError> {
    rustix::fs::memfd_create("mkfs", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(io::Error::from)
        .map(File::from)
        .and_then(|memory| memory.set_len(size).map(|()| memory))
        .map_err(MakeError::Memory)
}

/// How another process can open a file of ours: it has no such descriptor, so not by /proc/self.
fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

fn run_mkfs(kind: FsKind, device: &Path, options: &[String]) -> Result<(), ProgramError> {
    let (program, fixed): (_, &[&str]) = match kind {
        FsKind::Ext4 => {
            let extended = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
            (MKFS_EXT4, &["-q", "-F", "-m", "0", "-E", extended])
        }
        // Small blocks may be asked for, and sectors are no larger than those.
        FsKind::Xfs if options.iter().any(|option| option == "-b") => {
            (MKFS_XFS, &["-q", "-f", "-K"])
        }
        // Else large sectors, so that direct I/O is possible whatever the image is on.
        FsKind::Xfs => (MKFS_XFS, &["-q", "-f", "-K", "-s", "size=4096"]),
        FsKind::Btrfs => (MKFS_BTRFS, &["-q", "-f", "-K"]),
    };
    let mut arguments: Vec<&OsStr> = fixed.iter().map(AsRef::as_ref).collect();
    arguments.extend(options.iter().map(AsRef::<OsStr>::as_ref));
    arguments.extend([OsStr::new("--"), device.as_os_str()]);
    program.run(&arguments)
}

/// Copies what is not zero, leaving holes for the rest.
pub(crate) fn copy_data(from: &File, to: &File, size: u64) -> io::Result<()> {
    const BLOCK: usize = 4096;
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    // Small: many volumes may be formatted at once.
    let mut buffer = vec![0u8; 16 * BLOCK];
    let mut at = 0;
    while let Some(data) = next_data(from, at)? {
        at = data / BLOCK as u64 * BLOCK as u64;
        let want = usize::try_from(size - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        from.read_exact_at(&mut buffer[..want], at)?;
        for (index, block) in buffer[..want].chunks(BLOCK).enumerate() {
            if *block != ZEROS[..block.len()] {
                to.write_all_at(block, at + (index * BLOCK) as u64)?;
            }
        }
        at += want as u64;
    }
    Ok(())
}

/// Where the next data begins; none if the rest is a hole.
fn next_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(from)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Why a file system could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// mkfs failed.
    #[error("could not make the file system")]
    Program(#[source] ProgramError),
    /// There was no memory to work in.
    #[error("could not get memory to make the file system in")]
    Memory(#[source] io::Error),
    /// It could not be written out.
    #[error("could not write the new file system to disk")]
    Sync(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_mkfs_takes_are_told_from_those_that_it_refuses() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (kind, good, bad) in [
            (FsKind::Ext4, "-b 1024 -O ^has_journal", "-I 100"),
            (FsKind::Xfs, "-m reflink=0", "-d agcount=99999"),
            (FsKind::Btrfs, "-n 16384", "-n 5"),
        ] {
            if let Err(MakeError::Program(ProgramError::Missing { .. })) =
                try_options(kind, 512 << 20, &[])
            {
                continue;
            }
            try_options(kind, 512 << 20, &words(good)).unwrap();
            let refused = try_options(kind, 512 << 20, &words(bad)).unwrap_err();
            assert!(
                matches!(refused, MakeError::Program(ProgramError::Failed { .. })),
                "{kind}: {refused:?}"
            );
        }
    }
}
