//! Volumes of files: what they show follows what they come from.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_model::{ConfigMap, Key, Pod, Secret};
use orlop_runtime::Patch;
use serde_json::{Value, json};

use super::cases::{event, is_running};
use super::world::World;

/// A pod that shows volumes at `/v/<name>` and sleeps.
fn with_volumes(volumes: &Value) -> Value {
    let names = volumes.as_array().expect("a list").iter();
    let mounts: Vec<Value> = names
        .map(|volume| {
            let name = volume["name"].as_str().expect("a name");
            json!({"name": name, "mountPath": format!("/v/{name}")})
        })
        .collect();
    json!({
        "containers": [{"name": "main", "command": ["sleep", "600"], "volumeMounts": mounts,
                        "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}}}],
        "volumes": volumes,
        "terminationGracePeriodSeconds": 0,
    })
}

fn folder(world: &World, pod: &Pod, plugin: &str, volume: &str) -> PathBuf {
    world.node_root().join(format!(
        "pods/{}/volumes/kubernetes.io~{plugin}/{volume}",
        pod.metadata.uid
    ))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

async fn config_map(world: &World, name: &str, value: &str) {
    let map = json!({"metadata": {"name": name, "namespace": "default"}, "data": {"key": value}});
    let created = world.cluster.create_json::<ConfigMap>(&map).await;
    created.expect("a config map");
}

async fn change(world: &World, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {"key": value}}));
    let key = Key::namespaced("default", name);
    let patched = world.cluster.patch::<ConfigMap>(&key, &patch).await;
    patched.expect("changed");
}

async fn remove(world: &World, key: &Key) {
    let at_once = Default::default();
    let deleted = world.cluster.delete::<ConfigMap>(key, &at_once).await;
    deleted.expect("deleted");
}

async fn until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    began.elapsed()
}

pub(crate) async fn files_follow_what_they_come_from() {
    let world = World::tuned(|config| config.secrets_again = Duration::from_secs(1)).await;
    config_map(&world, "conf", "one").await;
    let secret =
        json!({"metadata": {"name": "key", "namespace": "default"}, "stringData": {"a": "x"}});
    let created = world.cluster.create_json::<Secret>(&secret).await;
    created.expect("a secret");
    let spec = with_volumes(&json!([
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "key", "secret": {"secretName": "key"}},
        {"name": "maybe", "configMap": {"name": "later", "optional": true}},
        {"name": "own", "downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
            {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}},
        ]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "conf", "items": [{"key": "key", "path": "deep/down"}]}},
            {"serviceAccountToken": {"path": "token"}},
        ]}},
    ]));
    world.pod("web", spec).await;
    let pod = world.pod_until("web", is_running).await;
    let at = |plugin: &str, path: &str| folder(&world, &pod, plugin, path);
    assert_eq!(read(&at("configmap", "conf/key")), "one");
    assert_eq!(read(&at("secret", "key/a")), "x");
    assert_eq!(read(&at("downward-api", "own/cpu")), "250");
    assert_eq!(read(&at("downward-api", "own/memory")), "64");
    let token = read(&at("projected", "all/token"));
    assert!(!token.is_empty());
    let data = std::fs::read_link(at("configmap", "conf/..data")).expect("a link");

    change(&world, "conf", "two").await;
    until("the map's change", || {
        read(&at("configmap", "conf/key")) == "two"
            && read(&at("projected", "all/deep/down")) == "two"
    })
    .await;
    assert_ne!(
        std::fs::read_link(at("configmap", "conf/..data")).expect("a link"),
        data,
        "all at once, by another generation"
    );
    assert_eq!(
        read(&at("projected", "all/token")),
        token,
        "it is still good"
    );

    let key = Key::namespaced("default", "key");
    let patch = Patch::Merge(json!({"stringData": {"a": "y", "b": "z"}}));
    world
        .cluster
        .patch::<Secret>(&key, &patch)
        .await
        .expect("changed");
    until("the secret's change", || {
        read(&at("secret", "key/a")) == "y" && read(&at("secret", "key/b")) == "z"
    })
    .await;

    config_map(&world, "later", "came").await;
    until("the map that came", || {
        read(&at("configmap", "maybe/key")) == "came"
    })
    .await;
    let later = Key::namespaced("default", "later");
    remove(&world, &later).await;
    until("the map that went", || {
        !at("configmap", "maybe/key").exists()
    })
    .await;

    let pod_key = Key::namespaced("default", "web");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"mood": "good"}}}));
    world
        .cluster
        .patch::<Pod>(&pod_key, &patch)
        .await
        .expect("labelled");
    until("the label", || {
        read(&at("downward-api", "own/labels")) == "mood=\"good\""
    })
    .await;

    // A map that must be there and goes leaves what it said.
    let conf = Key::namespaced("default", "conf");
    remove(&world, &conf).await;
    event(&world, "FailedMount", "ConfigMap default/conf not found").await;
    assert_eq!(read(&at("configmap", "conf/key")), "two");
    config_map(&world, "conf", "three").await;
    until("the map that came back", || {
        read(&at("configmap", "conf/key")) == "three"
    })
    .await;

    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_pod_starts_as_soon_as_its_config_map_comes() {
    let world = World::new(false).await;
    let volumes = json!([{"name": "conf", "configMap": {"name": "late"}}]);
    world.pod("web", with_volumes(&volumes)).await;
    event(&world, "FailedMount", "ConfigMap default/late not found").await;
    // By now the waits between tries are longer than this takes.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    config_map(&world, "late", "x").await;
    let began = Instant::now();
    world.pod_until("web", is_running).await;
    println!("  config map to running: {:?}", began.elapsed());
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_pod_whose_empty_dir_grows_too_large_is_evicted() {
    let world = World::new(false).await;
    let volumes = json!([
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]);
    let mut spec = with_volumes(&volumes);
    let script = "dd if=/dev/zero of=/v/memory/f bs=64k count=64 2>/dev/null || echo full; \
                  dd if=/dev/zero of=/v/scratch/f bs=64k count=64 2>/dev/null && echo written; \
                  sleep 600";
    spec["containers"][0]["command"] = json!(["sh", "-c", script]);
    world.pod("web", spec).await;
    let failed = |pod: &Pod| pod.phase() == orlop_model::PodPhase::Failed;
    let pod = world.pod_until("web", failed).await;
    assert_eq!(pod.status.reason, "Evicted");
    let words = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". ";
    assert_eq!(pod.status.message, words);
    assert_eq!(
        world.log(&pod, "main"),
        "full\nwritten\n",
        "one is held to it by the kernel"
    );
    event(&world, "Evicted", words).await;
    let scratch = folder(&world, &pod, "empty-dir", "scratch");
    until("its room is given back", || !scratch.exists()).await;
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn what_never_changes_is_not_watched() {
    let world = World::new(false).await;
    let map = json!({"metadata": {"name": "fixed", "namespace": "default"},
                     "data": {"key": "one"}, "immutable": true});
    let created = world.cluster.create_json::<ConfigMap>(&map).await;
    created.expect("a config map");
    let volumes = json!([{"name": "conf", "configMap": {"name": "fixed"}}]);
    world.pod("web", with_volumes(&volumes)).await;
    let pod = world.pod_until("web", is_running).await;
    // The only way to change it is to make another one, which running pods don't see.
    let key = Key::namespaced("default", "fixed");
    remove(&world, &key).await;
    config_map(&world, "fixed", "two").await;
    // A change of one that is watched is there in a hundredth of this.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let shown = read(&folder(&world, &pod, "configmap", "conf/key"));
    assert_eq!(shown, "one");
    world.delete("web").await;
    world.expect_clean().await;
}
