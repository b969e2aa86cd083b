//! A folder of files that changes all at once, in the kubelet's layout:
//!
//! ```text
//! ..2026_01_02_03_04_05.1/   the files of one generation
//! ..data -> ..2026_…         exchanged by a rename
//! name -> ..data/name        one link per top-level name
//! ```
//!
//! By descriptor from the folder on: a link that somebody planted in it is looked at, replaced or
//! removed, and never followed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::Path;

use orlop_host::Folder;
use orlop_host::folder::EntryKind;

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

/// Which generation is shown.
const DATA: &str = "..data";
/// Which one is about to be.
const NEXT: &str = "..data_tmp";

/// Makes the folder show these files. A crash at any point leaves the old files or the
/// new ones, and the next call finishes and clears up.
/// A group that the files are for owns the folders, too, and what comes into them.
pub(super) fn write(
    path: &Path,
    payload: &Payload,
    stamp: &str,
    group: Option<u32>,
) -> io::Result<()> {
    let folder = Folder::open(path)?;
    give(&folder, group)?;
    let old = folder.read_link(DATA).ok();
    let old = old.and_then(|old| folder.enter(old).ok());
    if old.is_none_or(|old| !shows(&old, payload, group)) {
        let generation = fresh(&folder, stamp)?;
        let new = folder.make(&generation, 0o755)?;
        new.set_mode(0o755)?;
        for (path, file) in payload {
            add(&new, Path::new(path), file)?;
        }
        give_all(&new, group)?;
        take_away(path, &folder, NEXT.as_ref())?;
        folder.make_link(NEXT, generation.as_ref())?;
        if folder
            .look(DATA)?
            .is_some_and(|found| found.kind == EntryKind::Folder)
        {
            take_away(path, &folder, DATA.as_ref())?;
        }
        folder.rename(NEXT, &folder, DATA)?;
    }
    link(path, &folder, payload)?;
    clear(path, &folder)
}

/// The folder that a path of the payload is in, and its last name.
fn split<'p>(root: &Folder, path: &'p Path, make: bool) -> io::Result<(Folder, &'p OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let holder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && make => root.make(parent, 0o755)?,
        Some(parent) if !parent.as_os_str().is_empty() => root.enter(parent)?,
        _ => root.again()?,
    };
    Ok((holder, name))
}

fn add(generation: &Folder, path: &Path, file: &File) -> io::Result<()> {
    let (holder, name) = split(generation, path, true)?;
    let mut made = holder.create(name, 0o600)?;
    made.write_all(&file.content)?;
    fchown(&made, file.user, file.group)?;
    made.set_permissions(fs::Permissions::from_mode(file.mode))
}

/// What the kubelet adds to a folder of files that a group may read.
const OF_GROUP: u32 = 0o2550;

/// Gives a folder to the group, as the kubelet does: who may read it may look into it, and what is
/// made in it is the group's.
fn give(folder: &Folder, group: Option<u32>) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    let found = folder.itself()?;
    // Before the mode: a change of the group drops the special bits.
    if found.gid != group {
        folder.set_own_owner(found.uid, group)?;
    }
    folder.set_mode(found.mode & 0o7777 | OF_GROUP)
}

fn give_all(folder: &Folder, group: Option<u32>) -> io::Result<()> {
    if group.is_none() {
        return Ok(());
    }
    for name in folder.names()? {
        if let Some(found) = folder.look(&name)?
            && found.kind == EntryKind::Folder
        {
            give_all(&folder.enter(&name)?, group)?;
        }
    }
    give(folder, group)
}

fn fresh(folder: &Folder, stamp: &str) -> io::Result<String> {
    let mut count = 0u32;
    loop {
        let name = format!("..{stamp}.{count}");
        if folder.look(&name)?.is_none() {
            return Ok(name);
        }
        count += 1;
    }
}

/// Whether a generation holds exactly these files, for this group.
fn shows(generation: &Folder, payload: &Payload, group: Option<u32>) -> bool {
    let its = generation.itself().map(|found| found.gid).ok();
    if group.is_some() && its != group {
        return false;
    }
    let is = |path: &str, file: &File| -> io::Result<bool> {
        let (holder, name) = split(generation, Path::new(path), false)?;
        let Some(found) = holder.look(name)? else {
            return Ok(false);
        };
        let dressed = found.kind == EntryKind::File
            && found.mode & 0o7777 == file.mode
            && file.user.is_none_or(|user| user == found.uid)
            && file.group.is_none_or(|group| group == found.gid);
        if !dressed {
            return Ok(false);
        }
        let mut content = Vec::new();
        holder.read(name)?.read_to_end(&mut content)?;
        Ok(content == file.content)
    };
    let same = payload
        .iter()
        .all(|(path, file)| is(path, file).unwrap_or(false));
    same && count(generation).is_ok_and(|count| count == payload.len())
}

fn count(folder: &Folder) -> io::Result<usize> {
    let mut files = 0;
    for name in folder.names()? {
        let kind = folder.look(&name)?.map(|found| found.kind);
        files += match kind {
            Some(EntryKind::Folder) => count(&folder.enter(name)?)?,
            _ => 1,
        };
    }
    Ok(files)
}

fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn link(path: &Path, folder: &Folder, payload: &Payload) -> io::Result<()> {
    for name in payload.keys().map(|path| top(path)) {
        let target = Path::new(DATA).join(name);
        if folder.read_link(name).is_ok_and(|found| found == target) {
            continue;
        }
        take_away(path, folder, name.as_ref())?;
        folder.make_link(name, target.as_os_str())?;
    }
    Ok(())
}

/// Removes links to names that are gone, and generations that are not shown.
fn clear(path: &Path, folder: &Folder) -> io::Result<()> {
    let current = folder.read_link(DATA)?;
    let shown = folder.enter(&current)?;
    for name in folder.names()? {
        let Some(found) = folder.look(&name)? else {
            continue;
        };
        let hidden = name.as_encoded_bytes().starts_with(b"..");
        let goes = match found.kind {
            EntryKind::Folder => hidden && name != current,
            EntryKind::Link => name != DATA && shown.look(&name)?.is_none(),
            _ => false,
        };
        if goes {
            take_away(path, folder, &name)?;
        }
    }
    Ok(())
}

/// Removes whatever has a name, with what is in it.
fn take_away(path: &Path, folder: &Folder, name: &OsStr) -> io::Result<()> {
    match folder.look(name)?.map(|found| found.kind) {
        Some(EntryKind::Folder) => {
            orlop_host::remove_tree_one_fs(&path.join(name)).map_err(io::Error::other)
        }
        Some(_) => folder.remove_file(name).map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
        write(folder, &payload(&[("a", "1"), ("sub/b", "2")]), "t", None).expect("written");
        assert_eq!(fs::read_to_string(folder.join("a")).expect("a"), "1");
        assert_eq!(fs::read_to_string(folder.join("sub/b")).expect("b"), "2");
        write(folder, &payload(&[("a", "3")]), "t", None).expect("written");
        assert_eq!(fs::read_to_string(folder.join("a")).expect("a"), "3");
        assert_eq!(names(folder), ["..data", "..t.1", "a"]);
    }

    #[test]
    fn the_same_files_again_change_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let files = payload(&[("a", "1")]);
        write(folder, &files, "t", None).expect("written");
        let before = fs::read_link(folder.join("..data")).expect("a link");
        write(folder, &files, "u", None).expect("written");
        assert_eq!(
            fs::read_link(folder.join("..data")).expect("a link"),
            before
        );
    }

    #[test]
    fn folders_are_the_groups_too() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        // Anybody may give to a group of their own; root to any.
        let group = match rustix::process::geteuid().is_root() {
            true => 4711,
            false => rustix::process::getegid().as_raw(),
        };
        let files = payload(&[("a", "1"), ("sub/b", "2")]);
        // As one that did not know of groups left it.
        write(folder, &files, "t", None).expect("written");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("open");
        for _ in 0..2 {
            write(folder, &files, "t", Some(group)).expect("written");
            for (path, mode) in [("", 0o2777), ("..data", 0o2755), ("..data/sub", 0o2755)] {
                let found = fs::metadata(folder.join(path)).expect("a folder");
                let has = (found.gid(), found.mode() & 0o7777);
                assert_eq!(has, (group, mode), "{path:?}: {:o}", has.1);
            }
        }
    }

    #[test]
    fn a_crash_before_the_exchange_is_cleared_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write(folder, &payload(&[("a", "1")]), "t", None).expect("written");
        fs::create_dir(folder.join("..t.9")).expect("a half-written generation");
        symlink("..t.9", folder.join("..data_tmp")).expect("a half-made exchange");
        write(folder, &payload(&[("a", "2")]), "t", None).expect("written");
        assert_eq!(fs::read_to_string(folder.join("a")).expect("a"), "2");
        assert_eq!(names(folder), ["..data", "..t.1", "a"]);
    }

    /// CVE-2017-1002102: whoever can write to the folder plants links, and the node follows them.
    #[test]
    fn links_that_were_planted_are_never_followed() {
        let root = tempfile::tempdir().expect("a folder");
        let (canary, folder) = (root.path().join("canary"), root.path().join("volume"));
        let files = payload(&[("a", "1"), ("deep/b", "2")]);
        type Plant = fn(&Path, &Path);
        let plants: [(&str, Plant); 7] = [
            ("the shown generation is elsewhere", |folder, canary| {
                let _ = fs::remove_file(folder.join("..data"));
                symlink(canary, folder.join("..data")).expect("a link");
            }),
            ("a generation is a link", |folder, canary| {
                symlink(canary, folder.join("..t.7")).expect("a link");
                let _ = fs::remove_file(folder.join("..data"));
                symlink("..t.7", folder.join("..data")).expect("a link");
            }),
            ("an old generation is a link", |folder, canary| {
                symlink(canary, folder.join("..t.8")).expect("a link");
            }),
            ("the next exchange is a link", |folder, canary| {
                symlink(canary, folder.join("..data_tmp")).expect("a link");
            }),
            ("a name leads elsewhere", |folder, canary| {
                let _ = fs::remove_file(folder.join("a"));
                symlink(canary.join("a"), folder.join("a")).expect("a link");
            }),
            ("a folder of the generation is a link", |folder, canary| {
                let data = folder.join("..data");
                let _ = fs::remove_dir_all(data.join("deep"));
                symlink(canary, data.join("deep")).expect("a link");
            }),
            ("a folder is where the link was", |folder, _| {
                let _ = fs::remove_file(folder.join("..data"));
                fs::create_dir(folder.join("..data")).expect("a folder");
                fs::write(folder.join("..data/x"), "x").expect("a file");
            }),
        ];
        for (what, plant) in plants {
            for _ in [&canary, &folder] {
                let _ = fs::remove_dir_all(&canary);
                let _ = fs::remove_dir_all(&folder);
            }
            fs::create_dir_all(canary.join("deep")).expect("a folder");
            for name in ["a", "b", "deep/b"] {
                fs::write(canary.join(name), "canary").expect("a file");
            }
            fs::create_dir(&folder).expect("a folder");
            write(&folder, &payload(&[("a", "0"), ("deep/b", "0")]), "t", None).expect("written");
            plant(&folder, &canary);
            for _ in 0..2 {
                write(&folder, &files, "t", None).expect(what);
            }
            let read = |name: &str| fs::read_to_string(folder.join(name)).expect(what);
            assert_eq!(
                (read("a"), read("deep/b")),
                ("1".into(), "2".into()),
                "{what}"
            );
            assert_eq!(names(&canary), ["a", "b", "deep"], "{what}");
            assert_eq!(names(&canary.join("deep")), ["b"], "{what}");
            for name in ["a", "b", "deep/b"] {
                let kept = fs::read_to_string(canary.join(name)).expect(what);
                assert_eq!(kept, "canary", "{what}");
            }
            let shown = names(&folder);
            assert_eq!(shown.len(), 4, "{what}: {shown:?}");
        }
    }
}
