//! Looking at what is in a folder.

use std::{
    io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use orlop_host::{DiskId, MountTable, block, filesystem};

use crate::pattern::Patterns;

/// What is found under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A block device.
    Device {
        /// Its size.
        bytes: u64,
    },
    /// The root of a mounted file system.
    Mount {
        /// Its size.
        bytes: u64,
    },
    /// A folder that nothing is mounted at.
    Folder,
    /// Something else.
    Other,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The name.
    pub file: String,
    /// What it stands for, or why that isn't known.
    pub what: Result<What, String>,
}

/// Looks at the names in a folder that match.
///
/// # Errors
/// The folder can't be read.
pub fn look(folder: &Path, names: &Patterns) -> io::Result<Vec<Found>> {
    // The kernel tells mount points without links.
    let folder = std::fs::canonicalize(folder)?;
    let table = MountTable::read()?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let name = entry?.file_name();
        // Names that are no text can't be told to an API server.
        let Some(file) = name.to_str().filter(|name| names.match_name(name)) else {
            continue;
        };
        let what = look_at(&folder.join(file), &table).map_err(|error| error.to_string());
        found.push(Found {
            file: file.to_owned(),
            what,
        });
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(found)
}

/// Looks at one name in a folder, whatever the patterns; none if it isn't there.
///
/// # Errors
/// It can't be looked at.
pub fn look_for(folder: &Path, file: &str) -> io::Result<Option<What>> {
    let path = std::fs::canonicalize(folder)?.join(file);
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(_) => look_at(&path, &MountTable::read()?).map(Some),
    }
}

/// Which disk is at a name in a folder, whatever the patterns; none if none is there.
///
/// # Errors
/// It can't be looked at.
pub fn disk_at(folder: &Path, file: &str) -> io::Result<Option<DiskId>> {
    let path = std::fs::canonicalize(folder)?.join(file);
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if found.file_type().is_block_device() => DiskId::of_device(&path).map(Some),
        Ok(_) => Ok(DiskId::of_mount(&path, &MountTable::read()?)),
    }
}

fn look_at(path: &Path, table: &MountTable) -> io::Result<What> {
    if let Some(bytes) = block::size_of(path)? {
        return Ok(What::Device { bytes });
    }
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(What::Other);
    }
    if table.at(path).is_none() {
        return Ok(What::Folder);
    }
    let bytes = filesystem::usage(path)?.total_bytes;
    Ok(What::Mount { bytes })
}

/// The mounts right in some folders, to see whether anything changed there.
///
/// # Errors
/// The mount table can't be read.
pub fn mounts_in(folders: &[PathBuf]) -> io::Result<Vec<(u64, PathBuf)>> {
    let folders: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::canonicalize(folder).ok())
        .collect();
    let table = MountTable::read()?;
    let within = |point: &Path| folders.iter().any(|folder| point.parent() == Some(folder));
    let mounts = table.iter().filter(|mount| within(&mount.point));
    Ok(mounts
        .map(|mount| (mount.id.0, mount.point.clone()))
        .collect())
}
