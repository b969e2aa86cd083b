//! FlexVolume drivers: small scripts that mount for real.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_model::{Claim, Key, Pod, Secret, Volume};
use orlop_runtime::Patch;
use serde_json::{Value, json};

use super::cases::{event, is_running};
use super::world::{World, mounts_under};

/// Mounts memory, by itself: no attaching. It writes down each call without its options.
const SIMPLE: &str = r#"
case $1 in
  init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;
  mount) mkdir -p "$2" && mount -t tmpfs flex "$2" && echo "$3" > "$2/options" \
         && echo '{"status":"Success"}' ;;
  unmount) umount "$2" && echo '{"status":"Success"}' ;;
  *) echo '{"status":"Not supported"}'; exit 1 ;;
esac
"#;

/// Attaches a "device", which is a folder, and binds it.
const ATTACHING: &str = r#"
case $1 in
  init) echo '{"status":"Success"}' ;;
  attach) mkdir -p "$DISKS/attached"; echo "{\"status\":\"Success\",\"device\":\"$DISKS/attached\"}" ;;
  waitforattach) echo "{\"status\":\"Success\",\"device\":\"$2\"}" ;;
  mountdevice) mount --bind "$3" "$2" && echo '{"status":"Success"}' ;;
  unmountdevice) umount "$2" && echo '{"status":"Success"}' ;;
  detach) rm -rf "$DISKS/attached"; echo '{"status":"Success"}' ;;
  *) echo '{"status":"Not supported"}'; exit 1 ;;
esac
"#;

/// Installs a driver as people are told to: under another name first.
fn install(world: &World, name: &str, body: &str) -> PathBuf {
    let folder = world
        .root
        .path()
        .join("drivers")
        .join(format!("example.org~{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let calls = world.root.path().join("calls");
    let script = format!(
        "#!/bin/sh\nDISKS={}\necho \"$1\" >> {}\n{body}",
        world.root.path().display(),
        calls.display()
    );
    let hidden = folder.join(".new");
    std::fs::write(&hidden, script).expect("a script");
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    std::fs::rename(&hidden, folder.join(name)).expect("in place");
    calls
}

fn calls(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn with_flex(driver: &str, options: &Value) -> Value {
    json!({
        "containers": [{"name": "main", "command": ["sleep", "600"],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "flexVolume": {
            "driver": format!("example.org/{driver}"), "fsType": "ext4", "options": options}}],
        "terminationGracePeriodSeconds": 1,
    })
}

fn target(world: &World, pod: &Pod, driver: &str, volume: &str) -> PathBuf {
    world.node_root().join(format!(
        "pods/{}/volumes/example.org~{driver}/{volume}",
        pod.metadata.uid
    ))
}

pub(crate) async fn a_flexvolume_is_mounted_by_its_driver_once_that_is_installed() {
    let mut world = World::new(false).await;
    let secret = json!({"metadata": {"name": "key", "namespace": "default"},
                        "type": "example.org/simple", "stringData": {"password": "hunter2"}});
    let created = world.cluster.create_json::<Secret>(&secret).await;
    created.expect("a secret");
    let mut spec = with_flex("simple", &json!({"size": "1G"}));
    spec["volumes"][0]["flexVolume"]["secretRef"] = json!({"name": "key"});
    spec["securityContext"] = json!({"fsGroup": 4321});
    world.pod("web", spec).await;
    event(
        &world,
        "FailedMount",
        "FlexVolume driver example.org/simple is not installed",
    )
    .await;
    // By now the waits between tries are longer than this takes.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let began = Instant::now();
    let calls_at = install(&world, "simple", SIMPLE);
    let pod = world.pod_until("web", is_running).await;
    println!("  driver installed to running: {:?}", began.elapsed());
    let at = target(&world, &pod, "simple", "data");
    assert_eq!(mounts_under(world.root.path()), [&*at]);
    let options: Value =
        serde_json::from_slice(&std::fs::read(at.join("options")).expect("options")).expect("json");
    assert_eq!(options["kubernetes.io/pod.name"], "web");
    assert_eq!(options["kubernetes.io/readwrite"], "rw");
    assert_eq!(options["kubernetes.io/secret/password"], "aHVudGVyMg==");
    assert_eq!(options["kubernetes.io/mounterArgs.FsGroup"], "4321");
    assert_eq!(options["size"], "1G");
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(&at).expect("a mount").gid(), 4321);

    // Nothing is mounted twice by one that comes after a crash.
    world.kill_node();
    world.start_node();
    world.pod_until("web", is_running).await;
    world.delete("web").await;
    world.expect_clean().await;
    assert_eq!(calls(&calls_at), ["init", "mount", "init", "unmount"]);
}

pub(crate) async fn an_attached_flexvolume_is_detached_after_its_last_pod() {
    let mut world = World::new(false).await;
    let calls_at = install(&world, "disk", ATTACHING);
    flex_claim(&world, "disk").await;
    let mut spec = with_flex("disk", &json!({}));
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    spec["containers"][0]["command"] = json!(["sh", "-c", "echo $$ >> /data/f; sleep 600"]);
    world.pod("one", spec.clone()).await;
    let one = world.pod_until("one", is_running).await;
    world.pod("two", spec).await;
    let two = world.pod_until("two", is_running).await;
    let global = world
        .node_root()
        .join("plugins/kubernetes.io/flexvolume/example.org/disk/mounts/pv-disk");
    let mut mounts = mounts_under(world.root.path());
    mounts.sort();
    let mut wanted = vec![
        global.clone(),
        target(&world, &one, "disk", "pv-disk"),
        target(&world, &two, "disk", "pv-disk"),
    ];
    wanted.sort();
    assert_eq!(mounts, wanted);
    let staged = [
        "init",
        "getvolumename",
        "attach",
        "waitforattach",
        "mountdevice",
        "mount",
        "mount",
    ];
    assert_eq!(calls(&calls_at), staged);

    world.delete("one").await;
    assert!(
        mounts_under(world.root.path()).contains(&global),
        "the other one uses it"
    );
    // The last one ends while nobody looks.
    world.kill_node();
    let key = Key::namespaced("default", "two");
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
    world.start_node();
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    world.expect_clean().await;
    let rest = calls(&calls_at).split_off(staged.len());
    assert_eq!(
        rest,
        ["unmount", "init", "unmount", "unmountdevice", "detach"]
    );
    assert!(!world.root.path().join("attached").exists());
}

pub(crate) async fn a_flexvolume_driver_that_misbehaves_is_told_of_and_harms_nobody() {
    let world = World::tuned(|config| config.flex_deadline = Duration::from_secs(2)).await;
    let good = r#"init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;"#;
    let cases = [
        (
            "words",
            "case $1 in GOOD *) echo oops ;; esac",
            "is not JSON: \"oops\"",
        ),
        (
            "failure",
            r#"case $1 in GOOD *) echo '{"status":"Failure","message":"no room"}'; exit 1 ;; esac"#,
            "mount command failed, status: Failure, reason: no room",
        ),
        (
            "liar",
            r#"case $1 in GOOD *) echo '{"status":"Success"}'; exit 7 ;; esac"#,
            "says Success, but ended with exit status: 7",
        ),
        (
            "mute",
            "case $1 in GOOD *) exit 3 ;; esac",
            "is not JSON: \"\" (exit status: 3)",
        ),
        (
            "chatty",
            "case $1 in GOOD *) yes ;; esac",
            "printed more than 1048576 bytes",
        ),
        (
            "sleeper",
            "case $1 in GOOD *) sleep 600 ;; esac",
            "was killed: it ran for 2 s",
        ),
        (
            "casualty",
            r#"case $1 in GOOD *) printf '{"status":"Succ'; kill -9 $$ ;; esac"#,
            "is not JSON: \"{\\\"status\\\":\\\"Succ\" (signal: 9 (SIGKILL))",
        ),
        (
            "unborn",
            "exit 2",
            "init command: the driver's answer is not JSON",
        ),
    ];
    for (name, body, _) in cases {
        install(&world, name, &body.replace("GOOD", good));
        world.pod(name, with_flex(name, &json!({}))).await;
    }
    // Others go on meanwhile.
    install(&world, "simple", SIMPLE);
    world.pod("web", with_flex("simple", &json!({}))).await;
    world.pod_until("web", is_running).await;
    for (name, _, words) in cases {
        event(&world, "FailedMount", words).await;
        world.delete(name).await;
    }
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_flexvolume_call_that_takes_long_is_told_of_and_counted() {
    let world = World::tuned(|config| config.patience = Duration::from_secs(2)).await;
    let slow = r#"
[ $1 = unmount ] && [ ! -e "$DISKS/told" ] && sleep 600
case $1 in mount) until [ -e "$DISKS/go" ]; do sleep 0.05; done ;; esac
"#;
    install(&world, "simple", &format!("{slow}{SIMPLE}"));
    let mut spec = with_flex("simple", &json!({}));
    // What isn't the driver's goes while the driver hangs.
    let more = |list: &mut Value, one: Value| list.as_array_mut().expect("a list").push(one);
    let mounted = json!({"name": "memory", "mountPath": "/memory"});
    more(&mut spec["containers"][0]["volumeMounts"], mounted);
    let memory = json!({"name": "memory", "emptyDir": {"medium": "Memory"}});
    more(&mut spec["volumes"], memory);
    world.pod("web", spec).await;
    let words = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: \
                 volume \"data\": its driver's mount command has been running for 10 s";
    event(&world, "FailedMount", words).await;
    let waits = |pod: &Pod| {
        let all = pod.status.container_statuses.iter();
        let mut waiting = all.filter_map(|one| one.state.waiting.as_ref());
        waiting.any(|waiting| waiting.message.contains("its driver's mount command"))
    };
    world.pod_until("web", waits).await;
    let hung = |n: u32| {
        world
            .metrics()
            .contains(&format!("orlop_node_hung_volumes{{node=\"n1\"}} {n}\n"))
    };
    assert!(hung(1), "{}", world.metrics());
    std::fs::write(world.root.path().join("go"), "").expect("a file");
    let pod = world.pod_until("web", is_running).await;
    assert!(hung(0), "{}", world.metrics());

    let key = Key::namespaced("default", "web");
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
    let words = "volume \"data\": its driver's unmount command has been running for 10 s";
    event(&world, "FailedUnMount", words).await;
    let flex = target(&world, &pod, "simple", "data");
    assert_eq!(mounts_under(world.root.path()), [&*flex]);
    // Another node role does not wait for the call of the one before.
    std::fs::write(world.root.path().join("told"), "").expect("a file");
    let mut world = world;
    world.kill_node();
    world.start_node();
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    world.expect_clean().await;
}

pub(crate) async fn what_a_flexvolume_driver_undid_before_a_crash_is_not_asked_of_it_for_ever() {
    // Hangs once each of its mounts is gone, until it is killed.
    const LAST_WORDS: &str = r#"
crash() { if [ ! -e "$DISKS/$1" ]; then umount "$2"; echo > "$DISKS/$1"; sleep 600; fi; }
case $1 in unmount|unmountdevice) crash "$1" "$2" ;; esac
case $1 in
  mount) mount --bind "$DISKS/attached" "$2" && echo '{"status":"Success"}'; exit ;;
  unmount) umount "$2" && echo '{"status":"Success"}'; exit ;;
esac
"#;
    let mut world = World::new(false).await;
    let calls_at = install(&world, "disk", &format!("{LAST_WORDS}{ATTACHING}"));
    world.pod("web", with_flex("disk", &json!({}))).await;
    world.pod_until("web", is_running).await;
    let key = Key::namespaced("default", "web");
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
    for crash in ["unmount", "unmountdevice"] {
        let until = Instant::now() + Duration::from_secs(20);
        while !world.root.path().join(crash).exists() {
            assert!(Instant::now() < until, "{:?}", calls(&calls_at));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.kill_node();
        world.start_node();
    }
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    world.expect_clean().await;
    let all = calls(&calls_at);
    let undone: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(|c| *c != "init")
        .collect();
    // The second time, the driver was asked for what it may have to undo beside the mount.
    let wanted = ["unmount", "unmount", "unmountdevice", "detach"];
    assert_eq!(undone[undone.len() - wanted.len()..], wanted, "{all:?}");
}

pub(crate) async fn a_flexvolume_driver_that_outlived_its_node_is_ended_by_the_next() {
    let mut world = World::new(false).await;
    world.kill_node();
    let calls_at = install(&world, "simple", SIMPLE);
    // As one that a node role was killed beside: on file, and in its own process group.
    let mut left = std::process::Command::new("sh");
    std::os::unix::process::CommandExt::process_group(&mut left, 0);
    let mut left = left
        .args(["-c", "sleep 600; :"])
        .spawn()
        .expect("a process");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", left.id())).expect("a stat");
    let born = stat.split_whitespace().nth(21).expect("a time");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    let file = world
        .node_root()
        .join("plugins/kubernetes.io/flexvolume/example.org/simple/calls/data");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(&file, format!("{boot}{} {born}\n", left.id())).expect("a file");
    world.start_node();
    let until = Instant::now() + Duration::from_secs(10);
    while left.try_wait().expect("a child").is_none() {
        if Instant::now() > until {
            left.kill().expect("a child");
            panic!("it lives");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.pod("web", with_flex("simple", &json!({}))).await;
    world.pod_until("web", is_running).await;
    assert!(!file.exists(), "{:?}", calls(&calls_at));
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_flexvolume_driver_that_is_not_executable_is_told_and_runs_once_it_is() {
    let world = World::new(false).await;
    install(&world, "simple", SIMPLE);
    let program = world.root.path().join("drivers/example.org~simple/simple");
    let mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&program, mode).expect("a mode");
    };
    mode(0o644);
    world.pod("web", with_flex("simple", &json!({}))).await;
    event(&world, "FailedMount", "simple is not executable").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let began = Instant::now();
    mode(0o755);
    world.pod_until("web", is_running).await;
    println!("  made executable to running: {:?}", began.elapsed());
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn two_flexvolumes_of_one_name_are_not_taken_for_one() {
    let world = World::new(false).await;
    install(&world, "disk", ATTACHING);
    world
        .pod("one", with_flex("disk", &json!({"disk": "a"})))
        .await;
    world.pod_until("one", is_running).await;
    world
        .pod("two", with_flex("disk", &json!({"disk": "b"})))
        .await;
    event(
        &world,
        "FailedMount",
        "another volume named \"data\" of driver example.org/disk",
    )
    .await;
    world.delete("two").await;
    world.delete("one").await;
    world.expect_clean().await;
}

/// Attaches, and grows by both of its commands; it tells what it was asked.
const GROWING: &str = r#"
case $1 in
  expandvolume|expandfs) echo "$1 $3 $4 $5 $6" >> "$DISKS/growth"
    if [ -e "$DISKS/refuses" ]; then echo '{"status":"Failure","message":"not today"}'; exit 1; fi
    echo '{"status":"Success"}'; exit ;;
esac
"#;

pub(crate) async fn a_flexvolume_is_made_larger_by_its_driver() {
    let mut world = World::new(false).await;
    install(&world, "disk", &format!("{GROWING}{ATTACHING}"));
    flex_claim(&world, "disk").await;
    let mut spec = with_flex("disk", &json!({}));
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    world.pod("one", spec).await;
    world.pod_until("one", is_running).await;
    std::fs::write(world.root.path().join("refuses"), "").expect("a file");
    let volume = Patch::Merge(json!({"spec": {"capacity": {"storage": "2Gi"}}}));
    let key = Key::cluster("pv-disk");
    let grown = world.cluster.patch::<Volume>(&key, &volume).await;
    grown.expect("a larger volume");
    let waits = json!({"status": {
        "allocatedResources": {"storage": "2Gi"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"}}});
    let key = Key::namespaced("default", "disk");
    let told = world
        .cluster
        .patch_status::<Claim>(&key, &Patch::Merge(waits))
        .await;
    told.expect("a claim that waits");
    event(&world, "VolumeResizeFailed", "reason: not today").await;
    // Whoever comes after a crash goes on with it.
    world.kill_node();
    std::fs::remove_file(world.root.path().join("refuses")).expect("a file");
    std::fs::remove_file(world.root.path().join("growth")).expect("a file");
    world.start_node();
    let over = |claim: Option<&Claim>| {
        claim.is_some_and(|c| c.capacity_bytes() == 2 << 30 && c.resize_status().is_none())
    };
    world.until::<Claim>(&key, over).await;
    event(&world, "FileSystemResizeSuccessful", "pv-disk").await;
    let global = world
        .node_root()
        .join("plugins/kubernetes.io/flexvolume/example.org/disk/mounts/pv-disk");
    let global = global.display();
    let told = std::fs::read_to_string(world.root.path().join("growth")).expect("calls");
    let lines: Vec<&str> = told.lines().collect();
    let (new, old) = (2i64 << 30, 1i64 << 30);
    assert_eq!(lines[0], format!("expandvolume {global} {new} {old} "));
    assert!(lines[1].starts_with("expandfs "), "{told}");
    assert!(
        lines[1].ends_with(&format!("{global} {new} {old}")),
        "{told}"
    );
    assert_eq!(lines.len(), 2, "{told}");
    world.delete("one").await;
    world.expect_clean().await;
}

/// A volume of the attaching driver, bound to a claim.
async fn flex_claim(world: &World, name: &str) {
    let claim = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": format!("pv-{name}"),
                 "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim: Claim = world.cluster.create_json(&claim).await.expect("a claim");
    let volume = json!({
        "metadata": {"name": format!("pv-{name}")},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                 "flexVolume": {"driver": "example.org/disk"},
                 "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default",
                              "name": name, "uid": claim.metadata.uid}},
    });
    let volume = world.cluster.create_json::<Volume>(&volume).await;
    volume.expect("a volume");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let key = Key::namespaced("default", name);
    let bound = world
        .cluster
        .patch_status::<Claim>(&key, &Patch::Merge(bound))
        .await;
    bound.expect("bound");
}
