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
//! <pool>/spare/                      blocks for records that must be written though the disk is full
//! ```
//!
//! A volume appears and disappears by one rename, so there is no half of one under `volumes`. Owns
//! files only; never mounts, never attaches a device, never decides.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use orlop_host::durable::{self, UNFINISHED_PREFIX};
use orlop_host::{BootId, Usage, filesystem};
use uuid::Uuid;

use super::home::Home;
use super::ids::PoolTag;
use super::memory::Memory;
use super::volume::{VolumeId, VolumeRecord};

mod error;
mod hold;
mod images;
mod node_records;
mod snapshots;
mod spare;

pub use error::OpenError;
pub(super) use error::{FormatError, StoreError, is_trouble};
use hold::Hold;
pub(super) use hold::Presence;
pub(super) use images::size_image;
use images::{image_name, new_image};
pub(super) use snapshots::{GroupRead, SnapshotRead, new_file};
use spare::Spare;

/// Images, records and directories are for root alone.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A pool directory that is ours while this lives.
#[derive(Debug)]
pub struct Pool {
    directory: PathBuf,
    boot: BootId,
    hold: Hold,
    spare: Spare,
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
    ///
    /// A pool whose disk does not work now is away, and taken when it does.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Found>), OpenError> {
        Self::open_remembered(directory, &Memory::default())
    }

    /// The same; and a pool that is remembered in a folder is away as long as that is bare and on
    /// another file system: its disk is not mounted, and nothing is made in its place.
    pub(super) fn open_remembered(
        directory: &Path,
        memory: &Memory,
    ) -> Result<(Self, Vec<Found>), OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Directory { path, source }
        };
        // Mount tables and loop devices speak in real paths, and so must we.
        let real = real_path(directory);
        let missing = match hold::marker(&real) {
            Ok(None) => memory.missing_from(&real),
            Ok(Some(_)) | Err(_) => None,
        };
        let (directory, hold) = match missing {
            Some((known, memory)) => (real.clone(), Hold::missing(&real, known.pool, memory)),
            None => {
                let made = make_directory(directory).map_err(|error| match error.kind() {
                    // "File exists" says nothing about what is wrong.
                    io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
                    _ => error,
                });
                let made = made.and_then(|()| directory.canonicalize());
                let directory = match made.map_err(failed(directory)) {
                    Ok(real) => real,
                    Err(error) if error.trouble().is_some() => real,
                    Err(error) => return Err(error),
                };
                let hold = Hold::take(&directory)?;
                (directory, hold)
            }
        };
        let boot = BootId::current().map_err(failed(Path::new("/proc")))?;
        let pool = Self {
            hold,
            spare: Spare::of(&directory),
            directory,
            boot,
        };
        if !pool.hold.is_held() {
            return Ok((pool, Vec::new()));
        }
        match pool.clean_and_read() {
            Ok(found) => {
                pool.write_down(memory);
                Ok((pool, found))
            }
            Err(error) => {
                pool.give_up_if_failing(error)?;
                Ok((pool, Vec::new()))
            }
        }
    }

    /// Has it remembered that this pool is here.
    pub(super) fn write_down(&self, memory: &Memory) {
        if let Some(pool) = self.hold.pool() {
            memory.remember(&self.directory, &pool);
        }
    }

    /// Lets go of a pool whose disk is the reason of an error; any other is given back.
    pub(super) fn give_up_if_failing(&self, error: OpenError) -> Result<(), OpenError> {
        match error.trouble() {
            None => Err(error),
            Some(trouble) => {
                self.hold.give_up(&self.directory, trouble);
                Ok(())
            }
        }
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
        self.spare.prepare();
        let volumes = self.directory.join("volumes");
        self.read_volumes(&volumes).map_err(failed(&volumes))
    }

    /// Looks whether the pool is still there. One that went and came back, on another mount say, is
    /// taken again, and what it holds is told. Another in its place is taken if this one is `vacant`:
    /// a mount point that was bare when we started.
    pub(super) fn presence(&self, vacant: bool) -> Presence {
        self.hold
            .presence(&self.directory, vacant, || self.clean_and_read())
    }

    /// Whether the pool is there and was read.
    pub(super) fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// How ids name this pool; unknown as long as it was never seen.
    pub(super) fn tag(&self) -> Option<PoolTag> {
        PoolTag::of_marker(&self.hold.pool()?)
    }

    /// Refuses unless the pool is there.
    pub(super) fn check(&self) -> Result<(), StoreError> {
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
        // Nobody looks at the directory yet; all of it must be on disk before it has its name.
        let written = || {
            let mut meta = new_file(&unfinished.join("meta.json"))?;
            meta.write_all(&to_json(record))?;
            durable::sync_together(&[&meta, &File::open(unfinished)?])
        };
        written().map_err(at("write the volume's record"))?;
        fs::rename(unfinished, self.volume(&record.id)).map_err(at("put the volume in place"))?;
        durable::sync_directory(&self.directory.join("volumes"))
            .map_err(at("put the volume in place"))?;
        Ok(())
    }

    /// Replaces a volume's record.
    pub fn write(&self, record: &VolumeRecord) -> Result<(), StoreError> {
        self.check()?;
        let path = self.volume(&record.id).join("meta.json");
        let at = || StoreError::at("write the volume's record");
        let bytes = to_json(record);
        match durable::write_atomic(&path, &bytes, FILE_MODE).map_err(at()) {
            // Nobody must be kept from letting go of a volume because others filled the disk.
            Err(StoreError::Full(_)) => self.spare.write(&path, &bytes).map_err(at()),
            other => {
                self.spare.replenish();
                other
            }
        }
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
        orlop_host::remove_tree_one_fs(&doomed).map_err(StoreError::removal)
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

/// Two of these pools that are in one folder, under whatever names, and the folder.
pub(super) fn same_folder<'a>(
    pools: impl IntoIterator<Item = (&'a Home, &'a PathBuf)>,
) -> Option<OpenError> {
    /// Device and inode.
    type Number = (u64, u64);
    let mut seen: Vec<(&Home, PathBuf, Option<Number>)> = Vec::new();
    for (home, path) in pools {
        let folder = real_path(path);
        // A bind mount is another path to the same folder.
        let number = fs::metadata(&folder).ok().map(|it| (it.dev(), it.ino()));
        let earlier = seen.iter().find(|(_, its_folder, its_number)| {
            *its_folder == folder || number.is_some() && *its_number == number
        });
        if let Some((one, ..)) = earlier {
            let (one, other) = ((*one).clone(), home.clone());
            return Some(OpenError::Twice { one, other, folder });
        }
        seen.push((home, folder, number));
    }
    None
}

/// Where a path leads, also if its last parts are not there yet.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for there in absolute.ancestors() {
        if let Ok(real) = there.canonicalize() {
            let rest = absolute.strip_prefix(there).unwrap_or(Path::new(""));
            // Joining nothing would add a slash.
            return match rest.as_os_str().is_empty() {
                true => real,
                false => real.join(rest),
            };
        }
    }
    absolute
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
