//! Containers for real: namespaces, overlays, mounts, signals. Needs root.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use orlop_host::sandbox::log::{Line, Stream};
use orlop_host::sandbox::{
    Adopted, Below, ContainerSpec, Device, Ended, EnvVar, Exit, ExitReason, Launcher, Mount,
    Propagation, Running, ShimCommand, StateDir, User, Writable,
};

const LONG: Duration = Duration::from_secs(20);

/// A folder for one container, and the end of that container.
struct Place {
    folder: tempfile::TempDir,
    state: StateDir,
    launcher: Launcher,
}

impl Place {
    /// `None`, with the reason printed, where containers cannot run.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: containers need root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = StateDir::at(folder.path().join("state"));
        let shim = ShimCommand {
            program: PathBuf::from(env!("CARGO_BIN_EXE_container-shim")),
            args: Vec::new(),
        };
        Some(Self {
            folder,
            state,
            launcher: Launcher::new(shim),
        })
    }

    fn volume(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).expect("a volume's folder");
        path
    }

    async fn start(&self, spec: &ContainerSpec) -> Adopted {
        within(self.launcher.start(&self.state, spec))
            .await
            .expect("the shim runs")
    }

    async fn run(&self, spec: &ContainerSpec) -> Exit {
        match self.start(spec).await {
            Adopted::Running(running) => {
                match within(running.wait()).await.expect("it can be waited for") {
                    Ended::Exited(exit) => exit,
                    Ended::Lost => panic!("no exit record"),
                }
            }
            Adopted::Exited(exit) => exit,
            other => panic!("not started: {other:?}"),
        }
    }

    async fn running(&self, spec: &ContainerSpec) -> Running {
        match self.start(spec).await {
            Adopted::Running(running) => running,
            other => panic!("does not run: {other:?}, log {:?}", self.log()),
        }
    }

    fn log(&self) -> Vec<(Stream, String)> {
        let raw = fs::read(self.state.log()).unwrap_or_default();
        raw.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| Line::parse(line).expect("the CRI's format"))
            .map(|line| (line.stream, String::from_utf8_lossy(line.text).into_owned()))
            .collect()
    }

    fn output(&self) -> String {
        self.log()
            .into_iter()
            .map(|(_, text)| text + "\n")
            .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The folder may be gone only after its shim, whatever the test did.
        let record = fs::read(self.state.path().join("shim.json")).unwrap_or_default();
        let Ok(record) = serde_json::from_slice::<serde_json::Value>(&record) else {
            return;
        };
        let Some(pid) = record["shim"]["pid"].as_i64() else {
            return;
        };
        let lock = self.state.path().join("lock");
        let Ok(lock) = fs::File::open(lock) else {
            return;
        };
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap_or(0));
            if let Some(pid) = pid {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            let _ = rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive);
        }
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.expect("in time")
}

fn shell(script: &str) -> ContainerSpec {
    ContainerSpec {
        command: vec!["sh".into(), "-c".into(), script.into()],
        ..Default::default()
    }
}

fn mount(source: &Path, target: &str) -> Mount {
    Mount {
        volume: String::new(),
        source: source.to_owned(),
        sub_path: None,
        target: target.into(),
        access: Writable::ReadWrite,
        below: Below::AsItIs,
        propagation: Propagation::None,
    }
}

#[tokio::test]
async fn a_process_writes_into_its_volume_and_the_hosts_tree_stays_as_it_was() {
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    let mut spec =
        shell("echo hi > /orlop-test-data/f; echo gone > /etc/orlop-test; cat /orlop-test-data/f");
    spec.mounts = vec![mount(&volume, "/orlop-test-data")];
    let exit = place.run(&spec).await;
    assert_eq!(
        (exit.code, exit.reason),
        (0, ExitReason::Completed),
        "{}",
        place.output()
    );
    assert_eq!(place.output(), "hi\n");
    assert_eq!(
        fs::read_to_string(volume.join("f")).expect("the file"),
        "hi\n"
    );
    assert!(!Path::new("/orlop-test-data").exists());
    assert!(!Path::new("/etc/orlop-test").exists());
    assert!(exit.started_at.expect("it started") <= exit.finished_at);
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_as_a_shell_tells_them() {
    for (script, code, signal, reason) in [
        ("exit 0", 0, None, ExitReason::Completed),
        ("exit 7", 7, None, ExitReason::Error),
        ("kill -11 $$", 139, Some(11), ExitReason::Error),
    ] {
        let Some(place) = Place::new() else { return };
        let exit = place.run(&shell(script)).await;
        assert_eq!(
            (exit.code, exit.signal, exit.reason),
            (code, signal, reason),
            "{script}"
        );
    }
}

#[tokio::test]
async fn a_command_that_cannot_run_says_why_in_record_and_log() {
    let Some(place) = Place::new() else { return };
    let spec = ContainerSpec {
        command: vec!["no-such-program".into()],
        ..Default::default()
    };
    let exit = place.run(&spec).await;
    assert_eq!((exit.code, exit.reason), (127, ExitReason::StartError));
    assert!(exit.message.contains("no-such-program"), "{}", exit.message);
    assert!(
        place.output().contains("no-such-program"),
        "{}",
        place.output()
    );

    let Some(place) = Place::new() else { return };
    let exit = place
        .run(&ContainerSpec {
            command: vec!["/etc/passwd".into()],
            ..Default::default()
        })
        .await;
    assert_eq!((exit.code, exit.reason), (126, ExitReason::StartError));

    let Some(place) = Place::new() else { return };
    let mut spec = shell("true");
    spec.mounts = vec![mount(&place.folder.path().join("missing"), "/data")];
    let exit = place.run(&spec).await;
    assert_eq!(
        (exit.code, exit.reason),
        (128, ExitReason::ContainerCannotRun)
    );
    assert!(exit.message.contains("missing"), "{}", exit.message);
}

#[tokio::test]
async fn a_program_that_heeds_sigterm_ends_at_once() {
    let Some(place) = Place::new() else { return };
    let spec = ContainerSpec {
        command: vec!["sleep".into(), "600".into()],
        ..Default::default()
    };
    let running = place.running(&spec).await;
    let asked = Instant::now();
    let Ended::Exited(exit) = within(running.stop(LONG)).await.expect("it stops") else {
        panic!("no exit record")
    };
    assert_eq!((exit.code, exit.signal), (143, Some(15)));
    assert!(asked.elapsed() < LONG / 4);
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_with_all_it_started() {
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    let mut spec = shell(
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & \
         echo ready > /v/ready; while :; do sleep 1; done",
    );
    spec.mounts = vec![mount(&volume, "/v")];
    let running = place.running(&spec).await;
    within(appears(&volume.join("ready"))).await;
    let Ended::Exited(exit) = within(running.stop(Duration::from_millis(300)))
        .await
        .expect("it stops")
    else {
        panic!("no exit record")
    };
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
    assert_eq!(mount_namespaces_with(&volume), 0);
}

#[tokio::test]
async fn a_program_that_never_stops_writing_can_be_stopped_and_does_not_fill_the_disk() {
    let grace = Duration::from_secs(2);
    for (script, signal) in [
        ("yes hello", 15),
        ("trap '' TERM; yes hello & yes more >&2", 9),
    ] {
        let Some(place) = Place::new() else { return };
        let running = place.running(&shell(script)).await;
        within(async {
            while !place.state.path().join("log.1").exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let asked = Instant::now();
        let Ended::Exited(exit) = within(running.stop(grace)).await.expect("it stops") else {
            panic!("no exit record")
        };
        assert_eq!(exit.signal, Some(signal), "{script}");
        assert!(asked.elapsed() < grace + Duration::from_secs(4), "{script}");
        let log = fs::metadata(place.state.log()).expect("the log").len();
        assert!(log <= 10 * 1024 * 1024, "{log}");
    }
}

#[tokio::test]
async fn a_container_is_killed_though_its_shim_does_not_act() {
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    let mut spec = shell("echo ready > /v/ready; sleep 600");
    spec.mounts = vec![mount(&volume, "/v")];
    let running = place.running(&spec).await;
    within(appears(&volume.join("ready"))).await;
    let record = fs::read(place.state.path().join("shim.json")).expect("the record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
    let shim = i32::try_from(record["shim"]["pid"].as_i64().expect("a number")).expect("a pid");
    let shim = rustix::process::Pid::from_raw(shim).expect("a pid");
    rustix::process::kill_process(shim, rustix::process::Signal::STOP).expect("it stops");
    running.kill().expect("it is asked");
    let ended = within(running.wait()).await.expect("it ends");
    assert_eq!(ended, Ended::Lost);
    assert_eq!(mount_namespaces_with(&volume), 0);
    within(place.launcher.remove(&place.state))
        .await
        .expect("the folder can go");
}

#[tokio::test]
async fn a_damaged_folder_without_inhabitants_is_lost_and_can_be_removed() {
    for name in ["spec.json", "shim.json", "started.json", "exit.json"] {
        let Some(place) = Place::new() else { return };
        place.run(&shell("true")).await;
        let path = place.state.path();
        if name != "exit.json" {
            fs::remove_file(path.join("exit.json")).expect("the record goes");
        }
        fs::write(path.join(name), "{garbage").expect("it is damaged");
        // The shim may hold the lock for an instant after its record.
        let lock = fs::File::open(path.join("lock")).expect("the lock");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("it is free");
        drop(lock);
        for found in [
            within(place.launcher.adopt(&place.state)).await,
            within(place.launcher.start(&place.state, &shell("true"))).await,
        ] {
            assert!(matches!(found, Ok(Adopted::Lost)), "{name}: {found:?}");
        }
        within(place.launcher.remove(&place.state))
            .await
            .expect("the folder can go");
        assert!(!place.state.path().exists(), "{name}");
    }
}

#[tokio::test]
async fn a_damaged_folder_with_inhabitants_is_never_taken_for_an_empty_one() {
    let Some(place) = Place::new() else { return };
    let running = place.running(&shell("sleep 600")).await;
    let path = place.state.path();
    for name in ["spec.json", "started.json", "exit.json"] {
        fs::write(path.join(name), "{garbage").expect("it is damaged");
        let found = within(place.launcher.adopt(&place.state)).await;
        assert!(
            matches!(found, Ok(Adopted::Running(_))),
            "{name}: {found:?}"
        );
    }
    let record = fs::read(path.join("shim.json")).expect("the record");
    fs::write(path.join("shim.json"), "{garbage").expect("it is damaged");
    let found = within(place.launcher.adopt(&place.state)).await;
    let removed = within(place.launcher.remove(&place.state)).await;
    fs::write(path.join("shim.json"), record).expect("it is mended");
    assert!(found.is_err() && removed.is_err(), "{found:?}, {removed:?}");
    within(running.stop(LONG)).await.expect("it stops");
}

#[tokio::test]
async fn a_container_is_found_again_by_a_node_role_that_never_saw_it() {
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    let mut spec = shell("while [ ! -e /v/go ]; do sleep 0.05; done; echo went; exit 3");
    spec.mounts = vec![mount(&volume, "/v")];
    let first = place.running(&spec).await;
    let started_at = first.started_at();
    drop(first);
    let Adopted::Running(again) = within(place.launcher.adopt(&place.state))
        .await
        .expect("readable")
    else {
        panic!("not found")
    };
    assert_eq!(again.started_at(), started_at);
    // A second start must not run it twice.
    assert!(matches!(place.start(&spec).await, Adopted::Running(_)));
    assert!(
        within(place.launcher.remove(&place.state)).await.is_err(),
        "it still runs"
    );
    fs::write(volume.join("go"), "").expect("a sign");
    let Ended::Exited(exit) = within(again.wait()).await.expect("it ends") else {
        panic!("no record")
    };
    assert_eq!(exit.code, 3);
    assert!(matches!(place.start(&spec).await, Adopted::Exited(found) if found == exit));
    assert_eq!(place.output(), "went\n");
    within(place.launcher.remove(&place.state))
        .await
        .expect("it can go now");
    assert!(!place.state.path().exists());
    assert!(matches!(
        within(place.launcher.adopt(&place.state)).await,
        Ok(Adopted::NeverStarted)
    ));
}

#[tokio::test]
async fn a_container_dies_with_its_shim_and_is_reported_lost() {
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    let mut spec = shell("echo > /v/ready; sleep 600");
    spec.mounts = vec![mount(&volume, "/v")];
    let running = place.running(&spec).await;
    within(appears(&volume.join("ready"))).await;
    let record = fs::read(place.state.path().join("shim.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("json");
    let pid = i32::try_from(record["shim"]["pid"].as_i64().expect("a pid")).expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    assert_eq!(within(running.wait()).await.expect("it ends"), Ended::Lost);
    assert!(matches!(
        within(place.launcher.adopt(&place.state)).await,
        Ok(Adopted::Lost)
    ));
    assert_eq!(
        mount_namespaces_with(&volume),
        0,
        "adopt waits until the mounts are let go"
    );
}

#[tokio::test]
async fn a_spec_without_a_shim_never_started_and_can_be_started() {
    let Some(place) = Place::new() else { return };
    fs::create_dir_all(place.state.path()).expect("the folder");
    let spec = shell("echo once");
    let json = serde_json::to_vec(&spec).expect("json");
    fs::write(place.state.path().join("spec.json"), json).expect("the intent");
    assert!(matches!(
        within(place.launcher.adopt(&place.state)).await,
        Ok(Adopted::NeverStarted)
    ));
    assert_eq!(place.run(&spec).await.code, 0);
    assert_eq!(place.output(), "once\n");
}

#[tokio::test]
async fn mounts_of_others_are_not_held_by_a_running_container() {
    let Some(place) = Place::new() else { return };
    let before = LoopMount::new(&place.folder.path().join("before"));
    let own = place.volume("own");
    let mut spec = shell("echo > /v/ready; sleep 600");
    spec.mounts = vec![mount(&own, "/v")];
    let running = place.running(&spec).await;
    let after = LoopMount::new(&place.folder.path().join("after"));
    within(appears(&own.join("ready"))).await;
    before.unmount_and_expect_free();
    after.unmount_and_expect_free();
    within(running.stop(Duration::ZERO))
        .await
        .expect("it stops");
}

#[tokio::test]
async fn a_volume_is_free_once_its_container_has_ended() {
    let Some(place) = Place::new() else { return };
    let volume = LoopMount::new(&place.folder.path().join("volume"));
    let mut spec =
        shell("echo x > /v/f; exec 3</v/f; sleep 600 & sleep 600 & echo > /v/ready; wait");
    spec.mounts = vec![mount(&volume.at, "/v")];
    let running = place.running(&spec).await;
    within(appears(&volume.at.join("ready"))).await;
    within(running.stop(Duration::ZERO))
        .await
        .expect("it stops");
    volume.unmount_and_expect_free();
}

#[tokio::test]
async fn environment_user_folder_and_read_only_volumes_are_as_asked() {
    let Some(place) = Place::new() else { return };
    let (writable, fixed) = (place.volume("writable"), place.volume("fixed"));
    fs::write(fixed.join("file"), "fixed").expect("a file");
    let mut spec = shell(
        "echo $A/$HOSTNAME/$(hostname); pwd; id -u; id -g; id -G; cat /fixed/file; echo; \
         touch /fixed/new 2>/dev/null || echo refused; echo err >&2; echo ${SECRET_OF_PARENT:-none}",
    );
    spec.env = vec![EnvVar {
        name: "A".into(),
        value: "b".into(),
    }];
    spec.hostname = Some("web-0".into());
    spec.working_dir = Some("/made/for/it".into());
    spec.user = User {
        uid: 1000,
        gid: 2000,
        groups: vec![3000],
    };
    spec.mounts = vec![mount(&writable, "/fixed/inner"), mount(&fixed, "/fixed")];
    fs::create_dir(fixed.join("inner")).expect("a folder");
    spec.mounts[1].access = Writable::ReadOnly;
    let exit = place.run(&spec).await;
    assert_eq!(exit.code, 0, "{}", exit.message);
    let stdout: Vec<_> = place
        .log()
        .into_iter()
        .filter(|(s, _)| *s == Stream::Stdout)
        .map(|(_, t)| t)
        .collect();
    assert_eq!(
        stdout,
        [
            "b/web-0/web-0",
            "/made/for/it",
            "1000",
            "2000",
            "2000 3000",
            "fixed",
            "refused",
            "none"
        ]
    );
    assert!(place.log().contains(&(Stream::Stderr, "err".into())));
}

#[tokio::test]
async fn a_container_sees_its_own_processes_and_devices_and_no_hidden_folder() {
    let Some(place) = Place::new() else { return };
    let secret = place.volume("secret");
    fs::write(secret.join("key"), "k").expect("a file");
    let mut spec = shell(&format!(
        "ls /proc | grep -c '^[0-9]*$'; ls {}; echo x > /dev/null; head -c1 /dev/zero | wc -c; \
         ls /dev | grep -c loop; mount -t tmpfs none /mnt 2>/dev/null || echo refused; \
         echo 1 2>/dev/null > /proc/sys/vm/drop_caches || echo guarded",
        secret.display()
    ));
    spec.hidden = vec![secret];
    let exit = place.run(&spec).await;
    let output = place.output();
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].parse::<u32>().expect("a number") <= 5, "{output}");
    assert_eq!(
        &lines[1..],
        ["1", "0", "refused", "guarded"],
        "{output} {exit:?}"
    );
}

#[tokio::test]
async fn a_block_device_is_handed_in_and_not_held() {
    let Some(place) = Place::new() else { return };
    let volume = LoopMount::new(&place.folder.path().join("disk"));
    rustix::mount::unmount(&volume.at, rustix::mount::UnmountFlags::empty()).expect("unmounted");
    let mut spec =
        shell("printf orlop | dd of=/dev/xvda conv=fsync 2>/dev/null; head -c5 /dev/xvda");
    spec.devices = vec![Device {
        source: volume.device.clone(),
        target: "/dev/xvda".into(),
    }];
    let exit = place.run(&spec).await;
    assert_eq!((exit.code, place.output().as_str()), (0, "orlop\n"));
    volume.expect_free();
}

#[tokio::test]
async fn a_read_only_root_refuses_writes_outside_volumes() {
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    let mut spec = shell("touch /x 2>/dev/null || echo refused; touch /v/x && echo allowed");
    spec.mounts = vec![mount(&volume, "/v")];
    spec.root = Writable::ReadOnly;
    let exit = place.run(&spec).await;
    assert_eq!(
        (exit.code, place.output().as_str()),
        (0, "refused\nallowed\n"),
        "{}",
        exit.message
    );
}

#[tokio::test]
async fn a_part_of_a_volume_is_mounted_and_a_link_in_it_leads_nowhere() {
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    std::os::unix::fs::symlink("/etc", volume.join("link")).expect("a link");
    let mut spec = shell("echo x > /v/f");
    spec.mounts = vec![mount(&volume, "/v")];
    spec.mounts[0].sub_path = Some("a/b".into());
    assert_eq!(place.run(&spec).await.code, 0);
    assert_eq!(
        fs::read_to_string(volume.join("a/b/f")).expect("the file"),
        "x\n"
    );

    let Some(place) = Place::new() else { return };
    spec.mounts[0].sub_path = Some("link".into());
    let exit = place.run(&spec).await;
    assert_eq!(exit.reason, ExitReason::ContainerCannotRun, "{exit:?}");
    assert!(!Path::new("/etc/f").exists());
    let volume = &spec.mounts[0].volume;
    assert_eq!(
        exit.message,
        format!("could not take subPath \"link\" of volume {volume:?}: it leads out of the volume")
    );
}

/// Takes all room that there is.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut ballast = fs::File::options()
        .append(true)
        .create(true)
        .open(path)
        .expect("a file");
    for size in [1 << 20, 4 << 10, 1] {
        let piece = vec![7; size];
        while ballast.write_all(&piece).is_ok() {}
    }
    ballast.sync_all().expect("synced");
}

#[tokio::test]
async fn on_a_full_disk_a_container_does_not_start_and_one_that_runs_ends_with_its_record() {
    let Some(place) = Place::new() else { return };
    let Some(disk) = orlop_host::testing::ScratchFs::new("ext4", 8 << 20) else {
        return;
    };
    let on_disk = |name: &str| Place {
        folder: tempfile::tempdir().expect("a temporary folder"),
        state: StateDir::at(disk.path().join(name)),
        launcher: place.launcher.clone(),
    };
    let (runs, refused) = (on_disk("runs"), on_disk("refused"));
    let running = runs.running(&shell("sleep 600")).await;
    let spec = shell("true");
    // Its folder and what shall run there is all that there is room for.
    fs::create_dir_all(refused.state.path().join("root")).expect("a folder");
    let json = serde_json::to_vec(&spec).expect("json");
    fs::write(refused.state.path().join("spec.json"), json).expect("a spec");
    fs::write(refused.state.path().join("lock"), "").expect("a lock");
    fill(&disk.path().join("ballast"));

    for _ in 0..2 {
        let error = within(refused.launcher.start(&refused.state, &spec)).await;
        let error = format!("{:?}", error.expect_err("no room"));
        assert!(error.contains("No space left on device"), "{error}");
        let found = within(refused.launcher.adopt(&refused.state)).await;
        let found = found.expect("readable");
        assert!(matches!(found, Adopted::NeverStarted), "{found:?}");
    }
    running.kill().expect("asked");
    let ended = within(running.wait()).await.expect("it ends");
    assert!(
        matches!(&ended, Ended::Exited(exit) if exit.signal == Some(9)),
        "{ended:?}"
    );

    fs::remove_file(disk.path().join("ballast")).expect("room");
    assert_eq!(refused.run(&spec).await.code, 0);
    drop((runs, refused));
}

#[tokio::test]
async fn a_missing_part_gets_the_mode_of_its_volume() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(place) = Place::new() else { return };
    let volume = place.volume("data");
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o2777)).expect("a mode");
    let mut spec = shell("true");
    spec.mounts = vec![mount(&volume, "/v")];
    spec.mounts[0].sub_path = Some("a/b".into());
    assert_eq!(place.run(&spec).await.code, 0);
    for made in ["a", "a/b"] {
        let mode = fs::metadata(volume.join(made)).expect("made").permissions();
        assert_eq!(mode.mode() & 0o7777, 0o2777, "{made}");
    }
}

/// A tmpfs that shares its mounts, taken away at the end with all that is below it.
struct SharedMount(PathBuf);

impl SharedMount {
    fn new(at: PathBuf) -> Self {
        fs::create_dir_all(&at).expect("a folder");
        run(Command::new("/usr/bin/mount")
            .args(["-t", "tmpfs", "tmpfs"])
            .arg(&at));
        let this = Self(at);
        run(Command::new("/usr/bin/mount")
            .arg("--make-shared")
            .arg(&this.0));
        this
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        let _ = Command::new("/usr/bin/umount")
            .arg("-R")
            .arg(&self.0)
            .output();
    }
}

#[tokio::test]
async fn mounts_travel_as_a_volumes_propagation_says() {
    let cases = [
        (Propagation::None, false, false),
        (Propagation::HostToContainer, true, false),
        (Propagation::Bidirectional, true, true),
    ];
    for (propagation, inwards, outwards) in cases {
        let Some(place) = Place::new() else { return };
        let shared = SharedMount::new(place.folder.path().join("shared"));
        fs::create_dir_all(shared.0.join("in")).expect("a folder");
        fs::create_dir_all(shared.0.join("out")).expect("a folder");
        let mut spec = shell(
            "mount -t tmpfs tmpfs /v/out && touch /v/out/made /v/ready; \
             until [ -e /v/go ]; do sleep 0.05; done; [ -e /v/in/made ] && echo seen; true",
        );
        spec.privilege = orlop_host::sandbox::Privilege::Full;
        spec.mounts = vec![mount(&shared.0, "/v")];
        spec.mounts[0].propagation = propagation;
        let running = place.running(&spec).await;
        appears(&shared.0.join("ready")).await;
        assert_eq!(
            shared.0.join("out/made").exists(),
            outwards,
            "{propagation:?}"
        );
        run(Command::new("/usr/bin/mount")
            .args(["-t", "tmpfs", "tmpfs"])
            .arg(shared.0.join("in")));
        fs::write(shared.0.join("in/made"), "").expect("a file");
        fs::write(shared.0.join("go"), "").expect("a file");
        within(running.wait()).await.expect("it ends");
        assert_eq!(place.output().contains("seen"), inwards, "{propagation:?}");
    }
}

#[tokio::test]
async fn propagation_that_the_host_does_not_have_is_refused_and_says_why() {
    let Some(place) = Place::new() else { return };
    let private = SharedMount::new(place.folder.path().join("private"));
    run(Command::new("/usr/bin/mount")
        .arg("--make-private")
        .arg(&private.0));
    let mut spec = shell("true");
    spec.mounts = vec![mount(&private.0, "/v")];
    spec.mounts[0].propagation = Propagation::HostToContainer;
    let exit = place.run(&spec).await;
    assert_eq!(exit.reason, ExitReason::ContainerCannotRun);
    assert!(
        exit.message.contains("not a shared or slave mount"),
        "{exit:?}"
    );
}

#[tokio::test]
async fn a_read_only_volume_covers_mounts_below_it_only_if_asked() {
    for (below, writable) in [(Below::AsItIs, true), (Below::ReadOnly, false)] {
        let Some(place) = Place::new() else { return };
        let outer = SharedMount::new(place.folder.path().join("outer"));
        fs::create_dir_all(outer.0.join("inner")).expect("a folder");
        run(Command::new("/usr/bin/mount")
            .args(["-t", "tmpfs", "tmpfs"])
            .arg(outer.0.join("inner")));
        let mut spec = shell("touch /v/x 2>/dev/null && exit 1; touch /v/inner/x");
        spec.mounts = vec![mount(&outer.0, "/v")];
        spec.mounts[0].access = Writable::ReadOnly;
        spec.mounts[0].below = below;
        let exit = place.run(&spec).await;
        assert!(!outer.0.join("x").exists());
        assert_eq!(exit.code == 0, writable, "{below:?} {exit:?}");
    }
}

/// An ext4 on a loop device, mounted on the host.
struct LoopMount {
    at: PathBuf,
    device: PathBuf,
}

impl LoopMount {
    fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder");
        let (image, at) = (folder.join("image"), folder.join("mount"));
        fs::File::create(&image)
            .and_then(|file| file.set_len(16 << 20))
            .expect("an image");
        fs::create_dir(&at).expect("a mount point");
        run(Command::new("/usr/sbin/mkfs.ext4")
            .args(["-q", "-F"])
            .arg(&image));
        let device = run(Command::new("/usr/sbin/losetup")
            .args(["--find", "--show"])
            .arg(&image));
        let this = Self {
            at,
            device: device.trim().into(),
        };
        run(Command::new("/usr/bin/mount")
            .arg(&this.device)
            .arg(&this.at));
        this
    }

    fn unmount_and_expect_free(&self) {
        run(Command::new("/usr/bin/umount").arg(&self.at));
        self.expect_free();
    }

    /// A device whose file system is mounted anywhere, in any namespace, cannot
    /// be opened exclusively.
    fn expect_free(&self) {
        let exclusive = fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed())
            .open(&self.device);
        assert!(
            exclusive.is_ok(),
            "{} is still in use: {exclusive:?}",
            self.device.display()
        );
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let _ = Command::new("/usr/bin/umount")
            .arg("-q")
            .arg(&self.at)
            .output();
        let _ = Command::new("/usr/sbin/losetup")
            .arg("-d")
            .arg(&self.device)
            .output();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits for a file that a container makes; bounded by the caller.
async fn appears(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many processes see a mount of this folder of the host.
fn mount_namespaces_with(volume: &Path) -> usize {
    let needle = volume.to_string_lossy().into_owned();
    fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("mountinfo")).ok())
        .filter(|table| {
            table
                .lines()
                .any(|line| line.split(' ').nth(3) == Some(&needle))
        })
        .count()
}
