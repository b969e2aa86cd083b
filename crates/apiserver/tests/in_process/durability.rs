//! What a restart and a seed bring back.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use orlop_apiserver::{ApiServer, Config, Storage};
use serde_json::{Value, json};

use crate::fixtures::*;

/// One run of a small cluster with seeded time and randomness; gives all that it stored.
async fn seeded_run(seed: u128) -> Vec<Value> {
    use std::sync::atomic::{AtomicU64, Ordering};

    let draws = AtomicU64::new(0);
    let mut config = Config::new(Storage::Memory);
    config.clock = orlop_apiserver::Clock::new(|| jiff::Timestamp::UNIX_EPOCH);
    config.entropy = orlop_apiserver::Entropy::new(move || {
        let draw = u128::from(draws.fetch_add(1, Ordering::Relaxed));
        (seed ^ draw).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    });
    let server = ApiServer::open(config).await.unwrap();
    let client = Client::new(server.service(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for _ in 0..5 {
        create(&maps, &of(json!({ "metadata": { "generateName": "m-" } }))).await;
    }
    let pods: Api<Pod> = Api::default_namespaced(client);
    create(&pods, &pod("p")).await;
    // Time passes, so that the collector does its part too.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let maps = maps.list(&ListParams::default()).await.unwrap();
    let pods = pods.list(&ListParams::default()).await.unwrap();
    maps.items
        .iter()
        .map(value)
        .chain(pods.items.iter().map(value))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_objects() {
    let first = seeded_run(7).await;
    assert_eq!(first.len(), 6);
    assert_eq!(first, seeded_run(7).await);
    assert_ne!(first, seeded_run(8).await);
}

#[tokio::test]
async fn the_store_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::Disk(directory.path().join("store"));
    let server = ApiServer::open(Config::new(storage.clone())).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.service(), "default"));
    let made = create(&maps, &config_map("m")).await;
    server.shutdown().await;
    let server = ApiServer::open(Config::new(storage)).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.service(), "default"));
    assert_eq!(maps.get("m").await.unwrap(), made);
    server.shutdown().await;
}
