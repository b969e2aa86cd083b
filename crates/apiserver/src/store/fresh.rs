//! A file that is written anew: all objects at one revision, to take another file's place.

use std::io;
use std::sync::Arc;

use super::Key;
use super::appended::Appended;
use super::contents::name_of;
use super::log::{Log, LogError};
use super::medium::Folder;
use super::object::Stored;
use super::record;

/// What a file is called until all of it is on the medium.
pub(super) const UNFINISHED: &str = ".new";
/// How much of a base is written at once.
const CHUNK: usize = 1 << 20;

/// A new file with a whole base, not yet in use.
#[derive(Debug)]
pub(super) struct Fresh {
    file: Appended,
    name: String,
    base: u64,
}

impl Fresh {
    /// Adds the groups since its base. If that fails nothing is lost: it isn't in use.
    pub(super) fn complete(
        mut self,
        folder: &dyn Folder,
        since: &[Vec<u8>],
    ) -> Result<Whole, LogError> {
        let mut length = self.base;
        let mut run = || {
            for group in since {
                self.file.append(group)?;
                length += group.len() as u64;
            }
            self.file.trim()?;
            self.file.sync()
        };
        match run() {
            Ok(()) => Ok(Whole {
                fresh: self,
                length,
            }),
            Err(source) => Err(given_up(folder, self.name, source)),
        }
    }
}

/// A new file with everything that was acknowledged.
#[derive(Debug)]
pub(super) struct Whole {
    fresh: Fresh,
    length: u64,
}

impl Whole {
    /// Puts it in the place of whatever is there. If that fails, nobody knows which of the two a
    /// restart finds.
    pub(super) fn install(self, folder: &Arc<dyn Folder>) -> Result<Log, LogError> {
        let Fresh { file, name, base } = self.fresh;
        let run = || {
            folder.rename(&format!("{name}{UNFINISHED}"), &name)?;
            folder.sync()
        };
        if let Err(source) = run() {
            return Err(LogError::File { name, source });
        }
        Ok(Log::of(folder, (name, file), self.length, base))
    }
}

/// The room of a file that couldn't be written is needed; what can't be removed now is at the
/// next start.
fn given_up(folder: &dyn Folder, name: String, source: io::Error) -> LogError {
    drop(folder.remove(&format!("{name}{UNFINISHED}")));
    LogError::File { name, source }
}

/// Writes a base under a name that no start takes for a whole file.
pub(super) fn write_new(
    folder: &Arc<dyn Folder>,
    revision: u64,
    objects: &[(Key, Arc<Stored>)],
) -> Result<Fresh, LogError> {
    let name = name_of(revision);
    let run = || {
        let mut file = Appended::create(&**folder, &format!("{name}{UNFINISHED}"))?;
        let base = write_base(revision, objects, |bytes| file.append(bytes))?;
        file.sync()?;
        Ok((file, base))
    };
    match run() {
        Ok((file, base)) => Ok(Fresh { file, name, base }),
        Err(source) => Err(given_up(&**folder, name, source)),
    }
}

/// Writes a base piece by piece; returns its length.
pub(super) fn write_base(
    revision: u64,
    objects: &[(Key, Arc<Stored>)],
    mut append: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut buffer = Vec::new();
    let mut length = 0;
    record::begin(&mut buffer);
    for (key, object) in objects {
        record::object(&mut buffer, key, object);
        if buffer.len() >= CHUNK {
            append(&buffer)?;
            length += buffer.len() as u64;
            buffer.clear();
        }
    }
    record::base(&mut buffer, revision, objects.len() as u64);
    append(&buffer)?;
    Ok(length + buffer.len() as u64)
}
