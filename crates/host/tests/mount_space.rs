//! Mount namespaces of threads, for real. Needs root.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use orlop_host::mount_space;

const LONG: Duration = Duration::from_secs(20);

fn run(program: &str, words: &[&str]) {
    let status = Command::new(program).args(words).status();
    let status = status.expect("the program is there");
    assert!(status.success(), "{program} {words:?}");
}

/// Whether the calling thread sees a mount at a path.
fn is_seen(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo").expect("a table");
    let path = path.to_str().expect("a plain path");
    table
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(path))
}

/// Mounts that go when it does.
struct Mounted<'a>(&'a str);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-R", "-l", self.0]).status();
    }
}

#[test]
fn a_thread_that_left_keeps_no_mount_that_others_take_away_and_shows_none_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let outer = folder.path().to_str().expect("a plain path");
    run("mount", &["-t", "tmpfs", "orlop-test", outer]);
    let mounted = Mounted(outer);
    run("mount", &["--make-shared", outer]);
    let [pods, work] = ["pods", "work"].map(|name| folder.path().join(name));
    for place in [&pods, &work] {
        std::fs::create_dir(place).expect("a folder");
    }
    let pods_text = pods.to_str().expect("a plain path");
    run("mount", &["-t", "tmpfs", "orlop-test", pods_text]);

    let (tell, told) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    let (there, here) = (pods.clone(), work.clone());
    let thread = thread::spawn(move || {
        mount_space::leave().expect("it can leave");
        assert!(is_seen(&there), "the copy has all mounts");
        let here_text = here.to_str().expect("a plain path");
        // A child of this thread has its mounts.
        run("mount", &["-t", "tmpfs", "orlop-test", here_text]);
        assert!(is_seen(&here));
        tell.send(()).expect("somebody listens");
        wait.recv_timeout(LONG).expect("it is told to go on");
        assert!(is_seen(&here), "its own stays");
        is_seen(&there)
    });
    told.recv_timeout(LONG).expect("it has left");
    assert!(!is_seen(&work), "what it mounts is its own");
    run("umount", &[pods_text]);
    go_on.send(()).expect("it waits");
    let kept = thread.join().expect("it ends well");
    assert!(!kept, "what was taken away is gone for it, too");
    drop(mounted);
}
