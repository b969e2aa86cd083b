//! The folder that the store's files are in: the few things that the store asks of a file
//! system, so that tests can put one underneath that loses power.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::appended::Reach;

/// A folder of files.
pub(super) trait Folder: fmt::Debug + Send + Sync {
    /// The names of its files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a file from its beginning.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
    /// Opens a file to write to it; makes it, if it is to be a new one.
    fn open(&self, name: &str, new: bool) -> io::Result<Box<dyn Medium>>;
    /// Gives a file another name; one that has it already is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Waits until new, renamed and removed names are on the medium.
    fn sync(&self) -> io::Result<()>;
    /// How far its files are to reach beyond what is in them.
    fn reach(&self) -> Reach {
        Reach::default()
    }
}

/// A file, as the system knows it. Nothing of what is done to it is sure to last before a
/// [`Medium::sync`].
pub(super) trait Medium: fmt::Debug + Send {
    /// How long it is.
    fn length(&self) -> io::Result<u64>;
    /// Makes it shorter, or longer by zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Makes it so long, in room that nobody else has from then on.
    fn allocate(&self, from: u64, end: u64) -> io::Result<()>;
    /// Fills `bytes` from a place on.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes bytes to a place, through the cache.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Writes whole blocks to a place, past the cache; an [`io::ErrorKind::InvalidInput`] says that
    /// there is no such way.
    fn write_past_cache(&self, blocks: &[u8], at: u64) -> io::Result<()>;
    /// Waits until all of it is on the medium.
    fn sync(&self) -> io::Result<()>;
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

    fn open(&self, name: &str, new: bool) -> io::Result<Box<dyn Medium>> {
        let path = self.path.join(name);
        let cached = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(new)
            .mode(0o600)
            .open(&path)?;
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(&path);
        Ok(Box::new(Real {
            cached,
            direct: direct.ok(),
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

/// A real file.
#[derive(Debug)]
struct Real {
    cached: File,
    /// The same file past the cache, where there is such a way.
    direct: Option<File>,
}

impl Medium for Real {
    fn length(&self) -> io::Result<u64> {
        Ok(self.cached.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.cached.set_len(length)
    }

    fn allocate(&self, from: u64, end: u64) -> io::Result<()> {
        Ok(fallocate(
            &self.cached,
            FallocateFlags::empty(),
            from,
            end - from,
        )?)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.cached.read_exact_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.cached.write_all_at(bytes, at)
    }

    fn write_past_cache(&self, blocks: &[u8], at: u64) -> io::Result<()> {
        match &self.direct {
            Some(direct) => direct.write_all_at(blocks, at),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.cached.sync_data()
    }
}
