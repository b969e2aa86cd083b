//! fio through a volume against fio on the file system that the volume's pool is on.
//!
//! Both have the same type of file system, and files of the same size that are written once before
//! anything is measured: a block that is written for the first time costs an allocation, in a thin
//! volume two, and that is not what is asked here. Then both are measured in turns, with direct I/O and,
//! as most programs do it, through the page cache, with a flush after every 256 writes.
//!
//! A loop device hands each request to a thread of the kernel. That takes time of a processor, not of
//! the disk: so how busy the processors were is printed as well. Where the plain file keeps them busy
//! already, it is they who are compared. The median time of a request tells what the hand-over adds to
//! each, and says so on a busy machine, too.

use std::path::Path;
use std::process::Command;

use orlop_host::MountTable;

use crate::Plan;
use crate::served::Served;

const GIB: i64 = 1 << 30;
const ROUNDS: usize = 5;

/// What is run: fio's name for it, the block size and how requests reach the disk.
const JOBS: [(&str, &str, Way); 10] = [
    ("write", "1M", Way::Direct(8)),
    ("read", "1M", Way::Direct(8)),
    ("randwrite", "4k", Way::Cached),
    ("randread", "4k", Way::Cached),
    ("randwrite", "4k", Way::Direct(1)),
    ("randread", "4k", Way::Direct(1)),
    ("randwrite", "4k", Way::Direct(8)),
    ("randread", "4k", Way::Direct(8)),
    ("randwrite", "4k", Way::Direct(32)),
    ("randread", "4k", Way::Direct(32)),
];

/// How requests reach the disk.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Past the page cache, so many at a time.
    Direct(u32),
    /// Through the page cache, one after the other, and flushed now and then.
    Cached,
}

impl Way {
    fn words(self) -> Vec<String> {
        match self {
            Self::Direct(depth) => vec![
                "--direct=1".to_owned(),
                "--ioengine=libaio".to_owned(),
                format!("--iodepth={depth}"),
            ],
            Self::Cached => ["--direct=0", "--ioengine=psync", "--fsync=256"]
                .map(str::to_owned)
                .to_vec(),
        }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Direct(depth) => f.pad(&format!("direct {depth}")),
            Self::Cached => f.pad("cached"),
        }
    }
}

/// The file system types that volumes can have, too.
const SAME: [&str; 3] = ["ext4", "xfs", "btrfs"];

pub(crate) async fn run(plan: &Plan) -> bool {
    let served = Served::start(&plan.dir, None);
    let below = file_system(&served.pool);
    let inside = SAME.into_iter().find(|it| *it == below).unwrap_or("ext4");
    let id = served.create("fio", 3 * GIB, None).await;
    let target = served.publish(&id, inside).await;
    let plain = served.path("plain");
    std::fs::create_dir(&plain).expect("a folder");
    for folder in [&plain, &target] {
        lay_out(Path::new(folder));
    }
    println!("an {inside} volume against a file on the pool's {below}, which its image is on, too");
    println!(
        "{:10} {:>5} {:>9} {:>11} {:>11} {:>7} {:>10} {:>10} {:>11} {:>11}",
        "job",
        "block",
        "way",
        "plain MB/s",
        "volume MB/s",
        "ratio",
        "plain µs",
        "volume µs",
        "plain busy",
        "volume busy"
    );
    for (job, block, way) in JOBS {
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        // In turns, so that a disk that changes its mood does so to both.
        for _ in 0..ROUNDS {
            direct.push(measure(Path::new(&plain), job, block, way, plan.seconds));
            through.push(measure(Path::new(&target), job, block, way, plan.seconds));
        }
        let (direct, through) = (median(direct), median(through));
        println!(
            "{job:10} {block:>5} {way:>9} {:>11.1} {:>11.1} {:>7.3} {:>10.1} {:>10.1} {:>10.0}% {:>10.0}%",
            direct.rate,
            through.rate,
            through.rate / direct.rate,
            direct.request,
            through.request,
            direct.busy * 100.0,
            through.busy * 100.0
        );
    }
    served.unpublish(&id).await;
    served.delete(&id).await;
    served.leftovers().is_empty()
}

/// The type of the file system that a folder is on.
fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().expect("a path");
    let table = MountTable::read().expect("mounts");
    let holding = table.iter().filter(|it| folder.starts_with(&it.point));
    let closest = holding.max_by_key(|it| it.point.as_os_str().len());
    closest.map_or_else(String::new, |it| it.fs_type.to_string_lossy().into_owned())
}

/// What one run of fio came to.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Megabytes per second.
    rate: f64,
    /// Microseconds that half of the requests took at most.
    request: f64,
    /// How busy the machine's processors were meanwhile, from 0 to 1.
    busy: f64,
}

/// The file with all its blocks, each written once.
fn lay_out(folder: &Path) {
    let mut words = Way::Direct(8).words();
    words.extend(["--rw=write", "--bs=1M", "--end_fsync=1"].map(str::to_owned));
    fio(folder, &words);
}

fn measure(folder: &Path, job: &str, block: &str, way: Way, seconds: u32) -> Run {
    let before = Processors::read();
    let mut words = way.words();
    words.extend([
        "--time_based".to_owned(),
        format!("--rw={job}"),
        format!("--bs={block}"),
        format!("--runtime={seconds}"),
    ]);
    let report = fio(folder, &words);
    let busy = Processors::read().busy_since(&before);
    let side = if job.ends_with("write") {
        "write"
    } else {
        "read"
    };
    let told = &report["jobs"][0][side];
    let rate = told["bw_bytes"].as_f64().expect("a rate") / 1e6;
    let request = &told["clat_ns"]["percentile"]["50.000000"];
    let request = request.as_f64().expect("a time") / 1e3;
    Run {
        rate,
        request,
        busy,
    }
}

fn fio(folder: &Path, words: &[String]) -> serde_json::Value {
    let output = Command::new("/usr/bin/fio")
        .args(["--name=bench", "--size=2G"])
        .args(["--output-format=json", "--randrepeat=1", "--fallocate=none"])
        .arg(format!("--filename={}/fio.data", folder.display()))
        .args(words)
        .output()
        .expect("fio, from the package of its name");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("fio's report")
}

/// The run in the middle, by its rate.
fn median(mut runs: Vec<Run>) -> Run {
    runs.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    runs[runs.len() / 2]
}

/// What the processors did since the machine started.
struct Processors {
    idle: f64,
    all: f64,
}

impl Processors {
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/stat").expect("the kernel's counters");
        let first = text.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = first
            .split_whitespace()
            .skip(1)
            .take(8)
            .filter_map(|word| word.parse().ok())
            .collect();
        // Idle, and idle while something waits for a disk.
        let idle = ticks.iter().skip(3).take(2).sum();
        Self {
            idle,
            all: ticks.iter().sum(),
        }
    }

    fn busy_since(&self, before: &Self) -> f64 {
        let all = (self.all - before.all).max(1.0);
        1.0 - (self.idle - before.idle) / all
    }
}
