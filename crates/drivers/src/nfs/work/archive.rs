//! The archive of a snapshot: a tar file, compressed or not, as the original writes it.
//!
//! Names are those below the volume's folder, which is `.` itself. What an archive says is as little
//! trusted as any other input: nothing is written outside of the folder that it is unpacked into.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use orlop_host::Folder;

use super::Pulse;
use super::create::MODE;
use super::house::found;
use crate::nfs::record::digest;
use crate::nfs::sub_dir::SubDir;

mod packing;
mod unpacking;

pub(super) use packing::pack;
pub(super) use unpacking::unpack;

/// The longest path of an archive. It is read into memory, so there must be an end to it; no path that
/// a program can use by itself is nearly as long.
const LONGEST_PATH: usize = 64 << 10;

/// What notes in an archive that a file is another one's second name. The file is there in full as well,
/// because the original makes an empty one of a link.
const SAME_AS: &str = "ORLOP.same-as";

/// Permissions of an archive that is known to be whole. Ours come to their places when they are; the
/// original writes its own where they stay, and lets others read them.
const WHOLE: u32 = 0o600;

/// What a file's name may have at most.
const LONGEST_NAME: usize = 255;

/// How an archive is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packed {
    Plain,
    Gzip,
}

impl Packed {
    fn ending(self) -> &'static str {
        match self {
            Self::Plain => ".tar",
            Self::Gzip => ".tar.gz",
        }
    }
}

/// The folder of an archive, below that of its snapshot, and the archive's name.
pub(super) fn place(source: &SubDir, packed: Packed) -> (Option<PathBuf>, String) {
    let ending = packed.ending();
    let name = source.name();
    let name = match name.len() + ending.len() > LONGEST_NAME {
        false => format!("{name}{ending}"),
        // The original has none of such a volume.
        true => format!("{}{ending}", digest(name)),
    };
    (source.parent(), name)
}

/// Makes the file of an archive in the folder of its snapshot.
pub(super) fn create(snapshot: &Folder, source: &SubDir, packed: Packed) -> io::Result<File> {
    let (parent, name) = place(source, packed);
    let held = match parent {
        None => snapshot.again()?,
        Some(parent) => snapshot.make(parent, MODE)?,
    };
    held.create(name, WHOLE)
}

/// Opens the archive of a snapshot, however it is packed.
pub(super) fn open(snapshot: &Folder, source: &SubDir) -> io::Result<Option<(File, Packed)>> {
    for packed in [Packed::Gzip, Packed::Plain] {
        let (parent, name) = place(source, packed);
        let held = match parent {
            None => Some(snapshot.again()?),
            Some(parent) => found(snapshot.enter(parent))?,
        };
        let Some(held) = held else { continue };
        if let Some(file) = found(held.read(&name))? {
            return Ok(Some((file, packed)));
        }
    }
    Ok(None)
}

/// Whether an archive is whole. Who reads that of another driver to its end leaves a mark, because it may
/// take longer than any caller waits.
pub(super) fn is_whole(file: &File, packed: Packed, pulse: &Pulse<'_>) -> io::Result<bool> {
    let permissions = file.metadata()?.permissions();
    if permissions.mode() & 0o7777 == WHOLE {
        return Ok(true);
    }
    match unpacking::check(file.try_clone()?, packed, pulse) {
        Ok(()) => {}
        // It is the archive's fault, not the server's.
        Err(error) if error.raw_os_error().is_none() => return Ok(false),
        Err(error) => return Err(error),
    }
    if let Err(error) = file.set_permissions(Permissions::from_mode(WHOLE)) {
        eprintln!("a whole archive cannot be marked, and will be read again: {error}");
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
