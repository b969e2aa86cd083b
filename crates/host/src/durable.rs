//! Files that are either the old ones or the new ones, whatever happens in between.
//!
//! A reader, and a restart after a kill or a power cut, sees a whole file: content goes to a
//! temporary name beside the target, and a rename makes it visible. Never writes in place.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces a file so that it survives a power cut once this returns.
///
/// Guarantees: content and name are on disk (file and directory fsynced) on `Ok`; on `Err` the old
/// file is still there, or the new one is complete. `mode` holds regardless of the umask.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace(path, bytes, mode, Sync::Disk)?;
    sync_directory(parent_of(path)?)
}

/// Replaces a file so that it survives a kill of this process, though not a power cut.
///
/// For state that means nothing after a reboot, such as which mounts exist.
pub fn write_volatile(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace(path, bytes, mode, Sync::Cache)
}

/// Puts several files and directories on disk, all at once: on a journal they share what each would
/// wait for by itself.
pub fn sync_together(files: &[&File]) -> io::Result<()> {
    match files {
        [] => Ok(()),
        [one] => one.sync_all(),
        [first, rest @ ..] => std::thread::scope(|scope| {
            let rest: Vec<_> = rest
                .iter()
                .map(|file| scope.spawn(|| file.sync_all()))
                .collect();
            let mut outcome = first.sync_all();
            for handle in rest {
                let synced = handle.join();
                outcome = outcome.and(synced.unwrap_or_else(|_| Err(io::Error::other("panic"))));
            }
            outcome
        }),
    }
}

/// Puts a directory's entries on disk: what was created, renamed or removed in it.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes a file and puts its absence on disk. Fine if it is not there.
pub fn remove_durably(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_directory(parent_of(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Two files change their names, for good once this returns.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?;
    sync_directory(parent_of(one)?)?;
    sync_directory(parent_of(other)?)
}

/// How the names of unfinished files begin; whoever owns the directory may delete them at start.
pub const UNFINISHED_PREFIX: &str = ".unfinished-";

#[derive(Clone, Copy)]
enum Sync {
    Disk,
    Cache,
}

fn replace(path: &Path, bytes: &[u8], mode: u32, sync: Sync) -> io::Result<()> {
    let unfinished = unfinished_name(path)?;
    let written =
        write_new(&unfinished, bytes, mode, sync).and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // The error that counts is the first one; a leftover is removed by its owner at start.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8], mode: u32, sync: Sync) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    match sync {
        Sync::Disk => file.sync_all(),
        Sync::Cache => Ok(()),
    }
}

/// A name that no other process and no other thread of ours uses now.
fn unfinished_name(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_string_lossy();
    let serial = NEXT.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    let mut unfinished = parent_of(path)?.join(format!("{UNFINISHED_PREFIX}{name}-{pid}-{serial}"));
    // A process of the same number may have been killed here before us.
    while std::fs::symlink_metadata(&unfinished).is_ok() {
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        unfinished.set_file_name(format!("{UNFINISHED_PREFIX}{name}-{pid}-{serial}"));
    }
    Ok(unfinished)
}

fn parent_of(path: &Path) -> io::Result<&Path> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(parent) => Ok(parent),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write_atomic(&path, b"a longer first version", 0o600).unwrap();
        write_volatile(&path, b"second", 0o640).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        std::fs::create_dir_all(path.join("child")).unwrap();
        write_atomic(&path, b"x", 0o600).unwrap_err();
        let names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["taken"]);
    }

    #[test]
    fn writers_in_parallel_never_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        write_volatile(path, &[writer; 5000], 0o600).unwrap();
                        let seen = std::fs::read(path).unwrap();
                        assert_eq!(seen.len(), 5000);
                        assert!(seen.iter().all(|byte| *byte == seen[0]));
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_and_their_directory_are_synced_together() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| File::create(dir.path().join(name)).unwrap());
        let directory = File::open(dir.path()).unwrap();
        sync_together(&[]).unwrap();
        sync_together(&[&files[0], &files[1], &directory]).unwrap();
        // What cannot be synced is told, wherever it stands.
        let (read, _write) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(read));
        sync_together(&[&files[0], &pipe]).unwrap_err();
        sync_together(&[&pipe, &files[0]]).unwrap_err();
    }

    #[test]
    fn removing_twice_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        remove_durably(&path).unwrap();
        remove_durably(&path).unwrap();
        assert!(!path.exists());
    }
}
