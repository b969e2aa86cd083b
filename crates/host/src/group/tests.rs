use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;
use crate::mount::{self, Depth, Restrictions};
use crate::place::Place;

const GROUP: u32 = 4711;
const ALWAYS: (Wanted, When) = (wanted(Access::ReadWrite), When::Always);
const ON_MISMATCH: (Wanted, When) = (wanted(Access::ReadWrite), When::OnRootMismatch);

const fn wanted(access: Access) -> Wanted {
    Wanted {
        group: GROUP,
        access,
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: files are given away by root only");
    }
    root
}

fn traits(path: &Path) -> (u32, u32) {
    let found = std::fs::symlink_metadata(path).unwrap();
    (found.gid(), found.mode() & 0o7777)
}

fn make(path: &Path, mode: u32) {
    std::fs::write(path, "x").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn walked(applied: io::Result<Applied>) -> Walked {
    match applied.unwrap() {
        Applied::Walked(walked) => walked,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_file_becomes_the_groups_with_the_kubelets_modes() {
    if !is_root() {
        return;
    }
    for (access, file, tool, folder) in [
        (Access::ReadWrite, 0o660, 0o6775, 0o2770),
        (Access::ReadOnly, 0o640, 0o6755, 0o2750),
    ] {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        for name in ["a", "a/b", ""] {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        make(&at("a/file"), 0o600);
        make(&at("a/b/tool"), 0o6755);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let done = walked(apply(
            root.path(),
            (wanted(access), When::Always),
            3,
            &Progress::default(),
        ));
        assert_eq!(
            (done.seen, done.changed, done.refused),
            (6, 6, 0),
            "{access:?}"
        );
        assert_eq!(traits(&at("a/file")), (GROUP, file));
        assert_eq!(traits(&at("a/b/tool")), (GROUP, tool), "its bits came back");
        assert_eq!(traits(&at("a/b")), (GROUP, folder));
        assert_eq!(traits(&at("fifo")), (GROUP, file));
        assert_eq!(traits(root.path()), (GROUP, folder));
        // A folder's group is handed on.
        std::fs::write(at("a/b/new"), "").unwrap();
        assert_eq!(traits(&at("a/b/new")).0, GROUP);
    }
}

#[test]
fn a_second_walk_only_looks_and_a_right_root_is_enough_if_that_was_asked() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("a")).unwrap();
    make(&root.path().join("a/file"), 0o600);
    let again = |policy| apply(root.path(), policy, 2, &Progress::default());
    assert_eq!(walked(again(ON_MISMATCH)).changed, 3);
    assert!(matches!(again(ON_MISMATCH), Ok(Applied::Before)));
    assert_eq!(walked(again(ALWAYS)).changed, 0);
    // What a crash leaves: the root is still as it was, and only the rest is done.
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    make(&root.path().join("a/other"), 0o600);
    let done = walked(again(ON_MISMATCH));
    assert_eq!((done.seen, done.changed), (4, 2));
}

#[test]
fn links_are_given_away_and_what_they_point_to_is_not() {
    if !is_root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    make(&outside.path().join("precious"), 0o600);
    std::fs::create_dir(outside.path().join("folder")).unwrap();
    make(&outside.path().join("folder/inner"), 0o600);
    let before = ["precious", "folder", "folder/inner"].map(|n| traits(&outside.path().join(n)));
    let root = tempfile::tempdir().unwrap();
    symlink(outside.path().join("precious"), root.path().join("file")).unwrap();
    symlink(outside.path().join("folder"), root.path().join("folder")).unwrap();
    symlink("..", root.path().join("up")).unwrap();
    let done = walked(apply(root.path(), ALWAYS, 2, &Progress::default()));
    assert_eq!(done.seen, 4);
    let after = ["precious", "folder", "folder/inner"].map(|n| traits(&outside.path().join(n)));
    assert_eq!(after, before);
    assert_eq!(traits(&root.path().join("folder")).0, GROUP);
    assert!(apply(&root.path().join("folder"), ALWAYS, 1, &Progress::default()).is_err());
}

#[test]
fn what_is_mounted_in_the_tree_is_left_alone() {
    if !is_root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    make(&outside.path().join("precious"), 0o600);
    let root = tempfile::tempdir().unwrap();
    let (folder, file) = (root.path().join("folder"), root.path().join("file"));
    std::fs::create_dir(&folder).unwrap();
    make(&file, 0o600);
    // Bind mounts of the same file system: the device number alone would not tell.
    for (from, to) in [
        (outside.path().to_owned(), &folder),
        (outside.path().join("precious"), &file),
    ] {
        let source = Place::at(&from).unwrap().open().unwrap();
        let target = Place::at(to).unwrap().open().unwrap();
        mount::bind(source, target, Depth::One, Restrictions::default()).unwrap();
    }
    let done = apply(root.path(), ALWAYS, 2, &Progress::default());
    for point in [&folder, &file] {
        mount::unmount(&Place::at(point).unwrap()).unwrap();
    }
    assert_eq!(walked(done).seen, 1, "the root alone");
    assert_eq!(traits(&outside.path().join("precious")), (0, 0o600));
    assert_eq!(traits(outside.path()).0, 0);
}

#[test]
fn a_tree_that_is_deeper_than_any_path_and_a_folder_with_many_names_are_walked_whole() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let name = "d".repeat(200);
    let mut at = OwnedFd::from(std::fs::File::open(root.path()).unwrap());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    for _ in 0..60 {
        rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o700)).unwrap();
        at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    let wide = root.path().join("wide");
    std::fs::create_dir(&wide).unwrap();
    for n in 0..5000 {
        std::fs::write(wide.join(n.to_string()), "").unwrap();
    }
    let done = walked(apply(root.path(), ALWAYS, 4, &Progress::default()));
    assert_eq!((done.seen, done.changed), (5062, 5062));
    assert_eq!(look(&at, c"").unwrap().stx_gid, GROUP);
    assert_eq!(traits(&wide.join("4999")).0, GROUP);
    drop(at);
    crate::remove_tree_one_fs(&root.path().join(name)).unwrap();
}

#[test]
fn a_walk_that_is_asked_to_stop_leaves_the_root_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..100 {
        std::fs::write(root.path().join(n.to_string()), "").unwrap();
    }
    let before = traits(root.path());
    let progress = Progress::default();
    progress.stop();
    let applied = apply(root.path(), ALWAYS, 2, &progress);
    assert!(matches!(applied, Ok(Applied::Stopped)), "{applied:?}");
    assert_eq!((traits(root.path()), progress.seen()), (before, 0));
}

/// The tree is at a container's mercy meanwhile: folders and links trade places all the time.
#[test]
fn a_folder_that_turns_into_a_link_does_not_lead_the_walk_outside() {
    if !is_root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    for n in 0..50 {
        make(&outside.path().join(n.to_string()), 0o600);
    }
    let root = tempfile::tempdir().unwrap();
    for n in 0..20 {
        std::fs::create_dir(root.path().join(format!("f{n}"))).unwrap();
        symlink(outside.path(), root.path().join(format!("l{n}"))).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for n in 0..20 {
                    let (one, two) = (format!("f{n}"), format!("l{n}"));
                    let _ = rustix::fs::renameat_with(
                        rustix::fs::CWD,
                        root.path().join(one),
                        rustix::fs::CWD,
                        root.path().join(two),
                        rustix::fs::RenameFlags::EXCHANGE,
                    );
                }
            }
        });
        for _ in 0..60 {
            let _ = apply(root.path(), ALWAYS, 2, &Progress::default());
        }
        over.store(true, Ordering::Relaxed);
    });
    for n in 0..50 {
        assert_eq!(traits(&outside.path().join(n.to_string())), (0, 0o600));
    }
    assert_eq!(traits(outside.path()).0, 0);
}
