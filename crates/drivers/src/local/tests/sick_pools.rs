//! Pools that are full, read-only, gone or broken: told with the right code, nothing lost, what is in
//! use can be let go of, and all is well again when the cause is gone.

use std::process::Command;

use orlop_csi::proto::identity_server::Identity;
use orlop_host::mount::{Depth, Restrictions};

use super::failures::{Disk, condition, told};
use super::*;

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

/// What may be promised of node one's pool.
async fn room(bed: &Bed) -> i64 {
    let request = proto::GetCapacityRequest {
        accessible_topology: Some(topology::of_node(DRIVER_NAME, &NodeName::from("one"))),
        ..Default::default()
    };
    let reply = bed.controller().get_capacity(Request::new(request)).await;
    reply.unwrap().into_inner().available_capacity
}

async fn probe(bed: &Bed) -> Result<(), Code> {
    let identity = bed.driver.as_ref().unwrap().identity();
    code(identity.probe(Request::new(proto::ProbeRequest {})).await)
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
    // A journal gives blocks back when it next commits.
    fs::File::open(&disk.path).unwrap().sync_all().unwrap();
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
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("read-only"), "{status}");
    assert_eq!(bed.delete(&id).await, Err(Code::Unavailable));
    assert_eq!(bed.stage(&id, files("")).await, Err(Code::Unavailable));
    assert!(condition(&bed, &id).await.abnormal);
    assert_eq!(room(&bed).await, 0);
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

/// Fills a file system to its last block.
fn fill(folder: &Path) {
    let file = fs::File::create(folder.join("other")).unwrap();
    let mut size = 0;
    // Ever smaller pieces, until not even the smallest fits.
    for piece in [64 << 20, 4 << 20, 256 << 10, 4096] {
        while orlop_host::allocate::all(&file, size + piece).is_ok() {
            size += piece;
        }
    }
    // Some file systems let others have what they refuse to keep for one: nor another file.
    let mut number = 0;
    for piece in [1 << 20, 64 << 10, 4096] {
        while fs::write(folder.join(format!("other-{number}")), vec![1; piece]).is_ok() {
            number += 1;
        }
        number += 1;
    }
}

#[tokio::test]
async fn on_a_full_pool_everything_can_be_taken_away() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(scratch) = ScratchFs::new(kind, 320 << 20) else {
            return;
        };
        let disk = scratch.path();
        let directory = tempfile::tempdir_in(&disk).unwrap();
        let bed = Bed::at(directory, Some(scratch));
        let files = files("ext4");
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            let id = bed.volume(name, 16 * MIB).await;
            bed.attach(&id, "one", false).await.unwrap();
            bed.stage(&id, files.clone()).await.unwrap();
            bed.publish(&id, name, files.clone().into()).await.unwrap();
            ids.push(id);
        }
        let snapshot = bed.snapshot("s", &ids[0]).await.unwrap();
        fill(&disk);
        let more = proto::CreateVolumeRequest {
            accessibility_requirements: Some(on(&["one"])),
            ..creation("more", 8 * MIB)
        };
        let reply = bed.controller().create_volume(Request::new(more)).await;
        assert_eq!(code(reply), Err(Code::ResourceExhausted), "{kind}");
        for (id, name) in ids.iter().zip(["a", "b", "c"]) {
            bed.unpublish(id, name).await.expect(kind);
            bed.unstage(id).await.expect(kind);
            bed.detach(id, "one").await.expect(kind);
        }
        bed.delete_snapshot(&snapshot.snapshot_id)
            .await
            .expect(kind);
        for id in &ids {
            bed.delete(id).await.expect(kind);
        }
        assert_eq!(bed.leftovers(), Vec::<String>::new(), "{kind}");
    }
}

#[tokio::test]
async fn a_pool_whose_file_system_has_shut_down_is_away_until_it_is_mounted_again() {
    if !is_root() {
        return;
    }
    for kind in ["xfs", "ext4"] {
        let disk = Image::new(kind);
        let mut bed = Bed::new();
        bed.driver = None;
        let config = || {
            LocalConfig::new(BTreeMap::from([(
                NodeName::from("one"),
                disk.mounted().join("pool"),
            )]))
        };
        bed.driver = Some(LocalDriver::open(config()).unwrap());
        let files = files("ext4");
        let (id, idle) = (
            bed.volume("data", 16 * MIB).await,
            bed.volume("idle", 16 * MIB).await,
        );
        bed.stage(&id, files.clone()).await.unwrap();
        bed.publish(&id, "t", files.clone().into()).await.unwrap();
        probe(&bed).await.unwrap();

        disk.shut_down();
        let text = "mount it again";
        assert_eq!(
            told(&bed, &idle, files.clone(), text).await,
            Code::Unavailable,
            "{kind}"
        );
        assert_eq!(bed.delete(&idle).await, Err(Code::Unavailable), "{kind}");
        assert_eq!(probe(&bed).await, Err(Code::FailedPrecondition), "{kind}");
        assert!(condition(&bed, &idle).await.abnormal);
        assert_eq!(room(&bed).await, 0);
        // Whoever uses it can let go of it, and the disk can be unmounted then.
        bed.unpublish(&id, "t").await.expect(kind);
        bed.unstage(&id).await.expect(kind);
        disk.unmount();
        assert_eq!(bed.delete(&idle).await, Err(Code::Unavailable), "{kind}");
        // Nor does a driver that starts now take it for a new pool's absence.
        bed.driver = None;
        bed.driver = Some(LocalDriver::open(config()).unwrap());
        assert_eq!(bed.delete(&idle).await, Err(Code::Unavailable), "{kind}");
        disk.mount();
        for id in [&id, &idle] {
            bed.stage(id, files.clone()).await.expect(kind);
            bed.unstage(id).await.expect(kind);
            bed.delete(id).await.expect(kind);
        }
        probe(&bed).await.unwrap();
        assert!(room(&bed).await > 0);
        bed.driver = None;
    }
}

#[tokio::test]
async fn a_driver_starts_beside_a_read_only_pool_and_takes_it_when_it_can_be_written() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.driver = None;
    let pool = Place::at(&bed.path("pool-one")).unwrap();
    let read_only = Restrictions {
        read_only: true,
        ..Restrictions::default()
    };
    let here = || pool.open().unwrap();
    mount::bind(here(), here(), Depth::One, read_only).unwrap();
    bed.restart();
    assert_eq!(bed.delete(&id).await, Err(Code::Unavailable));
    assert_eq!(
        told(&bed, &id, files(""), "read-only").await,
        Code::Unavailable
    );
    // The other node's pool is served as ever.
    probe(&bed).await.unwrap();
    let there = bed.volume_on_two().await;
    bed.delete(&there).await.unwrap();
    bed.delete(&there).await.unwrap();
    mount::unmount(&pool).unwrap();
    bed.stage(&id, files("")).await.unwrap();
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_in_a_pool_that_is_not_here_is_never_said_to_be_gone() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
    let group = bed.group("g", &[&id]).await.unwrap();
    let members: Vec<_> = group
        .snapshots
        .iter()
        .map(|it| it.snapshot_id.clone())
        .collect();
    bed.driver = None;
    // A driver that starts before its disk is mounted: all it sees is an empty folder.
    let (pool, away) = (bed.path("pool-one"), bed.path("away"));
    fs::rename(&pool, &away).unwrap();
    fs::create_dir(&pool).unwrap();
    for _ in 0..2 {
        bed.restart();
        assert_eq!(bed.delete(&id).await, Err(Code::Unavailable));
        assert_eq!(bed.delete_snapshot(&snapshot).await, Err(Code::Unavailable));
        let deleted = bed.delete_group(&group.group_snapshot_id, &members).await;
        assert_eq!(deleted, Err(Code::Unavailable));
        assert_eq!(bed.detach(&id, "one").await, Err(Code::Unavailable));
    }
    // What was asked of pools that are here is answered as ever.
    let there = bed.volume_on_two().await;
    bed.delete(&there).await.unwrap();
    bed.delete(&there).await.unwrap();
    // The disk is mounted over the folder: taken, without a restart.
    fs::rename(&pool, bed.path("bare")).unwrap();
    fs::rename(&away, &pool).unwrap();
    bed.stage(&id, files("")).await.unwrap();
    bed.unstage(&id).await.unwrap();
    bed.delete_group(&group.group_snapshot_id, &members)
        .await
        .unwrap();
    bed.delete_snapshot(&snapshot).await.unwrap();
    bed.delete(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

/// A file system that can be shut down, unmounted and mounted again; gone when dropped.
struct Image {
    kind: &'static str,
    folder: TempDir,
}

impl Image {
    fn new(kind: &'static str) -> Self {
        let image = Self {
            kind,
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(image.mounted()).unwrap();
        let file = fs::File::create(image.file()).unwrap();
        file.set_len(320 << 20).unwrap();
        image.run(
            &format!("/usr/sbin/mkfs.{kind}"),
            &["-q".as_ref()],
            &image.file(),
        );
        image.mount();
        image
    }

    fn file(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("image")
    }

    fn mounted(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("mounted")
    }

    /// The devices that have the file.
    fn devices(&self) -> Vec<String> {
        let listed = loopdev::list().unwrap();
        let ours = listed.iter().filter(|it| it.backing_path == self.file());
        ours.map(|it| format!("loop{}", it.number)).collect()
    }

    fn run(&self, program: &str, words: &[&std::ffi::OsStr], on: &Path) {
        let run = Command::new(program).args(words).arg(on).output().unwrap();
        assert!(run.status.success(), "{run:?}");
    }

    fn mount(&self) {
        let file = fs::File::options().read(true).write(true).open(self.file());
        let access = loopdev::Access::ReadWrite;
        let device = LoopDevice::attach(&file.unwrap(), access, loopdev::Lifetime::LastClose);
        let device = device.unwrap();
        let new = mount::NewMount {
            fs_type: self.kind,
            source: &device.path(),
            restrictions: Restrictions::default(),
            options: &[],
        };
        let place = Place::at(&self.mounted()).unwrap();
        mount::mount(&new, place.open().unwrap()).unwrap();
    }

    /// As the kernel does it when the disk fails.
    fn shut_down(&self) {
        let words = ["-x", "-c", "shutdown"].map(AsRef::as_ref);
        self.run("/usr/sbin/xfs_io", &words, &self.mounted());
    }

    /// Others may look at the mount for a moment, or have a copy of it in a namespace that they made:
    /// the file system is gone once its device is.
    fn unmount(&self) {
        let place = Place::at(&self.mounted()).unwrap();
        for _ in 0..1000 {
            match mount::unmount(&place) {
                Ok(()) => {
                    let left = settled(|| self.devices());
                    assert_eq!(left, Vec::<String>::new());
                    return;
                }
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{} is busy", self.mounted().display());
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Ok(table) = MountTable::read() {
            for mount in table.beneath(&self.mounted()) {
                let _ = Place::at(&mount.point).and_then(|place| mount::unmount(&place));
            }
        }
    }
}
