//! Snapshots hold one moment, whatever becomes of their source.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// Pools that share blocks, and one that copies.
pub(super) const POOLS: [&str; 3] = ["xfs", "btrfs", "ext4"];

impl Bed {
    pub(super) async fn snapshot(&self, name: &str, source: &str) -> Result<proto::Snapshot, Code> {
        let request = proto::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: source.to_owned(),
            ..Default::default()
        };
        let reply = self
            .controller()
            .create_snapshot(Request::new(request))
            .await;
        shown(reply).map(|reply| reply.snapshot.unwrap())
    }

    pub(super) async fn delete_snapshot(&self, id: &str) -> Result<(), Code> {
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            ..Default::default()
        };
        code(
            self.controller()
                .delete_snapshot(Request::new(request))
                .await,
        )
    }

    pub(super) async fn list(
        &self,
        change: impl FnOnce(&mut proto::ListSnapshotsRequest),
    ) -> Result<(Vec<String>, String), Code> {
        let mut request = proto::ListSnapshotsRequest::default();
        change(&mut request);
        let reply = self
            .controller()
            .list_snapshots(Request::new(request))
            .await;
        let reply = shown(reply)?;
        let ids = reply
            .entries
            .into_iter()
            .map(|entry| entry.snapshot.unwrap().snapshot_id);
        Ok((ids.collect(), reply.next_token))
    }

    /// A volume made from a snapshot.
    pub(super) async fn restore(&self, name: &str, snapshot: &str) -> String {
        let request = from_snapshot(name, snapshot);
        let reply = self.controller().create_volume(Request::new(request)).await;
        shown(reply).unwrap().volume.unwrap().volume_id
    }

    pub(super) fn staged(&self, id: &str) -> PathBuf {
        PathBuf::from(self.staging(id))
    }

    async fn capacity(&self) -> i64 {
        let request = proto::GetCapacityRequest {
            accessible_topology: Some(topology::of_node(DRIVER_NAME, &NodeName::from("one"))),
            ..Default::default()
        };
        let reply = self.controller().get_capacity(Request::new(request)).await;
        shown(reply).unwrap().available_capacity
    }
}

pub(super) fn shown<T>(reply: Result<Response<T>, Status>) -> Result<T, Code> {
    reply.map(Response::into_inner).map_err(|status| {
        assert!(!status.message().is_empty());
        eprintln!("{:?}: {}", status.code(), status.message());
        status.code()
    })
}

pub(super) fn from_snapshot(name: &str, snapshot: &str) -> proto::CreateVolumeRequest {
    use proto::volume_content_source::{SnapshotSource, Type};
    let source = Type::Snapshot(SnapshotSource {
        snapshot_id: snapshot.to_owned(),
    });
    proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        volume_content_source: Some(proto::VolumeContentSource {
            r#type: Some(source),
        }),
        capacity_range: None,
        ..creation(name, 0)
    }
}

#[tokio::test]
async fn a_snapshot_has_what_was_written_before_it_and_nothing_after() {
    for kind in POOLS {
        let Some(bed) = Bed::on(kind) else { return };
        let id = bed.volume("data", 64 * MIB).await;
        bed.stage(&id, files("ext4")).await.unwrap();
        let staged = bed.staged(&id);
        // Not synced: to freeze is to write out.
        fs::write(staged.join("kept"), "before").unwrap();
        fs::write(staged.join("removed"), "x").unwrap();
        let snapshot = bed.snapshot("s", &id).await.unwrap();
        assert!(snapshot.ready_to_use);
        assert_eq!(snapshot.size_bytes, 64 * MIB);
        assert_eq!(snapshot.source_volume_id, id);
        assert!(snapshot.creation_time.is_some());
        fs::write(staged.join("kept"), "after").unwrap();
        fs::write(staged.join("late"), "x").unwrap();
        fs::remove_file(staged.join("removed")).unwrap();

        // The snapshot outlives its source.
        bed.unstage(&id).await.unwrap();
        bed.delete(&id).await.unwrap();
        let copy = bed.restore("copy", &snapshot.snapshot_id).await;
        bed.stage(&copy, files("ext4")).await.unwrap();
        let restored = bed.staged(&copy);
        assert_eq!(read(restored.join("kept")), "before", "{kind}");
        assert_eq!(read(restored.join("removed")), "x");
        assert!(!restored.join("late").exists());

        // What is made from it outlives the snapshot, and does not change it.
        fs::write(restored.join("kept"), "changed").unwrap();
        let other = bed.restore("other", &snapshot.snapshot_id).await;
        bed.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        bed.stage(&other, files("ext4")).await.unwrap();
        assert_eq!(read(bed.staged(&other).join("kept")), "before");
        for id in [&copy, &other] {
            bed.unstage(id).await.unwrap();
            bed.delete(id).await.unwrap();
        }
        assert_eq!(bed.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_snapshot_of_a_busy_volume_has_all_up_to_some_moment() {
    for kind in POOLS {
        let Some(bed) = Bed::on(kind) else { return };
        let id = bed.volume("data", 64 * MIB).await;
        bed.stage(&id, files("ext4")).await.unwrap();
        let (staged, stop) = (bed.staged(&id), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            let mut written = 0;
            while !stopped.load(Ordering::Relaxed) && written < 2000 {
                let mut file = fs::File::create(staged.join(format!("{written}"))).unwrap();
                file.write_all(format!("{written}").as_bytes()).unwrap();
                file.sync_data().unwrap();
                written += 1;
            }
            written
        });
        let patience = Instant::now() + Duration::from_secs(60);
        while !bed.staged(&id).join("3").exists() {
            assert!(Instant::now() < patience && !writer.is_finished());
            tokio::task::yield_now().await;
        }
        let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap();
        let copy = bed.restore("copy", &snapshot).await;
        bed.stage(&copy, files("ext4")).await.unwrap();
        let there = |number: usize| fs::read_to_string(bed.staged(&copy).join(format!("{number}")));
        let whole = (0..written)
            .take_while(|number| there(*number).is_ok_and(|text| text == number.to_string()))
            .count();
        assert!(whole >= 3, "{kind}: synced before the cut and missing");
        // One may have been under way: made and not written.
        for number in whole + 1..written {
            assert!(there(number).is_err(), "{kind}: {number} without {whole}");
        }
        bed.unstage(&copy).await.unwrap();
        bed.unstage(&id).await.unwrap();
    }
}

#[tokio::test]
async fn a_device_at_rest_is_cut_while_it_is_in_use() {
    for kind in POOLS {
        let Some(bed) = Bed::on(kind) else { return };
        let id = bed.volume("raw", 64 * MIB).await;
        bed.stage(&id, block()).await.unwrap();
        bed.publish(&id, "raw", block().into()).await.unwrap();
        let device = fs::File::options()
            .read(true)
            .write(true)
            .open(bed.target("raw"))
            .unwrap();
        device.write_all_at(&[7; 8192], 1 << 20).unwrap();
        bed.snapshot("s", &id).await.unwrap();
        device.write_all_at(&[8; 8192], 1 << 20).unwrap();
        drop(device);
        bed.unpublish(&id, "raw").await.unwrap();
        bed.unstage(&id).await.unwrap();
        let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
        let mut request = from_snapshot("copy", &snapshot);
        request.volume_capabilities = vec![block()];
        let reply = bed.controller().create_volume(Request::new(request)).await;
        let copy = shown(reply).unwrap().volume.unwrap().volume_id;
        let image = bed
            .path("pool-one/volumes")
            .join(&copy)
            .join(format!("{copy}.img"));
        let mut bytes = [0; 8192];
        let image = fs::File::open(image).unwrap();
        image.read_exact_at(&mut bytes, 1 << 20).unwrap();
        assert_eq!(bytes, [7; 8192], "{kind}");
    }
}

#[tokio::test]
async fn a_device_that_is_written_to_is_cut_at_one_moment_or_not_at_all() {
    for kind in POOLS {
        let Some(bed) = Bed::on(kind) else { return };
        let id = bed.volume("raw", 64 * MIB).await;
        bed.stage(&id, block()).await.unwrap();
        bed.publish(&id, "raw", block().into()).await.unwrap();
        let device = fs::File::options()
            .read(true)
            .write(true)
            .open(bed.target("raw"))
            .unwrap();
        device.write_all_at(&vec![7; 32 << 20], 0).unwrap();
        let (first, last) = (0u64, (32u64 << 20) - 4096);
        let (stop, began) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, begin) = (Arc::clone(&stop), Arc::<AtomicBool>::clone(&began));
        let writer = std::thread::spawn(move || {
            let mut number = 0u64;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                for place in [first, last] {
                    let mut block = [0; 4096];
                    block[..8].copy_from_slice(&number.to_le_bytes());
                    device.write_all_at(&block, place).unwrap();
                    device.sync_data().unwrap();
                }
                begin.store(true, Ordering::Relaxed);
            }
        });
        let patience = Instant::now() + Duration::from_secs(60);
        while !began.load(Ordering::Relaxed) {
            assert!(Instant::now() < patience && !writer.is_finished());
            tokio::task::yield_now().await;
        }
        let cut = bed.snapshot("s", &id).await;
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        match cut {
            Ok(snapshot) => {
                let id = snapshot.snapshot_id;
                let image = bed.path("pool-one/snapshots").join(&id);
                let image = fs::File::open(image.join(format!("{id}.img"))).unwrap();
                let number = |place| {
                    let mut bytes = [0; 8];
                    image.read_exact_at(&mut bytes, place).unwrap();
                    u64::from_le_bytes(bytes)
                };
                let (first, last) = (number(first), number(last));
                assert!(first == last || first == last + 1, "{kind}: {first} {last}");
            }
            Err(refused) => {
                assert_eq!((kind, refused), ("ext4", Code::FailedPrecondition));
                assert!(bed.list(|_| {}).await.unwrap().0.is_empty());
            }
        }
        bed.unpublish(&id, "raw").await.unwrap();
        bed.unstage(&id).await.unwrap();
    }
}

#[tokio::test]
async fn a_repeated_request_has_the_same_answer_even_when_the_volume_is_gone() {
    let bed = Bed::new();
    let (id, other) = (
        bed.volume("data", 64 * MIB).await,
        bed.volume("other", 64 * MIB).await,
    );
    let first = bed.snapshot("s", &id).await.unwrap();
    assert_eq!(bed.snapshot("s", &id).await.unwrap(), first);
    assert_eq!(
        bed.snapshot("s", &other).await.unwrap_err(),
        Code::AlreadyExists
    );
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.snapshot("s", &id).await.unwrap(), first);
    assert_eq!(bed.snapshot("t", &id).await.unwrap_err(), Code::NotFound);
    bed.delete_snapshot(&first.snapshot_id).await.unwrap();
    bed.delete_snapshot(&first.snapshot_id).await.unwrap();
    bed.delete_snapshot("whatever").await.unwrap();
    assert_eq!(bed.snapshot("s", &id).await.unwrap_err(), Code::NotFound);
}

#[tokio::test]
async fn what_is_missing_or_unknown_is_refused() {
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    assert_eq!(
        bed.snapshot("", &id).await.unwrap_err(),
        Code::InvalidArgument
    );
    assert_eq!(
        bed.snapshot("s", "").await.unwrap_err(),
        Code::InvalidArgument
    );
    assert_eq!(
        bed.snapshot("a\u{7}b", &id).await.unwrap_err(),
        Code::InvalidArgument
    );
    assert_eq!(bed.delete_snapshot("").await, Err(Code::InvalidArgument));
    let request = proto::CreateSnapshotRequest {
        name: "s".to_owned(),
        source_volume_id: id,
        parameters: BTreeMap::from([("replicas".to_owned(), "3".to_owned())]),
        ..Default::default()
    };
    let reply = bed
        .controller()
        .create_snapshot(Request::new(request))
        .await;
    assert_eq!(shown(reply).unwrap_err(), Code::InvalidArgument);
    for (id, expected) in [("", Code::InvalidArgument), ("s-1", Code::NotFound)] {
        let request = proto::GetSnapshotRequest {
            snapshot_id: id.to_owned(),
            ..Default::default()
        };
        let reply = bed.controller().get_snapshot(Request::new(request)).await;
        assert_eq!(shown(reply).unwrap_err(), expected);
    }
}

#[tokio::test]
async fn snapshots_are_listed_in_pages_and_by_what_they_are() {
    let mut bed = Bed::new();
    let (one, two) = (
        bed.volume("one", 64 * MIB).await,
        bed.volume("two", 64 * MIB).await,
    );
    let mut all = Vec::new();
    for (name, source) in [("a", &one), ("b", &two), ("c", &one), ("d", &one)] {
        all.push(bed.snapshot(name, source).await.unwrap().snapshot_id);
    }
    bed.restart();
    assert_eq!(bed.list(|_| {}).await.unwrap().0, all);
    let (page, token) = bed.list(|it| it.max_entries = 3).await.unwrap();
    assert_eq!(page, all[..3]);
    // The token stays good when its snapshot goes.
    bed.delete_snapshot(&all[2]).await.unwrap();
    let (page, end) = bed.list(|it| it.starting_token = token).await.unwrap();
    assert_eq!((page.as_slice(), end.as_str()), (&all[3..], ""));
    let (of_one, _) = bed
        .list(|it| it.source_volume_id.clone_from(&one))
        .await
        .unwrap();
    assert_eq!(of_one, [all[0].clone(), all[3].clone()]);
    let (single, _) = bed
        .list(|it| it.snapshot_id.clone_from(&all[1]))
        .await
        .unwrap();
    assert_eq!(single, all[1..2]);
    for unknown in ["nothing", "s-00000000000000000000000000000000"] {
        let (none, _) = bed
            .list(|it| it.snapshot_id = unknown.to_owned())
            .await
            .unwrap();
        assert!(none.is_empty());
    }
    assert_eq!(
        bed.list(|it| it.starting_token = "x".to_owned())
            .await
            .unwrap_err(),
        Code::Aborted
    );
    assert_eq!(
        bed.list(|it| it.max_entries = -1).await.unwrap_err(),
        Code::InvalidArgument
    );
    let request = proto::GetSnapshotRequest {
        snapshot_id: all[0].clone(),
        ..Default::default()
    };
    let reply = bed.controller().get_snapshot(Request::new(request)).await;
    let got = shown(reply).unwrap().snapshot.unwrap();
    assert_eq!(got.source_volume_id, one);
}

#[tokio::test]
async fn what_a_snapshot_may_come_to_need_is_not_promised_to_others() {
    let Some(bed) = Bed::on("xfs") else { return };
    let id = bed.volume("raw", 64 * MIB).await;
    let image = bed
        .path("pool-one/volumes")
        .join(&id)
        .join(format!("{id}.img"));
    let image = fs::File::options().write(true).open(image).unwrap();
    image.write_all_at(&vec![1; 32 << 20], 0).unwrap();
    image.sync_all().unwrap();
    let before = bed.capacity().await;
    let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
    let with = bed.capacity().await;
    // The file system's own bookkeeping is in it too.
    let taken = before - with;
    assert!((32 * MIB..36 * MIB).contains(&taken), "{taken}");
    bed.delete_snapshot(&snapshot).await.unwrap();
    assert!(bed.capacity().await > with + 30 * MIB);
}

#[tokio::test]
async fn a_volume_bypasses_the_page_cache_after_its_snapshot_as_before() {
    let Some(bed) = Bed::on("xfs") else { return };
    // Large enough for blocks of 4 KiB.
    let id = bed.volume("data", GIB).await;
    let direct = || {
        let listed = loopdev::list().unwrap();
        let ours = listed
            .iter()
            .find(|it| it.backing_path.ends_with(format!("{id}.img")));
        let device = LoopDevice::open(ours.unwrap().number).unwrap().unwrap();
        device.status().unwrap().unwrap().direct_io
    };
    for _ in 0..2 {
        bed.stage(&id, files("ext4")).await.unwrap();
        assert!(direct());
        bed.snapshot("s", &id).await.unwrap();
        fs::write(bed.staged(&id).join("f"), "x").unwrap();
        bed.unstage(&id).await.unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_that_is_just_being_removed_is_not_there_any_more() {
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
    let place = bed.path("pool-one/snapshots").join(&snapshot);
    fs::rename(&place, bed.path("pool-one/doomed").join("x")).unwrap();
    let request = from_snapshot("copy", &snapshot);
    let reply = bed.controller().create_volume(Request::new(request)).await;
    assert_eq!(shown(reply).unwrap_err(), Code::NotFound);
}

#[tokio::test]
async fn a_damaged_snapshot_is_told_and_kept() {
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
    let meta = bed
        .path("pool-one/snapshots")
        .join(&snapshot)
        .join("meta.json");
    let sound = read(&meta);
    fs::write(&meta, "{").unwrap();
    bed.restart();
    assert_eq!(bed.delete_snapshot(&snapshot).await, Err(Code::DataLoss));
    assert_eq!(bed.snapshot("s", &id).await.unwrap_err(), Code::DataLoss);
    assert!(bed.list(|_| {}).await.unwrap().0.is_empty());
    fs::write(&meta, sound).unwrap();
    bed.restart();
    bed.delete_snapshot(&snapshot).await.unwrap();
}
