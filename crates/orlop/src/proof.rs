//! What a data folder holds on the machine: mounts, loop devices, volume files.

use std::{fs, io, path::Path};

use orlop_host::{MountTable, loopdev};

/// Everything that volumes left behind below a folder, as lines for people.
pub(crate) fn leftovers(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = in_use(folder)?;
    found.extend(volume_files(&folder.join("pools"))?);
    Ok(found)
}

/// Mounts and loop devices below a folder, as lines for people.
pub(crate) fn in_use(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for mount in MountTable::read()?.beneath(folder) {
        found.push(format!("a mount at {}", mount.point.display()));
    }
    for device in loopdev::list()? {
        if device.backing_path.starts_with(folder) {
            found.push(format!(
                "/dev/loop{} on {}",
                device.number,
                device.backing_path.display()
            ));
        }
    }
    Ok(found)
}

/// The volumes' images in the pools; links aren't followed.
fn volume_files(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(volume_files(&entry.path())?);
        } else if entry.path().extension().is_some_and(|e| e == "img") {
            found.push(format!("the volume file {}", entry.path().display()));
        }
    }
    Ok(found)
}
