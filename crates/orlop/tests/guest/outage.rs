//! The server goes while every kind of call is under way, and comes back a minute later: one that is
//! killed, whose host refuses connections, and one whose whole host is silent.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use orlop_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use orlop_csi::proto::{Volume, VolumeCondition};
use tokio::sync::{Barrier, watch};
use tonic::Status;

use crate::client::{Driver, On, nfs_mounts};
use crate::dead_server::{stuck, waiting};
use crate::far_server::FarServer;
use crate::{in_guest, server};

/// How long the server is away.
const AWAY: Duration = Duration::from_secs(60);
/// How long a caller waits for an answer, and before it repeats a call.
const SHORT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(500);
/// How long anything is waited for once the server is back.
const PATIENCE: Duration = Duration::from_secs(180);
/// How many things there are to be taken away one by one.
const FEW: usize = 8;
/// How many kinds of calls there are.
const KINDS: usize = 13;

/// A pod: writes files, and lines of one that stays open, on and on, and some more once the file `$1` is
/// there; how many the server said to have. A process of its own: what it has open of a server that is
/// gone would be closed, and waited for, by every program that its process starts.
const POD: &str = "
set -e
exec 3>log
written=0
more=10
while [ $more -gt 0 ]; do
  head -c 4096 /dev/zero | tr '\\0' '\\7' | dd of=$written conv=fsync status=none
  echo $written >&3
  sync log
  written=$((written + 1))
  if [ -e $1 ]; then more=$((more - 1)); fi
  sleep 0.1
done
echo $written
";

/// A server that can go and come back, having lost what it had in memory.
trait Goes: Send + 'static {
    fn go(&mut self);
    fn come_back(&mut self);
}

impl Goes for server::Ganesha {
    fn go(&mut self) {
        self.kill();
    }

    fn come_back(&mut self) {
        self.start_again();
    }
}

impl Goes for FarServer {
    fn go(&mut self) {
        self.fall_silent();
    }

    fn come_back(&mut self) {
        self.start_again();
        self.speak();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    /// At any moment now.
    Going,
    Away,
    Back,
}

/// Where the outage is.
struct Outage {
    phase: watch::Sender<Phase>,
    /// Where all kinds of calls wait for each other, and the outage for them.
    start: Barrier,
}

impl Outage {
    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    async fn begun(&self) {
        let mut phase = self.phase.subscribe();
        let _ = phase
            .wait_for(|phase| matches!(phase, Phase::Away | Phase::Back))
            .await;
    }

    /// Takes the server away once all calls are under way, and brings it back.
    async fn pass(&self, mut server: impl Goes) -> impl Goes {
        self.start.wait().await;
        // So that requests have left: they are many, and processors are emulated.
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.phase.send_replace(Phase::Going);
        let mut server = tokio::task::spawn_blocking(move || {
            server.go();
            server
        })
        .await
        .unwrap();
        self.phase.send_replace(Phase::Away);
        tokio::time::sleep(AWAY).await;
        let begin = Instant::now();
        let coming = tokio::task::spawn_blocking(move || {
            server.come_back();
            server
        });
        let server = tokio::time::timeout(PATIENCE, coming).await;
        let server = server.unwrap_or_else(|_| {
            let names = ["orlop", "rpc.nfsd", "nfsd", "ganesha", "kworker"];
            panic!("the server does not start: {}", waiting(&names).join("\n"))
        });
        eprintln!("the server took {:?} to come back", begin.elapsed());
        self.phase.send_replace(Phase::Back);
        server.unwrap()
    }
}

/// What came of one kind of call.
struct Met<T> {
    what: &'static str,
    answers: Vec<T>,
    /// How many were under way while the server was away, and how often it was refused.
    met: usize,
    refused: usize,
}

/// Calls once while all is well; then, with all other kinds at once, on and on, so that one is under
/// way when the server goes; and after an outage until it works, as sidecars and kubelets do. At most
/// so many.
async fn insist<T>(
    what: &'static str,
    outage: &Outage,
    most: usize,
    call: impl AsyncFn(usize) -> Result<T, Status>,
) -> Met<T> {
    let first = call(0).await;
    let mut all = Met {
        what,
        answers: vec![first.unwrap_or_else(|status| panic!("{what}: {status}"))],
        met: 0,
        refused: 0,
    };
    outage.start.wait().await;
    let mut back: Option<Instant> = None;
    for number in 1..most {
        // The last one is for the outage.
        if number + 1 == most {
            outage.begun().await;
        }
        let answer = loop {
            let before = outage.phase();
            let answer = call(number).await;
            let after = outage.phase();
            if before != Phase::Back && matches!(after, Phase::Away | Phase::Back) {
                all.met += 1;
            }
            let status = match answer {
                Ok(answer) => break answer,
                Err(status) => status,
            };
            assert!(
                after != Phase::Before,
                "{what} is refused without an outage: {status}"
            );
            if outage.phase() == Phase::Back {
                let back = *back.get_or_insert_with(Instant::now);
                assert!(
                    back.elapsed() < PATIENCE,
                    "{what}: {status}; {}",
                    waiting(&["orlop", "rpc.nfsd", "nfsd", "ganesha", "kworker"]).join("\n")
                );
            }
            all.refused += 1;
            tokio::time::sleep(PAUSE).await;
        };
        all.answers.push(answer);
        if outage.phase() == Phase::Back {
            break;
        }
        tokio::time::sleep(PAUSE / 2).await;
    }
    all
}

async fn made(driver: &Driver, name: &str, on: &On<'_>) -> Volume {
    let volume = driver.create(name, on).await.unwrap();
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
async fn every_call_survives_a_server_that_is_killed_and_started_anew_a_minute_later() {
    in_guest!();
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "port=2050,timeo=20,retrans=1",
    };
    survives("killed", on, server::Ganesha::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_survives_a_server_whose_host_is_silent_for_a_minute() {
    in_guest!();
    let on = On {
        server: FarServer::ADDRESS,
        share: "/data",
        options: "timeo=20,retrans=1",
    };
    survives("silent", on, FarServer::start()).await;
}

async fn survives(label: &str, on: On<'_>, goes: impl Goes) {
    let on = &on;
    let driver = &Driver::start_by(&[], &["--vol-stats-cache-expire-in-minutes=0"]).await;
    let calls = &driver.within(SHORT);
    let named = |name: &str| format!("{label}-{name}");
    let at = |name: &str| driver.folder.path().join(name);
    let source = made(driver, &named("source"), on).await;
    let id = &source.volume_id;
    let snapshot = driver.snapshot(&named("old"), id).await.unwrap();
    // Things to be taken away, one after the other.
    let (mut doomed, mut cuts, mut shown) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..FEW {
        doomed.push(made(driver, &named(&format!("doomed-{number}")), on).await);
        let cut = named(&format!("gone-{number}"));
        cuts.push(driver.snapshot(&cut, id).await.unwrap().snapshot_id);
        let place = at(&format!("shown-{number}"));
        driver.publish(&source, on, &place).await.unwrap();
        shown.push(place);
    }
    let written = made(driver, &named("written"), on).await;
    let place = at("written");
    driver.publish(&written, on, &place).await.unwrap();
    let outage = &Outage {
        phase: watch::Sender::new(Phase::Before),
        start: Barrier::new(KINDS + 1),
    };
    // A pod that writes on and on: nothing that it was told to be written may be lost.
    let enough = at("enough");
    let writer = tokio::process::Command::new("bash")
        .args(["-c", POD, "pod"])
        .arg(&enough)
        .current_dir(&place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let volume = Some(Type::Volume(VolumeSource {
        volume_id: id.clone(),
    }));
    let cut = Some(Type::Snapshot(SnapshotSource {
        snapshot_id: snapshot.snapshot_id.clone(),
    }));
    let fill = async |name: String, source: Option<Type>| {
        calls.create_from(&named(&name), on, source, SHORT).await
    };
    let many = usize::MAX;
    let making = async {
        tokio::join!(
            insist("create", outage, many, async |n| {
                fill(format!("new-{n}"), None).await
            }),
            insist("clone", outage, many, async |n| {
                fill(format!("clone-{n}"), volume.clone()).await
            }),
            insist("restore", outage, many, async |n| {
                fill(format!("restored-{n}"), cut.clone()).await
            }),
            insist("snapshot", outage, many, async |n| {
                calls.snapshot(&named(&format!("cut-{n}")), id).await
            }),
        )
    };
    let taking = async {
        tokio::join!(
            insist("delete", outage, FEW, async |n| {
                calls.delete(&doomed[n].volume_id, on).await
            }),
            insist("delete a snapshot", outage, FEW, async |n| {
                calls.delete_snapshot(&cuts[n]).await
            }),
            insist("unpublish", outage, FEW, async |n| {
                calls.unpublish(&source, &shown[n]).await
            }),
        )
    };
    let target = |n| at(&format!("new-{n}"));
    let using = async {
        tokio::join!(
            insist("publish", outage, many, async |n| {
                calls.publish(&written, on, &target(n)).await
            }),
            insist("expand", outage, many, async |n| {
                let bytes = (5 + i64::try_from(n).unwrap()) << 20;
                calls.expand(&written.volume_id, on, bytes).await
            }),
        )
    };
    let looking = async {
        tokio::join!(
            insist("capacity", outage, many, async |_| {
                calls.capacity(on).await.map(drop)
            }),
            insist("validate", outage, many, async |_| {
                calls.validate(&source, on).await
            }),
            insist("get", outage, many, async |_| {
                let told = calls.get(id).await?;
                well(told.status.unwrap().volume_condition)
            }),
            insist("stats", outage, many, async |_| {
                well(calls.stats(&written, &place).await?.volume_condition)
            }),
        )
    };
    let passing = outage.pass(goes);
    let (making, taking, using, looking, _server) =
        tokio::join!(making, taking, using, looking, passing);
    let told = [
        (making.0.what, making.0.met, making.0.refused),
        (making.1.what, making.1.met, making.1.refused),
        (making.2.what, making.2.met, making.2.refused),
        (making.3.what, making.3.met, making.3.refused),
        (taking.0.what, taking.0.met, taking.0.refused),
        (taking.1.what, taking.1.met, taking.1.refused),
        (taking.2.what, taking.2.met, taking.2.refused),
        (using.0.what, using.0.met, using.0.refused),
        (using.1.what, using.1.met, using.1.refused),
        (looking.0.what, looking.0.met, looking.0.refused),
        (looking.1.what, looking.1.met, looking.1.refused),
        (looking.2.what, looking.2.met, looking.2.refused),
        (looking.3.what, looking.3.met, looking.3.refused),
    ];
    assert_eq!(told.len(), KINDS);
    eprintln!("(call, met the outage, refused): {told:?}");
    for (what, met, _) in told {
        assert!(met > 0, "{what} did not meet the outage");
    }
    fs::write(&enough, "").unwrap();
    let ended = tokio::time::timeout(PATIENCE, writer.wait_with_output()).await;
    let ended = ended.expect("the pod's writes hang").unwrap();
    assert!(ended.status.success(), "the pod's writes fail");
    let files = String::from_utf8(ended.stdout).unwrap();
    let files: u32 = files.trim().parse().unwrap();
    let folder = server::path("data", &named("written"));
    for file in 0..files {
        let path = folder.join(file.to_string());
        assert!(fs::read(path).unwrap() == [7; 4096], "{file} is not whole");
    }
    let log = fs::read_to_string(folder.join("log")).unwrap();
    assert!(
        log == (0..files).map(line).collect::<String>(),
        "lines of the log are lost"
    );
    for (name, made) in [
        ("clone", making.1.answers.len()),
        ("restored", making.2.answers.len()),
    ] {
        for number in 0..made {
            let name = named(&format!("{name}-{number}"));
            let file = server::path("data", &name).join("file");
            let text = fs::read_to_string(file).unwrap();
            assert_eq!(text, named("source"), "{name}");
        }
    }
    for number in 0..making.3.answers.len() {
        let cut = server::path("data", &named(&format!("cut-{number}")));
        assert!(cut.join(named("source.tar.gz")).exists());
    }
    for number in 0..taking.0.answers.len() {
        assert!(!server::path("data", &named(&format!("doomed-{number}"))).exists());
    }
    for number in 0..taking.1.answers.len() {
        assert!(!server::path("data", &named(&format!("gone-{number}"))).exists());
    }
    let grown = using.1.answers.last().copied().unwrap();
    assert_eq!(
        grown,
        (4 + i64::try_from(using.1.answers.len()).unwrap()) << 20
    );
    // Everything can be taken away.
    for number in 0..using.0.answers.len() {
        let place = target(number);
        let text = fs::read_to_string(place.join("file")).unwrap();
        assert_eq!(text, named("written"));
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
        driver.delete(&volume.volume_id, on).await.unwrap();
    }
    for snapshot in making.3.answers.iter().chain([&snapshot]) {
        driver.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    }
    for id in &cuts[taking.1.answers.len()..] {
        driver.delete_snapshot(id).await.unwrap();
    }
    assert_eq!(nfs_mounts(), Vec::<String>::new());
    let trash = server::path("data", ".orlop-csi/trash");
    let left = || {
        let names = fs::read_dir(&trash).into_iter().flatten();
        names.filter_map(Result::ok).map(|entry| entry.path())
    };
    let begin = Instant::now();
    while !stuck().is_empty() || left().next().is_some() {
        assert!(
            begin.elapsed() < PATIENCE,
            "in the trash: {:?}; {}",
            left().collect::<Vec<_>>(),
            stuck().join("\n")
        );
        tokio::time::sleep(PAUSE).await;
    }
}

fn line(number: u32) -> String {
    format!("{number}\n")
}
