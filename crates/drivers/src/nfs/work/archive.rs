//! The archive of a snapshot: a tar file, compressed or not, as the original writes it.
//!
//! Names are those below the volume's folder, which is `.` itself. What an archive says is as little
//! trusted as any other input: nothing is written outside of the folder that it is unpacked into.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use orlop_host::Folder;
use orlop_host::folder::{self, Entry, EntryKind};
use tar::{EntryType, Header};

use super::Pulse;
use super::copy::{dress, tolerate};
use super::house::found;
use crate::nfs::sub_dir::SubDir;

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
    (
        source.parent(),
        format!("{}{}", source.name(), packed.ending()),
    )
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

/// Packs all that is in a folder.
pub(super) fn pack(from: &Folder, to: &File, packed: Packed, pulse: &Pulse<'_>) -> io::Result<()> {
    match packed {
        Packed::Plain => {
            let mut out = io::BufWriter::with_capacity(1 << 20, to);
            write(from, &mut out, pulse)?;
            out.flush()
        }
        Packed::Gzip => {
            let mut out = GzEncoder::new(
                io::BufWriter::with_capacity(1 << 20, to),
                Compression::default(),
            );
            write(from, &mut out, pulse)?;
            out.finish()?.flush()
        }
    }
}

fn write(from: &Folder, out: impl Write, pulse: &Pulse<'_>) -> io::Result<()> {
    let mut builder = tar::Builder::new(out);
    let mut header = header(&from.itself()?, EntryType::Directory);
    builder.append_data(&mut header, ".", io::empty())?;
    tree(&mut builder, from, Path::new(""), pulse)?;
    builder.into_inner()?.flush()
}

fn tree<W: Write>(
    builder: &mut tar::Builder<W>,
    from: &Folder,
    at: &Path,
    pulse: &Pulse<'_>,
) -> io::Result<()> {
    let mut names = from.names()?;
    names.sort_unstable();
    for name in names {
        let Some(entry) = from.look(&name)? else {
            continue;
        };
        let path = at.join(&name);
        pulse.file();
        match entry.kind {
            EntryKind::Folder => {
                let mut header = header(&entry, EntryType::Directory);
                builder.append_data(&mut header, &path, io::empty())?;
                tree(builder, &from.enter(&name)?, &path, pulse)?;
            }
            EntryKind::File => {
                let mut header = header(&entry, EntryType::Regular);
                header.set_size(entry.size);
                header.set_cksum();
                let file = from.read(&name)?;
                let bytes = Exactly {
                    file,
                    left: entry.size,
                    pulse,
                };
                builder.append_data(&mut header, &path, bytes)?;
            }
            EntryKind::Link => {
                let mut header = header(&entry, EntryType::Symlink);
                builder.append_link(&mut header, &path, from.read_link(&name)?)?;
            }
            EntryKind::Pipe => {
                let mut header = header(&entry, EntryType::Fifo);
                builder.append_data(&mut header, &path, io::empty())?;
            }
            EntryKind::Other => {}
        }
    }
    Ok(())
}

fn header(entry: &Entry, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(entry.mode);
    header.set_uid(entry.uid.into());
    header.set_gid(entry.gid.into());
    header.set_mtime(u64::try_from(entry.modified.0).unwrap_or_default());
    header.set_size(0);
    header.set_cksum();
    header
}

/// So many bytes of a file, whatever happens to it meanwhile: its size is written already.
struct Exactly<'a> {
    file: File,
    left: u64,
    pulse: &'a Pulse<'a>,
}

impl Read for Exactly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pulse.beat();
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let mut length = self.file.read(&mut buffer[..most])?;
        if length == 0 {
            buffer[..most].fill(0);
            length = most;
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// Unpacks an archive into an empty folder.
pub(super) fn unpack(
    archive: File,
    packed: Packed,
    to: &Folder,
    pulse: &Pulse<'_>,
) -> io::Result<()> {
    let archive = io::BufReader::with_capacity(1 << 20, archive);
    match packed {
        Packed::Plain => read(archive, to, pulse),
        Packed::Gzip => read(MultiGzDecoder::new(archive), to, pulse),
    }
}

fn read(archive: impl Read, to: &Folder, pulse: &Pulse<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    // A folder is dressed last: its time changes, and it may not be writable, or ours, any more.
    let mut folders: Vec<(PathBuf, Entry)> = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        pulse.file();
        let path = below(&entry.path()?)?;
        let looks = clothes(entry.header())?;
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory {
            if !path.as_os_str().is_empty() {
                to.make(&path, 0o700)?;
            }
            folders.push((path, looks));
            continue;
        }
        let (Some(name), parent) = (path.file_name(), path.parent()) else {
            return Err(strange("an entry without a name"));
        };
        let held = match parent.filter(|parent| !parent.as_os_str().is_empty()) {
            None => to.again()?,
            Some(parent) => to.make(parent, 0o755)?,
        };
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                // A later entry of the same name counts.
                held.remove_file(name)?;
                let mut file = held.create(name, 0o600)?;
                let mut buffer = vec![0; 256 << 10];
                loop {
                    match entry.read(&mut buffer)? {
                        0 => break,
                        length => file.write_all(&buffer[..length])?,
                    }
                    pulse.beat();
                }
                tolerate(folder::dress(&file, &looks))?;
            }
            EntryType::Symlink => {
                let target = entry
                    .link_name()?
                    .ok_or_else(|| strange("a link to nowhere"))?;
                held.remove_file(name)?;
                held.make_link(name, target.as_os_str())?;
                tolerate(held.set_owner(name, looks.uid, looks.gid))?;
                held.set_modified(name, looks.modified)?;
            }
            EntryType::Link => {
                let target = entry
                    .link_name()?
                    .ok_or_else(|| strange("a link to nowhere"))?;
                let target = below(&target)?;
                let Some(old) = target.file_name() else {
                    return Err(strange("a second name of nothing"));
                };
                let parent = target.parent().filter(|path| !path.as_os_str().is_empty());
                let from = match parent {
                    None => to.again()?,
                    Some(parent) => to.enter(parent)?,
                };
                held.add_name(name, &from, old)?;
            }
            EntryType::Fifo => held.make_pipe(name, looks.mode)?,
            _ => {}
        }
    }
    for (path, looks) in folders.iter().rev() {
        match path.as_os_str().is_empty() {
            true => dress(to, looks)?,
            false => dress(&to.enter(path)?, looks)?,
        }
    }
    Ok(())
}

fn clothes(header: &Header) -> io::Result<Entry> {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Ok(Entry {
        kind: EntryKind::Other,
        mode: header.mode()? & 0o7777,
        uid: number(header.uid()?),
        gid: number(header.gid()?),
        size: 0,
        modified: (i64::try_from(header.mtime()?).unwrap_or_default(), 0),
        names: 1,
        inode: 0,
    })
}

/// A path below a folder, without the dots that some programs put before it; empty for the folder.
fn below(path: &Path) -> io::Result<PathBuf> {
    let mut below = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => below.push(name),
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                return Err(strange("a path that leads out of the volume"));
            }
        }
    }
    Ok(below)
}

fn strange(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the archive holds {what}; it was not written by a driver of this kind"),
    )
}

#[cfg(test)]
mod tests;
