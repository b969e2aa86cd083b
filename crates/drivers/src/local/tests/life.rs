//! Volumes from creation to deletion.

use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Instant;

use super::*;

#[tokio::test]
async fn a_volume_lives_its_whole_life_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let bed = Bed::new();
        let begun = Instant::now();
        let id = bed.volume("data", GIB).await;
        bed.attach(&id, "one", false).await.unwrap();
        bed.stage(&id, files(fs_type)).await.unwrap();
        eprintln!("{fs_type}: created and staged in {:?}", begun.elapsed());
        bed.publish(&id, "a", files(fs_type).into()).await.unwrap();

        let target = PathBuf::from(bed.target("a"));
        fs::write(target.join("hello"), "there").unwrap();
        let table = MountTable::read().unwrap();
        let mounted = table.at(&target).unwrap();
        assert_eq!(mounted.fs_type, fs_type);
        for option in ["nosuid", "nodev"] {
            assert!(mounted.options.iter().any(|it| it == option), "{option}");
        }

        bed.unpublish(&id, "a").await.unwrap();
        assert!(!target.exists());
        bed.unstage(&id).await.unwrap();
        bed.stage(&id, files(fs_type)).await.unwrap();
        bed.publish(&id, "b", files(fs_type).into()).await.unwrap();
        assert_eq!(read(PathBuf::from(bed.target("b")).join("hello")), "there");

        bed.unpublish(&id, "b").await.unwrap();
        bed.unstage(&id).await.unwrap();
        bed.detach(&id, "one").await.unwrap();
        bed.delete(&id).await.unwrap();
        assert_eq!(bed.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn every_call_can_be_repeated() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    for _ in 0..3 {
        assert_eq!(bed.volume("data", 64 * MIB).await, id);
    }
    for _ in 0..3 {
        bed.attach(&id, "one", false).await.unwrap();
    }
    for _ in 0..3 {
        bed.stage(&id, files("")).await.unwrap();
    }
    for _ in 0..3 {
        bed.publish(&id, "a", files("").into()).await.unwrap();
    }
    let table = MountTable::read().unwrap();
    assert_eq!(table.beneath(&bed.path("kubelet-one")).count(), 2);
    for _ in 0..3 {
        bed.unpublish(&id, "a").await.unwrap();
    }
    for _ in 0..3 {
        bed.unstage(&id).await.unwrap();
    }
    for _ in 0..3 {
        bed.detach(&id, "one").await.unwrap();
    }
    for _ in 0..3 {
        bed.delete(&id).await.unwrap();
    }
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_block_volume_is_a_device_whose_data_stays() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("raw", 64 * MIB).await;
    bed.stage(&id, block()).await.unwrap();
    bed.stage(&id, block()).await.unwrap();
    bed.publish(&id, "a", block().into()).await.unwrap();
    let mut device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(bed.target("a"))
        .unwrap();
    assert_eq!(device.seek(SeekFrom::End(0)).unwrap(), 64 << 20);
    device.rewind().unwrap();
    device.write_all(&[7; 4096]).unwrap();
    device.sync_all().unwrap();
    drop(device);

    bed.publish(&id, "ro", How(block(), true)).await.unwrap();
    let mut seen = [0; 4096];
    fs::File::open(bed.target("ro"))
        .unwrap()
        .read_exact(&mut seen)
        .unwrap();
    assert_eq!(seen, [7; 4096]);
    let written = fs::OpenOptions::new()
        .write(true)
        .open(bed.target("ro"))
        .and_then(|mut ro| {
            ro.write_all(&[9; 4096])?;
            ro.sync_all()
        });
    assert!(written.is_err(), "a read-only device was written to");

    bed.unpublish(&id, "ro").await.unwrap();
    bed.unpublish(&id, "a").await.unwrap();
    bed.unstage(&id).await.unwrap();
    assert_eq!(bed.leftovers().len(), 1, "{:?}", bed.leftovers());

    bed.stage(&id, block()).await.unwrap();
    bed.publish(&id, "a", block().into()).await.unwrap();
    fs::File::open(bed.target("a"))
        .unwrap()
        .read_exact(&mut seen)
        .unwrap();
    assert_eq!(seen, [7; 4096]);
    bed.unpublish(&id, "a").await.unwrap();
    bed.unstage(&id).await.unwrap();
    // Data that a user wrote is never formatted over.
    assert_eq!(
        bed.stage(&id, files("")).await,
        Err(Code::FailedPrecondition)
    );
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn read_only_means_read_only() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, shared_files()).await.unwrap();
    bed.publish(&id, "rw", shared_files().into()).await.unwrap();
    bed.publish(&id, "ro", How(shared_files(), true))
        .await
        .unwrap();
    fs::write(PathBuf::from(bed.target("rw")).join("f"), "x").unwrap();
    assert_eq!(read(PathBuf::from(bed.target("ro")).join("f")), "x");
    let refused = fs::write(PathBuf::from(bed.target("ro")).join("f"), "y").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    for target in ["rw", "ro"] {
        bed.unpublish(&id, target).await.unwrap();
    }
    bed.unstage(&id).await.unwrap();

    // Attached read-only: not even the staging mount can be written to.
    bed.attach(&id, "one", true).await.unwrap();
    bed.stage(&id, files("")).await.unwrap();
    assert!(fs::write(PathBuf::from(bed.staging(&id)).join("f"), "y").is_err());
    bed.publish(&id, "a", files("").into()).await.unwrap();
    assert!(fs::write(PathBuf::from(bed.target("a")).join("f"), "y").is_err());
    assert_eq!(read(PathBuf::from(bed.target("a")).join("f")), "x");
    bed.unpublish(&id, "a").await.unwrap();
    bed.unstage(&id).await.unwrap();
}

#[tokio::test]
async fn a_volume_grows_while_it_is_written_to() {
    if !is_root() {
        return;
    }
    for (kind, capability) in [
        (Some(FsKind::Xfs), files("xfs")),
        (Some(FsKind::Btrfs), files("btrfs")),
        (Some(FsKind::Ext4), files("ext4")),
        (None, block()),
    ] {
        let bed = Bed::new();
        let id = bed.volume("data", 512 * MIB).await;
        bed.stage(&id, capability.clone()).await.unwrap();
        bed.publish(&id, "a", capability.clone().into())
            .await
            .unwrap();
        let target = bed.target("a");
        if kind.is_some() {
            fs::write(PathBuf::from(&target).join("before"), "kept").unwrap();
        }

        let range = proto::CapacityRange {
            required_bytes: GIB,
            limit_bytes: 0,
        };
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: id.clone(),
            capacity_range: Some(range),
            ..Default::default()
        };
        let grown = bed
            .controller()
            .controller_expand_volume(Request::new(request))
            .await;
        let grown = grown.unwrap().into_inner();
        assert_eq!(
            (grown.capacity_bytes, grown.node_expansion_required),
            (GIB, true)
        );

        let request = || {
            Request::new(proto::NodeExpandVolumeRequest {
                volume_id: id.clone(),
                volume_path: target.clone(),
                capacity_range: Some(range),
                ..Default::default()
            })
        };
        let grown = bed.node("one").node_expand_volume(request()).await;
        match kind {
            Some(kind) if !orlop_host::filesystem::may_grow(kind).unwrap() => {
                assert_eq!(code(grown), Err(Code::FailedPrecondition));
                eprintln!("growing {kind} skipped: this process lacks the capability for it");
                continue;
            }
            _ => assert_eq!(grown.unwrap().into_inner().capacity_bytes, GIB),
        }
        bed.node("one").node_expand_volume(request()).await.unwrap();

        let request = proto::NodeGetVolumeStatsRequest {
            volume_id: id.clone(),
            volume_path: target.clone(),
            ..Default::default()
        };
        let stats = bed
            .node("one")
            .node_get_volume_stats(Request::new(request))
            .await;
        let usage = stats.unwrap().into_inner().usage;
        match kind {
            Some(_) => {
                assert!(usage[0].total > 900 * MIB, "{usage:?}");
                assert_eq!(read(PathBuf::from(&target).join("before")), "kept");
            }
            None => assert_eq!(usage[0].total, GIB),
        }
        bed.unpublish(&id, "a").await.unwrap();
        bed.unstage(&id).await.unwrap();
        bed.delete(&id).await.unwrap();
        assert_eq!(bed.leftovers(), Vec::<String>::new());
    }
}
