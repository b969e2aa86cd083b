//! A folder of files that changes all at once, in the kubelet's layout:
//!
//! ```text
//! ..2026_01_02_03_04_05.1/   the files of one generation
//! ..data -> ..2026_…         exchanged by a rename
//! name -> ..data/name        one link per top-level name
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use crate::checkpoint::gone;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
    /// Whose it is, where it isn't the node's.
    pub(super) user: Option<u32>,
    pub(super) group: Option<u32>,
}

impl File {
    /// A file of the node's own.
    pub(super) fn new(content: Vec<u8>, mode: u32) -> Self {
        Self {
            content,
            mode,
            user: None,
            group: None,
        }
    }
}

/// Files by relative path, which the caller has checked.
pub(super) type Payload = BTreeMap<String, File>;

/// Makes the folder show these files. A crash at any point leaves the old files or the
/// new ones, and the next call finishes and clears up.
pub(super) fn write(folder: &Path, payload: &Payload, stamp: &str) -> io::Result<()> {
    let data = folder.join("..data");
    let old = fs::read_link(&data).ok();
    if old
        .as_ref()
        .is_none_or(|old| !shows(&folder.join(old), payload))
    {
        let generation = fresh(folder, stamp);
        let new = folder.join(&generation);
        fs::create_dir(&new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        for (path, file) in payload {
            let path = new.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, &file.content)?;
            chown(&path, file.user, file.group)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
        }
        let exchange = folder.join("..data_tmp");
        gone(fs::remove_file(&exchange))?;
        symlink(&generation, &exchange)?;
        fs::rename(&exchange, &data)?;
    }
    link(folder, payload)?;
    clear(folder)
}

fn fresh(folder: &Path, stamp: &str) -> String {
    let mut count = 0u32;
    loop {
        let name = format!("..{stamp}.{count}");
        if !folder.join(&name).exists() {
            return name;
        }
        count += 1;
    }
}

/// Whether a generation holds exactly these files.
fn shows(generation: &Path, payload: &Payload) -> bool {
    let same = payload.iter().all(|(path, file)| {
        let path = generation.join(path);
        let traits = |found: fs::Metadata| {
            found.permissions().mode() & 0o7777 == file.mode
                && file.user.is_none_or(|user| user == found.uid())
                && file.group.is_none_or(|group| group == found.gid())
        };
        fs::metadata(&path).is_ok_and(traits)
            && fs::read(&path).is_ok_and(|content| content == file.content)
    });
    same && count(generation).is_ok_and(|count| count == payload.len())
}

fn count(folder: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() {
            count(&entry.path())?
        } else {
            1
        };
    }
    Ok(files)
}

fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn link(folder: &Path, payload: &Payload) -> io::Result<()> {
    for name in payload.keys().map(|path| top(path)) {
        match symlink(Path::new("..data").join(name), folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes links to names that are gone, and generations that are not shown.
fn clear(folder: &Path) -> io::Result<()> {
    let current = fs::read_link(folder.join("..data"))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        let is_old = kind.is_dir()
            && Path::new(&name) != current
            && name.as_encoded_bytes().starts_with(b"..");
        if is_old {
            fs::remove_dir_all(entry.path())?;
        } else if kind.is_symlink()
            && name != "..data"
            && !folder.join(&current).join(&name).exists()
        {
            gone(fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| File::new(text.into(), 0o644);
        files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let read = fs::read_dir(folder).expect("readable");
        let mut names: Vec<_> = read
            .map(|e| {
                e.expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_change_all_at_once_and_old_ones_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write(folder, &payload(&[("a", "1"), ("sub/b", "2")]), "t").expect("written");
        assert_eq!(fs::read_to_string(folder.join("a")).expect("a"), "1");
        assert_eq!(fs::read_to_string(folder.join("sub/b")).expect("b"), "2");
        write(folder, &payload(&[("a", "3")]), "t").expect("written");
        assert_eq!(fs::read_to_string(folder.join("a")).expect("a"), "3");
        assert_eq!(names(folder), ["..data", "..t.1", "a"]);
    }

    #[test]
    fn the_same_files_again_change_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let files = payload(&[("a", "1")]);
        write(folder, &files, "t").expect("written");
        let before = fs::read_link(folder.join("..data")).expect("a link");
        write(folder, &files, "u").expect("written");
        assert_eq!(
            fs::read_link(folder.join("..data")).expect("a link"),
            before
        );
    }

    #[test]
    fn a_crash_before_the_exchange_is_cleared_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write(folder, &payload(&[("a", "1")]), "t").expect("written");
        fs::create_dir(folder.join("..t.9")).expect("a half-written generation");
        symlink("..t.9", folder.join("..data_tmp")).expect("a half-made exchange");
        write(folder, &payload(&[("a", "2")]), "t").expect("written");
        assert_eq!(fs::read_to_string(folder.join("a")).expect("a"), "2");
        assert_eq!(names(folder), ["..data", "..t.1", "a"]);
    }
}
