//! What goes wrong below us: told with the right code, nothing lost, and over when the cause is.
//!
//! Some causes are made in a mount namespace of a test process of its own (see [`apart`]), so that
//! nobody else on the machine lacks a program or a device.

use std::process::Command;

use orlop_host::mount::{Depth, Restrictions};

use super::*;

/// A small file system of its own, mounted at `path` until dropped.
pub(super) struct Disk {
    pub(super) path: PathBuf,
}

impl Disk {
    /// A memory file system: small, quick, and full when it should be.
    pub(super) fn new(path: PathBuf, bytes: u64) -> Self {
        fs::create_dir_all(&path).unwrap();
        let disk = Self { path };
        disk.mount(bytes);
        disk
    }

    pub(super) fn mount(&self, bytes: u64) {
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

/// What a refusal says: it must hold this text.
pub(super) async fn told(bed: &Bed, id: &str, how: proto::VolumeCapability, text: &str) -> Code {
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

pub(super) async fn condition(bed: &Bed, id: &str) -> proto::VolumeCondition {
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
async fn a_volume_whose_image_is_gone_can_be_let_go_of_and_deleted() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    for (name, how) in [("files", files("")), ("device", block())] {
        let id = bed.volume(name, 64 * MIB).await;
        bed.stage(&id, how.clone()).await.unwrap();
        bed.publish(&id, name, how.clone().into()).await.unwrap();
        let image = bed
            .path("pool-one/volumes")
            .join(&id)
            .join(format!("{id}.img"));
        fs::remove_file(&image).unwrap();
        // It is in use as ever, by those who have it.
        assert_eq!(
            bed.delete(&id).await,
            Err(Code::FailedPrecondition),
            "{name}"
        );
        bed.unpublish(&id, name).await.expect(name);
        bed.unstage(&id).await.expect(name);
        assert_eq!(bed.stage(&id, how).await, Err(Code::DataLoss));
        bed.delete(&id).await.expect(name);
        bed.delete(&id).await.expect(name);
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

#[test]
fn when_all_loop_devices_are_taken_it_is_told_and_tried_again_later() {
    if !is_root() {
        return;
    }
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let bed = Bed::new();
    let (files_id, block_id) = runtime().block_on(async {
        let files_id = bed.volume("files", 64 * MIB).await;
        bed.stage(&files_id, files("")).await.unwrap();
        fs::write(PathBuf::from(bed.staging(&files_id)).join("f"), "kept").unwrap();
        bed.unstage(&files_id).await.unwrap();
        let block_id = bed.volume("block", 64 * MIB).await;
        (files_id, block_id)
    });
    // In a thread that the kernel has no more devices for, nor for those that it starts.
    std::thread::scope(|scope| {
        let without = scope.spawn(|| {
            orlop_host::testing::refuse_loop_numbers().unwrap();
            runtime().block_on(async {
                for (id, how) in [(&files_id, files("")), (&block_id, block())] {
                    assert_eq!(
                        told(&bed, id, how, "detach some").await,
                        Code::ResourceExhausted
                    );
                }
            });
        });
        without.join().unwrap();
    });
    runtime().block_on(async {
        bed.stage(&files_id, files("")).await.unwrap();
        assert_eq!(
            read(PathBuf::from(bed.staging(&files_id)).join("f")),
            "kept"
        );
        bed.stage(&block_id, block()).await.unwrap();
        for id in [&files_id, &block_id] {
            bed.unstage(id).await.unwrap();
            bed.delete(id).await.unwrap();
        }
    });
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}
