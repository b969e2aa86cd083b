//! A note that is held while a program runs by it.
//!
//! Those of several clusters may run programs on one machine, of the same names for the same names. Who
//! finds a note that somebody holds leaves the program alone, and doesn't run another.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;

/// How often folders are made that others remove just then.
const TRIES: usize = 100;

/// Held until it is dropped, or its process is gone.
#[derive(Debug)]
pub(super) struct Held {
    file: File,
    path: PathBuf,
}

impl Held {
    /// Holds the note at a path; `None` if another does.
    pub(super) fn at(note: &Path) -> io::Result<Option<Self>> {
        let (Some(folder), Some(name)) = (note.parent(), note.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // No note's name is like that.
        let path = folder.join(format!("..{}", name.to_string_lossy()));
        for _ in 0..TRIES {
            std::fs::create_dir_all(folder)?;
            let mut how = File::options();
            let file = match how.create(true).truncate(false).write(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                locked => locked?,
            }
            // Whoever held it before has removed it.
            if fstat(&file)?.st_nlink > 0 {
                return Ok(Some(Self { file, path }));
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _it_may_stay = std::fs::remove_file(&self.path);
        // Closing is not enough: a child that another thread is just starting has a copy.
        let _it_is_closed_soon = flock(&self.file, FlockOperation::Unlock);
        // Folders that nothing is in any more, of the node and of the driver.
        for folder in self.path.ancestors().skip(1).take(2) {
            if std::fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}
