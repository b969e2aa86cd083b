//! fio through a volume against fio on the file system that the volume's pool is on.

use std::path::Path;
use std::process::Command;

use crate::Plan;
use crate::served::Served;

const GIB: i64 = 1 << 30;
const ROUNDS: usize = 5;

/// What is run: fio's name for it, the block size, the depth, and whether bytes or operations count.
const JOBS: [(&str, &str, u32); 4] = [
    ("write", "1M", 8),
    ("read", "1M", 8),
    ("randwrite", "4k", 32),
    ("randread", "4k", 32),
];

pub(crate) async fn run(plan: &Plan) -> bool {
    let served = Served::start(&plan.dir, None);
    let id = served.create("fio", 3 * GIB, None).await;
    let target = served.publish(&id, "xfs").await;
    let plain = served.path("plain");
    std::fs::create_dir(&plain).expect("a folder");
    println!(
        "{:10} {:>14} {:>14} {:>7}",
        "job", "plain MB/s", "volume MB/s", "ratio"
    );
    for (job, block, depth) in JOBS {
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        // In turns, so that a disk that changes its mood does so to both.
        for _ in 0..ROUNDS {
            direct.push(measure(Path::new(&plain), job, block, depth, plan.seconds));
            through.push(measure(Path::new(&target), job, block, depth, plan.seconds));
        }
        let (direct, through) = (median(direct), median(through));
        println!(
            "{job:10} {direct:>14.1} {through:>14.1} {:>7.3}",
            through / direct
        );
    }
    served.unpublish(&id).await;
    served.delete(&id).await;
    served.leftovers().is_empty()
}

/// Megabytes per second.
fn measure(folder: &Path, job: &str, block: &str, depth: u32, seconds: u32) -> f64 {
    let output = Command::new("/usr/bin/fio")
        .args([
            "--name=bench",
            "--direct=1",
            "--ioengine=libaio",
            "--size=2G",
        ])
        .args([
            "--output-format=json",
            "--time_based",
            "--randrepeat=1",
            "--fallocate=none",
        ])
        .arg(format!("--filename={}/fio.data", folder.display()))
        .arg(format!("--rw={job}"))
        .arg(format!("--bs={block}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={seconds}"))
        .output()
        .expect("fio, from the package of its name");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("fio's report");
    let side = if job.ends_with("write") {
        "write"
    } else {
        "read"
    };
    report["jobs"][0][side]["bw_bytes"]
        .as_f64()
        .expect("a rate")
        / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
