//! Events: one object in two groups, kept for an hour.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use orlop_apiserver::{ApiServer, Config, Storage};
use serde_json::json;

use crate::fixtures::*;

#[tokio::test]
async fn an_event_is_one_object_under_both_groups() {
    let cluster = cluster().await;
    let old: Api<Event> = Api::default_namespaced(cluster.client.clone());
    let new: Api<k8s_openapi::api::events::v1::Event> =
        Api::default_namespaced(cluster.client.clone());
    let event: Event = of(json!({
        "metadata": { "name": "e" },
        "involvedObject": { "kind": "Pod", "name": "p", "namespace": "default" },
        "message": "hello", "reason": "Greeting", "type": "Normal",
    }));
    create(&old, &event).await;
    let seen = new.get("e").await.unwrap();
    assert_eq!(seen.note.as_deref(), Some("hello"));
    assert_eq!(seen.regarding.unwrap().name.as_deref(), Some("p"));
    let change = |patch| {
        let new = new.clone();
        async move {
            let options = PatchParams::default();
            new.patch("e", &options, &Patch::Merge(patch)).await
        }
    };
    let labels = json!({ "metadata": { "labels": { "seen": "yes" } } });
    change(labels).await.unwrap();
    assert_eq!(old.get("e").await.unwrap().labels()["seen"], "yes");
    let refused = change(json!({ "note": "bye" })).await;
    let refused = refused.expect_err("what an event tells stays").to_string();
    assert!(refused.contains("message: Invalid value"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_forgotten_an_hour_after_it_was_last_seen() {
    let start = tokio::time::Instant::now();
    let mut config = Config::new(Storage::Memory);
    config.clock = orlop_apiserver::Clock::new(move || {
        let passed = jiff::SignedDuration::try_from(start.elapsed()).unwrap();
        jiff::Timestamp::UNIX_EPOCH + passed
    });
    let server = ApiServer::open(config).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(Client::new(server.service(), "default"));
    create(
        &events,
        &of(json!({ "metadata": { "name": "e" }, "involvedObject": {} })),
    )
    .await;
    tokio::time::sleep(Duration::from_mins(59)).await;
    assert!(events.get_opt("e").await.unwrap().is_some());
    tokio::time::sleep(Duration::from_mins(12)).await;
    assert!(events.get_opt("e").await.unwrap().is_none());
}
