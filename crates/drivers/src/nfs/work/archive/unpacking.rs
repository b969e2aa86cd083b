//! An archive is read, of which nothing is known but who is said to have written it.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use orlop_host::Folder;
use orlop_host::folder::{self, EntryKind};
use tar::{EntryType, Header};

use super::super::Pulse;
use super::super::copy::{add_name, dress, tolerate};
use super::super::steady::Steady;
use super::{LONGEST_PATH, Packed, SAME_AS};

/// The most that is read for one entry before its content: a path and a link's target, written twice.
const HEADERS: u64 = 5 * LONGEST_PATH as u64;

/// Unpacks an archive into an empty folder.
pub(in crate::nfs::work) fn unpack(
    archive: File,
    packed: Packed,
    to: &Folder,
    pulse: &Pulse<'_>,
) -> io::Result<()> {
    let mut unpacking = Unpacking {
        to,
        pulse,
        folders: Vec::new(),
        last: None,
    };
    read(archive, packed, pulse, |entry| unpacking.entry(entry))?;
    unpacking.dress()
}

/// Reads an archive to its end.
pub(super) fn check(archive: File, packed: Packed, pulse: &Pulse<'_>) -> io::Result<()> {
    read(archive, packed, pulse, |_| {
        pulse.file();
        Ok(())
    })
}

type Entry<'a> = tar::Entry<'a, Metered<Box<dyn Read>>>;

fn read(
    archive: File,
    packed: Packed,
    pulse: &Pulse<'_>,
    mut each: impl FnMut(&mut Entry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let archive = io::BufReader::with_capacity(1 << 20, archive);
    let archive: Box<dyn Read> = match packed {
        Packed::Plain => Box::new(archive),
        Packed::Gzip => Box::new(MultiGzDecoder::new(archive)),
    };
    let meter = Rc::new(Meter::default());
    let mut archive = tar::Archive::new(Metered {
        archive,
        meter: Rc::clone(&meter),
    });
    let mut entries = archive.entries()?;
    loop {
        meter.left.set(Some(HEADERS));
        let Some(entry) = entries.next() else { break };
        meter.left.set(None);
        let mut entry = entry?;
        each(&mut entry)?;
        // To its end, so that what comes next is the next header.
        drain(&mut entry, pulse)?;
    }
    meter.left.set(None);
    if meter.ended.get() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the archive is cut short",
        ));
    }
    // A checksum of all that was packed comes after the end of what was.
    drain(&mut archive.into_inner(), pulse)
}

/// Reads on to the end.
fn drain(from: &mut impl Read, pulse: &Pulse<'_>) -> io::Result<()> {
    let mut rest = vec![0; 64 << 10];
    while from.read(&mut rest)? > 0 {
        pulse.beat();
    }
    Ok(())
}

/// What is known of an archive that is being read.
#[derive(Default)]
struct Meter {
    /// How many more bytes there may be.
    left: Cell<Option<u64>>,
    /// Whether there were no more. A whole archive says by itself where it ends.
    ended: Cell<bool>,
}

/// An archive, read under a meter: names are read into memory, as long as they say that they are.
struct Metered<R> {
    archive: R,
    meter: Rc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.archive.read(buffer)?;
        if length == 0 && !buffer.is_empty() {
            self.meter.ended.set(true);
        }
        if let Some(left) = self.meter.left.get() {
            match left.checked_sub(length as u64) {
                Some(left) => self.meter.left.set(Some(left)),
                None => return Err(strange("a path that is longer than any other")),
            }
        }
        Ok(length)
    }
}

/// An archive that is half read.
struct Unpacking<'a> {
    to: &'a Folder,
    pulse: &'a Pulse<'a>,
    /// A folder is dressed last: its time changes, and it may not be writable, or ours, any more.
    folders: Vec<(PathBuf, folder::Entry)>,
    /// Where the last entry went, which is where the next one goes mostly.
    last: Option<(PathBuf, Folder)>,
}

/// What an entry has besides its header.
#[derive(Default)]
struct More {
    modified: Option<(i64, u32)>,
    same_as: Option<PathBuf>,
}

impl Unpacking<'_> {
    fn entry(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        self.pulse.file();
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let path = below(&entry.path()?)?;
        let more = more(entry)?;
        let mut looks = clothes(entry.header())?;
        looks.modified = more.modified.unwrap_or(looks.modified);
        if kind == EntryType::Directory {
            if !path.as_os_str().is_empty() {
                self.to.make(&path, 0o700)?;
            }
            self.folders.push((path, looks));
            return Ok(());
        }
        let (Some(name), parent) = (path.file_name(), path.parent()) else {
            return Err(strange("an entry without a name"));
        };
        let held = self.folder(parent.unwrap_or(Path::new("")))?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                match more.same_as {
                    Some(first) if self.same(&path, &held, &first)? => {}
                    _ => self.file(entry, &held, name, &looks)?,
                }
            }
            EntryType::Symlink => {
                let target = entry
                    .link_name_bytes()
                    .ok_or_else(|| strange("a link to nowhere"))?;
                held.remove_file(name)?;
                held.make_link(name, OsStr::from_bytes(&target))?;
                tolerate(held.set_owner(name, looks.uid, looks.gid))?;
                held.set_modified(name, looks.modified)?;
            }
            EntryType::Link => {
                let target = entry
                    .link_name()?
                    .ok_or_else(|| strange("a link to nowhere"))?;
                let first = below(&target)?;
                if !self.same(&path, &held, &first)? {
                    // It is written in full only at its first name.
                    let mut file = self.first(&first)?;
                    self.file(&mut file, &held, name, &looks)?;
                }
            }
            EntryType::Fifo => {
                held.remove_file(name)?;
                held.make_pipe(name, looks.mode)?;
                tolerate(held.dress_pipe(name, &looks))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A folder below, made where it is missing.
    fn folder(&mut self, path: &Path) -> io::Result<Folder> {
        if path.as_os_str().is_empty() {
            return self.to.again();
        }
        if let Some((last, held)) = &self.last
            && last == path
        {
            return held.again();
        }
        let held = self.to.make(path, 0o755)?;
        self.last = Some((path.to_owned(), held.again()?));
        Ok(held)
    }

    /// Writes a file. A later entry of the same name counts.
    fn file(
        &self,
        from: &mut impl Read,
        held: &Folder,
        name: &OsStr,
        looks: &folder::Entry,
    ) -> io::Result<()> {
        held.remove_file(name)?;
        let file = held.create(name, 0o600)?;
        let mut steady = Steady::new(&file, self.pulse);
        let mut buffer = vec![0; 256 << 10];
        loop {
            match from.read(&mut buffer)? {
                0 => break,
                length => steady.write_all(&buffer[..length])?,
            }
        }
        steady.finish()?;
        tolerate(folder::dress(&file, looks))
    }

    /// Gives what an earlier entry made a second name; `false` where there are none.
    fn same(&self, path: &Path, held: &Folder, first: &Path) -> io::Result<bool> {
        let (Some(name), Some(_)) = (path.file_name(), first.file_name()) else {
            return Err(strange("a second name of nothing"));
        };
        // Its own name is none to be removed.
        if path == first {
            return Ok(true);
        }
        held.remove_file(name)?;
        add_name(self.to, first, held, name)
    }

    /// What an earlier entry made.
    fn first(&self, path: &Path) -> io::Result<File> {
        let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
        let held = match parent {
            None => self.to.again()?,
            Some(parent) => self.to.enter(parent)?,
        };
        held.read(path.file_name().unwrap_or_default())
    }

    fn dress(&self) -> io::Result<()> {
        for (path, looks) in self.folders.iter().rev() {
            self.pulse.beat();
            match path.as_os_str().is_empty() {
                true => dress(self.to, looks)?,
                false => dress(&self.to.enter(path)?, looks)?,
            }
        }
        Ok(())
    }
}

fn more(entry: &mut Entry<'_>) -> io::Result<More> {
    let mut more = More::default();
    let Some(records) = entry.pax_extensions()? else {
        return Ok(more);
    };
    for record in records {
        let record = record?;
        match record.key() {
            Ok("mtime") => more.modified = record.value().ok().and_then(exact),
            Ok(SAME_AS) => {
                more.same_as = Some(below(Path::new(OsStr::from_bytes(record.value_bytes())))?);
            }
            _ => {}
        }
    }
    Ok(more)
}

/// A time as PAX writes it: seconds since 1970 or before, with a fraction or without.
fn exact(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let before = whole.starts_with('-');
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    match (before, nanoseconds) {
        (true, 1..) => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds)),
        _ => Some((seconds, nanoseconds)),
    }
}

fn clothes(header: &Header) -> io::Result<folder::Entry> {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Ok(folder::Entry {
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
