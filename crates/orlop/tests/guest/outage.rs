//! The server goes while every kind of call is under way, and comes back a minute later.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orlop_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use orlop_csi::proto::{Volume, VolumeCondition};
use tonic::Status;

use crate::client::{Driver, On, nfs_mounts};
use crate::dead_server::{stuck, waiting};
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
/// How many things there are to be taken away one by one.
const FEW: usize = 12;

/// Where the outage is.
#[derive(Default)]
struct Server(AtomicBool);

impl Server {
    fn is_back(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What came of one kind of call.
struct Met<T> {
    what: &'static str,
    answers: Vec<T>,
    /// How often it was refused.
    refused: usize,
}

/// Calls on and on, so that one of them is under way when the server goes; then calls again until it
/// works, as sidecars and kubelets do, and leaves it at that. At most so many.
async fn insist<T>(
    what: &'static str,
    server: &Server,
    most: usize,
    call: impl AsyncFn(usize) -> Result<T, Status>,
) -> Met<T> {
    let begin = Instant::now();
    let (mut answers, mut refused) = (Vec::new(), 0);
    for number in 0..most {
        let answer = loop {
            match call(number).await {
                Ok(answer) => break answer,
                Err(status) => assert!(
                    begin.elapsed() < PATIENCE,
                    "{what}: {status}; {}",
                    // The server may be what hangs: to stop it waits for its threads.
                    waiting(&["orlop", "rpc.nfsd", "nfsd", "kworker"]).join("\n")
                ),
            }
            refused += 1;
            tokio::time::sleep(PAUSE).await;
        };
        answers.push(answer);
        if refused > 0 || server.is_back() {
            break;
        }
        tokio::time::sleep(PAUSE / 2).await;
    }
    Met {
        what,
        answers,
        refused,
    }
}

async fn made(driver: &Driver, name: &str) -> Volume {
    let volume = driver.create(name, &ON).await.unwrap();
    fs::write(server::path("data", name).join("file"), name).unwrap();
    volume
}

/// How the server is, is what some calls are asked for.
fn well(condition: Option<VolumeCondition>) -> Result<(), Status> {
    match condition {
        Some(condition) if condition.abnormal => Err(Status::unavailable(condition.message)),
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_survives_a_server_that_goes_for_a_minute() {
    in_guest!();
    server::kernel();
    let driver = &Driver::start_by(&[], &["--vol-stats-cache-expire-in-minutes=0"]).await;
    let at = |name: &str| driver.folder.path().join(name);
    let source = made(driver, "out-source").await;
    let id = &source.volume_id;
    let snapshot = driver.snapshot("out-old", id).await.unwrap();
    // Things to be taken away, one after the other.
    let (mut doomed, mut cuts, mut shown) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..FEW {
        doomed.push(made(driver, &format!("out-doomed-{number}")).await);
        let cut = format!("out-gone-{number}");
        cuts.push(driver.snapshot(&cut, id).await.unwrap().snapshot_id);
        let place = at(&format!("shown-{number}"));
        driver.publish(&source, &ON, &place).await.unwrap();
        shown.push(place);
    }
    let written = made(driver, "out-written").await;
    let place = at("written");
    driver.publish(&written, &ON, &place).await.unwrap();
    // A pod that writes on and on: nothing that it was told to be written may be lost.
    let writer = tokio::task::spawn_blocking({
        let folder = place.clone();
        move || write_on(&folder)
    });
    let short = Duration::from_secs(15);
    let volume = Some(Type::Volume(VolumeSource {
        volume_id: id.clone(),
    }));
    let cut = Some(Type::Snapshot(SnapshotSource {
        snapshot_id: snapshot.snapshot_id.clone(),
    }));
    let fill = async |name: String, source: Option<Type>| {
        driver.create_from(&name, &ON, source, short).await
    };
    let server = &Server::default();
    let many = usize::MAX;
    let outage = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begin = Instant::now();
        tokio::task::spawn_blocking(server::stop).await.unwrap();
        eprintln!("the server took {:?} to stop", begin.elapsed());
        tokio::time::sleep(AWAY).await;
        tokio::task::spawn_blocking(server::start).await.unwrap();
        eprintln!("the server is back after {:?}", begin.elapsed());
        server.0.store(true, Ordering::Relaxed);
    };
    let making = async {
        tokio::join!(
            insist("create", server, many, async |n| {
                fill(format!("out-new-{n}"), None).await
            }),
            insist("clone", server, many, async |n| {
                fill(format!("out-clone-{n}"), volume.clone()).await
            }),
            insist("restore", server, many, async |n| {
                fill(format!("out-restored-{n}"), cut.clone()).await
            }),
            insist("snapshot", server, many, async |n| {
                driver.snapshot(&format!("out-cut-{n}"), id).await
            }),
        )
    };
    let taking = async {
        tokio::join!(
            insist("delete", server, FEW, async |n| {
                driver.delete(&doomed[n].volume_id, &ON).await
            }),
            insist("delete a snapshot", server, FEW, async |n| {
                driver.delete_snapshot(&cuts[n]).await
            }),
            insist("unpublish", server, FEW, async |n| {
                driver.unpublish(&source, &shown[n]).await
            }),
        )
    };
    let target = |n| at(&format!("new-{n}"));
    let using = async {
        tokio::join!(
            insist("publish", server, many, async |n| {
                let place = target(n);
                driver.publish_within(&written, &ON, &place, short).await
            }),
            insist("expand", server, many, async |n| {
                let bytes = (5 + i64::try_from(n).unwrap()) << 20;
                driver.expand(&written.volume_id, &ON, bytes).await
            }),
        )
    };
    let looking = async {
        tokio::join!(
            insist("capacity", server, many, async |_| {
                driver.capacity(&ON).await.map(drop)
            }),
            insist("validate", server, many, async |_| {
                driver.validate(&source, &ON).await
            }),
            insist("get", server, many, async |_| {
                let told = driver.get(id).await?;
                well(told.status.unwrap().volume_condition)
            }),
            insist("stats", server, many, async |_| {
                well(driver.stats(&written, &place).await?.volume_condition)
            }),
        )
    };
    let (making, taking, using, looking, ()) = tokio::join!(making, taking, using, looking, outage);
    let refusals = [
        (making.0.what, making.0.refused),
        (making.1.what, making.1.refused),
        (making.2.what, making.2.refused),
        (making.3.what, making.3.refused),
        (taking.0.what, taking.0.refused),
        (taking.1.what, taking.1.refused),
        (using.0.what, using.0.refused),
        (using.1.what, using.1.refused),
        (looking.0.what, looking.0.refused),
        (looking.1.what, looking.1.refused),
        (looking.2.what, looking.2.refused),
        (looking.3.what, looking.3.refused),
    ];
    eprintln!(
        "refused: {refusals:?}, and {} of {FEW} unpublished",
        taking.2.answers.len()
    );
    for (what, refused) in refusals {
        assert!(refused > 0, "{what} did not meet the outage");
    }
    let files = tokio::time::timeout(PATIENCE, writer).await;
    for file in 0..files.unwrap().unwrap() {
        let path = server::path("data", "out-written").join(file.to_string());
        assert!(fs::read(path).unwrap() == [7; 4096], "{file} is not whole");
    }
    for (name, made) in [
        ("out-clone", making.1.answers.len()),
        ("out-restored", making.2.answers.len()),
    ] {
        for number in 0..made {
            let file = server::path("data", &format!("{name}-{number}")).join("file");
            assert_eq!(fs::read_to_string(file).unwrap(), "out-source", "{name}");
        }
    }
    for number in 0..making.3.answers.len() {
        let cut = server::path("data", &format!("out-cut-{number}"));
        assert!(cut.join("out-source.tar.gz").exists());
    }
    for number in 0..taking.0.answers.len() {
        assert!(!server::path("data", &format!("out-doomed-{number}")).exists());
    }
    for number in 0..taking.1.answers.len() {
        assert!(!server::path("data", &format!("out-gone-{number}")).exists());
    }
    let grown = using.1.answers.last().copied().unwrap();
    assert_eq!(
        grown,
        (4 + i64::try_from(using.1.answers.len()).unwrap()) << 20
    );
    // Everything can be taken away.
    for number in 0..using.0.answers.len() {
        let place = target(number);
        assert_eq!(
            fs::read_to_string(place.join("file")).unwrap(),
            "out-written"
        );
        driver.unpublish(&written, &place).await.unwrap();
    }
    for place in &shown[taking.2.answers.len()..] {
        driver.unpublish(&source, place).await.unwrap();
    }
    driver.unpublish(&written, &place).await.unwrap();
    let made = [making.0.answers, making.1.answers, making.2.answers];
    let left = doomed.drain(taking.0.answers.len()..);
    let left = left.chain(made.into_iter().flatten());
    for volume in left.chain([source.clone(), written]) {
        driver.delete(&volume.volume_id, &ON).await.unwrap();
    }
    for snapshot in making.3.answers.iter().chain([&snapshot]) {
        driver.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    }
    for id in &cuts[taking.1.answers.len()..] {
        driver.delete_snapshot(id).await.unwrap();
    }
    assert_eq!(nfs_mounts(), Vec::<String>::new());
    let begin = Instant::now();
    while !stuck().is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{}", stuck().join("\n"));
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes files until well after the outage; how many the server said to have.
fn write_on(folder: &Path) -> u32 {
    let begin = Instant::now();
    let mut written = 0_u32;
    while begin.elapsed() < AWAY + Duration::from_secs(30) {
        let mut out = fs::File::create(folder.join(written.to_string())).unwrap();
        out.write_all(&[7; 4096]).unwrap();
        out.sync_all().unwrap();
        written += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    written
}
