//! One directory of volumes, as it is on disk.
//!
//! ```text
//! <pool>/lock                        held by the one driver that may touch the rest
//! <pool>/pool.json                   which pool this is, wherever it is mounted
//! <pool>/volumes/<id>/meta.json      the record; the volume exists if and only if this does
//! <pool>/volumes/<id>/node.json      what the node side is doing with it
//! <pool>/volumes/<id>/<id>.img       the image
//! <pool>/unfinished/                 volumes and snapshots being made: removed at start
//! <pool>/doomed/                     volumes and snapshots being removed: removed at start
//! ```
//!
//! A volume appears and disappears by one rename, so there is no half of one under `volumes`. Owns
//! files only; never mounts, never attaches a device, never decides.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use orlop_host::durable::{self, UNFINISHED_PREFIX};
use orlop_host::filesystem::{self, MakeError};
use orlop_host::{BootId, FsKind, Usage, allocate};
use uuid::Uuid;

use super::room::Allocation;
use super::volume::{NodeRecord, VolumeId, VolumeRecord};

mod error;
mod hold;
mod snapshots;

pub use error::OpenError;
pub(super) use error::{FormatError, StoreError};
use hold::Hold;
pub(super) use hold::Presence;
pub(super) use snapshots::{GroupRead, SnapshotRead, new_file};

/// Images, records and directories are for root alone.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A pool directory that is ours while this lives.
#[derive(Debug)]
pub struct Pool {
    directory: PathBuf,
    boot: BootId,
    hold: Hold,
}

/// What is under `volumes` at start.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A volume with its record.
    Sound(VolumeRecord),
    /// A volume whose record cannot be read: kept, promised its image's size, and never touched.
    Broken {
        /// The volume.
        id: VolumeId,
        /// How much its image may take.
        image_bytes: u64,
    },
}

impl Pool {
    /// Takes a directory as a pool, making it if need be, and removes what a killed driver left.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Found>), OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Directory { path, source }
        };
        make_directory(directory).map_err(failed(directory))?;
        // Mount tables and loop devices speak in real paths, and so must we.
        let directory = directory.canonicalize().map_err(failed(directory))?;
        let hold = Hold::take(&directory)?;
        let boot = BootId::current().map_err(failed(Path::new("/proc")))?;
        let pool = Self {
            directory,
            boot,
            hold,
        };
        let found = pool.clean_and_read()?;
        Ok((pool, found))
    }

    /// Removes what a killed driver left, and reads what is there.
    fn clean_and_read(&self) -> Result<Vec<Found>, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Directory { path, source }
        };
        // Emptied and kept: on a full disk nothing could be made in its place.
        for scratch in ["unfinished", "doomed"] {
            let scratch = self.directory.join(scratch);
            let left = match fs::read_dir(&scratch) {
                Ok(left) => left,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&scratch)(error)),
            };
            for entry in left {
                let entry = entry.map_err(failed(&scratch))?;
                orlop_host::remove_tree_one_fs(&entry.path()).map_err(|source| {
                    OpenError::Clean {
                        pool: self.directory.clone(),
                        source,
                    }
                })?;
            }
        }
        let parts = ["unfinished", "doomed", "volumes"];
        for part in parts.iter().chain(&snapshots::PARTS) {
            let part = self.directory.join(part);
            make_directory(&part).map_err(failed(&part))?;
        }
        let volumes = self.directory.join("volumes");
        self.read_volumes(&volumes).map_err(failed(&volumes))
    }

    /// Looks whether the pool is still there. One that went and came back, on another mount say, is
    /// taken again, and what it holds is told.
    pub(super) fn presence(&self) -> Presence {
        self.hold
            .presence(&self.directory, || self.clean_and_read())
    }

    fn check(&self) -> Result<(), StoreError> {
        self.hold.check(&self.directory)
    }

    /// Where the pool is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// How full the pool's file system is.
    pub fn usage(&self) -> Result<Usage, StoreError> {
        self.check()?;
        filesystem::usage(&self.directory).map_err(StoreError::at("measure the pool"))
    }

    /// The bytes that a volume's image takes now.
    pub fn allocated_bytes(&self, id: &VolumeId) -> io::Result<u64> {
        Ok(fs::metadata(self.image(id))?.blocks().saturating_mul(512))
    }

    /// Makes a volume with a blank image. It exists on disk when this returns, and not at all if it
    /// fails.
    pub fn create(&self, record: &VolumeRecord) -> Result<(), StoreError> {
        self.create_with(record, |image| {
            new_image(image, record.capacity_bytes, record.allocation)
                .map_err(StoreError::at("make the image"))
        })
    }

    /// Makes a volume whose image `fill` makes, at the path that it is given.
    pub fn create_with<E: From<StoreError>>(
        &self,
        record: &VolumeRecord,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check()?;
        let unfinished = self
            .directory
            .join("unfinished")
            .join(Uuid::new_v4().to_string());
        let made = self.build(record, &unfinished, fill);
        if made.is_err() {
            // The first error counts; the next start removes what is left.
            let _ = orlop_host::remove_tree_one_fs(&unfinished);
        }
        made
    }

    fn build<E: From<StoreError>>(
        &self,
        record: &VolumeRecord,
        unfinished: &Path,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = StoreError::at;
        make_directory(unfinished).map_err(at("make the volume's directory"))?;
        fill(&unfinished.join(image_name(&record.id)))?;
        // Syncs the directory too, with the image in it.
        durable::write_atomic(&unfinished.join("meta.json"), &to_json(record), FILE_MODE)
            .map_err(at("write the volume's record"))?;
        fs::rename(unfinished, self.volume(&record.id)).map_err(at("put the volume in place"))?;
        durable::sync_directory(&self.directory.join("volumes"))
            .map_err(at("put the volume in place"))?;
        Ok(())
    }

    /// Replaces a volume's record.
    pub fn write(&self, record: &VolumeRecord) -> Result<(), StoreError> {
        self.check()?;
        let path = self.volume(&record.id).join("meta.json");
        durable::write_atomic(&path, &to_json(record), FILE_MODE)
            .map_err(StoreError::at("write the volume's record"))
    }

    /// Removes a volume. It is gone for good once its directory has left `volumes`.
    pub fn remove(&self, id: &VolumeId) -> Result<(), StoreError> {
        self.check()?;
        let at = StoreError::at;
        let doomed = self
            .directory
            .join("doomed")
            .join(Uuid::new_v4().to_string());
        match fs::rename(self.volume(id), &doomed) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(at("take the volume out of its place")(error)),
        }
        durable::sync_directory(&self.directory.join("volumes"))
            .map_err(at("take the volume out of its place"))?;
        orlop_host::remove_tree_one_fs(&doomed).map_err(StoreError::Remove)
    }

    /// Where a volume's image is.
    #[must_use]
    pub fn image(&self, id: &VolumeId) -> PathBuf {
        self.volume(id).join(image_name(id))
    }

    /// Opens a volume's image, at least as large as promised.
    ///
    /// A driver killed between the promise and the image's growth is made good for here.
    pub fn open_image(&self, record: &VolumeRecord) -> Result<File, StoreError> {
        self.check()?;
        let at = StoreError::at;
        let path = self.image(&record.id);
        // A link, a pipe or a folder in its place is no image: what it leads to isn't ours.
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(StoreError::NoImage(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NoImage(path));
            }
            Err(error) => return Err(at("look at the image")(error)),
        }
        let image = OpenOptions::new().read(true).write(true).open(&path);
        let image = image.map_err(at("open the image"))?;
        if image.metadata().map_err(at("look at the image"))?.len() < record.capacity_bytes {
            size_image(&image, record.capacity_bytes, record.allocation)
                .and_then(|()| image.sync_all())
                .map_err(at("grow the image"))?;
        }
        Ok(image)
    }

    /// Gives a volume all blocks that it was promised.
    pub fn thicken(&self, record: &VolumeRecord) -> Result<(), StoreError> {
        let image = self.open_image(record)?;
        allocate::all(&image, record.capacity_bytes)
            .and_then(|()| image.sync_all())
            .map_err(StoreError::at("allocate the image's blocks"))
    }

    /// Replaces a blank volume's image by one with a file system.
    ///
    /// Each attempt works on a new file: a mkfs that outlives a killed driver can only spoil a file
    /// that nobody will look at. The new image's content is on disk when this returns; its name is
    /// once the record that speaks of it has been written to the same directory. A thick volume
    /// keeps its image, which has its blocks, and gets the new one's data.
    pub fn format(
        &self,
        record: &VolumeRecord,
        kind: FsKind,
        options: &[String],
    ) -> Result<(), FormatError> {
        let name = format!("{UNFINISHED_PREFIX}{}", Uuid::new_v4());
        let unfinished = self.volume(&record.id).join(name);
        let made = self.format_at(record, kind, options, &unfinished);
        if made.is_err() || record.allocation == Allocation::Thick {
            let _ = fs::remove_file(&unfinished);
        }
        made
    }

    fn format_at(
        &self,
        record: &VolumeRecord,
        kind: FsKind,
        options: &[String],
        unfinished: &Path,
    ) -> Result<(), FormatError> {
        let store = |what| move |source| FormatError::Store(StoreError::at(what)(source));
        new_image(unfinished, record.capacity_bytes, Allocation::Thin)
            .map_err(store("make the image"))?;
        filesystem::make_image(kind, unfinished, options).map_err(|error| match error {
            MakeError::Sync(source) => store("write the file system")(source),
            other => FormatError::Make(other),
        })?;
        match record.allocation {
            Allocation::Thin => fs::rename(unfinished, self.image(&record.id))
                .map_err(store("put the image in place")),
            Allocation::Thick => {
                let image = self.open_image(record).map_err(FormatError::Store)?;
                File::open(unfinished)
                    .and_then(|made| allocate::overwrite(&image, &made, record.capacity_bytes))
                    .map_err(store("write the file system"))
            }
        }
    }

    /// What the node side is doing with a volume, as far as it holds in this boot.
    pub fn node_record(&self, id: &VolumeId) -> Result<NodeRecord, StoreError> {
        let unused = || NodeRecord::unused(self.boot.clone());
        match fs::read(self.volume(id).join("node.json")) {
            // The file is not synced: what a power cut left of it is from another boot anyway.
            Ok(bytes) => Ok(serde_json::from_slice::<NodeRecord>(&bytes)
                .ok()
                .filter(|record| record.boot == self.boot)
                .unwrap_or_else(unused)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(unused()),
            Err(error) => Err(StoreError::at("read the node's record")(error)),
        }
    }

    /// Replaces what the node side is doing with a volume.
    pub fn write_node_record(&self, id: &VolumeId, record: &NodeRecord) -> Result<(), StoreError> {
        let path = self.volume(id).join("node.json");
        let written = if record.is_unused() {
            match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            }
        } else {
            durable::write_volatile(&path, &to_json(record), FILE_MODE)
        };
        written.map_err(StoreError::at("write the node's record"))
    }

    fn volume(&self, id: &VolumeId) -> PathBuf {
        self.directory.join("volumes").join(id.as_str())
    }

    fn read_volumes(&self, volumes: &Path) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(volumes)? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(VolumeId::parse) else {
                tracing::warn!(?name, "something that is not a volume lies in the pool");
                continue;
            };
            remove_unfinished(&self.volume(&id))?;
            found.push(self.read_volume(id));
        }
        Ok(found)
    }

    fn read_volume(&self, id: VolumeId) -> Found {
        let record = fs::read(self.volume(&id).join("meta.json"))
            .and_then(|bytes| Ok(serde_json::from_slice::<VolumeRecord>(&bytes)?));
        match record {
            Ok(record) if record.id == id => Found::Sound(record),
            other => {
                let error = other.err().map(|error| error.to_string());
                tracing::error!(volume_id = %id, error, "the volume's record cannot be read");
                let image_bytes = fs::metadata(self.image(&id)).map_or(0, |image| image.len());
                Found::Broken { id, image_bytes }
            }
        }
    }
}

fn image_name(id: &VolumeId) -> String {
    format!("{id}.img")
}

/// A new image. Not synced: its name is, with its directory, and [`Pool::open_image`] makes good
/// for a size that a power cut took.
fn new_image(path: &Path, bytes: u64, allocation: Allocation) -> io::Result<()> {
    let image = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    size_image(&image, bytes, allocation)
}

/// Gives an image its size: a thick one has it only once it has the blocks.
pub(super) fn size_image(image: &File, bytes: u64, allocation: Allocation) -> io::Result<()> {
    match allocation {
        Allocation::Thin => image.set_len(bytes),
        Allocation::Thick => allocate::all(image, bytes),
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
}

fn remove_unfinished(volume: &Path) -> io::Result<()> {
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(UNFINISHED_PREFIX.as_bytes())
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn to_json(record: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(record).expect("records have string keys and no failing serializers")
}

#[cfg(test)]
mod tests;
