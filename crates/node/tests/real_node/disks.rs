//! `local` volumes: folders and disks of the node. Volumes of many pods at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use orlop_model::{Claim, ConfigMap, Key, Pod, Volume, well_known};
use orlop_node::{
    Attempts, ContainerId, Finish, Found, Launch, PodUid, Runner, RunnerError, RunningContainer,
    Work,
};
use orlop_runtime::Patch;
use serde_json::{Value, json};

use super::cases::{event, is_running, with_claim};
use super::world::{World, mounts_under};

/// A disk in a file, detached at the end.
struct LoopDisk(PathBuf);

impl LoopDisk {
    fn new(image: &Path) -> Self {
        let file = std::fs::File::create(image).expect("an image");
        file.set_len(64 << 20).expect("its size");
        let device = Command::new("/usr/sbin/losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .expect("losetup");
        let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
        assert!(!device.is_empty(), "a loop device");
        Self(device.into())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("/usr/sbin/losetup")
            .arg("-d")
            .arg(&self.0)
            .output();
    }
}

/// A claim on a volume of this kind that the node can reach.
async fn claim(world: &World, name: &str, source: Value, mode: &str) {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "Exists"});
    claim_where(world, name, source, (mode, here)).await;
}

/// A claim on a volume of this kind, which nodes with these labels can reach.
async fn claim_where(world: &World, name: &str, source: Value, (mode, nodes): (&str, Value)) {
    let claim = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "volumeName": name,
                 "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}}},
    });
    let claim: Claim = world.cluster.create_json(&claim).await.expect("a claim");
    let mut volume = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "capacity": {"storage": "1Mi"},
                 "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [nodes]}]}},
                 "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default",
                              "name": name, "uid": claim.metadata.uid}},
    });
    volume["spec"]["local"] = source;
    world
        .cluster
        .create_json::<Volume>(&volume)
        .await
        .expect("a volume");
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    let key = Key::namespaced("default", name);
    world
        .cluster
        .patch_status::<Claim>(&key, &bound)
        .await
        .expect("bound");
}

pub(crate) async fn a_local_disk_is_formatted_if_it_is_empty_and_mounted_once() {
    let mut world = World::new(false).await;
    // Made before and taken away after the node's own: both are below one folder.
    let disk = LoopDisk::new(&world.root.path().join("disk"));
    let used = LoopDisk::new(&world.root.path().join("used"));
    std::fs::write(&used.0, "precious").expect("something on it");
    let local = |device: &LoopDisk| json!({"path": device.0, "fsType": "ext4"});
    claim(&world, "disk", local(&disk), "Filesystem").await;
    claim(&world, "used", local(&used), "Filesystem").await;
    let folder = world.root.path().join("folder");
    std::fs::create_dir(&folder).expect("a folder");
    claim(&world, "folder", json!({"path": folder}), "Filesystem").await;
    claim(
        &world,
        "none",
        json!({"path": folder.join("none")}),
        "Filesystem",
    )
    .await;

    // There is such a folder here, too, but it is not the one that is meant.
    let there = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["other"]});
    let source = json!({"path": folder});
    claim_where(&world, "far", source, ("Filesystem", there)).await;

    // The disk that was mounted at this folder isn't any more.
    claim(&world, "bare", json!({"path": folder}), "Filesystem").await;
    let mark = json!({"metadata": {"annotations": {well_known::LOCAL_MOUNT_POINT: "true"}}});
    let (bare, mark) = (Key::cluster("bare"), Patch::Merge(mark));
    let marked = world.cluster.patch::<Volume>(&bare, &mark).await;
    marked.expect("marked");

    let script = "echo $$ >> /data/f; exec sleep 600";
    world.pod("bare", with_claim(script, "bare")).await;
    world.pod("far", with_claim(script, "far")).await;
    world.pod("one", with_claim(script, "disk")).await;
    world.pod_until("one", is_running).await;
    world.pod("two", with_claim(script, "disk")).await;
    world.pod_until("two", is_running).await;
    world.pod("folder", with_claim(script, "folder")).await;
    world.pod_until("folder", is_running).await;
    world.pod("used", with_claim(script, "used")).await;
    world.pod("none", with_claim(script, "none")).await;
    event(
        &world,
        "FailedMount",
        "holds data that is no file system known here",
    )
    .await;
    event(&world, "FailedMount", "folder/none").await;
    let named = "MountVolume.SetUp failed for volume \"none\"";
    event(&world, "FailedMount", named).await;
    event(&world, "FailedMount", "the volume's disk is missing").await;
    event(
        &world,
        "FailedMount",
        "MountVolume.NodeAffinity check failed for volume \"far\" : no matching NodeSelectorTerms; \
         it can be reached from nodes with kubernetes.io/hostname=other only",
    )
    .await;
    let global = world
        .node_root()
        .join("plugins/kubernetes.io/local-volume/mounts/disk");
    let until = Instant::now() + Duration::from_secs(20);
    while std::fs::read_to_string(global.join("f")).map_or(0, |f| f.lines().count()) < 2 {
        assert!(Instant::now() < until, "both write to it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(folder.join("f").exists());
    world.kill_node();
    world.start_node();
    world.delete("one").await;
    assert!(
        mounts_under(world.root.path()).contains(&global),
        "the other one uses it"
    );
    for pod in ["two", "folder", "used", "none", "far", "bare"] {
        world.delete(pod).await;
    }
    let began = Instant::now();
    while !mounts_under(world.root.path()).is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            mounts_under(world.root.path())
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let kept = std::fs::read(&used.0).expect("readable");
    assert!(
        kept.starts_with(b"precious"),
        "what holds data is never formatted"
    );
    assert!(folder.join("f").exists(), "nothing is removed with its pod");

    // What was written is there for the next pod.
    world
        .pod(
            "again",
            with_claim("cat /data/f | wc -l; exec sleep 600", "disk"),
        )
        .await;
    let again = world.pod_until("again", is_running).await;
    let until = Instant::now() + Duration::from_secs(20);
    while world.log(&again, "main").is_empty() {
        assert!(Instant::now() < until, "it prints");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.log(&again, "main"), "2\n");
    world.delete("again").await;
    let began = Instant::now();
    while !mounts_under(world.root.path()).is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            mounts_under(world.root.path())
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs nothing, but says so.
#[derive(Default)]
struct Pretends(Mutex<BTreeSet<ContainerId>>);

impl Pretends {
    fn running(&self) -> std::sync::MutexGuard<'_, BTreeSet<ContainerId>> {
        self.0.lock().expect("unpoisoned")
    }
}

struct Pretended(tokio::sync::watch::Sender<bool>);

impl RunningContainer for Pretended {
    fn started_at(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn wait(&self) -> Work<'_, Finish> {
        Box::pin(async {
            let _ = self.0.subscribe().wait_for(|ended| *ended).await;
            Finish {
                code: 0,
                signal: None,
                reason: "Completed".into(),
                message: String::new(),
                started_at: None,
                finished_at: Timestamp::now(),
            }
        })
    }

    fn terminate(&self) -> Result<(), RunnerError> {
        self.0.send_replace(true);
        Ok(())
    }

    fn kill(&self) -> Result<(), RunnerError> {
        self.terminate()
    }
}

impl Runner for Pretends {
    fn start<'a>(
        &'a self,
        id: &'a ContainerId,
        _: &'a Launch,
    ) -> Work<'a, Result<Found, RunnerError>> {
        self.running().insert(id.clone());
        let container = Pretended(tokio::sync::watch::Sender::new(false));
        Box::pin(async move { Ok(Found::Running(Arc::new(container))) })
    }

    fn adopt<'a>(&'a self, _: &'a ContainerId) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(async { Ok(Found::Nothing) })
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<(), RunnerError>> {
        self.running().remove(id);
        Box::pin(async { Ok(()) })
    }

    fn attempts<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<Attempts, RunnerError>> {
        let mut attempts = Attempts::new();
        for id in self.running().iter().filter(|id| id.pod == *pod) {
            attempts
                .entry(id.container.clone())
                .or_default()
                .insert(id.attempt);
        }
        Box::pin(async move { Ok(attempts) })
    }
}

pub(crate) async fn a_change_of_a_config_map_reaches_all_its_pods() {
    const PODS: usize = 100;
    let mut world = World::new(false).await;
    world.kill_node();
    world.start_node_with(Arc::new(Pretends::default()));
    let map = json!({"metadata": {"name": "conf", "namespace": "default"}, "data": {"key": "one"}});
    world
        .cluster
        .create_json::<ConfigMap>(&map)
        .await
        .expect("a config map");
    let spec = json!({
        "containers": [{"name": "main", "command": ["none"],
                        "volumeMounts": [{"name": "conf", "mountPath": "/conf"}]}],
        "volumes": [{"name": "conf", "configMap": {"name": "conf"}}],
        "terminationGracePeriodSeconds": 1,
    });
    let mut files = Vec::new();
    for number in 0..PODS {
        let pod: Pod = world.pod(&format!("web-{number}"), spec.clone()).await;
        let folder = format!(
            "pods/{}/volumes/kubernetes.io~configmap/conf/key",
            pod.metadata.uid
        );
        files.push(world.node_root().join(folder));
    }
    let show = |value: &str| {
        let shows = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|text| text == value);
        files.iter().all(shows)
    };
    let wait = async |value: &str| {
        let began = Instant::now();
        while !show(value) {
            assert!(
                began.elapsed() < Duration::from_secs(40),
                "not all show {value}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        began.elapsed()
    };
    wait("one").await;
    let patch = Patch::Merge(json!({"data": {"key": "two"}}));
    let key = Key::namespaced("default", "conf");
    world
        .cluster
        .patch::<ConfigMap>(&key, &patch)
        .await
        .expect("changed");
    println!("  change to {PODS} pods' files: {:?}", wait("two").await);
}
