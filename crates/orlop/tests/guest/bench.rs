//! Our driver beside csi-driver-nfs, on one server in one run: `cargo xtask vm bench`.

use std::fmt;
use std::fs;
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
/// Files of a folder of the tree.
const FILES: usize = 1000;

/// How long the end of our tree is waited for, and how many times as long that of the other: beyond it
/// the answer is known.
const PATIENCE: Duration = Duration::from_secs(1200);
const TIMES: u32 = 10;
const LEAST: Duration = Duration::from_secs(900);
/// How often it is told how far a removal is.
const TOLD: Duration = Duration::from_secs(15);

/// How many files the tree has.
fn files() -> usize {
    let asked = std::env::var("ORLOP_FILES").ok();
    asked.map_or(100_000, |number| number.parse().unwrap())
}

/// What was measured of a driver.
#[derive(Default)]
struct Measured {
    idle: f64,
    idle_rss: f64,
    peak: f64,
    create: f64,
    delete: f64,
    answered: Took,
    gone: Took,
    /// What the server was asked for meanwhile.
    requests: f64,
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
    let ours = measure(&Driver::start().await, "ours", PATIENCE).await;
    let Some(original) = peer("brought", "nfsplugin") else {
        println!("csi-driver-nfs is not built; ours alone:");
        return print(&ours, &Measured::default());
    };
    let original = original.display().to_string();
    let theirs = Driver::start_program(&[&original, "--nodeid=node-1"]).await;
    let patience = Duration::from_secs_f64(ours.gone.seconds()) * TIMES;
    let theirs = measure(&theirs, "theirs", patience.max(LEAST)).await;
    print(&ours, &theirs);
}

async fn measure(driver: &Driver, name: &str, patience: Duration) -> Measured {
    let mut measured = Measured::default();
    // Everything has been done once before it is measured.
    let warm = driver.create(&format!("{name}-warm"), &ON).await.unwrap();
    driver.delete(&warm.volume_id, &ON).await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    measured.idle = memory(driver.process(), "Pss:");
    measured.idle_rss = memory(driver.process(), "Rss:");
    println!(
        "{name}: idle with {:.1} MiB (PSS {:.1})",
        measured.idle_rss, measured.idle
    );
    if std::env::var_os("ORLOP_TREE").is_none() {
        volumes(driver, name, &mut measured).await;
    }
    tree(driver, name, patience, &mut measured).await;
    measured
}

/// Many volumes come and go.
async fn volumes(driver: &Driver, name: &str, measured: &mut Measured) {
    let most = Arc::new(AtomicUsize::new(0));
    let (watched, process) = (Arc::clone(&most), driver.process());
    let watch = tokio::spawn(async move {
        loop {
            let now = memory(process, "Pss:") * 1024.0;
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

/// A volume with many files goes. They are made behind the server's back: only their end is measured.
async fn tree(driver: &Driver, name: &str, patience: Duration, measured: &mut Measured) {
    let volume = driver.create(&format!("{name}-large"), &ON).await.unwrap();
    let root = server::path("data", &format!("{name}-large"));
    let before = server::inodes();
    let begin = Instant::now();
    for file in 0..files() {
        let folder = root.join((file / FILES).to_string());
        if file % FILES == 0 {
            fs::create_dir(&folder).unwrap();
        }
        fs::write(folder.join(file.to_string()), "").unwrap();
    }
    server::settle();
    println!(
        "{name}: a tree of {} files made in {:.0?}",
        files(),
        begin.elapsed()
    );
    let (requests, busy) = (server::requests(), busy());
    let begin = Instant::now();
    measured.answered = Took::MoreThan(patience.as_secs_f64());
    measured.gone = measured.answered;
    let deleting = async {
        // Who waits longer than its caller is called again, as a sidecar does.
        while driver.delete(&volume.volume_id, &ON).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Took::since(begin)
    };
    let going = async {
        let mut told = Instant::now();
        loop {
            // Even a look at the folder itself would keep the server busy.
            let left = server::inodes().saturating_sub(before);
            if left == 0 {
                return Took::since(begin);
            }
            if told.elapsed() >= TOLD {
                told = Instant::now();
                println!(
                    "{name}: {left} files are left after {:.0?}",
                    begin.elapsed()
                );
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let both = async { tokio::join!(deleting, going) };
    if let Ok((answered, gone)) = tokio::time::timeout(patience, both).await {
        (measured.answered, measured.gone) = (answered, gone);
    }
    let left = server::inodes().saturating_sub(before);
    let deleted = files()
        .saturating_sub(usize::try_from(left).unwrap())
        .max(1) as f64;
    measured.requests = (server::requests() - requests) as f64 / deleted;
    println!(
        "{name}: a tree's deletion answered after {} s, gone after {} s ({left} left), {:.2} requests \
         for each file, processors {:.0} % busy",
        measured.answered,
        measured.gone,
        measured.requests,
        busy.until_now() * 100.0
    );
}

/// What processors have done so far, in ticks.
struct Busy {
    work: u64,
    all: u64,
}

fn busy() -> Busy {
    let told = fs::read_to_string("/proc/stat").unwrap();
    let ticks = told.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<u64> = ticks.map(|ticks| ticks.parse().unwrap()).collect();
    let all = ticks.iter().take(8).sum();
    // Idle, and waiting for a disk.
    let idle: u64 = ticks[3..5].iter().sum();
    Busy {
        work: all - idle,
        all,
    }
}

impl Busy {
    /// How much of their time they had work since.
    fn until_now(&self) -> f64 {
        let now = busy();
        (now.work - self.work) as f64 / (now.all - self.all).max(1) as f64
    }
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

/// Memory of a process and its children in MiB. By `Pss:` what they share counts once, by `Rss:` each
/// time.
fn memory(process: u32, kind: &str) -> f64 {
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
        let share = rollup.lines().find_map(|line| line.strip_prefix(kind));
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
    row(
        "a tree of files: requests for each",
        ours.requests,
        theirs.requests,
        false,
    );
    row(
        "memory idle, MiB (RSS)",
        ours.idle_rss,
        theirs.idle_rss,
        false,
    );
    row("memory idle, MiB (PSS)", ours.idle, theirs.idle, false);
    row("memory at most, MiB (PSS)", ours.peak, theirs.peak, false);
}
