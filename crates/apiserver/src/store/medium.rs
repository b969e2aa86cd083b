//! The folder that the store's files are in: the few things that the store asks of a file
//! system, so that tests can put one underneath that loses power.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

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
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(Real(file)))
    }

    fn append(&self, name: &str, length: u64) -> io::Result<Box<dyn Appended>> {
        let file = OpenOptions::new().append(true).open(self.path.join(name))?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
            file.sync_all()?;
        }
        Ok(Box::new(Real(file)))
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
struct Real(File);

impl Appended for Real {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}
