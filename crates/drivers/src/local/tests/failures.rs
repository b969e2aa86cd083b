//! What goes wrong below us: told with the right code, nothing lost, and over when the cause is.
//!
//! Some causes are made in a mount namespace of a test process of its own (see [`apart`]), so that
//! nobody else on the machine lacks a program or a device.

use std::process::Command;

use orlop_host::mount::{Depth, Restrictions};

use super::*;

/// A small file system of its own, mounted at `path` until dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    /// A memory file system: small, quick, and full when it should be.
    fn new(path: PathBuf, bytes: u64) -> Self {
        fs::create_dir_all(&path).unwrap();
        let disk = Self { path };
        disk.mount(bytes);
        disk
    }

    fn mount(&self, bytes: u64) {
        let size = orlop_host::mount::FsOption {
            key: "size".to_owned(),
            value: Some(bytes.to_string()),
        };
        let new = mount::NewMount {
            fs_type: "tmpfs",
            source: Path::new("tmpfs"),
            restrictions: Restrictions::default(),
            options: &[size],
        };
        let place = Place::at(&self.path).unwrap();
        mount::mount(&new, place.open().unwrap()).unwrap();
    }
}

/// A driver with node one's only pool in a directory of such a disk, overcommitted fourfold.
fn on_disk(bed: &mut Bed, disk: &Disk) {
    bed.driver = None;
    let config = LocalConfig {
        rules: Rules {
            overcommit: Overcommit::new(4.0).unwrap(),
            reserve: Reserve::Bytes(0),
        },
        ..LocalConfig::new(BTreeMap::from([(
            NodeName::from("one"),
            disk.path.join("pool"),
        )]))
    };
    bed.driver = Some(LocalDriver::open(config).unwrap());
}

/// What a refusal says: it must hold this text.
async fn told(bed: &Bed, id: &str, how: proto::VolumeCapability, text: &str) -> Code {
    let request = proto::NodeStageVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: bed.staging(id),
        volume_capability: Some(how),
        ..Default::default()
    };
    let status = bed
        .node("one")
        .node_stage_volume(Request::new(request))
        .await
        .unwrap_err();
    assert!(status.message().contains(text), "{status}");
    status.code()
}

async fn condition(bed: &Bed, id: &str) -> proto::VolumeCondition {
    let request = proto::ControllerGetVolumeRequest {
        volume_id: id.to_owned(),
    };
    let reply = bed
        .controller()
        .controller_get_volume(Request::new(request))
        .await;
    let status = reply.unwrap().into_inner().status.unwrap();
    status.volume_condition.unwrap()
}

#[tokio::test]
async fn a_full_pool_refuses_and_goes_on_when_there_is_room_again() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let disk = Disk::new(bed.path("disk"), 64 << 20);
    on_disk(&mut bed, &disk);
    let id = bed.volume("data", 64 * MIB).await;
    let too_much = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        ..creation("more", GIB)
    };
    let reply = bed.controller().create_volume(Request::new(too_much)).await;
    assert_eq!(code(reply), Err(Code::ResourceExhausted));
    // Somebody else takes all of it.
    let other = disk.path.join("other");
    let free = orlop_host::filesystem::usage(&disk.path).unwrap();
    let taken = usize::try_from(free.available_bytes).unwrap();
    fs::write(&other, vec![1; taken]).unwrap();
    let full = told(&bed, &id, files("ext4"), "free some space").await;
    assert_eq!(full, Code::ResourceExhausted);
    let another = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        ..creation("another", 8 * MIB)
    };
    let reply = bed.controller().create_volume(Request::new(another)).await;
    assert_eq!(code(reply), Err(Code::ResourceExhausted));
    // What is there can still be taken away, and what was refused works once there is room.
    fs::remove_file(&other).unwrap();
    bed.stage(&id, files("ext4")).await.unwrap();
    fs::write(PathBuf::from(bed.staging(&id)).join("f"), "x").unwrap();
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    let left = settled(|| leftovers(bed.pools()).unwrap());
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_read_only_pool_is_told_and_loses_nothing() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("")).await.unwrap();
    fs::write(PathBuf::from(bed.staging(&id)).join("f"), "kept").unwrap();
    bed.unstage(&id).await.unwrap();
    let pool = Place::at(&bed.path("pool-one")).unwrap();
    let read_only = Restrictions {
        read_only: true,
        ..Restrictions::default()
    };
    mount::bind(
        pool.open().unwrap(),
        pool.open().unwrap(),
        Depth::One,
        read_only,
    )
    .unwrap();
    let request = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        ..creation("new", 64 * MIB)
    };
    let status = bed
        .controller()
        .create_volume(Request::new(request.clone()))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("read-only"), "{status}");
    assert_eq!(bed.delete(&id).await, Err(Code::FailedPrecondition));
    assert_eq!(
        bed.stage(&id, files("")).await,
        Err(Code::FailedPrecondition)
    );
    mount::unmount(&pool).unwrap();
    bed.stage(&id, files("")).await.unwrap();
    assert_eq!(read(PathBuf::from(bed.staging(&id)).join("f")), "kept");
    bed.unstage(&id).await.unwrap();
    let made = bed.controller().create_volume(Request::new(request)).await;
    bed.delete(&made.unwrap().into_inner().volume.unwrap().volume_id)
        .await
        .unwrap();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pool_that_vanishes_is_missed_and_taken_back_when_it_returns() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let (pool, away) = (bed.path("pool-one"), bed.path("away"));
    // Moved away, with an empty directory in its place: an unmounted disk.
    fs::rename(&pool, &away).unwrap();
    fs::create_dir(&pool).unwrap();
    assert_eq!(
        told(&bed, &id, files(""), "mount its file system there again").await,
        Code::Unavailable
    );
    assert_eq!(bed.delete(&id).await, Err(Code::Unavailable));
    assert!(condition(&bed, &id).await.abnormal);
    let request = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        ..creation("new", 64 * MIB)
    };
    let reply = bed.controller().create_volume(Request::new(request)).await;
    assert_eq!(code(reply), Err(Code::Unavailable));
    let place = topology::of_node(DRIVER_NAME, &NodeName::from("one"));
    let request = proto::GetCapacityRequest {
        accessible_topology: Some(place),
        ..Default::default()
    };
    let reply = bed.controller().get_capacity(Request::new(request)).await;
    assert_eq!(reply.unwrap().into_inner().available_capacity, 0);
    // Nothing was made where the pool was, and the other node does not care.
    assert_eq!(fs::read_dir(&pool).unwrap().count(), 0);
    let request = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["two"])),
        ..creation("there", 64 * MIB)
    };
    let there = bed.controller().create_volume(Request::new(request)).await;
    let there = there.unwrap().into_inner().volume.unwrap().volume_id;
    bed.delete(&there).await.unwrap();

    fs::remove_dir(&pool).unwrap();
    fs::rename(&away, &pool).unwrap();
    assert!(!condition(&bed, &id).await.abnormal);
    bed.stage(&id, files("")).await.unwrap();
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pool_that_returns_on_another_mount_is_the_same_pool() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let (pool, away) = (bed.path("pool-one"), bed.path("away"));
    fs::rename(&pool, &away).unwrap();
    assert_eq!(bed.delete(&id).await, Err(Code::Unavailable));
    let elsewhere = bed.volume_on_two().await;
    // Another directory, another inode, the same files: a disk that was mounted again.
    fs::create_dir_all(pool.join("volumes")).unwrap();
    fs::copy(away.join("pool.json"), pool.join("pool.json")).unwrap();
    fs::rename(
        away.join("volumes").join(&id),
        pool.join("volumes").join(&id),
    )
    .unwrap();
    bed.stage(&id, files("")).await.unwrap();
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    bed.delete(&elsewhere).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_damaged_or_missing_image_is_told_and_mended_from_a_backup() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let id = bed.volume(fs_type, 512 * MIB).await;
        bed.stage(&id, files(fs_type)).await.unwrap();
        fs::write(PathBuf::from(bed.staging(&id)).join("f"), "kept").unwrap();
        bed.unstage(&id).await.unwrap();
        let image = bed
            .path("pool-one/volumes")
            .join(&id)
            .join(format!("{id}.img"));
        let backup = bed.path("backup");
        fs::copy(&image, &backup).unwrap();
        let spoil = |from: u64, with: u8| {
            let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
            let noise = vec![with; 1 << 20];
            std::os::unix::fs::FileExt::write_all_at(&file, &noise, from).unwrap();
        };
        // Its beginning overwritten.
        spoil(0, 0xa5);
        assert_eq!(
            told(&bed, &id, files(fs_type), "from a backup").await,
            Code::DataLoss
        );
        // Gone.
        fs::remove_file(&image).unwrap();
        assert_eq!(
            told(&bed, &id, files(fs_type), "from a backup").await,
            Code::DataLoss
        );
        assert!(condition(&bed, &id).await.abnormal);
        // Cut short.
        fs::write(&image, "").unwrap();
        assert!(condition(&bed, &id).await.abnormal);
        assert_eq!(bed.stage(&id, files(fs_type)).await, Err(Code::DataLoss));
        fs::copy(&backup, &image).unwrap();
        assert!(!condition(&bed, &id).await.abnormal);
        bed.stage(&id, files(fs_type)).await.unwrap();
        assert_eq!(read(PathBuf::from(bed.staging(&id)).join("f")), "kept");
        bed.unstage(&id).await.unwrap();
        bed.delete(&id).await.unwrap();
        fs::remove_file(&backup).unwrap();
    }
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_link_in_an_images_place_leads_nowhere() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("ext4", 64 * MIB).await;
    let image = bed
        .path("pool-one/volumes")
        .join(&id)
        .join(format!("{id}.img"));
    let canary = bed.path("canary");
    fs::write(&canary, "not ours").unwrap();
    fs::remove_file(&image).unwrap();
    std::os::unix::fs::symlink(&canary, &image).unwrap();
    assert_eq!(bed.stage(&id, files("ext4")).await, Err(Code::DataLoss));
    assert_eq!(read(canary.clone()), "not ours");
    fs::remove_file(&canary).unwrap();
}

/// Runs one of the tests below in a process with mounts of its own, where the machine can be spoilt.
fn apart(test: &str) {
    if !is_root() {
        return;
    }
    let run = Command::new("/usr/bin/unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .arg(format!("local::tests::failures::{test}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
fn a_missing_mkfs_is_told_with_its_package_and_the_volume_waits_for_it() {
    apart("without_mkfs");
}

#[tokio::test]
#[ignore = "spoils the machine's mounts; run by the test above in a namespace of its own"]
async fn without_mkfs() {
    let bed = Bed::new();
    let ids = [
        bed.volume("a", 512 * MIB).await,
        bed.volume("b", 512 * MIB).await,
    ];
    let programs = Disk {
        path: "/usr/sbin".into(),
    };
    programs.mount(1 << 20);
    for (id, fs_type, package) in [(&ids[0], "ext4", "e2fsprogs"), (&ids[1], "xfs", "xfsprogs")] {
        let text = format!("install the package {package}");
        assert_eq!(told(&bed, id, files(fs_type), &text).await, Code::Internal);
    }
    mount::unmount(&Place::at(&programs.path).unwrap()).unwrap();
    for (id, fs_type) in ids.iter().zip(["ext4", "xfs"]) {
        bed.stage(id, files(fs_type)).await.unwrap();
        bed.unstage(id).await.unwrap();
        bed.delete(id).await.unwrap();
    }
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[test]
fn without_a_loop_device_nothing_is_staged_and_nothing_is_lost() {
    apart("without_loop_devices");
}

#[tokio::test]
#[ignore = "spoils the machine's mounts; run by the test above in a namespace of its own"]
async fn without_loop_devices() {
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("")).await.unwrap();
    fs::write(PathBuf::from(bed.staging(&id)).join("f"), "kept").unwrap();
    bed.unstage(&id).await.unwrap();
    // A /dev with the control device and none of those that it hands out, as a container has it.
    let whole = Place::at(Path::new("/dev")).unwrap().open().unwrap();
    let control = Place::at(Path::new("/dev/loop-control")).unwrap();
    let control = control.open().unwrap();
    let devices = Disk {
        path: "/dev".into(),
    };
    devices.mount(1 << 20);
    let here = Place::at(Path::new("/dev/loop-control")).unwrap();
    here.make_file(0o600).unwrap();
    let as_it_is = Restrictions::default();
    mount::bind(control, here.open().unwrap(), Depth::One, as_it_is).unwrap();
    assert_eq!(
        told(&bed, &id, files(""), "mount the host's /dev").await,
        Code::ResourceExhausted
    );
    // The whole of it again.
    let dev = Place::at(&devices.path).unwrap().open().unwrap();
    mount::bind(whole, dev, Depth::One, as_it_is).unwrap();
    bed.stage(&id, files("")).await.unwrap();
    assert_eq!(read(PathBuf::from(bed.staging(&id)).join("f")), "kept");
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}
