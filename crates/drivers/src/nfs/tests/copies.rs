//! Clones, snapshots and what is restored from them: whole, or not there.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const FILES: usize = 800;

impl Ground {
    /// Another controller of the same servers.
    fn beside(&self) -> Self {
        let config = NfsConfig::new("node-2", Hands::StandIn(self.dir.path().to_owned()));
        Self {
            dir: tempfile::tempdir().unwrap(),
            shared: NfsDriver::new(config).unwrap().shared,
        }
    }

    async fn filled(&self, name: &str, files: usize) -> String {
        let volume = self.create(name, &[]).await.unwrap();
        for file in 0..files {
            fs::write(self.share().join(name).join(file.to_string()), "x").unwrap();
        }
        volume.volume_id
    }

    fn making(&self) -> Vec<String> {
        let making = self.share().join(HOUSE).join("making");
        if making.exists() {
            names(&making)
        } else {
            Vec::new()
        }
    }
}

fn clone_of(volume_id: &str) -> Option<Source> {
    Some(Source::Volume(VolumeSource {
        volume_id: volume_id.to_owned(),
    }))
}

fn restored(snapshot_id: &str) -> Option<Source> {
    Some(Source::Snapshot(SnapshotSource {
        snapshot_id: snapshot_id.to_owned(),
    }))
}

/// How many entries an archive has besides its root.
fn packed(archive: &Path) -> usize {
    let file = fs::File::open(archive).unwrap();
    let mut archive = tar::Archive::new(flate2::read::MultiGzDecoder::new(file));
    let entries = archive.entries().unwrap();
    entries.map(Result::unwrap).count() - 1
}

/// What is written down about a volume, and where.
fn record_of(ground: &Ground, key: &str) -> (PathBuf, serde_json::Value) {
    let volumes = ground.share().join(HOUSE).join("volumes");
    let mut records = names(&volumes).into_iter().flat_map(|folder| {
        let folder = volumes.join(folder);
        names(&folder).into_iter().map(move |name| {
            let path = folder.join(name);
            let record = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            (path, record)
        })
    });
    let own = |record: &serde_json::Value| record["key"] == key;
    records.find(|(_, record)| own(record)).unwrap()
}

#[tokio::test]
async fn a_volume_whose_last_step_was_never_taken_is_there_as_a_whole_when_it_is_asked_for_again() {
    let ground = Ground::new();
    let source = ground.filled("pvc-1", 3).await;
    let snapshot = ground.snapshot("s", &source).await.unwrap().snapshot_id;
    for (name, content) in [("pvc-2", clone_of(&source)), ("pvc-3", restored(&snapshot))] {
        // Died before the step, or after it; or the attempt has been swept since.
        for died in ["before", "after", "swept"] {
            let made = ground.create_from(name, &[], content.clone()).await;
            let volume = made.unwrap();
            let place = ground.share().join(name);
            let (path, mut record) = record_of(&ground, name);
            let inode = place.metadata().unwrap().ino();
            record["placing"] = serde_json::json!({"attempt": "volume-x-1", "inode": inode});
            fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
            let making = ground.share().join(HOUSE).join("making");
            match died {
                "before" => fs::rename(&place, making.join("volume-x-1")).unwrap(),
                "swept" => fs::rename(&place, ground.share().join("elsewhere")).unwrap(),
                _ => {}
            }
            if died != "after" {
                fs::create_dir(&place).unwrap();
            }
            for _ in 0..2 {
                let again = ground.create_from(name, &[], content.clone()).await;
                assert_eq!(again.unwrap(), volume, "{died}");
                assert_eq!(names(&place), ["0", "1", "2"], "{name} {died}");
                let (_, record) = record_of(&ground, name);
                assert_eq!(record.get("placing"), None);
                assert_eq!(ground.making(), Vec::<String>::new());
            }
            let same = place.metadata().unwrap().ino() == inode;
            assert_eq!(same, died != "swept");
            ground.delete(&volume.volume_id).await.unwrap();
            let _ = fs::remove_dir_all(ground.share().join("elsewhere"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_controllers_that_copy_one_volume_neither_shows_half_of_it() {
    let ground = Ground::new();
    let beside = ground.beside();
    let source = ground.filled("pvc-1", FILES).await;
    let mut done = 0;
    for (round, wait) in [0, 5, 10, 20, 30].into_iter().enumerate() {
        let name = format!("copy-{round}");
        let copy = ground.share().join(&name);
        let copied = |ground, wait| {
            let (controller, source): (&Ground, _) = (ground, &source);
            let (name, copy) = (&name, &copy);
            async move {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                let made = controller.create_from(name, &[], clone_of(source)).await;
                made.map(|_| {
                    // At this very moment, and not only when both have come to their end.
                    assert_eq!(names(copy).len(), FILES);
                })
            }
        };
        let (one, two) = tokio::join!(copied(&ground, 0), copied(&beside, wait));
        done += usize::from(one.is_ok());
        assert!(one.is_ok() || two.is_ok(), "{one:?} {two:?}");
        let refused = [&one, &two].into_iter().filter_map(|it| it.as_ref().err());
        for status in refused {
            // Whoever is told anything else would not ask again.
            assert_eq!(status.code(), Code::Aborted, "{status:?}");
        }
        copied(&beside, 0).await.unwrap();
        assert_eq!(ground.making(), Vec::<String>::new());
    }
    assert!(done > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_controllers_that_pack_one_snapshot_both_tell_of_the_same() {
    let ground = Ground::new();
    let beside = ground.beside();
    let source = ground.filled("pvc-1", FILES).await;
    for round in 0..4 {
        let name = format!("s-{round}");
        let (one, two) = tokio::join!(
            ground.snapshot(&name, &source),
            beside.snapshot(&name, &source)
        );
        let again = ground.snapshot(&name, &source).await.unwrap();
        for told in [one, two] {
            assert_eq!(told.unwrap(), again);
        }
        let archive = ground.share().join(&name).join("pvc-1.tar.gz");
        assert_eq!(packed(&archive), FILES);
        assert_eq!(ground.making(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_whole_or_none_though_its_volume_is_deleted_meanwhile() {
    let ground = Ground::new();
    let beside = ground.beside();
    for (round, wait) in [1, 3, 6, 10, 15, 25].into_iter().enumerate() {
        let (name, snapshot) = (format!("pvc-{round}"), format!("s-{round}"));
        let source = ground.filled(&name, FILES).await;
        let deleted = async {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            beside.delete(&source).await.unwrap();
        };
        let (made, ()) = tokio::join!(ground.snapshot(&snapshot, &source), deleted);
        let folder = ground.share().join(&snapshot);
        match made {
            Ok(_) => assert_eq!(packed(&folder.join(format!("{name}.tar.gz"))), FILES),
            Err(refused) => {
                assert_eq!(refused.code(), Code::NotFound, "{refused}");
                assert!(!folder.exists());
            }
        }
        assert_eq!(ground.making(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_folder_that_another_volume_has_is_not_filled() {
    let ground = Ground::new();
    let source = ground.filled("pvc-1", 1).await;
    ground.create("pvc-2", &[("subDir", "both")]).await.unwrap();
    let both = ground.share().join("both");
    let before = both.metadata().unwrap().ino();
    let refused = ground
        .create_from("pvc-3", &[("subDir", "both")], clone_of(&source))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    assert_eq!(both.metadata().unwrap().ino(), before);
    assert_eq!(names(&both), Vec::<String>::new());
}

#[tokio::test]
async fn a_snapshot_takes_no_folder_that_is_there() {
    let ground = Ground::new();
    let source = ground.filled("pvc-1", 1).await;
    ground.create("snap-1", &[]).await.unwrap();
    // One of the original's making, of which nothing is written down.
    fs::create_dir(ground.share().join("snap-2")).unwrap();
    let other = ground.filled("pvc-3", 1).await;
    for name in ["snap-1", "snap-2"] {
        let snapshot = ground.snapshot(name, &source).await.unwrap();
        assert_eq!(names(&ground.share().join(name)), Vec::<String>::new());
        let aside = format!("{name}@snapshot");
        assert_eq!(names(&ground.share().join(&aside)), ["pvc-1.tar.gz"]);
        // It stays where it is, whatever becomes of the volume, and nobody else gets its name.
        fs::remove_dir(ground.share().join(name)).unwrap();
        let again = ground.snapshot(name, &source).await.unwrap();
        assert_eq!(again.snapshot_id, snapshot.snapshot_id);
        let refused = ground.snapshot(name, &other).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        ground.discard(&snapshot.snapshot_id).await.unwrap();
        assert!(!ground.share().join(&aside).exists());
    }
}

#[tokio::test]
async fn no_snapshot_is_taken_for_one_that_went_aside() {
    let ground = Ground::new();
    let source = ground.filled("pvc-1", 1).await;
    let other = ground.filled("pvc-2", 1).await;
    let mut ids = std::collections::BTreeSet::new();
    for (name, of) in [
        ("x", &source),
        ("y.snapshot", &source),
        ("y", &source),
        ("x.snapshot", &other),
        ("x@snapshot", &other),
        ("x", &source),
    ] {
        let made = ground.snapshot(name, of).await.unwrap();
        assert_eq!(made.source_volume_id, *of);
        ids.insert(made.snapshot_id);
    }
    assert_eq!(ids.len(), 5);
    // What lies where it could have gone matters to none that is in its place.
    fs::create_dir(ground.share().join("x@snapshot")).unwrap();
    fs::write(ground.share().join("x@snapshot/pvc-2.tar"), "").unwrap();
    ground.snapshot("x", &source).await.unwrap();
}

#[tokio::test]
async fn an_archive_that_another_driver_left_half_written_is_packed_anew() {
    use std::os::unix::fs::PermissionsExt;
    for (ending, compress, trailer) in [("tar.gz", true, 8), ("tar", false, 1024)] {
        let ground = Ground::with(|config| config.compress = compress);
        let source = ground.filled("pvc-1", 40).await;
        ground.snapshot("whole", &source).await.unwrap();
        let name = format!("pvc-1.{ending}");
        let whole = fs::read(ground.share().join("whole").join(&name)).unwrap();
        // Also one of which whole entries are there.
        let all = whole.len();
        for length in [0, 100, all / 2 / 512 * 512 + 9, all - trailer, all] {
            let folder = ground.share().join(format!("s-{length}"));
            fs::create_dir(&folder).unwrap();
            let archive = folder.join(&name);
            fs::write(&archive, &whole[..length]).unwrap();
            fs::set_permissions(&archive, fs::Permissions::from_mode(0o644)).unwrap();
            let before = archive.metadata().unwrap().ino();
            for _ in 0..2 {
                let made = ground.snapshot(&format!("s-{length}"), &source).await;
                let made = made.unwrap();
                assert_eq!(names(&folder), [name.as_str()]);
                let found = archive.metadata().unwrap();
                assert_eq!(found.ino() == before, length == whole.len(), "{length}");
                assert_eq!(found.len(), u64::try_from(made.size_bytes).unwrap());
                assert_eq!(found.mode() & 0o777, 0o600);
                let restored = ground
                    .create_from(&format!("r-{length}"), &[], restored(&made.snapshot_id))
                    .await;
                restored.unwrap();
                assert_eq!(names(&ground.share().join(format!("r-{length}"))).len(), 40);
            }
        }
    }
}

#[tokio::test]
async fn a_snapshot_of_a_volume_with_the_longest_name_is_packed() {
    let ground = Ground::new();
    let name = "n".repeat(255);
    fs::create_dir(ground.share().join(&name)).unwrap();
    fs::write(ground.share().join(&name).join("file"), "x").unwrap();
    let source = format!("nfs.example#share#{name}##");
    let snapshot = ground.snapshot("s", &source).await.unwrap();
    let made = ground
        .create_from("pvc-2", &[], restored(&snapshot.snapshot_id))
        .await;
    made.unwrap();
    assert_eq!(names(&ground.share().join("pvc-2")), ["file"]);
}

#[tokio::test]
async fn a_copy_that_fails_leaves_nothing() {
    let ground = Ground::new();
    let folder = ground.share().join("s");
    fs::create_dir(&folder).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    for file in ["a", "b"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, file, &b"abc"[..]).unwrap();
    }
    let mut bytes = archive.into_inner().unwrap();
    bytes.truncate(3 * 512 + 2);
    fs::write(folder.join("pvc-1.tar"), &bytes).unwrap();
    let snapshot = "nfs.example#share#s#s#pvc-1";
    let refused = ground.create_from("pvc-2", &[], restored(snapshot)).await;
    refused.unwrap_err();
    assert_eq!(names(&ground.share()), ["s"]);
    assert_eq!(ground.making(), Vec::<String>::new());
}

#[tokio::test]
async fn what_nobody_works_on_any_more_is_swept_and_no_other_attempt() {
    let ground = Ground::new();
    let making = ground.share().join(HOUSE).join("making");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let attempt = |name: &str, fresh: bool| {
        fs::create_dir_all(making.join(name).join("deep")).unwrap();
        fs::write(making.join(name).join("deep/file"), "x").unwrap();
        let alive = fs::File::create(making.join(format!("{name}.alive"))).unwrap();
        if !fresh {
            alive.set_modified(long_ago).unwrap();
        }
    };
    let wait = |names_left: &'static [&'static str]| {
        let ground = &ground;
        async move {
            let begin = std::time::Instant::now();
            let trash = ground.share().join(HOUSE).join("trash");
            while ground.making() != names_left || !names(&trash).is_empty() {
                let left = ground.making();
                assert!(begin.elapsed() < Duration::from_secs(20), "{left:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    // A deletion sweeps, and so does whoever begins a copy.
    let other = ground.create("pvc-1", &[]).await.unwrap();
    attempt("volume-x-1", false);
    attempt("volume-y-1", true);
    let left = &["volume-y-1", "volume-y-1.alive"];
    ground.delete(&other.volume_id).await.unwrap();
    wait(left).await;
    let source = ground.filled("pvc-2", 1).await;
    attempt("snapshot-x-1", false);
    ground
        .create_from("pvc-3", &[], clone_of(&source))
        .await
        .unwrap();
    wait(left).await;
    // Whoever deletes a volume deletes what was to become of it, however fresh.
    let own = format!("volume-{}-1", super::super::record::digest("pvc-4"));
    attempt(&own, true);
    ground.delete("nfs.example#share#pvc-4##").await.unwrap();
    wait(left).await;
    let own = format!("snapshot-{}-1", super::super::record::digest("s-4"));
    attempt(&own, true);
    let request = proto::DeleteSnapshotRequest {
        snapshot_id: "nfs.example#share#s-4#s-4#pvc-2".into(),
        ..Default::default()
    };
    let controller = ground.controller();
    controller
        .delete_snapshot(Request::new(request))
        .await
        .unwrap();
    wait(left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_is_made_of_what_stays_while_files_come_and_go() {
    let ground = Ground::new();
    let source = ground.filled("pvc-1", 200).await;
    let folder = ground.share().join("pvc-1");
    let over = Arc::new(AtomicBool::new(false));
    let restless = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            while !over.load(Ordering::Relaxed) {
                for number in 0..50 {
                    let come = folder.join(format!("come-{number}"));
                    fs::create_dir(&come).unwrap();
                    fs::write(come.join("file"), "x").unwrap();
                    fs::write(folder.join("new"), "y").unwrap();
                    fs::rename(folder.join("new"), folder.join("0")).unwrap();
                }
                for number in 0..50 {
                    fs::remove_dir_all(folder.join(format!("come-{number}"))).unwrap();
                }
            }
        }
    });
    for round in 0..25 {
        let name = format!("copy-{round}");
        let made = ground.create_from(&name, &[], clone_of(&source)).await;
        made.unwrap();
        let copied = names(&ground.share().join(&name));
        let steady = copied.iter().filter(|name| name.parse::<u8>().is_ok());
        assert_eq!(steady.count(), 200);
    }
    over.store(true, Ordering::Relaxed);
    restless.join().unwrap();
}

#[tokio::test]
async fn what_is_deep_is_copied_packed_and_restored_or_refused_at_once() {
    orlop_host::process::open_as_many_files_as_allowed().unwrap();
    let ground = Ground::new();
    let long = "n".repeat(250);
    for (name, part, depth) in [("wide", long.as_str(), 20), ("deep", "d", 600)] {
        let source = ground.create(name, &[]).await.unwrap().volume_id;
        let root = orlop_host::Folder::open(&ground.share().join(name)).unwrap();
        let path: PathBuf = std::iter::repeat_n(part, depth).collect();
        let bottom = root.make(&path, 0o755).unwrap();
        drop(bottom.create("file", 0o644).unwrap());
        let snapshot = ground
            .snapshot(&format!("s-{name}"), &source)
            .await
            .unwrap();
        let contents = [clone_of(&source), restored(&snapshot.snapshot_id)];
        for (number, content) in contents.into_iter().enumerate() {
            let copy = format!("{name}-{number}");
            ground.create_from(&copy, &[], content).await.unwrap();
            let root = orlop_host::Folder::open(&ground.share().join(copy)).unwrap();
            let bottom = root.enter(&path).unwrap();
            assert!(bottom.look("file").unwrap().is_some());
        }
    }
    let source = ground.create("deeper", &[]).await.unwrap().volume_id;
    let root = orlop_host::Folder::open(&ground.share().join("deeper")).unwrap();
    let path: PathBuf = std::iter::repeat_n("d", 1100).collect();
    root.make(&path, 0o755).unwrap();
    for refused in [
        ground.snapshot("s", &source).await.map(drop).unwrap_err(),
        ground
            .create_from("copy", &[], clone_of(&source))
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert!(refused.message().contains("1000 levels"), "{refused}");
    }
}
