use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use super::*;
use crate::testing::ScratchFs;

const LONG: Duration = Duration::from_secs(60);
const AT: &str = "ORLOP_TEST_FREEZE_AT";

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

/// Thaws even if the test fails, so that its file system can be unmounted.
struct Thawed(PathBuf);

impl Drop for Thawed {
    fn drop(&mut self) {
        if let Ok(file) = File::open(&self.0) {
            let _ = thaw_leftover(&file);
        }
    }
}

/// A write that goes on behind the test's back; the receiver hears when it is done.
fn writer(path: PathBuf) -> (mpsc::Receiver<()>, std::thread::JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        std::fs::write(path.join("written"), "x").unwrap();
        let _ = sender.send(());
    });
    (receiver, thread)
}

#[test]
fn nothing_is_written_while_frozen_and_all_goes_on_after() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(one) = ScratchFs::new(kind, 320 << 20) else {
            return;
        };
        let _thawed = Thawed(one.path());
        let frozen = Frozen::freeze(vec![open(&one.path())], LONG).unwrap();
        let (done, thread) = writer(one.path());
        assert!(
            done.recv_timeout(Duration::from_millis(100)).is_err(),
            "{kind}"
        );
        frozen.thaw().unwrap();
        done.recv_timeout(LONG).unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn a_freeze_that_lasts_too_long_ends_and_says_so() {
    let Some(one) = ScratchFs::new("ext4", 64 << 20) else {
        return;
    };
    let _thawed = Thawed(one.path());
    let frozen = Frozen::freeze(vec![open(&one.path())], Duration::from_millis(50)).unwrap();
    let (done, thread) = writer(one.path());
    done.recv_timeout(LONG).unwrap();
    thread.join().unwrap();
    assert!(matches!(frozen.thaw(), Err(ThawError::Early)));
}

#[test]
fn a_file_system_that_somebody_froze_is_left_frozen_and_the_others_thaw() {
    let (Some(one), Some(two)) = (
        ScratchFs::new("ext4", 64 << 20),
        ScratchFs::new("xfs", 320 << 20),
    ) else {
        return;
    };
    let (_one, _two) = (Thawed(one.path()), Thawed(two.path()));
    let theirs = Frozen::freeze(vec![open(&two.path())], LONG).unwrap();
    let error = Frozen::freeze(vec![open(&one.path()), open(&two.path())], LONG).unwrap_err();
    assert!(
        matches!(error, FreezeError::Taken { index: 1 }),
        "{error:?}"
    );
    std::fs::write(one.path().join("f"), "x").unwrap();
    theirs.thaw().unwrap();
}

#[test]
fn many_are_frozen_at_once_and_one_that_is_given_twice_is_refused() {
    let disks: Option<Vec<_>> = (0..4).map(|_| ScratchFs::new("ext4", 64 << 20)).collect();
    let Some(disks) = disks else { return };
    let _thawed: Vec<_> = disks.iter().map(|disk| Thawed(disk.path())).collect();
    let all = || disks.iter().map(|disk| open(&disk.path()));
    let frozen = Frozen::freeze(all().collect(), LONG).unwrap();
    let writers: Vec<_> = disks.iter().map(|disk| writer(disk.path())).collect();
    for (done, _) in &writers {
        assert!(done.recv_timeout(Duration::from_millis(20)).is_err());
    }
    frozen.thaw().unwrap();
    for (done, thread) in writers {
        done.recv_timeout(LONG).unwrap();
        thread.join().unwrap();
    }
    let twice = all().chain([open(&disks[0].path())]).collect();
    let error = Frozen::freeze(twice, LONG).unwrap_err();
    assert!(
        matches!(error, FreezeError::Taken { index: 0 | 4 }),
        "{error:?}"
    );
    for disk in &disks {
        std::fs::write(disk.path().join("f"), "x").unwrap();
    }
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn freezes_and_waits_if_told_to() {
    let Ok(path) = std::env::var(AT) else { return };
    let _frozen = Frozen::freeze(vec![open(Path::new(&path))], LONG).unwrap();
    println!("\nfrozen");
    std::thread::sleep(LONG);
}

#[test]
fn a_file_system_thaws_when_its_freezer_is_killed() {
    let Some(one) = ScratchFs::new("xfs", 320 << 20) else {
        return;
    };
    let _thawed = Thawed(one.path());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["freezes_and_waits_if_told_to", "--nocapture"])
        .env(AT, one.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).any(|line| line == "frozen");
    let (done, thread) = writer(one.path());
    let held = done.recv_timeout(Duration::from_millis(100)).is_err();
    let killed = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(told && held);
    done.recv_timeout(LONG / 2).unwrap();
    assert!(killed.elapsed() < LONG / 2, "not before the time was up");
    thread.join().unwrap();
}
