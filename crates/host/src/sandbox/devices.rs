//! `/dev` of a container: the nodes every program expects, the block devices it
//! was given, and nothing of the host's.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::spec::Device;

/// A device node to make in the container; read off the host beforehand.
pub(super) struct Node {
    at: PathBuf,
    kind: FileType,
    number: u64,
    mode: Mode,
}

/// Looks a block device up on the host.
pub(super) fn look_up(device: &Device) -> io::Result<Node> {
    let found = fs::metadata(&device.source)?;
    if !found.file_type().is_block_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a block device",
        ));
    }
    Ok(Node {
        at: device.target.clone(),
        kind: FileType::BlockDevice,
        number: found.rdev(),
        mode: Mode::from_raw_mode(0o660),
    })
}

impl Node {
    pub(super) fn target(&self) -> &Path {
        &self.at
    }

    /// Makes the node; one that is there already is replaced.
    pub(super) fn make(&self) -> io::Result<()> {
        if let Some(parent) = self.at.parent() {
            fs::create_dir_all(parent)?;
        }
        match fs::remove_file(&self.at) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        Ok(mknodat(CWD, &self.at, self.kind, self.mode, self.number)?)
    }
}

/// Fills an empty `/dev` (mode bits are exact: the caller cleared the umask).
pub(super) fn make_standard_nodes() -> io::Result<()> {
    for (name, minor) in [
        ("null", 3),
        ("zero", 5),
        ("full", 7),
        ("random", 8),
        ("urandom", 9),
    ] {
        let node = Node {
            at: Path::new("/dev").join(name),
            kind: FileType::CharacterDevice,
            number: makedev(1, minor),
            mode: Mode::from_raw_mode(0o666),
        };
        node.make()?;
    }
    let tty = Node {
        at: "/dev/tty".into(),
        kind: FileType::CharacterDevice,
        number: makedev(5, 0),
        mode: Mode::from_raw_mode(0o666),
    };
    tty.make()?;
    for (link, to) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/ptmx", "pts/ptmx"),
    ] {
        symlink(to, link)?;
    }
    Ok(())
}
