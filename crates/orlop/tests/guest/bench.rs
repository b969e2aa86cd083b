//! Our driver beside csi-driver-nfs, on one server in one run: `cargo xtask vm bench`.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tonic::Status;

use crate::client::{Driver, On};
use crate::judges::peer;
use crate::{in_guest, server};

const ON: On<'static> = On {
    server: "127.0.0.1",
    share: "/data",
    options: "nfsvers=4.1",
};
const VOLUMES: usize = 200;
const AT_ONCE: usize = 16;
/// Files of a folder; there are as many folders as make it 100,000, or 10,000 in a brief run.
const FILES: usize = 1000;

/// How long a tree's end is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

fn folders() -> usize {
    match std::env::var_os("ORLOP_BRIEF") {
        None => 100,
        Some(_) => 10,
    }
}

/// What was measured of a driver.
#[derive(Default)]
struct Measured {
    idle: f64,
    peak: f64,
    create: f64,
    delete: f64,
    answered: Took,
    gone: Took,
}

/// How long something took, in seconds; who is not waited for any longer took more than that.
#[derive(Clone, Copy)]
enum Took {
    Seconds(f64),
    MoreThan(f64),
}

impl Default for Took {
    fn default() -> Self {
        Self::Seconds(f64::NAN)
    }
}

impl Took {
    fn since(begin: Instant) -> Self {
        Self::Seconds(begin.elapsed().as_secs_f64())
    }

    fn seconds(self) -> f64 {
        match self {
            Self::Seconds(seconds) | Self::MoreThan(seconds) => seconds,
        }
    }
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => f.pad(&format!("{seconds:.2}")),
            Self::MoreThan(seconds) => f.pad(&format!("> {seconds:.0}")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark; cargo xtask vm bench runs it"]
async fn beside_the_original() {
    in_guest!();
    server::kernel();
    let ours = measure(&Driver::start().await, "ours").await;
    let Some(original) = peer("brought", "nfsplugin") else {
        println!("csi-driver-nfs is not built; ours alone:");
        return print(&ours, &Measured::default());
    };
    let original = original.display().to_string();
    let theirs = Driver::start_program(&[&original, "--nodeid=node-1"]).await;
    let theirs = measure(&theirs, "theirs").await;
    print(&ours, &theirs);
}

async fn measure(driver: &Driver, name: &str) -> Measured {
    let mut measured = Measured::default();
    // Everything has been done once before it is measured.
    let warm = driver.create(&format!("{name}-warm"), &ON).await.unwrap();
    driver.delete(&warm.volume_id, &ON).await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    measured.idle = memory(driver.process());

    println!("{name}: {:.1} MiB idle", measured.idle);
    if std::env::var_os("ORLOP_TREE").is_none() {
        volumes(driver, name, &mut measured).await;
    }
    tree(driver, name, &mut measured).await;
    measured
}

/// Many volumes come and go.
async fn volumes(driver: &Driver, name: &str, measured: &mut Measured) {
    let most = Arc::new(AtomicUsize::new(0));
    let (watched, process) = (Arc::clone(&most), driver.process());
    let watch = tokio::spawn(async move {
        loop {
            let now = memory(process) * 1024.0;
            watched.fetch_max(now as usize, Ordering::Relaxed);
            // To add up pages takes the processor's time, more of it the more processes there are.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let ids = tokio::sync::Mutex::new(Vec::new());
    measured.create = rate(async |number| {
        let volume = driver.create(&format!("{name}-{number}"), &ON).await?;
        ids.lock().await.push(volume.volume_id);
        Ok(())
    })
    .await;
    let ids = ids.into_inner();
    measured.delete = rate(async |number| driver.delete(&ids[number], &ON).await).await;
    watch.abort();
    measured.peak = most.load(Ordering::Relaxed) as f64 / 1024.0;
    println!(
        "{name}: created {:.2} and deleted {:.2} a second, {:.1} MiB at most",
        measured.create, measured.delete, measured.peak
    );
}

/// A volume with many files goes.
async fn tree(driver: &Driver, name: &str, measured: &mut Measured) {
    let volume = driver.create(&format!("{name}-large"), &ON).await.unwrap();
    let root = server::path("data", &format!("{name}-large"));
    for folder in 0..folders() {
        let folder = root.join(folder.to_string());
        fs::create_dir(&folder).unwrap();
        for file in 0..FILES {
            fs::write(folder.join(file.to_string()), "").unwrap();
        }
    }
    let begin = Instant::now();
    let trash = server::path("data", ".orlop-csi/trash");
    let empty = |folder: &Path| fs::read_dir(folder).map_or(true, |mut it| it.next().is_none());
    measured.answered = Took::MoreThan(PATIENCE.as_secs_f64());
    measured.gone = measured.answered;
    // Who waits longer than its caller is called again, as a sidecar does.
    while begin.elapsed() < PATIENCE {
        match driver.delete(&volume.volume_id, &ON).await {
            Ok(()) => {
                measured.answered = Took::since(begin);
                break;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    println!(
        "{name}: a tree's deletion answered after {} s",
        measured.answered
    );
    while begin.elapsed() < PATIENCE {
        if !root.exists() && empty(&trash) {
            measured.gone = Took::since(begin);
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{name}: gone after {} s", measured.gone);
}

/// How many a second, [`AT_ONCE`] at a time.
async fn rate(one: impl AsyncFn(usize) -> Result<(), Status>) -> f64 {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    join_all((0..AT_ONCE).map(async |_| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= VOLUMES {
                return;
            }
            one(number).await.unwrap();
        }
    }))
    .await;
    VOLUMES as f64 / begin.elapsed().as_secs_f64()
}

/// Memory of a process and its children in MiB, what they share counted once.
fn memory(process: u32) -> f64 {
    let mut kibibytes = 0;
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent: Option<u32> = parent.and_then(|parent| parent.trim().parse().ok());
        if id != process && parent != Some(process) {
            continue;
        }
        let rollup = fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
        let share = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let share = share.and_then(|share| share.trim().strip_suffix(" kB"));
        kibibytes += share.and_then(|share| share.parse().ok()).unwrap_or(0);
    }
    f64::from(kibibytes) / 1024.0
}

fn print(ours: &Measured, theirs: &Measured) {
    println!("{:<44}{:>10}{:>10}{:>8}", "", "ours", "theirs", "better");
    let row = |what: &str, ours: f64, theirs: f64, more_is_better: bool| {
        // What was left out.
        if ours == 0.0 {
            return;
        }
        let better = match more_is_better {
            true => ours / theirs,
            false => theirs / ours,
        };
        println!("{what:<44}{ours:>10.2}{theirs:>10.2}{better:>7.1}x");
    };
    let tree = |what: &str, ours: Took, theirs: Took| {
        let better = theirs.seconds() / ours.seconds();
        // By how much we are quicker than one who is not waited for is not known.
        let least = match theirs {
            Took::Seconds(_) => "",
            Took::MoreThan(_) => ">",
        };
        let better = format!("{least}{better:.1}");
        println!("{what:<44}{ours:>10}{theirs:>10}{better:>7}x");
    };
    row("200 volumes created, 1/s", ours.create, theirs.create, true);
    row("200 volumes deleted, 1/s", ours.delete, theirs.delete, true);
    let both =
        |one: &Measured| one.create * one.delete / (one.create + one.delete).max(f64::EPSILON);
    row("created and deleted, 1/s", both(ours), both(theirs), true);
    tree(
        "a tree of files: answered after, s",
        ours.answered,
        theirs.answered,
    );
    tree("a tree of files: gone after, s", ours.gone, theirs.gone);
    row("memory idle, MiB (PSS)", ours.idle, theirs.idle, false);
    row("memory at most, MiB (PSS)", ours.peak, theirs.peak, false);
}
