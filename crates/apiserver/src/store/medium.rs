//! The folder that the store's files are in: the few things that the store asks of a file
//! system, so that tests can put one underneath that loses power.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

/// How far a file reaches beyond what is in it. A flush that need not make the file longer as
/// well is a third quicker; the zeros behind the last frame are no frame.
const AHEAD: u64 = 256 << 10;

/// A folder of files that are only ever appended to.
pub(super) trait Folder: fmt::Debug + Send + Sync {
    /// The names of its files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a file from its beginning.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
    /// Makes a new, empty file; one of this name is replaced.
    fn create(&self, name: &str) -> io::Result<Box<dyn Appended>>;
    /// Opens a file to append to it, behind its first `length` bytes; what follows is cut off.
    fn append(&self, name: &str, length: u64) -> io::Result<Box<dyn Appended>>;
    /// Gives a file another name; one that has it already is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Waits until new, renamed and removed names are on the medium.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is being written.
pub(super) trait Appended: fmt::Debug + Send {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until all of it is on the medium.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts it off behind this many bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
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

    fn create(&self, name: &str) -> io::Result<Box<dyn Appended>> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(Real::new(file, 0)))
    }

    fn append(&self, name: &str, length: u64) -> io::Result<Box<dyn Appended>> {
        let file = OpenOptions::new().write(true).open(self.path.join(name))?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
            file.sync_all()?;
        }
        Ok(Box::new(Real::new(file, length)))
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
    /// How much of it was written.
    length: u64,
    /// How long it is on the medium.
    reserved: u64,
}

impl Real {
    fn new(file: File, length: u64) -> Self {
        Self {
            file,
            length,
            reserved: length,
        }
    }
}

impl Appended for Real {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.length + bytes.len() as u64;
        if end > self.reserved {
            let wanted = end + AHEAD - self.reserved;
            let reserved = fallocate(&self.file, FallocateFlags::empty(), self.reserved, wanted);
            // Where that can't be done, the file grows with every write.
            self.reserved = reserved.map_or(u64::MAX, |()| end + AHEAD);
        }
        self.file.write_all_at(bytes, self.length)?;
        self.length = end;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        (self.length, self.reserved) = (length, length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reaches_beyond_its_end_and_is_cut_there_when_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let directory = Directory::open(folder.path().to_owned()).unwrap();
        let content = || {
            let mut all = Vec::new();
            directory.read("f").unwrap().read_to_end(&mut all).unwrap();
            all
        };
        let mut file = directory.create("f").unwrap();
        file.append(b"one").unwrap();
        let long = fs::metadata(&path).unwrap().len();
        file.append(b"two").unwrap();
        file.sync().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), long, "it did not grow");
        assert_eq!(content()[..6], *b"onetwo");
        assert!(content()[6..].iter().all(|byte| *byte == 0));

        file.truncate(3).unwrap();
        file.append(b"three").unwrap();
        assert_eq!(content()[..8], *b"onethree");
        assert!(content()[8..].iter().all(|byte| *byte == 0));

        drop(file);
        let mut file = directory.append("f", 8).unwrap();
        assert_eq!(content(), b"onethree");
        file.append(&vec![1; AHEAD as usize * 2]).unwrap();
        assert_eq!(content()[..9], *b"onethree\x01");
    }
}
