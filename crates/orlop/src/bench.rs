//! `orlop bench`: how long a pod waits for its volume, step by step, and what idling costs.

use crate::voice::say;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tokio::{process::Command, sync::mpsc, time::timeout};

use crate::{
    cli,
    demo::millis,
    life::{Happening, Step},
    up::{Admission, Options, System},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The legs of the way; each ends with its step.
const LEGS: [(&str, Step); 8] = [
    ("kubectl start to claim stored", Step::ClaimCreated),
    ("… to node selected", Step::NodeSelected),
    ("… to volume recorded", Step::VolumeCreated),
    ("… to claim bound", Step::Bound),
    ("… to pod placed", Step::PodPlaced),
    ("… to attached", Step::Attached),
    (
        "… to published",
        Step::Call(
            orlop_csi::Method::NodePublishVolume,
            crate::life::Answer::Ok,
        ),
    ),
    ("… to process running", Step::PodRunning),
];

pub(crate) async fn run(args: cli::Bench) -> Result<()> {
    ensure!(args.runs > 0, "--runs must be at least 1");
    let folder = tempfile::Builder::new().prefix("orlop-bench-").tempdir()?;
    let options = Options {
        data_dir: folder.path().to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        nodes: 1,
        driver: None,
        cri: None,
        admission: Admission {
            service_accounts: true,
        },
    };
    let system = System::start(options, |_, _| {}).await?;
    let outcome = measure(&system, folder.path(), &args).await;
    system.stop().await?;
    outcome
}

async fn measure(system: &System, folder: &Path, args: &cli::Bench) -> Result<()> {
    let mut news = system.chronicle.listen();
    let mut lives = Vec::new();
    for n in 0..args.runs {
        lives.push(life(system, folder, n, &mut news).await?);
        eprint!("\r{}/{} lives", n + 1, args.runs);
    }
    eprintln!();
    report(&lives);
    if args.idle > 0 {
        idle(Duration::from_secs(args.idle)).await?;
    }
    Ok(())
}

/// One life: when each leg ended, counted from the start of kubectl.
async fn life(
    system: &System,
    folder: &Path,
    n: usize,
    news: &mut mpsc::UnboundedReceiver<Happening>,
) -> Result<BTreeMap<Step, Duration>> {
    let file = folder.join("life.yaml");
    fs::write(&file, manifest(n))?;
    let file = file.to_str().context("the folder's name is no text")?;
    let started = Instant::now();
    let mut apply = kubectl(system, &["apply", "-f", file])?;
    let mut ends = BTreeMap::new();
    while !ends.contains_key(&Step::PodRunning) {
        let happening = next(news).await?;
        ends.entry(happening.step)
            .or_insert(happening.at.saturating_duration_since(started));
    }
    ensure!(apply.wait().await?.success(), "kubectl apply failed");
    let mut delete = kubectl(system, &["delete", "-f", file, "--wait=false"])?;
    while next(news).await?.step != Step::VolumeGone {}
    ensure!(delete.wait().await?.success(), "kubectl delete failed");
    Ok(ends)
}

async fn next(news: &mut mpsc::UnboundedReceiver<Happening>) -> Result<Happening> {
    match timeout(PATIENCE, news.recv()).await {
        Ok(Some(happening)) => Ok(happening),
        Ok(None) => bail!("the stack has stopped"),
        Err(_) => bail!("nothing happened for {} s", PATIENCE.as_secs()),
    }
}

fn kubectl(system: &System, arguments: &[&str]) -> Result<tokio::process::Child> {
    Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(system.layout.kubeconfig())
        .args(arguments)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("could not start kubectl: run scripts/setup")
}

fn report(lives: &[BTreeMap<Step, Duration>]) {
    let whole = |life: &BTreeMap<Step, Duration>| life.get(&Step::PodRunning).copied();
    let totals: Vec<Duration> = lives.iter().filter_map(whole).collect();
    say(&format!(
        "kubectl apply to process running, {} runs",
        lives.len()
    ));
    say(&format!(
        "  p50 {}   p99 {}   min {}   max {}",
        millis(percentile(&totals, 50)),
        millis(percentile(&totals, 99)),
        millis(percentile(&totals, 0)),
        millis(percentile(&totals, 100)),
    ));
    let mut before = Duration::ZERO;
    let median = percentile(&totals, 50);
    for (name, step) in LEGS {
        let ends: Vec<Duration> = lives.iter().filter_map(|l| l.get(&step).copied()).collect();
        if ends.is_empty() {
            continue;
        }
        let end = percentile(&ends, 50);
        let leg = end.saturating_sub(before);
        let share = 100.0 * leg.as_secs_f64() / median.as_secs_f64().max(f64::MIN_POSITIVE);
        say(&format!("  {name:<32} {:>9}  {share:>4.0} %", millis(leg)));
        before = before.max(end);
    }
}

fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last * percent).div_ceil(100))
        .copied()
        .unwrap_or_default()
}

/// Watches this process do nothing.
async fn idle(span: Duration) -> Result<()> {
    // Let the last life's timers run out first.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = cpu()?;
    tokio::time::sleep(span).await;
    let used = cpu()?.saturating_sub(before);
    say(&format!(
        "idle for {} s: CPU {}, RSS {:.1} MiB",
        span.as_secs(),
        millis(used),
        rss()?
    ));
    Ok(())
}

/// The CPU time of this process and all its threads.
fn cpu() -> Result<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(
        u64::try_from(time.tv_sec)?,
        u32::try_from(time.tv_nsec)?,
    ))
}

/// The resident memory of this process, in MiB.
fn rss() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|l| l.split_whitespace().next())
        .and_then(|k| k.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0)
        .context("/proc/self/status has no VmRSS")
}

fn manifest(n: usize) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: bench-{n}
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 1Gi
---
apiVersion: v1
kind: Pod
metadata:
  name: bench-{n}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      command: [sleep, infinity]
      volumeMounts:
        - name: data
          mountPath: /data
  volumes:
    - name: data
      persistentVolumeClaim:
        claimName: bench-{n}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<Duration> = [5, 1, 3, 2, 4].map(Duration::from_secs).to_vec();
        assert_eq!(percentile(&values, 0).as_secs(), 1);
        assert_eq!(percentile(&values, 50).as_secs(), 3);
        assert_eq!(percentile(&values, 99).as_secs(), 5);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
