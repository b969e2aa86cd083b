//! Pods that mean harm: whatever they put into their volumes, nothing outside is touched.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use orlop_host::mount::{FsOption, NewMount};
use orlop_host::{Place, Restrictions};
use orlop_model::Pod;
use serde_json::{Value, json};

use super::cases::{event, is_running, with_claim};
use super::world::{World, mounts_under};

/// Everything that could be done to a tree.
type Traits = (u32, u32, u32, i64, i64, Vec<u8>);

fn looks(root: &Path) -> BTreeMap<PathBuf, Traits> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let own = std::fs::symlink_metadata(&folder).expect("a folder");
        let (mode, uid, gid) = (own.permissions().mode(), own.uid(), own.gid());
        let at = (own.mtime(), own.mtime_nsec());
        found.insert(folder.clone(), (mode, uid, gid, at.0, at.1, Vec::new()));
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let own = std::fs::symlink_metadata(&path).expect("an entry");
            if own.is_dir() {
                folders.push(path);
                continue;
            }
            let content = std::fs::read(&path).expect("a file");
            let (mode, uid, gid) = (own.permissions().mode(), own.uid(), own.gid());
            let at = (own.mtime(), own.mtime_nsec());
            found.insert(path, (mode, uid, gid, at.0, at.1, content));
        }
    }
    found
}

/// Fills the folder that it is run in with what has led others astray.
const TRAPS: &str = r#"
    ln -s "$CANARY" straight; ln -s "$CANARY/file" file; ln -s / root; ln -s .. up; ln -s self self
    mkdir -p folder/below; ln -s "$CANARY" folder/below/link; ln -s ../../.. folder/below/up
    mkfifo fifo; mknod null c 1 3 || :; mknod disk b 7 0 || :
    mkdir ..data ..2026_01_01 volumes; ln -s "$CANARY" ..data/x; ln -s "$CANARY" ..data_tmp
    ln -s "$CANARY" vol_data.json; ln -s "$CANARY" "$(printf 'new\nline')"
    ln -s "$CANARY" "$(printf '\377\376')"; touch -- -rf '*' ' '
    mkdir names; (cd names; i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done)
    (d=0; while [ $d -lt 150 ]; do mkdir dddddddddddddddd; cd -P dddddddddddddddd; d=$((d+1)); done
     ln -s "$CANARY" link; : > deep)
"#;

fn hostile(claim: &str, canary: &Path) -> Value {
    let script = format!(
        "set -e; CANARY={}; for at in /data /scratch; do cd $at; {TRAPS}\ncd /; done; \
         echo ready; exec sleep 600",
        canary.display()
    );
    let mut spec = with_claim(&script, claim);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/data"}, {"name": "scratch", "mountPath": "/scratch"}]);
    let volumes = spec["volumes"].as_array_mut().expect("volumes");
    volumes.push(json!({"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}));
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["restartPolicy"] = json!("Never");
    spec
}

async fn says(world: &World, pod: &Pod, words: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while !world.log(pod, "main").contains(words) {
        assert!(Instant::now() < until, "{:?}", world.log(pod, "main"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn whatever_a_pod_puts_into_its_volumes_nothing_outside_is_touched() {
    let mut world = World::new(false).await;
    let canary = world.root.path().join("canary");
    std::fs::create_dir_all(canary.join("folder")).expect("a folder");
    for name in ["file", "folder/file"] {
        std::fs::write(canary.join(name), "alive").expect("a file");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(canary.join(name), mode).expect("a mode");
    }
    let before = looks(&canary);
    world.claim("data", "Filesystem").await;
    world.pod("hostile", hostile("data", &canary)).await;
    let pod = world.pod_until("hostile", is_running).await;
    says(&world, &pod, "ready").await;

    // The node looks at all of it: by a walk for a group, by its measure, and by its parts.
    let until = Instant::now() + Duration::from_secs(40);
    loop {
        // What was measured a moment ago is not measured again at once.
        let told = world.stats().summary().await;
        let volumes = told["pods"][0]["volume"].as_array().expect("volumes");
        let scratch = volumes.iter().find(|volume| volume["name"] == "scratch");
        let inodes = scratch.and_then(|scratch| scratch["inodesUsed"].as_u64());
        if inodes.is_some_and(|inodes| inodes > 3150) {
            break;
        }
        assert!(Instant::now() < until, "{told}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut spec = with_claim("exec sleep 600", "data");
    spec["securityContext"] = json!({"fsGroup": 4321});
    world.pod("group", spec).await;
    world.pod_until("group", is_running).await;
    for part in [
        "straight",
        "straight/new",
        "root/etc",
        "up",
        "self",
        "file",
        "folder/below/up/x",
    ] {
        let mut spec = with_claim("exec sleep 600", "data");
        spec["containers"][0]["volumeMounts"][0]["subPath"] = json!(part);
        spec["restartPolicy"] = json!("Never");
        spec["terminationGracePeriodSeconds"] = json!(0);
        world.pod("part", spec).await;
        let waits = |pod: &Pod| {
            let statuses = &pod.status.container_statuses;
            let state = statuses.first().map(|status| &status.state);
            state.is_some_and(|state| {
                let waiting = state
                    .waiting
                    .as_ref()
                    .is_some_and(|w| !w.message.is_empty());
                waiting || state.terminated.is_some()
            })
        };
        let pod = world.pod_until("part", waits).await;
        assert!(!is_running(&pod), "{part}");
        world.delete("part").await;
    }
    assert_eq!(looks(&canary), before, "while they run");

    // Mounts within the pod's folder, as a privileged pod makes them.
    let inner = world.node_root().join(format!(
        "pods/{}/volumes/kubernetes.io~empty-dir/scratch/folder",
        pod.metadata.uid
    ));
    let mut bind = Command::new("/usr/bin/mount");
    let bound = bind.arg("--bind").arg(&canary).arg(&inner).status();
    assert!(bound.expect("mount").success());
    world.kill_node();
    world.start_node();
    for name in ["group", "hostile"] {
        world.delete(name).await;
    }
    world.expect_clean().await;
    assert_eq!(looks(&canary), before, "after they are gone");
}

pub(crate) async fn a_full_disk_holds_up_new_pods_until_there_is_room_and_costs_nobody_a_volume() {
    let mut world = World::new(false).await;
    world.kill_node();
    let pods = world.node_root().join("pods");
    std::fs::create_dir_all(&pods).expect("a folder");
    let place = Place::at(&pods).expect("a place");
    let option = |key: &str, value: &str| FsOption {
        key: key.into(),
        value: Some(value.into()),
    };
    let options = [option("size", "4194304"), option("nr_inodes", "2000")];
    let new = NewMount {
        fs_type: "tmpfs",
        source: Path::new("small"),
        options: &options,
        restrictions: Restrictions::default(),
    };
    orlop_host::mount::mount(&new, place.open().expect("open")).expect("a small disk");
    world.start_node();
    world.claim("data", "Filesystem").await;
    let script = "while date +%N > /data/tick; do sleep 0.05; done; exit 1";
    world.pod("works", with_claim(script, "data")).await;
    world.pod_until("works", is_running).await;
    let fills = json!({
        "containers": [{"name": "main", "volumeMounts": [{"name": "s", "mountPath": "/s"}],
            "command": ["sh", "-c", "sleep 1; cat /dev/zero > /s/all; exec sleep 600"]}],
        "volumes": [{"name": "s", "emptyDir": {}}], "terminationGracePeriodSeconds": 0,
    });
    world.pod("fills", fills).await;
    let full = world.pod_until("fills", is_running).await;
    let until = Instant::now() + Duration::from_secs(20);
    while std::fs::write(pods.join("probe"), [1; 4096]).is_ok() {
        assert!(Instant::now() < until, "it is not full");
        std::fs::remove_file(pods.join("probe")).expect("a file");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_file(pods.join("probe")).ok();
    world.claim("more", "Filesystem").await;
    world
        .pod("waits", with_claim("exec sleep 600", "more"))
        .await;
    event(&world, "FailedMount", "No space left on device").await;
    world.kill_node();
    world.start_node();
    let works = world.pod_until("works", is_running).await;
    assert_eq!(super::cases::first(&works).restart_count, 0);
    drop(full);
    world.delete("fills").await;
    world.pod_until("waits", is_running).await;
    for name in ["works", "waits"] {
        world.delete(name).await;
    }
    let left = mounts_under(&pods);
    assert_eq!(left, [&*pods], "the small disk alone");
    let until = Instant::now() + Duration::from_secs(20);
    while orlop_host::mount::unmount(&place).is_err() {
        assert!(
            Instant::now() < until,
            "{:?}",
            mounts_under(world.root.path())
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.expect_clean().await;
}
