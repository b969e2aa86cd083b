//! An archive is written.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use orlop_host::Folder;
use orlop_host::folder::{Entry, EntryKind};
use tar::{EntryType, Header};

use super::super::Pulse;
use super::super::copy::{DEEPEST, LOOKS, restless, seen, too_deep};
use super::super::steady::Steady;
use super::{LONGEST_PATH, Packed, SAME_AS};

/// How long a link's target may be in a header itself.
const SHORT: usize = 100;

/// Packs all that is in a folder.
pub(in crate::nfs::work) fn pack(
    from: &Folder,
    to: &File,
    packed: Packed,
    pulse: &Pulse<'_>,
) -> io::Result<()> {
    let out = io::BufWriter::with_capacity(1 << 20, Steady::new(to, pulse));
    match packed {
        Packed::Plain => write(from, out, pulse)?.flush(),
        Packed::Gzip => {
            let out = write(from, GzEncoder::new(out, Compression::default()), pulse)?;
            out.finish()?.flush()
        }
    }
}

fn write<W: Write>(from: &Folder, out: W, pulse: &Pulse<'_>) -> io::Result<W> {
    let mut packing = Packing {
        builder: tar::Builder::new(out),
        pulse,
        linked: HashMap::new(),
        at: PathBuf::new(),
        levels: Vec::new(),
    };
    let looks = from.itself()?;
    packing.add(&looks, EntryType::Directory, Path::new("."), io::empty())?;
    let mut level = Level::begin(from.again()?)?;
    loop {
        let Some(name) = level.names.next() else {
            let Some(above) = packing.levels.pop() else {
                break;
            };
            packing.at.pop();
            level = above;
            continue;
        };
        if let Some(below) = packing.entry(&level.from, &name)? {
            if packing.levels.len() + 1 >= DEEPEST {
                return Err(too_deep());
            }
            packing.at.push(&name);
            packing.levels.push(std::mem::replace(&mut level, below));
        }
    }
    packing.builder.into_inner()
}

/// An archive that is half written.
struct Packing<'a, W: Write> {
    builder: tar::Builder<W>,
    pulse: &'a Pulse<'a>,
    /// Files with several names, by their number: the first of these.
    linked: HashMap<u64, PathBuf>,
    /// The folder that is packed, below the root.
    at: PathBuf,
    /// Those on the way to it.
    levels: Vec<Level>,
}

/// A folder that is half packed.
struct Level {
    from: Folder,
    names: std::vec::IntoIter<OsString>,
}

impl Level {
    fn begin(from: Folder) -> io::Result<Self> {
        let names = seen(from.names())?.unwrap_or_default().into_iter();
        Ok(Self { from, names })
    }
}

impl<W: Write> Packing<'_, W> {
    /// Packs what has a name, if there still is something; a folder is only begun.
    fn entry(&mut self, from: &Folder, name: &OsStr) -> io::Result<Option<Level>> {
        let path = self.at.join(name);
        if path.as_os_str().len() >= LONGEST_PATH {
            let told = format!("it has a path of more than {LONGEST_PATH} bytes");
            return Err(io::Error::other(told));
        }
        self.pulse.file();
        for _ in 0..LOOKS {
            let Some(entry) = seen(from.look(name))?.flatten() else {
                return Ok(None);
            };
            if entry.kind == EntryKind::Folder {
                if let Some(below) = seen(from.enter(name))? {
                    self.add(&entry, EntryType::Directory, &path, io::empty())?;
                    return Level::begin(below).map(Some);
                }
            } else if self.no_folder(from, name, &path, &entry)? {
                return Ok(None);
            }
        }
        Err(restless(&path))
    }

    /// Packs what is no folder; `false` if it is something else by now.
    fn no_folder(
        &mut self,
        from: &Folder,
        name: &OsStr,
        path: &Path,
        entry: &Entry,
    ) -> io::Result<bool> {
        match entry.kind {
            EntryKind::File => {
                let Some(file) = seen(from.read_seen(name, entry))?.flatten() else {
                    return Ok(false);
                };
                let bytes = Exactly {
                    file,
                    left: entry.size,
                    pulse: self.pulse,
                };
                self.add(entry, EntryType::Regular, path, bytes)?;
            }
            EntryKind::Link => {
                let Some(target) = seen(from.read_link(name))? else {
                    return Ok(false);
                };
                self.link(entry, path, target.as_bytes())?;
            }
            EntryKind::Pipe => self.add(entry, EntryType::Fifo, path, io::empty())?,
            EntryKind::Folder | EntryKind::Other => {}
        }
        Ok(true)
    }

    fn add(
        &mut self,
        entry: &Entry,
        kind: EntryType,
        path: &Path,
        bytes: impl Read,
    ) -> io::Result<()> {
        self.extend(entry, kind, path)?;
        let mut header = header(entry, kind);
        self.builder.append_data(&mut header, path, bytes)
    }

    /// The crate's own way to add a link would tidy up its target, which is not ours to do.
    fn link(&mut self, entry: &Entry, path: &Path, target: &[u8]) -> io::Result<()> {
        self.extend(entry, EntryType::Symlink, path)?;
        if target.len() > SHORT {
            let mut long = Header::new_gnu();
            long.set_path("././@LongLink")?;
            long.set_entry_type(EntryType::GNULongLink);
            long.set_mode(0o644);
            long.set_uid(0);
            long.set_gid(0);
            long.set_mtime(0);
            long.set_size(target.len() as u64 + 1);
            long.set_cksum();
            self.builder.append(&long, target.chain(&[0_u8][..]))?;
        }
        let mut header = header(entry, EntryType::Symlink);
        header.set_link_name_literal(&target[..target.len().min(SHORT)])?;
        self.builder.append_data(&mut header, path, io::empty())
    }

    /// What a header itself has no room for.
    fn extend(&mut self, entry: &Entry, kind: EntryType, path: &Path) -> io::Result<()> {
        let modified = exact(entry.modified);
        let mut first = None;
        if kind == EntryType::Regular && entry.names > 1 {
            match self.linked.get(&entry.inode) {
                Some(path) => first = Some(path.clone()),
                None => drop(self.linked.insert(entry.inode, path.to_owned())),
            }
        }
        let modified = modified.as_ref().map(|it| ("mtime", it.as_bytes()));
        let first = first
            .as_ref()
            .map(|it| (SAME_AS, it.as_os_str().as_bytes()));
        self.builder
            .append_pax_extensions(modified.into_iter().chain(first))
    }
}

/// A time that is no whole second, or is one before the headers' first.
fn exact((seconds, nanoseconds): (i64, u32)) -> Option<String> {
    match (seconds, nanoseconds) {
        (0.., 0) => None,
        (seconds, 0) => Some(seconds.to_string()),
        (0.., nanoseconds) => Some(format!("{seconds}.{nanoseconds:09}")),
        (seconds, nanoseconds) => {
            let whole = seconds.saturating_add(1).unsigned_abs();
            let rest = 1_000_000_000_u32.saturating_sub(nanoseconds);
            Some(format!("-{whole}.{rest:09}"))
        }
    }
}

fn header(entry: &Entry, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(entry.mode);
    header.set_uid(entry.uid.into());
    header.set_gid(entry.gid.into());
    header.set_mtime(u64::try_from(entry.modified.0).unwrap_or_default());
    header.set_size(match kind {
        EntryType::Regular => entry.size,
        _ => 0,
    });
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
