//! Volumes that are written in a pod's own specification.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_drivers::local::DRIVER_NAME;
use orlop_model::Secret;
use serde_json::json;

use super::cases::{event, first, is_running, with_claim};
use super::world::{World, describe, mounts_under};

fn with_inline(script: &str) -> serde_json::Value {
    let mut spec = with_claim(script, "");
    spec["volumes"] = json!([{"name": "data", "csi": {
        "driver": DRIVER_NAME, "volumeAttributes": {"size": "32Mi"}}}]);
    spec
}

pub(crate) async fn an_inline_volume_lives_and_dies_with_its_pod() {
    // What the driver wants of others is nothing to such a volume: it is not attached.
    let mut world = World::new(true).await;
    let script = "echo kept > /data/f; while :; do date +%N >> /data/ticks; sleep 0.02; done";
    world.pod("web", with_inline(script)).await;
    let pod = world.pod_until("web", is_running).await;
    let folder = format!("pods/{}/volumes/kubernetes.io~csi/data", pod.metadata.uid);
    let folder = world.node_root().join(folder);
    let mount = folder.join("mount");
    assert_eq!(mounts_under(world.root.path()), [&*mount]);
    let json = std::fs::read(folder.join("vol_data.json")).expect("a checkpoint");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("json");
    assert_eq!(json["volumeLifecycleMode"], "Ephemeral");
    assert_eq!(json["specVolID"], "data");
    assert_eq!(volumes(&world), 1);

    world.kill_node();
    world.start_node();
    let ticks = || std::fs::read(mount.join("ticks")).map_or(0, |ticks| ticks.len());
    let before = ticks();
    let until = Instant::now() + Duration::from_secs(20);
    while ticks() == before {
        assert!(Instant::now() < until, "the pod's process has stopped");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let kept = std::fs::read_to_string(mount.join("f")).expect("the file");
    assert_eq!(kept, "kept\n");
    let now = world.pod_until("web", is_running).await;
    assert_eq!(first(&now).restart_count, 0);

    world.delete("web").await;
    world.expect_clean().await;
    assert_eq!(volumes(&world), 0, "the driver has removed it");
}

pub(crate) async fn an_inline_volume_waits_for_a_driver_that_has_such() {
    let world = World::new(false).await;
    describe(&world.cluster, false, &["Persistent"]).await;
    world.pod("web", with_inline("sleep 600")).await;
    let words = "volume mode \"Ephemeral\" not supported by driver";
    event(&world, "FailedMount", words).await;
    assert_eq!(mounts_under(world.root.path()), Vec::<PathBuf>::new());
    describe(&world.cluster, false, &["Persistent", "Ephemeral"]).await;
    world.pod_until("web", is_running).await;
    world.delete("web").await;
    world.expect_clean().await;
    assert_eq!(volumes(&world), 0, "the driver has removed it");
}

pub(crate) async fn an_inline_volume_is_mounted_as_soon_as_its_secret_comes() {
    let world = World::new(false).await;
    let mut spec = with_inline("sleep 600");
    spec["volumes"][0]["csi"]["nodePublishSecretRef"] = json!({"name": "key"});
    world.pod("web", spec).await;
    event(&world, "FailedMount", "secret default/key does not exist").await;
    // By then the next try is seconds away.
    tokio::time::sleep(Duration::from_millis(4500)).await;
    let secret =
        json!({"metadata": {"name": "key", "namespace": "default"}, "stringData": {"a": "b"}});
    let made = world.cluster.create_json::<Secret>(&secret).await;
    made.expect("a secret");
    let came = Instant::now();
    world.pod_until("web", is_running).await;
    let took = came.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    world.delete("web").await;
    world.expect_clean().await;
}

/// How many volumes the driver has.
fn volumes(world: &World) -> usize {
    let folder = world.root.path().join("pool/volumes");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}
