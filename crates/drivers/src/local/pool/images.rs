//! Images of volumes: made, found, opened, formatted.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use orlop_host::durable::UNFINISHED_PREFIX;
use orlop_host::filesystem::{self, MakeError};
use orlop_host::{FsKind, allocate};
use uuid::Uuid;

use super::{FILE_MODE, FormatError, Pool, StoreError};
use crate::local::room::Allocation;
use crate::local::volume::{VolumeId, VolumeRecord};

impl Pool {
    /// Where a volume's image is.
    #[must_use]
    pub fn image(&self, id: &VolumeId) -> PathBuf {
        self.volume(id).join(image_name(id))
    }

    /// The bytes that a volume's image takes now.
    pub fn allocated_bytes(&self, id: &VolumeId) -> io::Result<u64> {
        Ok(fs::metadata(self.image(id))?.blocks().saturating_mul(512))
    }

    /// Opens a volume's image as it is.
    pub fn find_image(&self, id: &VolumeId) -> Result<File, StoreError> {
        self.check()?;
        let at = StoreError::at;
        let path = self.image(id);
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
        image.map_err(at("open the image"))
    }

    /// Opens a volume's image, at least as large as promised.
    ///
    /// A driver killed between the promise and the image's growth is made good for here.
    pub fn open_image(&self, record: &VolumeRecord) -> Result<File, StoreError> {
        let at = StoreError::at;
        let image = self.find_image(&record.id)?;
        let has = image.metadata().map_err(at("look at the image"))?.len();
        if has < record.least_image_bytes() {
            // To extend it would put zeros where data was, and call that well.
            return Err(StoreError::Truncated {
                image: self.image(&record.id),
                has,
                least: record.least_image_bytes(),
            });
        }
        if has < record.capacity_bytes {
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
}

pub(super) fn image_name(id: &VolumeId) -> String {
    format!("{id}.img")
}

/// A new image. Not synced: its name is, with its directory, and [`Pool::open_image`] makes good
/// for a size that a power cut took.
pub(super) fn new_image(path: &Path, bytes: u64, allocation: Allocation) -> io::Result<()> {
    let image = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    if allocation == Allocation::Thin {
        allocate::in_large_pieces(&image);
    }
    size_image(&image, bytes, allocation)
}

/// Gives an image its size: a thick one has it only once it has the blocks.
pub(in crate::local) fn size_image(
    image: &File,
    bytes: u64,
    allocation: Allocation,
) -> io::Result<()> {
    match allocation {
        Allocation::Thin => image.set_len(bytes),
        Allocation::Thick => allocate::all(image, bytes),
    }
}
