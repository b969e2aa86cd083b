//! The API server on a disk that is full, and on one that lost something.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use orlop_host::testing::ScratchFs;
use support::{Machine, PATIENCE};

/// Takes all room that there is.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("ballast");
    let mut file = fs::File::create(&path).unwrap();
    for size in [1 << 20, 4 << 10, 1] {
        let piece = vec![7; size];
        while file.write_all(&piece).is_ok() {}
    }
    file.sync_all().unwrap();
    path
}

/// A map of some size, and whether it could be made.
fn create(machine: &Machine, name: &str) -> Result<(), String> {
    let text = "x".repeat(250 << 10);
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{x: {text}}}\n"
    );
    // Not on the disk that is full.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), map).unwrap();
    let made = machine.try_kubectl(&["create", "-f", file.path().to_str().unwrap()]);
    match made.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
    }
}

fn readiness(machine: &Machine) -> Result<String, String> {
    let asked = machine.try_kubectl(&["get", "--raw", "/readyz?verbose"]);
    match asked.status.success() {
        true => Ok(String::from_utf8_lossy(&asked.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&asked.stderr).into_owned()),
    }
}

fn wait_ready(machine: &Machine) {
    let started = Instant::now();
    while let Err(why) = readiness(machine) {
        assert!(
            started.elapsed() < PATIENCE,
            "{why}\n{}",
            machine.transcript()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Creates until there is no room, and gives the names that were taken.
fn create_all(machine: &Machine, prefix: &str) -> Vec<String> {
    let mut made = Vec::new();
    loop {
        assert!(made.len() < 100, "there is no end of it");
        let name = format!("{prefix}-{}", made.len());
        match create(machine, &name) {
            Ok(()) => made.push(name),
            Err(refusal) => {
                assert!(refusal.contains("the store has no room"), "{refusal}");
                assert!(refusal.contains("InsufficientStorage"), "{refusal}");
                return made;
            }
        }
    }
}

#[test]
fn on_a_full_disk_everything_is_read_and_deleted_and_room_is_taken_as_it_comes() {
    needs_a_machine!();
    let Some(disk) = ScratchFs::new("ext4", 24 << 20) else {
        return;
    };
    let mut machine = Machine::command_in(&disk.path(), "apiserver", &[]);
    machine.start();
    for name in ["a", "b", "c", "d", "e", "f"] {
        create(&machine, name).unwrap();
    }
    let ballast = fill(&disk.path());
    let made = create_all(&machine, "first");
    let why = readiness(&machine).unwrap_err();
    assert!(
        why.contains("[-]storage failed: the store has no room"),
        "{why}"
    );
    machine.kubectl(&["get", "--raw", "/livez"]);

    // It starts there as well, and what was acknowledged is there.
    machine.crash();
    machine.start();
    let found = machine.kubectl(&["get", "configmaps", "-o", "name"]);
    for name in made.iter().map(String::as_str).chain(["a", "f"]) {
        assert!(found.contains(&format!("configmap/{name}\n")), "{found}");
    }
    assert!(create(&machine, "after-restart").is_err());

    // What is deleted makes room for others.
    machine.kubectl(&["delete", "configmap", "a", "b", "c", "d", "e"]);
    wait_ready(&machine);
    create(&machine, "again").unwrap();

    // And so does what others give up.
    create_all(&machine, "second");
    fs::remove_file(ballast).unwrap();
    wait_ready(&machine);
    create(&machine, "at-last").unwrap();
    machine.stop();
}

/// A folder by a shorter name: sockets are below it.
struct Short(tempfile::TempDir);

impl Short {
    fn of(folder: &Path) -> Self {
        let short = tempfile::Builder::new().prefix("f").tempdir().unwrap();
        let mut mount = Command::new("/usr/bin/mount");
        let mounted = mount.arg("--bind").arg(folder).arg(short.path()).status();
        assert!(mounted.unwrap().success());
        Self(short)
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        let _ = Command::new("/usr/bin/umount").arg(self.0.path()).status();
    }
}

#[test]
fn the_whole_stack_starts_on_a_full_disk_so_that_objects_can_be_deleted() {
    needs_a_machine!();
    let Some(disk) = ScratchFs::new("ext4", 64 << 20) else {
        return;
    };
    let short = Short::of(&disk.path());
    let mut machine = Machine::command_in(short.0.path(), "up", &[]);
    machine.start();
    for name in ["a", "b", "c", "d", "e", "f"] {
        create(&machine, name).unwrap();
    }
    let ballast = fill(&disk.path());
    create_all(&machine, "first");
    machine.crash();

    machine.start();
    let why = create(&machine, "after-restart").unwrap_err();
    assert!(why.contains("the store has no room"), "{why}");
    machine.kubectl(&["delete", "configmap", "a", "b", "c", "d", "e"]);
    wait_ready(&machine);
    create(&machine, "again").unwrap();
    fs::remove_file(ballast).unwrap();
    wait_ready(&machine);
    machine.stop();
}

/// The store's file, and how far something is in it.
fn log(machine: &Machine) -> (PathBuf, Vec<u8>, usize) {
    let entries = fs::read_dir(machine.path().join("store")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let path = paths.find(|path| path.extension().is_some_and(|extension| extension == "log"));
    let path = path.unwrap();
    let bytes = fs::read(&path).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    (path, bytes, last)
}

#[test]
fn a_spoilt_last_record_is_dropped_with_a_word_and_any_other_is_refused() {
    needs_a_machine!();
    let mut machine = Machine::command("apiserver", &[]);
    machine.start();
    machine.kubectl(&["create", "configmap", "kept", "--from-literal=a=b"]);
    machine.crash();
    let (path, mut bytes, last) = log(&machine);
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    machine.start();
    let said = machine.transcript();
    assert!(
        said.contains("the store's last record is not whole"),
        "{said}"
    );
    machine.kubectl(&["get", "namespace", "default"]);
    machine.stop();

    let (path, mut bytes, last) = log(&machine);
    bytes[last / 2] ^= 1;
    fs::write(&path, &bytes).unwrap();
    machine.launch();
    assert!(!machine.wait_ended().success());
    let started = Instant::now();
    while !machine.printed("is damaged at byte") || !machine.printed("orlop apiserver restore") {
        let said = machine.transcript();
        assert!(started.elapsed() < PATIENCE, "{said}");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fs::read(&path).unwrap(), bytes, "it is left as it was");
}
