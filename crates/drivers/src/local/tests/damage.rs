//! What was damaged behind the driver's back is told, never called well; and whatever cannot be read
//! keeps nobody from letting go of a volume.

use std::process::Command;

use super::failures::condition;
use super::*;

fn image(bed: &Bed, id: &str) -> PathBuf {
    bed.path("pool-one/volumes")
        .join(id)
        .join(format!("{id}.img"))
}

async fn stats(bed: &Bed, id: &str, path: &str) -> Result<proto::VolumeCondition, Code> {
    let request = proto::NodeGetVolumeStatsRequest {
        volume_id: id.to_owned(),
        volume_path: path.to_owned(),
        ..Default::default()
    };
    let reply = bed
        .node("one")
        .node_get_volume_stats(Request::new(request))
        .await;
    match reply {
        Ok(reply) => Ok(reply.into_inner().volume_condition.unwrap()),
        Err(status) => Err(status.code()),
    }
}

async fn snapshot(bed: &Bed, id: &str) -> Result<(), Code> {
    let request = proto::CreateSnapshotRequest {
        source_volume_id: id.to_owned(),
        name: "cut".to_owned(),
        ..Default::default()
    };
    code(
        bed.controller()
            .create_snapshot(Request::new(request))
            .await,
    )
}

async fn clone(bed: &Bed, id: &str) -> Result<(), Code> {
    use proto::volume_content_source::{Type, VolumeSource};
    let request = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        volume_content_source: Some(proto::VolumeContentSource {
            r#type: Some(Type::Volume(VolumeSource {
                volume_id: id.to_owned(),
            })),
        }),
        ..creation("copy", 128 * MIB)
    };
    code(bed.controller().create_volume(Request::new(request)).await)
}

async fn grow(bed: &Bed, id: &str, bytes: i64) {
    let request = proto::ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: Some(proto::CapacityRange {
            required_bytes: bytes,
            limit_bytes: 0,
        }),
        ..Default::default()
    };
    let controller = bed.controller();
    let reply = controller
        .controller_expand_volume(Request::new(request))
        .await;
    reply.unwrap();
}

#[tokio::test]
async fn an_image_that_was_cut_off_is_lost_data_and_only_a_growth_is_finished() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    for (name, how) in [("files", files("ext4")), ("device", block())] {
        let id = bed.volume(name, 64 * MIB).await;
        bed.stage(&id, how.clone()).await.unwrap();
        bed.unstage(&id).await.unwrap();
        let open = || {
            fs::OpenOptions::new()
                .write(true)
                .open(image(&bed, &id))
                .unwrap()
        };
        // Killed between the promise and the image: finished.
        grow(&bed, &id, 96 * MIB).await;
        open().set_len(64 << 20).unwrap();
        assert!(
            condition(&bed, &id)
                .await
                .message
                .contains("stage the volume again")
        );
        bed.stage(&id, how.clone()).await.expect(name);
        bed.unstage(&id).await.unwrap();
        assert_eq!(open().metadata().unwrap().len(), 96 << 20);
        // Cut off below what it had: not made up for.
        open().set_len(20 << 20).unwrap();
        assert_eq!(bed.stage(&id, how).await, Err(Code::DataLoss), "{name}");
        assert_eq!(snapshot(&bed, &id).await, Err(Code::DataLoss), "{name}");
        if name == "files" {
            assert_eq!(clone(&bed, &id).await, Err(Code::DataLoss));
        }
        let told = condition(&bed, &id).await;
        assert!(
            told.abnormal && told.message.contains("from a backup"),
            "{told:?}"
        );
        assert_eq!(open().metadata().unwrap().len(), 20 << 20);
        bed.delete(&id).await.unwrap();
    }
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_system_that_gave_up_after_an_error_is_abnormal() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("ext4")).await.unwrap();
    let staging = bed.staging(&id);
    assert!(!stats(&bed, &id, &staging).await.unwrap().abnormal);
    let remounted = Command::new("mount")
        .args(["-o", "remount,errors=remount-ro", &staging])
        .status();
    assert!(remounted.unwrap().success());
    let table = MountTable::read().unwrap();
    let source = PathBuf::from(&table.at(Path::new(&staging)).unwrap().source);
    let device = source.file_name().unwrap().to_str().unwrap();
    let error = format!("/sys/fs/ext4/{device}/trigger_fs_error");
    fs::write(error, "an error for a test").unwrap();
    let told = stats(&bed, &id, &staging).await.unwrap();
    assert!(told.abnormal, "{told:?}");
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

/// A pool on a disk of its own, with a volume that is published and a device.
async fn published(bed: &mut Bed) -> (String, String) {
    bed.driver = None;
    fs::create_dir_all(bed.path("pool-one")).unwrap();
    let made = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
        .arg(bed.path("pool-one"))
        .status();
    assert!(made.unwrap().success());
    bed.restart();
    let files_id = bed.volume("files", 32 * MIB).await;
    bed.stage(&files_id, files("ext4")).await.unwrap();
    bed.publish(&files_id, "files", files("ext4").into())
        .await
        .unwrap();
    let device = bed.volume("device", 8 * MIB).await;
    bed.stage(&device, block()).await.unwrap();
    bed.publish(&device, "device", block().into())
        .await
        .unwrap();
    (files_id, device)
}

fn unmount_lazily(path: &Path) {
    let done = Command::new("umount").arg("-l").arg(path).status();
    assert!(done.unwrap().success());
}

async fn let_go(bed: &Bed, files: &str, device: &str) {
    for (id, target) in [(files, "files"), (device, "device")] {
        // Not while it is published.
        assert_eq!(
            bed.unstage(id).await,
            Err(Code::FailedPrecondition),
            "{target}"
        );
        for _ in 0..2 {
            bed.unpublish(id, target).await.expect(target);
        }
        assert!(!Path::new(&bed.target(target)).exists());
        for _ in 0..2 {
            bed.unstage(id).await.expect(target);
        }
    }
    let left = settled(|| {
        let listed = loopdev::list().unwrap().into_iter();
        let ours = listed.filter(|it| {
            let path = it.backing_path.to_string_lossy();
            path.contains(files) || path.contains(device)
        });
        ours.map(|it| format!("loop{}", it.number)).collect()
    });
    assert_eq!(left, Vec::<String>::new());
    let table = MountTable::read().unwrap();
    let kubelet = bed.path("kubelet-one");
    assert_eq!(table.beneath(&kubelet).count(), 0);
}

#[tokio::test]
async fn volumes_of_a_pool_that_was_unmounted_below_them_can_be_let_go_of() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let (files, device) = published(&mut bed).await;
    unmount_lazily(&bed.path("pool-one"));
    // Nothing is well, but it is there.
    let told = stats(&bed, &files, &bed.target("files")).await.unwrap();
    assert!(told.abnormal, "{told:?}");
    assert_eq!(
        stats(&bed, &files, "/nowhere").await,
        Err(Code::Unavailable)
    );
    assert_eq!(snapshot(&bed, &files).await, Err(Code::Unavailable));
    let_go(&bed, &files, &device).await;
}

#[tokio::test]
async fn volumes_of_a_pool_that_is_gone_can_be_let_go_of_after_a_restart() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let (files, device) = published(&mut bed).await;
    bed.driver = None;
    unmount_lazily(&bed.path("pool-one"));
    bed.restart();
    assert_eq!(
        bed.publish(&files, "more", super::files("ext4").into())
            .await,
        Err(Code::Unavailable)
    );
    let_go(&bed, &files, &device).await;
}

#[tokio::test]
async fn damaged_records_keep_nobody_from_letting_go() {
    if !is_root() {
        return;
    }
    for record in ["meta.json", "node.json"] {
        let mut bed = Bed::new();
        let id = bed.volume("data", 64 * MIB).await;
        bed.stage(&id, files("ext4")).await.unwrap();
        bed.publish(&id, "pod", files("ext4").into()).await.unwrap();
        let path = bed.path("pool-one/volumes").join(&id).join(record);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "{").unwrap();
        bed.restart();
        if record == "node.json" {
            let told = stats(&bed, &id, &bed.target("pod")).await.unwrap();
            assert!(!told.abnormal, "{told:?}");
            assert_eq!(bed.unstage(&id).await, Err(Code::FailedPrecondition));
            bed.stage(&id, files("ext4")).await.unwrap();
        }
        bed.unpublish(&id, "pod").await.expect(record);
        bed.unstage(&id).await.expect(record);
        if record == "meta.json" {
            assert_eq!(bed.delete(&id).await, Err(Code::DataLoss));
            fs::write(&path, whole).unwrap();
            bed.restart();
        }
        bed.delete(&id).await.unwrap();
        assert_eq!(bed.leftovers(), Vec::<String>::new(), "{record}");
    }
}

#[tokio::test]
async fn a_pool_without_its_marker_is_the_pool_that_its_volumes_say() {
    let mut bed = Bed::new();
    let id = bed.volume("data", 8 * MIB).await;
    let marker = bed.path("pool-one/pool.json");
    let lose: [&dyn Fn(); 3] = [
        &|| fs::write(&marker, "").unwrap(),
        &|| fs::write(&marker, "{").unwrap(),
        &|| fs::remove_file(&marker).unwrap(),
    ];
    for lose in lose {
        lose();
        bed.restart();
        assert!(!condition(&bed, &id).await.abnormal);
        assert_eq!(bed.volume("data", 8 * MIB).await, id);
    }
    // Another pool's volume among them: which it is nobody can know.
    let other = VolumeId::of_name("other").in_pool(PoolTag::parse("0123abcd").as_ref());
    let stray = bed.path("pool-one/volumes").join(other.as_str());
    fs::create_dir(&stray).unwrap();
    fs::remove_file(&marker).unwrap();
    bed.restart();
    assert_eq!(bed.delete(&id).await, Err(Code::Unavailable));
    assert!(!marker.exists());
    // Taken out: the pool is there again, and the same.
    fs::remove_dir(&stray).unwrap();
    bed.delete(&id).await.unwrap();
    assert!(!bed.path("pool-one/volumes").join(&id).exists());
}
