//! A pod's group and its volumes' files; and what happens when they hang.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_host::freeze::Frozen;
use orlop_host::mount::{FsOption, NewMount};
use orlop_host::{Place, Restrictions};
use orlop_model::{Claim, Key, Pod, Volume};
use orlop_runtime::Patch;
use serde_json::json;

use super::cases::{event, is_running, with_claim};
use super::world::{World, mounts_under};

fn grouped(script: &str, claim: &str, group: u32, policy: &str) -> serde_json::Value {
    let mut spec = with_claim(script, claim);
    spec["securityContext"] = json!({"fsGroup": group, "fsGroupChangePolicy": policy, "runAsUser": 1234, "runAsGroup": 1234});
    spec
}

fn published(world: &World, pod: &Pod) -> PathBuf {
    let mounts = mounts_under(world.root.path());
    let ours = |path: &&PathBuf| path.to_string_lossy().contains(&pod.metadata.uid);
    let found = mounts
        .iter()
        .find(|path| path.ends_with("mount") && ours(path));
    found.expect("a published volume").clone()
}

fn traits(path: &Path) -> (u32, u32) {
    let found = std::fs::metadata(path).expect("it is there");
    (found.gid(), found.mode() & 0o7777)
}

pub(crate) async fn a_pods_group_owns_its_volume_and_a_restart_does_not_walk_again() {
    let mut world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    // Without the group, this user may write nothing there.
    let write = "echo mine > /data/f && sleep 600";
    world
        .pod("one", grouped(write, "data", 4711, "Always"))
        .await;
    let pod = world.pod_until("one", is_running).await;
    let mount = published(&world, &pod);
    assert_eq!(traits(&mount), (4711, 0o2775));
    while !mount.join("f").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(traits(&mount.join("f")).0, 4711, "handed on to new files");

    // A pod that runs has had its walk: what it did to its files since then is its own affair.
    chown(mount.join("f"), None, Some(99)).expect("given away");
    world.kill_node();
    world.start_node();
    let mut heard = world.registered.clone();
    heard.mark_unchanged();
    heard.changed().await.expect("registered again");
    world.pod("other", with_claim("sleep 600", "data")).await;
    world.pod_until("other", is_running).await;
    assert_eq!(traits(&mount.join("f")).0, 99);
    world.delete("other").await;
    world.delete("one").await;

    // The root is right, and the next pod asks for no more; the one after it does.
    for (name, policy, wanted) in [("two", "OnRootMismatch", 99), ("three", "Always", 4711)] {
        world
            .pod(name, grouped("sleep 600", "data", 4711, policy))
            .await;
        let pod = world.pod_until(name, is_running).await;
        let file = published(&world, &pod).join("f");
        assert_eq!(traits(&file).0, wanted, "{policy}");
        world.delete(name).await;
    }
    world.expect_clean().await;
}

pub(crate) async fn a_volume_that_hangs_is_left_alone_and_others_go_on() {
    let world = World::tuned(|config| config.patience = Duration::from_secs(1)).await;
    world.claim("stuck", "Filesystem").await;
    world.claim("fine", "Filesystem").await;
    world.pod("first", with_claim("sleep 600", "stuck")).await;
    let first = world.pod_until("first", is_running).await;
    let mount = File::open(published(&world, &first)).expect("the volume");
    // Nothing that is written to it returns before it is thawed.
    let frozen = Frozen::freeze(vec![mount], Duration::from_secs(120)).expect("frozen");
    let spec = |claim| grouped("echo mine > /data/f && sleep 600", claim, 4711, "Always");
    world.pod("hangs", spec("stuck")).await;
    event(&world, "FailedMount", "hangs, since 1 s without progress").await;
    let counted = world.metrics();
    assert!(
        counted.contains("orlop_node_hung_volumes{node=\"n1\"} 1"),
        "{counted}"
    );
    assert!(
        counted.contains("orlop_node_hung_operations_total{"),
        "{counted}"
    );
    world.pod("goes-on", spec("fine")).await;
    world.pod_until("goes-on", is_running).await;
    // Nobody else is sent there meanwhile.
    event(&world, "FailedMount", "still hangs there").await;
    let once = "orlop_node_hung_operations_total{node=\"n1\",operation=\"give its files to the pod's group\"} 1";
    let counted = world.metrics();
    assert!(counted.contains(once), "{counted}");
    frozen.thaw().expect("thawed");
    world.pod_until("hangs", is_running).await;
    assert!(
        world
            .metrics()
            .contains("orlop_node_hung_volumes{node=\"n1\"} 0")
    );
    for name in ["hangs", "goes-on", "first"] {
        world.delete(name).await;
    }
    world.expect_clean().await;
}

/// A file system whose server never answers.
struct Dead {
    server: Option<File>,
    at: PathBuf,
}

impl Dead {
    fn mount(at: PathBuf) -> Self {
        std::fs::create_dir_all(&at).expect("a folder");
        let mut open = File::options();
        let server = open.read(true).write(true).open("/dev/fuse");
        let server = server.expect("/dev/fuse");
        let option = |key: &str, value: &str| FsOption {
            key: key.into(),
            value: Some(value.into()),
        };
        let options = [
            option("fd", &server.as_raw_fd().to_string()),
            option("rootmode", "40000"),
            option("user_id", "0"),
            option("group_id", "0"),
        ];
        let new = NewMount {
            fs_type: "fuse",
            source: Path::new("dead"),
            options: &options,
            restrictions: Restrictions::default(),
        };
        let place = Place::at(&at).expect("a place");
        orlop_host::mount::mount(&new, place.open().expect("open")).expect("mounted");
        let server = Some(server);
        Self { server, at }
    }

    /// Whoever waits for it is told that it is gone.
    fn end(&mut self) {
        self.server = None;
        let mut unmount = std::process::Command::new("/usr/bin/umount");
        let _it_may_be_gone = unmount.arg("-l").arg(&self.at).output();
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) async fn what_hangs_on_the_host_holds_up_its_own_pods_alone() {
    let world = World::tuned(|config| config.patience = Duration::from_secs(1)).await;
    let mut dead = Dead::mount(world.root.path().join("dead"));
    let claim = json!({
        "metadata": {"name": "disk", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-disk", "storageClassName": "",
                 "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim: Claim = world.cluster.create_json(&claim).await.expect("a claim");
    let volume = json!({
        "metadata": {"name": "pv-disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                 "local": {"path": dead.at.join("disk")},
                 "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                     {"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}},
                 "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default",
                              "name": "disk", "uid": claim.metadata.uid}},
    });
    let made = world.cluster.create_json::<Volume>(&volume).await;
    made.expect("a volume");
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    let key = Key::namespaced("default", "disk");
    let bound = world.cluster.patch_status::<Claim>(&key, &bound).await;
    bound.expect("bound");
    let host_path = |path: &Path| {
        let mut spec = with_claim("sleep 600", "disk");
        spec["volumes"] =
            json!([{"name": "data", "hostPath": {"path": path, "type": "Directory"}}]);
        spec["terminationGracePeriodSeconds"] = json!(1);
        spec
    };
    world.pod("local", with_claim("sleep 600", "disk")).await;
    // More than there are threads for.
    for number in 0..8 {
        let name = format!("host-{number}");
        world.pod(&name, host_path(&dead.at.join("x"))).await;
    }
    event(
        &world,
        "FailedMount",
        "to look at a hostPath hangs, since 1 s",
    )
    .await;
    event(
        &world,
        "FailedMount",
        "to mount a local volume hangs, since 1 s",
    )
    .await;
    world.pod("fine", host_path(world.root.path())).await;
    world.pod_until("fine", is_running).await;
    let hung = world.metrics();
    assert!(
        hung.contains("orlop_node_hung_volumes{node=\"n1\"} 9"),
        "{hung}"
    );
    dead.end();
    let until = Instant::now() + Duration::from_secs(20);
    while !world
        .metrics()
        .contains("orlop_node_hung_volumes{node=\"n1\"} 0")
    {
        assert!(Instant::now() < until, "{}", world.metrics());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for number in 0..8 {
        world.delete(&format!("host-{number}")).await;
    }
    for name in ["local", "fine"] {
        world.delete(name).await;
    }
    world.expect_clean().await;
}
