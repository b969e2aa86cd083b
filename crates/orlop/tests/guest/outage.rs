//! The server goes while every kind of call is under way, and comes back a minute later.

use std::fs;
use std::time::{Duration, Instant};

use orlop_csi::proto::Volume;
use orlop_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use tonic::Status;

use crate::client::{Driver, On, nfs_mounts};
use crate::dead_server::stuck;
use crate::{in_guest, server};

const ON: On<'static> = On {
    server: "127.0.0.1",
    share: "/data",
    options: "timeo=20,retrans=1",
};
/// How long the server is away.
const AWAY: Duration = Duration::from_secs(60);
/// How long a caller waits before it repeats a call, and how often a test waits at most.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(240);

/// Calls again until it works, as sidecars and kubelets do; how often it did not.
async fn insist<T>(what: &str, call: impl AsyncFn() -> Result<T, Status>) -> (T, usize) {
    let begin = Instant::now();
    let mut refused = 0;
    loop {
        match call().await {
            Ok(answer) => return (answer, refused),
            Err(status) => assert!(begin.elapsed() < PATIENCE, "{what}: {status}"),
        }
        refused += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn made(driver: &Driver, name: &str) -> Volume {
    let volume = driver.create(name, &ON).await.unwrap();
    fs::write(server::path("data", name).join("file"), name).unwrap();
    volume
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_survives_a_server_that_goes_for_a_minute() {
    in_guest!();
    server::kernel();
    let driver = Driver::start_by(&[], &["--vol-stats-cache-expire-in-minutes=0"]).await;
    let driver = &driver;
    let at = |name: &str| driver.folder.path().join(name);
    let source = made(driver, "out-source").await;
    let snapshot = driver.snapshot("out-old", &source.volume_id).await.unwrap();
    let doomed_cut = driver
        .snapshot("out-gone", &source.volume_id)
        .await
        .unwrap();
    let (doomed, grown) = (
        made(driver, "out-doomed").await,
        made(driver, "out-grown").await,
    );
    let (shown, hidden) = (
        made(driver, "out-shown").await,
        made(driver, "out-hidden").await,
    );
    driver.publish(&shown, &ON, &at("shown")).await.unwrap();
    driver.publish(&hidden, &ON, &at("hidden")).await.unwrap();
    // A pod that writes on and on: nothing that it was told to be written may be lost.
    let writer = tokio::task::spawn_blocking({
        let folder = at("shown");
        move || {
            let begin = Instant::now();
            let mut written = 0_u32;
            while begin.elapsed() < AWAY + Duration::from_secs(30) {
                let file = folder.join(written.to_string());
                let mut out = fs::File::create(&file).unwrap();
                std::io::Write::write_all(&mut out, &[7; 4096]).unwrap();
                out.sync_all().unwrap();
                written += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            written
        }
    });
    let clone = || {
        Some(Type::Volume(VolumeSource {
            volume_id: source.volume_id.clone(),
        }))
    };
    let restore = || {
        Some(Type::Snapshot(SnapshotSource {
            snapshot_id: snapshot.snapshot_id.clone(),
        }))
    };
    let short = Duration::from_secs(15);
    let outage = async {
        // In the middle of all that, for what takes longer than a moment.
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::spawn_blocking(server::stop).await.unwrap();
        tokio::time::sleep(AWAY).await;
        tokio::task::spawn_blocking(server::start).await.unwrap();
    };
    let create = insist("create", async || {
        driver.create_from("out-new", &ON, None, short).await
    });
    let cloned = insist("clone", async || {
        driver.create_from("out-clone", &ON, clone(), short).await
    });
    let restored = insist("restore", async || {
        driver
            .create_from("out-restored", &ON, restore(), short)
            .await
    });
    let cut = insist("snapshot", async || {
        driver.snapshot("out-cut", &source.volume_id).await
    });
    let deleted = insist("delete", async || {
        driver.delete(&doomed.volume_id, &ON).await
    });
    let expanded = insist("expand", async || {
        driver.expand(&grown.volume_id, &ON, 5 << 20).await
    });
    let target = at("new");
    let published = insist("publish", async || {
        driver.publish_within(&grown, &ON, &target, short).await
    });
    let gone = at("hidden");
    let unpublished = insist("unpublish", async || driver.unpublish(&hidden, &gone).await);
    let uncut = insist("delete a snapshot", async || {
        driver.delete_snapshot(&doomed_cut.snapshot_id).await
    });
    // Those that only look: how the server is, is what some of them are asked for.
    let (capacity, validated) = (
        insist("capacity", async || driver.capacity(&ON).await),
        insist("validate", async || driver.validate(&source, &ON).await),
    );
    let well = insist("get", async || {
        let told = driver.get(&source.volume_id).await?;
        let condition = told.status.unwrap().volume_condition.unwrap();
        match condition.abnormal {
            true => Err(Status::unavailable(condition.message)),
            false => Ok(()),
        }
    });
    let place = at("shown");
    let measured = insist("stats", async || {
        let told = driver.stats(&shown, &place).await?;
        let condition = told.volume_condition.unwrap();
        match condition.abnormal {
            true => Err(Status::unavailable(condition.message)),
            false => Ok(()),
        }
    });
    let looked = async { tokio::join!(capacity, validated, well, measured) };
    let (new, cloned, restored, cut, deleted, expanded, published, unpublished, uncut, looked, ()) = tokio::join!(
        create,
        cloned,
        restored,
        cut,
        deleted,
        expanded,
        published,
        unpublished,
        uncut,
        looked,
        outage
    );
    let refusals = [
        new.1,
        cloned.1,
        restored.1,
        cut.1,
        deleted.1,
        expanded.1,
        published.1,
        unpublished.1,
        uncut.1,
        looked.0.1,
        looked.1.1,
        looked.2.1,
        looked.3.1,
    ];
    eprintln!("refused: {refusals:?}");
    assert!(
        refusals.iter().sum::<usize>() > 0,
        "nobody met the outage: {refusals:?}"
    );
    let written = tokio::time::timeout(PATIENCE, writer)
        .await
        .unwrap()
        .unwrap();
    for file in 0..written {
        let bytes = fs::read(server::path("data", "out-shown").join(file.to_string())).unwrap();
        assert!(bytes == [7; 4096], "{file} of {written} is not whole");
    }
    for name in ["out-clone", "out-restored"] {
        let text = fs::read_to_string(server::path("data", name).join("file"));
        assert_eq!(text.unwrap(), "out-source", "{name}");
    }
    assert_eq!(expanded.0, 5 << 20);
    assert!(!server::path("data", "out-doomed").exists());
    assert!(!server::path("data", "out-gone").exists());
    for name in ["out-old", "out-cut"] {
        assert!(
            server::path("data", name)
                .join("out-source.tar.gz")
                .exists()
        );
    }
    assert_eq!(
        fs::read_to_string(at("new").join("file")).unwrap(),
        "out-grown"
    );
    driver.unpublish(&shown, &at("shown")).await.unwrap();
    driver.unpublish(&grown, &at("new")).await.unwrap();
    for volume in [
        &source,
        &grown,
        &shown,
        &hidden,
        &new.0,
        &cloned.0,
        &restored.0,
    ] {
        driver.delete(&volume.volume_id, &ON).await.unwrap();
    }
    assert_eq!(nfs_mounts(), Vec::<String>::new());
    let begin = Instant::now();
    while !stuck().is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", stuck());
        tokio::time::sleep(PAUSE).await;
    }
}
