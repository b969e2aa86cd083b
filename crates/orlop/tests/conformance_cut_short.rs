//! `orlop conformance` that is cut short, by Ctrl-C or by the driver's end: what it says, how it
//! ends, and that nothing is left.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

/// No wait in a test is longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Cases that begin with the controller's; enough of them for a driver to be killed among them, and
/// none about free space, which others on this machine change.
const CONTROLLER: [&str; 6] = [
    "--focus", "create.", "--focus", "names.", "--focus", "delete.",
];

/// Waits for something to hold; says whether it does.
fn becomes(mut holds: impl FnMut() -> bool) -> bool {
    let ends = Instant::now() + PATIENCE;
    while Instant::now() < ends {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    holds()
}

/// A real driver with a pool of its own. Whatever a test does, its end takes everything away.
struct Ground {
    folder: tempfile::TempDir,
    driver: Child,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pool", "paths"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let driver = Command::new("/bin/sh")
            .args(["-c", &format!("exec {}", driver_line(folder.path()))])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let ground = Self { folder, driver };
        assert!(becomes(|| ground.path("csi.sock").exists()), "it listens");
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A run that has just shown its first case.
    fn run(&self, arguments: &[&str]) -> Run {
        let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .arg("conformance")
            .arg("--endpoint")
            .arg(format!("unix://{}", self.path("csi.sock").display()))
            .arg("--staging-dir")
            .arg(self.path("paths"))
            .arg("--target-dir")
            .arg(self.path("paths"))
            .arg("--json")
            .arg(self.path("report.json"))
            .args(["--test-volume-size", "67108864"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        // What it needs comes first, then case by case.
        while !said.contains('✓') && out.read_line(&mut said).unwrap() > 0 {}
        let rest = thread::spawn(move || {
            out.read_to_string(&mut said).unwrap();
            said
        });
        Run { child, rest }
    }

    fn kill_driver(&mut self) {
        self.driver.kill().unwrap();
        self.driver.wait().unwrap();
    }

    fn report(&self) -> Value {
        let text = fs::read_to_string(self.path("report.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Mounts, attached images, files of volumes, folders of the run.
    fn leftovers(&self) -> Vec<String> {
        let mut found = mounts_below(self.folder.path());
        found.extend(loops_below(self.folder.path()));
        for place in ["paths", "pool/volumes", "pool/snapshots"] {
            let entries = fs::read_dir(self.path(place)).into_iter().flatten();
            found.extend(entries.map(|entry| entry.unwrap().path().display().to_string()));
        }
        found
    }
}

/// What starts the driver; the process is the driver's own.
fn driver_line(folder: &Path) -> String {
    let (orlop, folder) = (env!("CARGO_BIN_EXE_orlop"), folder.display());
    format!(
        "'{orlop}' driver local --endpoint 'unix://{folder}/csi.sock' --nodeid here \
         --pool '{folder}/pool' --reserve 0 --overcommit 100 --kubelet-dir /"
    )
}

fn mounts_below(folder: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let below = points.filter(|point| Path::new(point).starts_with(folder));
    below.map(str::to_owned).collect()
}

/// Loop devices whose file is below.
fn loops_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for device in fs::read_dir("/sys/block").unwrap().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(&file).starts_with(folder) {
            found.push(format!("/dev/{}", device.file_name().display()));
        }
    }
    found
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let second = fs::read_to_string(self.path("second.pid")).unwrap_or_default();
        if let Some(pid) = second.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        for point in mounts_below(self.folder.path()).iter().rev() {
            let _ = Command::new("umount").args(["-l", point]).status();
        }
        for device in loops_below(self.folder.path()) {
            let _ = Command::new("losetup").args(["-d", &device]).status();
        }
    }
}

/// A run of the suite under way.
struct Run {
    child: Child,
    rest: thread::JoinHandle<String>,
}

impl Run {
    /// Its exit code and all that it printed.
    fn end(mut self) -> (Option<i32>, String) {
        let mut status = None;
        let ended = becomes(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        if !ended {
            let _ = self.child.kill();
        }
        let said = self.rest.join().unwrap();
        assert!(ended, "it did not end: {said}");
        (status.unwrap().code(), said)
    }
}

/// The names of the cases with this verdict.
fn with(report: &Value, verdict: &str) -> Vec<String> {
    let cases = report["cases"].as_array().unwrap().iter();
    let chosen = cases.filter(|case| case["verdict"] == verdict);
    chosen
        .map(|case| case["id"].as_str().unwrap().to_owned())
        .collect()
}

fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("skipped: volumes are mounted, which takes root");
    }
    root
}

#[test]
fn ctrl_c_ends_a_run_with_130_a_report_of_what_was_seen_and_nothing_left() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let run = ground.run(&["--focus", "data.", "--focus", "publish."]);
    let pid = Pid::from_raw(i32::try_from(run.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let (code, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("stopped before its end"), "{said}");
    assert!(!said.contains("Left behind"), "{said}");

    let report = ground.report();
    assert_eq!(report["stopped"], true, "{report}");
    assert!(!with(&report, "passed").is_empty(), "{report}");
    assert!(!with(&report, "not_run").is_empty(), "{report}");
    assert!(with(&report, "failed").is_empty(), "{report}");
    assert!(
        becomes(|| ground.leftovers().is_empty()),
        "{:?}\n{said}",
        ground.leftovers()
    );
}

#[test]
fn a_driver_that_dies_for_good_fails_one_case_and_the_rest_is_not_run() {
    if !is_root() {
        return;
    }
    let mut ground = Ground::new();
    let junit = ground.path("report.xml");
    let mut arguments = CONTROLLER.to_vec();
    arguments.extend(["--junit", junit.to_str().unwrap()]);
    let run = ground.run(&arguments);
    ground.kill_driver();
    let (code, said) = run.end();
    assert_eq!(code, Some(1), "{said}");
    // Long messages are wrapped.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the driver went away: "), "{said}");
    assert!(said.contains("it did not come back"), "{said}");
    assert!(said.contains("does not conform"), "{said}");

    let report = ground.report();
    let (failed, not_run) = (with(&report, "failed"), with(&report, "not_run"));
    assert_eq!(failed.len(), 1, "{failed:?}\n{said}");
    assert!(!not_run.is_empty(), "{report}");
    let junit = fs::read_to_string(junit).unwrap();
    assert_eq!(junit.matches("message=\"not run: ").count(), not_run.len());
}

#[test]
fn a_driver_that_dies_is_started_again_by_the_restart_command() {
    if !is_root() {
        return;
    }
    let mut ground = Ground::new();
    let restart = format!(
        "{} & echo $! > '{}'",
        driver_line(ground.folder.path()),
        ground.path("second.pid").display()
    );
    let mut arguments = CONTROLLER.to_vec();
    arguments.extend(["--restart-command", &restart]);
    let run = ground.run(&arguments);
    ground.kill_driver();
    let (code, said) = run.end();
    assert_eq!(code, Some(1), "{said}");
    // How long the reason is, and so where lines end, depends on what the call was at.
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words.join(" ").contains("it is there again"), "{said}");

    let report = ground.report();
    assert_eq!(with(&report, "failed").len(), 1, "{said}");
    assert!(with(&report, "not_run").is_empty(), "{said}");
    assert!(
        becomes(|| ground.leftovers().is_empty()),
        "{:?}\n{said}",
        ground.leftovers()
    );
}
