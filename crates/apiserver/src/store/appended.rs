//! A file that is only ever appended to, and reaches beyond what is in it.
//!
//! Nothing but bytes that are there already changes when it is flushed, which takes half as long as if
//! it grew; the zeros behind its end are no frame.

use std::io;

use super::direct::Direct;
use super::medium::{Folder, Medium};

/// How far a file reaches beyond what is in it.
const AHEAD: u64 = 256 << 10;
/// How much of that is kept for when there is no room for more.
const KEPT: u64 = 128 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// The file whose room is kept for the next that is made.
pub(super) const SPARE: &str = "spare";

/// How far files reach beyond what is in them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// So far, if there is room.
    pub(super) ahead: u64,
    /// So far besides, for when there is none.
    pub(super) kept: u64,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            ahead: AHEAD,
            kept: KEPT,
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Appended {
    file: Box<dyn Medium>,
    /// The quicker way to the medium.
    direct: Direct,
    reach: Reach,
    /// How much of it was written.
    length: u64,
    /// How long it is on the medium; as long as can be where nobody knows.
    reserved: u64,
}

/// Keeps so much room in a folder for the next file that is made.
pub(super) fn provide(folder: &dyn Folder, bytes: u64) -> io::Result<()> {
    let file = match folder.open(SPARE, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder.open(SPARE, true),
        opened => opened,
    }?;
    let length = file.length()?;
    if length >= bytes {
        return Ok(());
    }
    file.allocate(length, bytes).inspect_err(|_| {
        // What was found of it must not be missing elsewhere.
        drop(file.set_length(length));
    })
}

impl Appended {
    /// Makes a new, empty file in the room that is kept; one of this name is replaced.
    pub(super) fn create(folder: &dyn Folder, name: &str) -> io::Result<Self> {
        match folder.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let spare = folder.rename(SPARE, name).is_ok();
        let file = folder.open(name, !spare)?;
        let reserved = file.length()?;
        Ok(Self {
            file,
            direct: Direct::default(),
            reach: folder.reach(),
            length: 0,
            reserved,
        })
    }

    /// Opens a file to append to it, behind its first `length` bytes. What follows is nothing but
    /// zeros, or else is cut off.
    pub(super) fn open(
        folder: &dyn Folder,
        name: &str,
        length: u64,
        zeros: bool,
    ) -> io::Result<Self> {
        let file = folder.open(name, false)?;
        if !zeros {
            file.set_length(length)?;
            file.sync()?;
        }
        let mut direct = Direct::default();
        direct.restart(&*file, length)?;
        let reserved = file.length()?;
        Ok(Self {
            file,
            direct,
            reach: folder.reach(),
            length,
            reserved,
        })
    }

    /// Sees to it that so many bytes can be added, and still a few after them when there is no
    /// room for any more.
    pub(super) fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let end = self.length + bytes + self.reach.kept;
        if end <= self.reserved {
            return Ok(());
        }
        let ahead = end + self.reach.ahead;
        self.extend(ahead).or_else(|_| self.extend(end))
    }

    /// Makes it so long on the medium, with zeros: room that was never written is marked as
    /// written by the flush of what is put there, which takes longer.
    fn extend(&mut self, end: u64) -> io::Result<()> {
        let from = self.reserved;
        let extended = match self.file.allocate(from, end) {
            Ok(()) => self.fill(from, end),
            Err(error) if super::health::is_full(&error) => Err(error),
            // Where that can't be done, the file grows with every write.
            Err(_) => {
                self.reserved = u64::MAX;
                return Ok(());
            }
        };
        match extended {
            Ok(()) => self.reserved = end,
            // Some of it may have been found, and must not be missing elsewhere.
            Err(_) => self.file.set_length(from)?,
        }
        extended
    }

    fn fill(&self, from: u64, end: u64) -> io::Result<()> {
        let mut at = from;
        while at < end {
            let rest = usize::try_from(end - at).unwrap_or(usize::MAX);
            let piece = &ZEROS[..ZEROS.len().min(rest)];
            self.file.write_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.direct.write(&*self.file, self.length, bytes)? {
            self.file.write_at(bytes, self.length)?;
        }
        self.direct.passed(bytes);
        self.length += bytes.len() as u64;
        self.reserved = self.reserved.max(self.length);
        Ok(())
    }

    /// Waits until all of it is on the medium.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    /// Cuts it off behind this many bytes.
    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_length(length)?;
        (self.length, self.reserved) = (length, length);
        self.direct.restart(&*self.file, length)?;
        // What is kept for when there is no room is wanted now, if it can still be had.
        drop(self.reserve(0));
        Ok(())
    }

    /// Writes a zero behind its end, to find out whether that can be done.
    pub(super) fn touch(&mut self) -> io::Result<()> {
        self.file.write_at(&[0], self.length)?;
        self.file.sync()
    }

    /// Gives back room far behind its end.
    pub(super) fn trim(&mut self) -> io::Result<()> {
        let end = self.length + self.reach.kept + self.reach.ahead;
        if self.reserved > end && self.reserved < u64::MAX {
            self.file.set_length(end)?;
            self.reserved = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::medium::Directory;
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
        let mut file = Appended::create(&directory, "f").unwrap();
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
        let mut file = Appended::open(&directory, "f", 8, true).unwrap();
        file.reserve(3).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            long,
            "what it had it keeps"
        );
        file.append(b"four").unwrap();
        assert_eq!(content()[..13], *b"onethreefour\0");
        drop(file);
        let mut file = Appended::open(&directory, "f", 8, false).unwrap();
        assert_eq!(content(), b"onethree");
        file.append(&vec![1; AHEAD as usize * 2]).unwrap();
        assert_eq!(content()[..9], *b"onethree\x01");
    }

    #[test]
    fn the_next_file_takes_the_room_that_is_kept_and_gives_back_what_it_does_not_need() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path().to_owned()).unwrap();
        for bytes in [1 << 20, 4 << 20, 1 << 20] {
            provide(&directory, bytes).unwrap();
        }
        let length = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
        assert_eq!(length(SPARE), 4 << 20, "it doesn't shrink");
        let mut file = Appended::create(&directory, "f").unwrap();
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
        let mut file = Appended::create(&directory, "f").unwrap();
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
                    file = Appended::open(&directory, "f", expected.len() as u64, zeros).unwrap();
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
