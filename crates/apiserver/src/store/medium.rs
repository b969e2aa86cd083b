//! The folder that the store's files are in: the few things that the store asks of a file
//! system, so that tests can put one underneath that loses power.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::direct::Direct;

/// How far a file reaches beyond what is in it. Nothing changes but bytes that are there already
/// when it is flushed, which takes half as long as if it grew; the zeros behind the last frame
/// are no frame.
const AHEAD: u64 = 256 << 10;
/// How much of that is kept for when there is no room for more.
const KEPT: u64 = 128 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// The file whose room is kept for the next that is made.
const SPARE: &str = "spare";

/// A folder of files that are only ever appended to.
pub(super) trait Folder: fmt::Debug + Send + Sync {
    /// The names of its files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a file from its beginning.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
    /// Keeps so much room for the next file that is made.
    fn provide(&self, bytes: u64) -> io::Result<()>;
    /// Makes a new, empty file in the room that is kept; one of this name is replaced.
    fn create(&self, name: &str) -> io::Result<Box<dyn Appended>>;
    /// Opens a file to append to it, behind its first `length` bytes. What follows is nothing but
    /// zeros, or else is cut off.
    fn append(&self, name: &str, length: u64, zeros: bool) -> io::Result<Box<dyn Appended>>;
    /// Gives a file another name; one that has it already is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Waits until new, renamed and removed names are on the medium.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is being written.
pub(super) trait Appended: fmt::Debug + Send {
    /// Sees to it that so many bytes can be added, and still a few after them when there is no
    /// room for any more.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until all of it is on the medium.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts it off behind this many bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Writes a zero behind its end, to find out whether that can be done.
    fn touch(&mut self) -> io::Result<()>;
    /// Gives back room far behind its end.
    fn trim(&mut self) -> io::Result<()>;
}

/// A real folder.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Makes the folder if it isn't there, readable by its owner only.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        Ok(Self { path })
    }
}

impl Folder for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(BufReader::with_capacity(
            1 << 20,
            File::open(self.path.join(name))?,
        )))
    }

    fn provide(&self, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.join(SPARE))?;
        let length = file.metadata()?.len();
        if length >= bytes {
            return Ok(());
        }
        fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(|error| {
            // What was found of it must not be missing elsewhere.
            drop(file.set_len(length));
            error.into()
        })
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Appended>> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let spare = fs::rename(self.path.join(SPARE), &path).is_ok();
        let file = OpenOptions::new()
            .write(true)
            .create_new(!spare)
            .read(true)
            .mode(0o600)
            .open(&path)?;
        let reserved = file.metadata()?.len();
        Ok(Box::new(Real {
            file,
            direct: Direct::open(&path),
            length: 0,
            reserved,
        }))
    }

    fn append(&self, name: &str, length: u64, zeros: bool) -> io::Result<Box<dyn Appended>> {
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        if !zeros {
            file.set_len(length)?;
            file.sync_all()?;
        }
        let mut direct = Direct::open(&path);
        if let Some(direct) = &mut direct {
            direct.restart(&file, length)?;
        }
        let reserved = file.metadata()?.len();
        Ok(Box::new(Real {
            file,
            direct,
            length,
            reserved,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

#[derive(Debug)]
struct Real {
    file: File,
    /// The quicker way to the medium, where there is one.
    direct: Option<Direct>,
    /// How much of it was written.
    length: u64,
    /// How long it is on the medium; as long as can be where nobody knows.
    reserved: u64,
}

impl Real {
    /// Makes it so long on the medium, with zeros: room that was never written is marked as
    /// written by the flush of what is put there, which takes longer.
    fn reach(&mut self, end: u64) -> io::Result<()> {
        let from = self.reserved;
        let reached = match fallocate(&self.file, FallocateFlags::empty(), from, end - from) {
            Ok(()) => self.fill(from, end),
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(error.into()),
            // Where that can't be done, the file grows with every write.
            Err(_) => {
                self.reserved = u64::MAX;
                return Ok(());
            }
        };
        match reached {
            Ok(()) => self.reserved = end,
            // Some of it may have been found, and must not be missing elsewhere.
            Err(_) => self.file.set_len(from)?,
        }
        reached
    }

    fn fill(&self, from: u64, end: u64) -> io::Result<()> {
        let mut at = from;
        while at < end {
            let rest = usize::try_from(end - at).unwrap_or(usize::MAX);
            let piece = &ZEROS[..ZEROS.len().min(rest)];
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl Appended for Real {
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let end = self.length + bytes + KEPT;
        if end <= self.reserved {
            return Ok(());
        }
        self.reach(end + AHEAD).or_else(|_| self.reach(end))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = match &mut self.direct {
            Some(direct) => direct.write(self.length, bytes)?,
            None => false,
        };
        if !written {
            self.file.write_all_at(bytes, self.length)?;
        }
        if let Some(direct) = &mut self.direct {
            direct.passed(bytes);
        }
        self.length += bytes.len() as u64;
        self.reserved = self.reserved.max(self.length);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        (self.length, self.reserved) = (length, length);
        if let Some(direct) = &mut self.direct {
            direct.restart(&self.file, length)?;
        }
        // What is kept for when there is no room is wanted now, if it can still be had.
        drop(self.reserve(0));
        Ok(())
    }

    fn touch(&mut self) -> io::Result<()> {
        self.file.write_all_at(&[0], self.length)?;
        self.file.sync_data()
    }

    fn trim(&mut self) -> io::Result<()> {
        let end = self.length + KEPT + AHEAD;
        if self.reserved > end && self.reserved < u64::MAX {
            self.file.set_len(end)?;
            self.reserved = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(directory: &Directory, name: &str) -> Vec<u8> {
        let mut all = Vec::new();
        directory.read(name).unwrap().read_to_end(&mut all).unwrap();
        all
    }

    #[test]
    fn a_file_reaches_beyond_its_end_and_is_cut_there_if_something_else_follows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let directory = Directory::open(folder.path().to_owned()).unwrap();
        let content = || content(&directory, "f");
        let mut file = directory.create("f").unwrap();
        file.reserve(3).unwrap();
        file.append(b"one").unwrap();
        let long = fs::metadata(&path).unwrap().len();
        file.reserve(3).unwrap();
        file.append(b"two").unwrap();
        file.sync().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), long, "it did not grow");
        assert_eq!(content()[..6], *b"onetwo");
        assert!(content()[6..].iter().all(|byte| *byte == 0));

        file.truncate(3).unwrap();
        file.reserve(AHEAD).unwrap();
        file.append(b"three").unwrap();
        assert_eq!(content()[..8], *b"onethree");
        assert!(content()[8..].iter().all(|byte| *byte == 0));

        drop(file);
        let long = fs::metadata(&path).unwrap().len();
        let mut file = directory.append("f", 8, true).unwrap();
        file.reserve(3).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            long,
            "what it had it keeps"
        );
        file.append(b"four").unwrap();
        assert_eq!(content()[..13], *b"onethreefour\0");
        drop(file);
        let mut file = directory.append("f", 8, false).unwrap();
        assert_eq!(content(), b"onethree");
        file.append(&vec![1; AHEAD as usize * 2]).unwrap();
        assert_eq!(content()[..9], *b"onethree\x01");
    }

    #[test]
    fn the_next_file_takes_the_room_that_is_kept_and_gives_back_what_it_does_not_need() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path().to_owned()).unwrap();
        for bytes in [1 << 20, 4 << 20, 1 << 20] {
            directory.provide(bytes).unwrap();
        }
        let length = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
        assert_eq!(length(SPARE), 4 << 20, "it doesn't shrink");
        let mut file = directory.create("f").unwrap();
        assert_eq!(directory.list().unwrap(), ["f"]);
        file.append(b"one").unwrap();
        assert_eq!(length("f"), 4 << 20);
        assert_eq!(content(&directory, "f")[..4], *b"one\0");
        file.trim().unwrap();
        assert_eq!(length("f"), 3 + KEPT + AHEAD);
        file.reserve(3).unwrap();
        assert_eq!(length("f"), 3 + KEPT + AHEAD);
    }

    #[test]
    fn whatever_is_appended_in_whatever_pieces_is_found_and_zeros_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path().to_owned()).unwrap();
        let mut file = directory.create("f").unwrap();
        let mut expected: Vec<u8> = Vec::new();
        let mut dice: u64 = 7;
        let mut roll = |sides: usize| {
            dice = dice
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (dice >> 33) as usize % sides
        };
        for round in 0..300 {
            // Around the ends of blocks, and more than goes past the cache at once.
            let length = match roll(20) {
                0 => 300_000 + roll(5000),
                1..4 => 4096 - expected.len() % 4096,
                4..8 => roll(9000),
                _ => roll(900),
            };
            let bytes: Vec<u8> = (0..length).map(|_| 1 + roll(255) as u8).collect();
            if roll(3) > 0 {
                file.reserve(length as u64).unwrap();
            }
            file.append(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
            match roll(12) {
                0 => {
                    expected.truncate(expected.len() - roll(expected.len().min(9000) + 1));
                    file.truncate(expected.len() as u64).unwrap();
                }
                1 => {
                    let zeros = roll(2) == 0;
                    drop(file);
                    file = directory.append("f", expected.len() as u64, zeros).unwrap();
                }
                2 => file.touch().unwrap(),
                _ => file.sync().unwrap(),
            }
            if round % 20 == 19 {
                let found = content(&directory, "f");
                assert!(found[..expected.len()] == expected, "round {round}");
                let behind = &found[expected.len()..];
                assert!(behind.iter().all(|byte| *byte == 0), "round {round}");
            }
        }
    }
}
