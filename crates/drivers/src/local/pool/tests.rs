use std::os::unix::fs::{MetadataExt, PermissionsExt};

use orlop_host::FsKind;

use super::*;

fn record(name: &str) -> VolumeRecord {
    VolumeRecord::blank(name, 1, 64 << 20)
}

#[test]
fn a_volume_is_there_as_a_whole_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, found) = Pool::open(dir.path()).unwrap();
    assert_eq!(found, []);
    let record = record("a");
    pool.create(&record).unwrap();
    let image = fs::metadata(pool.image(&record.id)).unwrap();
    assert_eq!((image.len(), image.blocks()), (64 << 20, 0));
    assert_eq!(image.permissions().mode() & 0o777, 0o600);
    drop(pool);
    let (pool, found) = Pool::open(dir.path()).unwrap();
    assert_eq!(found, [Found::Sound(record.clone())]);
    pool.remove(&record.id).unwrap();
    pool.remove(&record.id).unwrap();
    drop(pool);
    assert_eq!(Pool::open(dir.path()).unwrap().1, []);
}

#[test]
fn a_file_is_no_pool_and_the_message_says_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let OpenError::Directory { path, source } = Pool::open(file.path()).unwrap_err() else {
        panic!("another error");
    };
    assert_eq!(path, file.path());
    assert_eq!(source.to_string(), "not a directory");
}

#[test]
fn a_volume_whose_record_names_another_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, _) = Pool::open(dir.path()).unwrap();
    pool.create(&record("a")).unwrap();
    drop(pool);
    let volumes = dir.path().join("volumes");
    let other = VolumeId::of_name("b");
    fs::rename(
        volumes.join(VolumeId::of_name("a").as_str()),
        volumes.join(other.as_str()),
    )
    .unwrap();
    let (_, found) = Pool::open(dir.path()).unwrap();
    assert_eq!(
        found,
        [Found::Broken {
            id: other,
            image_bytes: 0
        }]
    );
}

#[test]
fn what_is_not_a_volume_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("volumes/lost+found")).unwrap();
    let (_pool, found) = Pool::open(dir.path()).unwrap();
    assert_eq!(found, []);
    assert!(dir.path().join("volumes/lost+found").exists());
}

#[test]
fn a_failed_format_leaves_the_old_image_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, _) = Pool::open(dir.path()).unwrap();
    let record = VolumeRecord {
        capacity_bytes: 4096,
        ..record("a")
    };
    pool.create(&record).unwrap();
    let error = pool.format(&record, FsKind::Xfs, &[]).unwrap_err();
    assert!(matches!(error, FormatError::Make(_)), "{error}");
    let names = fs::read_dir(dir.path().join("volumes").join(record.id.as_str())).unwrap();
    assert_eq!(names.count(), 2);
    assert_eq!(fs::metadata(pool.image(&record.id)).unwrap().len(), 4096);
}
