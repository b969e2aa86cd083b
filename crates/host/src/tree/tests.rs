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
