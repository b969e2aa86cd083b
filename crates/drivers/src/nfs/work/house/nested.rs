//! Volumes whose folders are in folders of others.
//!
//! Most folders are in none, and to read all records for each deletion would take long in a share with
//! thousands. So a folder that is in another one is noted under each that it is in, and so is an archive,
//! of which there is no record; a note is only a hint, and what is on record counts.

use std::ffi::OsString;
use std::io::{self, Read};

use super::{House, LONGEST, found};
use crate::nfs::record::{Record, digest};
use crate::nfs::sub_dir::SubDir;
use crate::nfs::work::share::Share;

/// The folders that one is in, below the share.
fn around(folder: &SubDir) -> impl Iterator<Item = &str> {
    let text = folder.as_str();
    text.match_indices('/').map(move |(at, _)| &text[..at])
}

impl House {
    /// Notes what a folder is in. Before its record is written: a note too many does no harm.
    pub(in crate::nfs::work) fn note(&self, folder: &SubDir) -> io::Result<()> {
        for outer in around(folder) {
            let note = format!("nested/{}/{}", digest(outer), digest(folder.as_str()));
            self.0.make(note, 0o700)?;
        }
        Ok(())
    }

    /// Takes the notes of a folder away that has no volume any more.
    pub(super) fn take_notes(&self, folder: &SubDir) -> io::Result<()> {
        let outer = around(folder).map(digest);
        for outer in outer {
            let Some(nested) = found(self.0.enter("nested"))? else {
                return Ok(());
            };
            if let Some(notes) = found(nested.enter(&outer))? {
                notes.remove_empty(digest(folder.as_str()))?;
            }
            match nested.remove_empty(&outer) {
                Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The digests of what is noted to be in a folder.
    pub(super) fn notes(&self, folder: &SubDir) -> io::Result<Vec<OsString>> {
        let notes = found(self.0.enter(format!("nested/{}", digest(folder.as_str()))))?;
        notes.map_or_else(|| Ok(Vec::new()), |notes| notes.names())
    }

    /// A volume whose folder is in this one, and there.
    pub(in crate::nfs::work) fn inner(
        &self,
        share: &Share,
        folder: &SubDir,
    ) -> io::Result<Option<Record>> {
        for name in self.notes(folder)? {
            for record in self.on_record(&name.to_string_lossy())? {
                let below = record.folder.path().starts_with(folder.path());
                if below && found(share.root.enter(record.folder.path()))?.is_some() {
                    return Ok(Some(record));
                }
            }
        }
        Ok(None)
    }

    /// A volume whose folder this one is in.
    pub(in crate::nfs::work) fn outer(&self, folder: &SubDir) -> io::Result<Option<Record>> {
        for outer in around(folder) {
            let mut records = self.on_record(&digest(outer))?;
            records.retain(|record| record.folder.as_str() == outer);
            if let Some(record) = records.pop() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The volumes of a folder, which is told by its digest.
    fn on_record(&self, folder: &str) -> io::Result<Vec<Record>> {
        let Some(users) = found(self.0.enter(format!("volumes/{folder}")))? else {
            return Ok(Vec::new());
        };
        let mut records = Vec::new();
        for name in users.names()? {
            let Some(file) = found(users.read(&name))? else {
                continue;
            };
            let mut bytes = Vec::new();
            file.take(LONGEST).read_to_end(&mut bytes)?;
            records.extend(serde_json::from_slice::<Record>(&bytes).ok());
        }
        Ok(records)
    }
}
