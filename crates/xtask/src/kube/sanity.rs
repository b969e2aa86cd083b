//! csi-sanity on the local driver again and again, on pools of several kinds. It needs no cluster.
//!
//! Everything runs in namespaces of its own, so that whatever is left running or mounted goes with
//! its first process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::fitness::{build_all, build_orlop};

/// How long a driver may take to listen.
const START: Duration = Duration::from_secs(30);
/// How long one run may take.
const BOUND: Duration = Duration::from_secs(300);
/// A mounted ext4 grows only with a capability that root may lack; xfs grows everywhere, and has a
/// least size.
const VOLUME_BYTES: u64 = 320 << 20;
const GROWN_BYTES: u64 = 400 << 20;
/// So that it can be seen that no more are taken; no other spec needs as many.
const MOST_VOLUMES: &str = "8";
/// Thin, and never filled.
const DISK_BYTES: u64 = 12 << 30;

/// Runs csi-sanity so often on a pool of each kind.
pub(super) fn run(runs: u32, pools: &[String]) -> Result<ExitCode> {
    let Some(binaries) = build_all()? else {
        return Ok(ExitCode::SUCCESS);
    };
    let sanity = binaries.iter().find(|path| path.ends_with("csi-sanity"));
    let sanity = sanity.context("csi-sanity was not built")?;
    let status = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe()?)
        .args(["kube", "sanity-inside", "--runs", &runs.to_string()])
        .arg(build_orlop()?)
        .arg(sanity)
        .args(pools)
        .status()
        .context("could not run unshare")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The same, inside of the namespaces.
pub(super) fn inside(runs: u32, orlop: &Path, sanity: &Path, pools: &[String]) -> Result<ExitCode> {
    let mut failed = 0;
    for kind in pools {
        let folder = tempfile::tempdir()?;
        let ground = Ground::new(folder.path(), kind)?;
        let _driver = ground.driver(orlop)?;
        for run in 1..=runs {
            let begin = Instant::now();
            let outcome = ground.judge(sanity)?;
            let took = begin.elapsed().as_secs_f64();
            println!(
                "{kind:<6} {run:>3} of {runs}  {took:>6.1} s  {}",
                outcome.summary
            );
            if run == 1 {
                for line in &outcome.skipped {
                    println!("         skipped: {line}");
                }
            }
            for line in &outcome.failures {
                failed += 1;
                println!("         failed: {line}");
            }
        }
    }
    println!("{failed} specs failed");
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// What one run came to.
struct Outcome {
    summary: String,
    failures: Vec<String>,
    skipped: Vec<String>,
}

/// A disk of one kind, and the files around it.
struct Ground<'a> {
    folder: &'a Path,
}

impl<'a> Ground<'a> {
    fn new(folder: &'a Path, kind: &str) -> Result<Self> {
        let ground = Self { folder };
        let image = folder.join("disk.img");
        File::create(&image)?.set_len(DISK_BYTES)?;
        for name in ["disk", "kubelet"] {
            fs::create_dir(folder.join(name))?;
        }
        tool(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image))?;
        let mut mount = Command::new("mount");
        mount
            .args(["-o", "loop"])
            .arg(&image)
            .arg(folder.join("disk"));
        tool(&mut mount)?;
        fs::write(folder.join("class.yaml"), "fsType: xfs\n")?;
        fs::write(folder.join("mutable.yaml"), "readAheadKiB: \"256\"\n")?;
        Ok(ground)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts the driver, which ends when this is dropped.
    fn driver(&self, orlop: &Path) -> Result<Running> {
        let log = File::create(self.path("driver.log"))?;
        let child = Command::new(orlop)
            .args(["driver", "local", "--nodeid", "node-1"])
            .args(["--reserve", "0%", "--overcommit", "100"])
            .args(["--max-volumes", MOST_VOLUMES, "--endpoint"])
            .arg(format!("unix://{}", self.path("csi.sock").display()))
            .arg("--pool")
            .arg(self.path("disk/pool"))
            .arg("--kubelet-dir")
            .arg(self.path("kubelet"))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("could not start the driver")?;
        let driver = Running(child);
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.path("csi.sock")).is_err() {
            if begin.elapsed() > START {
                let said = fs::read_to_string(self.path("driver.log")).unwrap_or_default();
                bail!("the driver does not listen:\n{said}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(driver)
    }

    fn judge(&self, sanity: &Path) -> Result<Outcome> {
        let said = self.path("sanity.log");
        let file = File::create(&said)?;
        let flag = |name: &str, value: &str| format!("--csi.{name}={value}");
        let at = |name: &str| self.path(name).display().to_string();
        let child = Command::new(sanity)
            .args([
                flag("endpoint", &at("csi.sock")),
                flag("mountdir", &at("kubelet/mount")),
                flag("stagingdir", &at("kubelet/staging")),
                flag("testvolumesize", &VOLUME_BYTES.to_string()),
                flag("testvolumeexpandsize", &GROWN_BYTES.to_string()),
                flag("testvolumeparameters", &at("class.yaml")),
                flag("testvolumemutableparameters", &at("mutable.yaml")),
            ])
            .arg("--csi.testnodevolumeattachlimit")
            .args(["--ginkgo.no-color", "--ginkgo.v"])
            .stdout(file.try_clone()?)
            .stderr(file)
            .stdin(Stdio::null())
            .spawn()
            .context("could not start csi-sanity")?;
        let mut child = Running(child);
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.0.try_wait()? {
                break status;
            }
            ensure!(begin.elapsed() < BOUND, "csi-sanity does not end");
            std::thread::sleep(Duration::from_millis(50));
        };
        let said = fs::read_to_string(said)?;
        let lines = |mark: &str| {
            let marked = said.lines().filter_map(|it| it.trim().strip_prefix(mark));
            // What remains says why, or only where.
            let told = marked.filter(|it| !it.starts_with("in ["));
            let mut found: Vec<String> = told.map(str::to_owned).collect();
            found.sort();
            found.dedup();
            found
        };
        let summary = said.lines().rfind(|line| line.contains("Passed"));
        let mut failures = lines("[FAIL] ");
        if !status.success() && failures.is_empty() {
            failures.push(format!("csi-sanity ended with {status}"));
        }
        Ok(Outcome {
            summary: summary.unwrap_or("no summary").to_owned(),
            failures,
            skipped: lines("[SKIPPED] "),
        })
    }
}

impl Drop for Ground<'_> {
    fn drop(&mut self) {
        // Else the folder could not be removed; the namespace goes in any case.
        let _ = Command::new("umount").arg(self.path("disk")).status();
    }
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tool(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("could not run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(())
}
