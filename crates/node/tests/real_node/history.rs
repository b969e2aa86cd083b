//! What went wrong with the original, as cases.

use std::path::PathBuf;
use std::time::Duration;

use orlop_csi::proto::node_service_capability::rpc::Type as Can;
use orlop_model::{Key, Node, Pod};
use orlop_runtime::Preconditions;
use serde_json::{Value, json};
use tonic::Code;

use super::cases::{first, is_running, with_claim};
use super::mock::{Mock, NAME};
use super::world::{World, mounts_under};

async fn staging(world: &World) -> Mock {
    let traits = json!({"attachRequired": false});
    Mock::start(world, traits, &[Can::StageUnstageVolume]).await
}

fn pod(claim: &str, mode: &str) -> Value {
    let mut spec = with_claim("sleep 600", claim);
    if mode == "Block" {
        let container = &mut spec["containers"][0];
        container["volumeMounts"] = json!([]);
        container["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/data"}]);
    }
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec
}

/// Where the mock driver's only volume is staged.
fn staged_at(world: &World, mode: &str) -> PathBuf {
    let csi = world.node_root().join("plugins/kubernetes.io/csi");
    if mode == "Block" {
        return csi.join("volumeDevices/staging/pv-data");
    }
    let mut volumes = std::fs::read_dir(csi.join(NAME)).expect("a folder");
    let volume = volumes.next().expect("a volume").expect("a volume");
    volume.path().join("globalmount")
}

/// kubernetes#82190, #89112, PR 82492, PR 88660; and #82426.
pub(crate) async fn a_staging_that_nobody_knows_the_end_of_is_undone_with_its_pod() {
    for (mode, absent) in [("Filesystem", false), ("Block", false), ("Block", true)] {
        let world = World::new(false).await;
        let mock = staging(&world).await;
        mock.memory().stage_ends = Some(Code::DeadlineExceeded);
        let more = json!({"volumeMode": mode});
        mock.claim_with(&world, "data", more).await;
        world.pod("web", pod("data", mode)).await;
        mock.until(|memory| memory.calls.contains(&"stage")).await;
        let folder = staged_at(&world, mode);
        assert!(folder.is_dir(), "the driver may still mount there");
        if absent {
            std::fs::remove_dir(&folder).expect("an empty folder");
        }
        world.delete("web").await;
        mock.until(|memory| memory.calls.contains(&"unstage")).await;
        let calls = mock.memory().calls.clone();
        assert!(!calls.contains(&"publish"), "{mode}: {calls:?}");
        world.expect_clean().await;
    }
}

/// The other side of #82426: what certainly failed leaves nothing.
pub(crate) async fn a_staging_that_was_refused_leaves_no_folder() {
    let world = World::new(false).await;
    let mock = staging(&world).await;
    mock.memory().stage_ends = Some(Code::InvalidArgument);
    let more = json!({"volumeMode": "Block"});
    mock.claim_with(&world, "data", more).await;
    world.pod("web", pod("data", "Block")).await;
    mock.until(|memory| memory.calls.contains(&"stage")).await;
    world.delete("web").await;
    world.expect_clean().await;
    assert!(!mock.memory().calls.contains(&"unstage"));
}

/// kubernetes#86360, #100182.
pub(crate) async fn a_volume_that_may_be_unstaged_is_staged_before_it_is_published_again() {
    let world = World::new(false).await;
    let mock = staging(&world).await;
    mock.claim(&world, "data").await;
    world.pod("one", pod("data", "Filesystem")).await;
    world.pod_until("one", is_running).await;
    mock.memory().unstage_ends = Some(Code::DeadlineExceeded);
    let key = Key::namespaced("default", "one");
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
    mock.until(|memory| memory.calls.contains(&"unstage")).await;
    world.pod("two", pod("data", "Filesystem")).await;
    world.pod_until("two", is_running).await;
    let calls = mock.memory().calls.clone();
    let unstaged = calls.iter().rposition(|call| *call == "unstage");
    let after = &calls[unstaged.expect("it was") + 1..];
    assert_eq!(after, ["stage", "publish"], "{calls:?}");
    mock.memory().unstage_ends = None;
    world.delete("two").await;
    world.expect_clean().await;
}

/// kubernetes#79980, #72500.
pub(crate) async fn what_was_left_is_cleared_when_its_driver_registers_late() {
    let mut world = World::new(false).await;
    let mock = staging(&world).await;
    mock.claim(&world, "data").await;
    world.pod("web", pod("data", "Filesystem")).await;
    world.pod_until("web", is_running).await;
    let mounts = mounts_under(world.root.path());
    assert_eq!(mounts.len(), 2, "staged and published: {mounts:?}");
    world.kill_node();
    let registry = world.node_root().join("plugins_registry");
    let (socket, away) = (
        registry.join("mock-reg.sock"),
        world.root.path().join("away"),
    );
    std::fs::rename(&socket, &away).expect("the driver is down");
    let force = Preconditions {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    let key = Key::namespaced("default", "web");
    let deleted = world.cluster.delete::<Pod>(&key, &force).await;
    deleted.expect("deleted");
    world.start_node();
    // Long enough for the pod's processes to be ended; its volume is nobody's but the driver's.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(mounts_under(world.root.path()), mounts);
    let node = Key::cluster(super::world::NODE);
    world.until::<Node>(&node, |node| node.is_some()).await;
    std::fs::rename(&away, &socket).expect("the driver is back");
    mock.until(|memory| memory.calls.ends_with(&["unpublish", "unstage"]))
        .await;
    world.expect_clean().await;
}

/// kubernetes#124057.
pub(crate) async fn after_a_reboot_pods_start_again_with_all_their_volumes() {
    let mut world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    world.claim("raw", "Block").await;
    for (kind, name) in [("ConfigMap", "config"), ("Secret", "secret")] {
        let body = json!({"metadata": {"name": name, "namespace": "default"}});
        let mut body = body;
        match kind {
            "ConfigMap" => body["data"] = json!({"key": "value"}),
            _ => body["stringData"] = json!({"key": "value"}),
        }
        if kind == "ConfigMap" {
            let made = world
                .cluster
                .create_json::<orlop_model::ConfigMap>(&body)
                .await;
            made.expect("a config map");
        } else {
            let made = world
                .cluster
                .create_json::<orlop_model::Secret>(&body)
                .await;
            made.expect("a secret");
        }
    }
    let script = "set -e; date >> /data/boots; date >> /scratch/boots; \
        head -c 512 /dev/raw > /dev/null; \
        echo $(cat /config/key) $(cat /secret/key) $(cat /data/boots | wc -l) \
             $(cat /scratch/boots | wc -l) $(stat -c %g /memory) > /memory/said; \
        cat /memory/said; exec sleep 600";
    let mut spec = with_claim(script, "data");
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let mounts: Vec<Value> = ["data", "scratch", "memory", "config", "secret"]
        .map(mount)
        .into();
    spec["containers"][0]["volumeMounts"] = json!(mounts);
    let device = json!([{"name": "raw", "devicePath": "/dev/raw"}]);
    spec["containers"][0]["volumeDevices"] = device;
    spec["securityContext"] = json!({"fsGroup": 4321});
    let volumes = spec["volumes"].as_array_mut().expect("volumes");
    volumes.extend([
        json!({"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}}),
        json!({"name": "scratch", "emptyDir": {}}),
        json!({"name": "memory", "emptyDir": {"medium": "Memory"}}),
        json!({"name": "config", "configMap": {"name": "config"}}),
        json!({"name": "secret", "secret": {"secretName": "secret"}}),
    ]);
    world.pod("web", spec).await;
    let before = world.pod_until("web", is_running).await;
    let says = async |world: &World, pod: &Pod, words: &str| {
        let until = tokio::time::Instant::now() + Duration::from_secs(10);
        while world.log(pod, "main") != words {
            let said = world.log(pod, "main");
            assert!(tokio::time::Instant::now() < until, "{said:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    says(&world, &before, "value value 1 1 4321\n").await;
    let mounts = mounts_under(world.root.path());
    world.kill_node();
    world.lose_power();
    assert_eq!(mounts_under(world.root.path()), Vec::<PathBuf>::new());
    world.start_node();
    let again = |pod: &Pod| is_running(pod) && first(pod).restart_count == 1;
    let after = world.pod_until("web", again).await;
    assert_eq!(after.metadata.uid, before.metadata.uid);
    says(&world, &after, "value value 2 2 4321\n").await;
    let (mut now, mut then) = (mounts_under(world.root.path()), mounts);
    now.sort();
    then.sort();
    assert_eq!(now, then);
    world.delete("web").await;
    world.expect_clean().await;
}
