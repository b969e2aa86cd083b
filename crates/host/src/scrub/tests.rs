use std::os::unix::fs::symlink;

use super::*;
use crate::mount::{self, NewMount};
use crate::testing::ScratchFs;
use crate::{Place, Restrictions};

fn empty(path: &Path, told: impl FnMut(u64) -> Go) -> Result<(), ScrubError> {
    Folder::take(path)?.empty(told)
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("a folder");
    entries
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

/// Folders in folders, deeper than paths can be long and descriptors many.
fn nest(folder: &Path, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut now = rustix::fs::open(folder, flags, Mode::empty()).expect("a folder");
    for _ in 0..depth {
        rustix::fs::mkdirat(&now, "deeper", Mode::RWXU).expect("a folder in it");
        now = rustix::fs::openat(&now, "deeper", flags, Mode::empty()).expect("that");
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::openat(&now, "bottom", flags, Mode::RUSR).expect("a file at the bottom");
}

#[test]
fn a_mounted_file_system_is_emptied_and_stays_mounted() {
    let Some(scratch) = ScratchFs::new("ext4", 64 << 20) else {
        return;
    };
    let (root, outside) = (scratch.path(), tempfile::tempdir().expect("a folder"));
    std::fs::write(outside.path().join("precious"), "kept").expect("a file outside");
    std::fs::write(root.join("file"), "x").expect("a file");
    std::fs::write(root.join("lost+found/found"), "x").expect("a found file");
    symlink(outside.path(), root.join("link")).expect("a link to a folder");
    std::fs::create_dir(root.join("folder")).expect("a folder");
    symlink(outside.path(), root.join("folder/link")).expect("another");
    std::fs::create_dir(root.join(".scrub-1")).expect("what an earlier one left");
    nest(&root.join("folder"), 3000);
    let mut removed = 0;
    empty(&root, |now| {
        removed = now;
        Go::On
    })
    .expect("emptied");
    assert_eq!(names(&root), ["lost+found"]);
    assert!(names(&root.join("lost+found")).is_empty());
    assert!(removed > 3000, "{removed}");
    assert_eq!(names(outside.path()), ["precious"]);
    let table = crate::MountTable::read().expect("mounts");
    assert!(table.at(&root).is_some(), "it is mounted still");
}

#[test]
fn nothing_is_read_off_the_folders_that_stay() {
    use rustix::fs::{Gid, Uid, XattrFlags};
    let Some(scratch) = ScratchFs::new("ext4", 16 << 20) else {
        return;
    };
    let (root, found) = (scratch.path(), scratch.path().join("lost+found"));
    // Version 2: the owner may all, user 4711 may read, the mask allows it.
    let acl = [
        [2, 0, 0, 0].as_slice(),
        &[1, 0, 7, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 0x67, 0x12, 0, 0],
        &[4, 0, 7, 0, 255, 255, 255, 255],
        &[16, 0, 7, 0, 255, 255, 255, 255],
        &[32, 0, 7, 0, 255, 255, 255, 255],
    ]
    .concat();
    for folder in [&root, &found] {
        for (name, value) in [
            ("user.note", b"secret".as_slice()),
            ("trusted.note", b"secret"),
            ("system.posix_acl_access", &acl),
            ("system.posix_acl_default", &acl),
        ] {
            rustix::fs::setxattr(folder, name, value, XattrFlags::empty()).expect(name);
        }
        let (user, group) = (Uid::from_raw(4711), Gid::from_raw(4712));
        rustix::fs::chown(folder, Some(user), Some(group)).expect("an owner");
        rustix::fs::chmod(folder, Mode::from_raw_mode(0o7777)).expect("a mode");
    }
    empty(&root, |_| Go::On).expect("emptied");
    for (folder, mode) in [(&root, 0o755), (&found, 0o700)] {
        let mut names = vec![0; 4096];
        let length = rustix::fs::listxattr(folder, &mut names[..]).expect("a list");
        let names = String::from_utf8_lossy(&names[..length]);
        let left = names
            .split_terminator('\0')
            .filter(|n| *n != "security.selinux");
        assert_eq!(left.collect::<Vec<_>>(), [""; 0], "{}", folder.display());
        let now = rustix::fs::stat(folder).expect("a look");
        assert_eq!((now.st_uid, now.st_gid), (0, 0), "{}", folder.display());
        assert_eq!(now.st_mode & 0o7777, mode, "{}", folder.display());
    }
}

#[test]
fn what_is_mounted_inside_is_not_touched() {
    let (Some(outer), Some(inner)) = (
        ScratchFs::new("ext4", 16 << 20),
        ScratchFs::new("ext4", 16 << 20),
    ) else {
        return;
    };
    std::fs::write(inner.path().join("precious"), "kept").expect("a file");
    let point = outer.path().join("a/b");
    std::fs::create_dir_all(&point).expect("a mount point");
    let (source, target) = (
        std::fs::File::open(inner.path()).expect("a source"),
        std::fs::File::open(&point).expect("a target"),
    );
    mount::bind(source, target, mount::Depth::One, Restrictions::default()).expect("a mount");
    let result = empty(&outer.path(), |_| Go::On);
    let at = crate::MountTable::read().expect("mounts");
    let at = at
        .beneath(&outer.path())
        .map(|m| m.point.clone())
        .next_back();
    let place = Place::at(&at.expect("the inner mount")).expect("a place");
    mount::unmount(&place).expect("unmounted");
    assert!(
        matches!(result, Err(ScrubError::MountPoint { .. })),
        "{result:?}"
    );
    assert!(inner.path().join("precious").exists());
    // Then it can go on.
    empty(&outer.path(), |_| Go::On).expect("emptied");
    assert_eq!(names(&outer.path()), ["lost+found"]);
}

#[test]
fn it_stops_when_told_and_goes_on_the_next_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..10 {
        std::fs::write(folder.path().join(number.to_string()), "").expect("a file");
    }
    let stop_at_five = |now| if now == 5 { Go::Stop } else { Go::On };
    let result = empty(folder.path(), stop_at_five);
    assert!(matches!(result, Err(ScrubError::Stopped)), "{result:?}");
    assert_eq!(names(folder.path()).len(), 5);
    empty(folder.path(), |_| Go::On).expect("emptied");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_link_in_the_folders_own_place_is_not_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    std::fs::create_dir(&real).expect("a folder");
    std::fs::write(real.join("precious"), "kept").expect("a file");
    symlink(&real, &link).expect("a link");
    empty(&link, |_| Go::On).expect_err("refused");
    assert!(real.join("precious").exists());
}

#[test]
fn a_tmpfs_is_emptied_too() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let target = std::fs::File::open(folder.path()).expect("the folder");
    let new = NewMount {
        fs_type: "tmpfs",
        source: Path::new("tmpfs"),
        restrictions: Restrictions::default(),
        options: &[],
    };
    mount::mount(&new, target).expect("a mount");
    std::fs::create_dir_all(folder.path().join("a/b/c")).expect("folders");
    let result = empty(folder.path(), |_| Go::On);
    let left = names(folder.path());
    mount::unmount(&Place::at(folder.path()).expect("a place")).expect("unmounted");
    result.expect("emptied");
    assert!(left.is_empty(), "{left:?}");
}
