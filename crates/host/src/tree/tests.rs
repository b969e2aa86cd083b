use std::os::unix::fs::symlink;

use super::*;
use crate::mount::{self, Depth, Restrictions};
use crate::place::Place;

#[test]
fn a_tree_goes_and_what_its_links_point_to_stays() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    std::fs::create_dir_all(outside.join("keep")).unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("a/b/c")).unwrap();
    std::fs::write(root.join("a/file"), "x").unwrap();
    symlink(&outside, root.join("a/link")).unwrap();
    remove_tree_one_fs(&root).unwrap();
    assert!(!root.exists());
    assert!(outside.join("keep").exists());
    remove_tree_one_fs(&root).unwrap();
}

#[test]
fn a_mount_inside_stops_the_removal_before_anything_behind_it() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("precious"), "x").unwrap();
    let inner = dir.path().join("root/a");
    std::fs::create_dir_all(&inner).unwrap();
    let place = Place::at(&inner).unwrap();
    let source = Place::at(&outside).unwrap().open().unwrap();
    let target = place.open().unwrap();
    // A bind mount of the same file system: the device number alone would not tell.
    mount::bind(source, target, Depth::One, Restrictions::default()).unwrap();
    let result = remove_tree_one_fs(&dir.path().join("root"));
    mount::unmount(&place).unwrap();
    assert!(matches!(result, Err(RemoveTreeError::MountPoint { path }) if path == inner));
    assert!(outside.join("precious").exists());
    remove_tree_one_fs(&dir.path().join("root")).unwrap();
}

#[test]
fn a_mounted_root_is_refused_too() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("child")).unwrap();
    let place = Place::at(&root).unwrap();
    let (source, target) = (place.open().unwrap(), place.open().unwrap());
    mount::bind(source, target, Depth::One, Restrictions::default()).unwrap();
    let result = remove_tree_one_fs(&root);
    mount::unmount(&place).unwrap();
    assert!(
        matches!(result, Err(RemoveTreeError::MountPoint { .. })),
        "{result:?}"
    );
    assert!(root.join("child").exists());
}

#[test]
fn what_a_tree_takes_is_counted_once_and_never_behind_links() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    let measure = |tree: &Path| disk_usage(tree, &AtomicU64::new(0)).unwrap();
    let before = measure(&tree);
    assert_eq!(before.inodes, 3);
    std::fs::write(tree.join("a/b/file"), vec![1u8; 1 << 20]).unwrap();
    std::fs::hard_link(tree.join("a/b/file"), tree.join("again")).unwrap();
    std::fs::write(dir.path().join("outside"), vec![1u8; 4 << 20]).unwrap();
    std::os::unix::fs::symlink(dir.path(), tree.join("link")).unwrap();
    // Holes take nothing.
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let used = measure(&tree).bytes - before.bytes;
    assert!((1 << 20..2 << 20).contains(&used), "{used}");
    assert_eq!(measure(&tree).inodes - before.inodes, 3);
}

#[test]
fn what_is_deeper_than_a_path_is_long_is_counted() {
    use std::os::fd::AsFd as _;
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(&tree, flags, Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "deep", Mode::RWXU).unwrap();
        at = rustix::fs::openat(at.as_fd(), "deep", flags, Mode::empty()).unwrap();
    }
    let hidden = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let hidden = rustix::fs::openat(&at, "hidden", hidden, Mode::RWXU).unwrap();
    rustix::io::write(&hidden, &vec![1; 1 << 20]).unwrap();
    let seen = AtomicU64::new(0);
    let taken = disk_usage(&tree, &seen).unwrap();
    assert!(taken.bytes >= 1 << 20, "{taken:?}");
    assert_eq!((taken.inodes, seen.into_inner()), (3002, 3001));
    remove_tree_one_fs(&tree).unwrap();
}

#[test]
fn a_tree_deeper_than_any_stack_is_removed() {
    use std::os::fd::AsFd as _;
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(&tree, flags, Mode::empty()).unwrap();
    for _ in 0..6000 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(at.as_fd(), "d", flags, Mode::empty()).unwrap();
    }
    drop(at);
    // On a thread like those that removals run on.
    let work = std::thread::Builder::new().stack_size(512 << 10);
    let work = work.spawn(move || remove_tree_one_fs(&tree).map(|()| tree.exists()));
    assert!(!work.unwrap().join().unwrap().unwrap());
}

#[test]
fn more_names_than_are_held_at_once_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for name in 0..AT_ONCE + 10 {
        std::fs::write(tree.join(name.to_string()), "").unwrap();
    }
    remove_tree_one_fs(&tree).unwrap();
    assert!(!tree.exists());
}
