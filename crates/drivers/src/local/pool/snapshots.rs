//! Snapshots and groups in a pool.
//!
//! ```text
//! <pool>/snapshots/<id>/meta.json    the record
//! <pool>/snapshots/<id>/<id>.img     the image
//! <pool>/groups/<id>.json            a group, once all of its snapshots are in place
//! <pool>/frozen/<volume>             a volume that is about to be frozen, until it has thawed
//! ```
//!
//! As with volumes: one rename makes a snapshot, and one ends it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use orlop_host::durable;
use uuid::Uuid;

use super::{FILE_MODE, Pool, StoreError, make_directory, to_json};
use crate::local::snapshot::{GroupId, GroupRecord, SnapshotId, SnapshotRecord};
use crate::local::volume::VolumeId;

/// The directories that belong to snapshots.
pub(super) const PARTS: [&str; 3] = ["snapshots", "groups", "frozen"];

/// A snapshot that has no name yet; gone when dropped.
#[derive(Debug)]
pub(in crate::local) struct Unfinished {
    directory: PathBuf,
    /// The image, for reading and writing.
    pub(in crate::local) image: File,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Not there any more if it was put in place; the next start removes what is left.
        let _ = orlop_host::remove_tree_one_fs(&self.directory);
    }
}

impl Pool {
    /// Begins a snapshot with an empty image.
    pub(in crate::local) fn begin_snapshot(
        &self,
        id: &SnapshotId,
    ) -> Result<Unfinished, StoreError> {
        let at = StoreError::at;
        self.check()?;
        let directory = self
            .directory
            .join("unfinished")
            .join(Uuid::new_v4().to_string());
        make_directory(&directory).map_err(at("make the snapshot's directory"))?;
        match new_file(&directory.join(image_name(id))) {
            Ok(image) => Ok(Unfinished { directory, image }),
            Err(error) => {
                let _ = orlop_host::remove_tree_one_fs(&directory);
                Err(at("make the snapshot's image")(error))
            }
        }
    }

    /// Puts a snapshot in its place. It exists on disk when this returns.
    pub(in crate::local) fn finish_snapshot(
        &self,
        unfinished: &Unfinished,
        record: &SnapshotRecord,
    ) -> Result<(), StoreError> {
        self.check()?;
        let at = StoreError::at;
        // Its directory has no name yet that anybody looks at, so that nothing in it need be replaced
        // in one piece; all of it must be on disk before it has one.
        let written = || {
            let mut meta = new_file(&unfinished.directory.join("meta.json"))?;
            meta.write_all(&to_json(record))?;
            let directory = File::open(&unfinished.directory)?;
            durable::sync_together(&[&unfinished.image, &meta, &directory])
        };
        written().map_err(at("write the snapshot"))?;
        fs::rename(&unfinished.directory, self.snapshot(&record.id))
            .map_err(at("put the snapshot in place"))?;
        durable::sync_directory(&self.directory.join("snapshots"))
            .map_err(at("put the snapshot in place"))
    }

    /// Removes a snapshot. Fine if it is not there.
    pub(in crate::local) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), StoreError> {
        self.check()?;
        let at = StoreError::at;
        let doomed = self
            .directory
            .join("doomed")
            .join(Uuid::new_v4().to_string());
        match fs::rename(self.snapshot(id), &doomed) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(at("take the snapshot out of its place")(error)),
        }
        durable::sync_directory(&self.directory.join("snapshots"))
            .map_err(at("take the snapshot out of its place"))?;
        orlop_host::remove_tree_one_fs(&doomed).map_err(StoreError::removal)
    }

    /// Opens a snapshot's image for reading; none if the snapshot is being removed just now.
    pub(in crate::local) fn open_snapshot(
        &self,
        id: &SnapshotId,
    ) -> Result<Option<File>, StoreError> {
        self.check()?;
        let path = self.snapshot(id).join(image_name(id));
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It leaves its place as a whole, or is damaged.
                if self.snapshot(id).exists() {
                    Err(StoreError::NoImage(path))
                } else {
                    Ok(None)
                }
            }
            other => other
                .map(Some)
                .map_err(StoreError::at("open the snapshot's image")),
        }
    }

    /// Puts a group on record: from now on it exists.
    pub(in crate::local) fn write_group(&self, record: &GroupRecord) -> Result<(), StoreError> {
        self.check()?;
        durable::write_atomic(&self.group(&record.id), &to_json(record), FILE_MODE)
            .map_err(StoreError::at("write the group's record"))
    }

    /// Takes a group off the record: from now on it does not exist.
    pub(in crate::local) fn remove_group(&self, id: &GroupId) -> Result<(), StoreError> {
        self.check()?;
        durable::remove_durably(&self.group(id))
            .map_err(StoreError::at("remove the group's record"))
    }

    /// Notes that a volume is about to be frozen.
    pub(in crate::local) fn note_frozen(&self, id: &VolumeId) -> Result<(), StoreError> {
        self.check()?;
        // Empty, so that there is no half of it.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(self.frozen(id))
            .map(drop)
            .map_err(StoreError::at("note that the volume is frozen"))
    }

    /// Notes that a volume has thawed.
    pub(in crate::local) fn note_thawed(&self, id: &VolumeId) {
        // What is left only makes the next start look whether the volume is frozen.
        let _ = fs::remove_file(self.frozen(id));
    }

    /// Volumes that a killed driver may have left frozen.
    pub(in crate::local) fn maybe_frozen(&self) -> io::Result<Vec<VolumeId>> {
        let names = names(&self.directory.join("frozen"))?;
        Ok(names.iter().filter_map(|it| VolumeId::parse(it)).collect())
    }

    /// All snapshots.
    pub(in crate::local) fn read_snapshots(&self) -> io::Result<Vec<SnapshotRead>> {
        let mut found = Vec::new();
        for name in names(&self.directory.join("snapshots"))? {
            let Some(id) = SnapshotId::parse(&name) else {
                tracing::warn!(name, "something that is not a snapshot lies in the pool");
                continue;
            };
            match read::<SnapshotRecord>(&self.snapshot(&id).join("meta.json")) {
                Ok(record) if record.id == id => found.push(SnapshotRead::Sound(record)),
                other => {
                    let error = other.err().map(|error| error.to_string());
                    tracing::error!(snapshot_id = %id, error, "the snapshot's record cannot be read");
                    found.push(SnapshotRead::Broken(id));
                }
            }
        }
        Ok(found)
    }

    /// All groups.
    pub(in crate::local) fn read_groups(&self) -> io::Result<Vec<GroupRead>> {
        let mut found = Vec::new();
        let directory = self.directory.join("groups");
        for name in names(&directory)? {
            let path = directory.join(&name);
            let id = name.strip_suffix(".json").and_then(GroupId::parse);
            match (id, read::<GroupRecord>(&path)) {
                (Some(id), Ok(record)) if record.id == id => found.push(GroupRead::Sound(record)),
                (Some(id), other) => {
                    let error = other.err().map(|error| error.to_string());
                    tracing::error!(group_id = %id, error, "the group's record cannot be read");
                    found.push(GroupRead::Broken(id));
                }
                // What a writer that was killed left.
                (None, _) => fs::remove_file(path)?,
            }
        }
        Ok(found)
    }

    fn snapshot(&self, id: &SnapshotId) -> PathBuf {
        self.directory.join("snapshots").join(id.as_str())
    }

    fn group(&self, id: &GroupId) -> PathBuf {
        self.directory.join("groups").join(format!("{id}.json"))
    }

    fn frozen(&self, id: &VolumeId) -> PathBuf {
        self.directory.join("frozen").join(id.as_str())
    }
}

/// A snapshot as found at start.
#[derive(Debug)]
pub(in crate::local) enum SnapshotRead {
    /// With its record.
    Sound(SnapshotRecord),
    /// With a record that cannot be read: kept, and never touched.
    Broken(SnapshotId),
}

/// A group as found at start.
#[derive(Debug)]
pub(in crate::local) enum GroupRead {
    /// With its record.
    Sound(GroupRecord),
    /// With a record that cannot be read: its snapshots are kept.
    Broken(GroupId),
}

/// A new empty file for root alone.
pub(in crate::local) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)
}

fn image_name(id: &SnapshotId) -> String {
    format!("{id}.img")
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
