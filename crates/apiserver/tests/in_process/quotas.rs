//! Quotas under load, and what they tell of themselves.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{LimitRange, PersistentVolumeClaim, ResourceQuota};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchParams};
use orlop_apiserver::{ApiServer, Config, Storage};
use serde_json::{Value, json};

use crate::fixtures::*;

fn quota(hard: &Value) -> ResourceQuota {
    of(json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } }))
}

/// Waits until the quota tells this of itself.
async fn tells(quotas: &Api<ResourceQuota>, wanted: &[(&str, &str)]) {
    let wanted: BTreeMap<String, String> = wanted
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
        .collect();
    let events = quotas.watch(&WatchParams::default(), "0").await.unwrap();
    until(events, |event| match event {
        kube::api::WatchEvent::Added(quota) | kube::api::WatchEvent::Modified(quota) => {
            value(quota)["status"]["used"] == json!(wanted)
        }
        _ => false,
    })
    .await;
}

async fn crowd(claims: &Api<PersistentVolumeClaim>, names: std::ops::Range<usize>) -> usize {
    let tries = names.map(|number| {
        let claims = claims.clone();
        async move {
            let made = claims
                .create(&PostParams::default(), &claim(&format!("c{number}")))
                .await;
            match made {
                Ok(_) => true,
                Err(error) => {
                    let (code, _, message) = refusal(error);
                    assert_eq!(code, 403, "{message}");
                    assert!(
                        message.contains("exceeded quota: q, requested: "),
                        "{message}"
                    );
                    false
                }
            }
        }
    });
    let made = join_all(tries).await;
    made.into_iter().filter(|made| *made).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_exactly_as_many_are_let_through_as_fit() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::Disk(directory.path().to_owned());
    let server = ApiServer::open(Config::new(storage.clone())).await.unwrap();
    let client = kube::Client::new(server.service(), "default");
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    create(&quotas, &quota(&json!({ "requests.storage": "20Gi" }))).await;
    assert_eq!(crowd(&claims, 0..64).await, 20);
    tells(&quotas, &[("requests.storage", "20Gi")]).await;

    // What is gone makes room again, for as many as went.
    let made = claims.list(&Default::default()).await.unwrap();
    let unprotected = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    for claim in made.items.iter().take(5) {
        let name = claim.metadata.name.as_deref().unwrap();
        claims.delete(name, &DeleteParams::default()).await.unwrap();
        let params = PatchParams::default();
        claims.patch(name, &params, &unprotected).await.unwrap();
    }
    tells(&quotas, &[("requests.storage", "15Gi")]).await;
    assert_eq!(crowd(&claims, 100..132).await, 5);

    // A restart knows as much: nothing but the objects is counted.
    drop((client, quotas, claims));
    server.shutdown().await;
    let server = ApiServer::open(Config::new(storage)).await.unwrap();
    let client = kube::Client::new(server.service(), "default");
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    assert_eq!(crowd(&claims, 200..210).await, 0);
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client);
    tells(&quotas, &[("requests.storage", "20Gi")]).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_quota_that_changes_counts_anew() {
    let cluster = cluster().await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    create(&claims, &claim("before")).await;
    create(&quotas, &quota(&json!({ "persistentvolumeclaims": "2" }))).await;
    tells(&quotas, &[("persistentvolumeclaims", "1")]).await;
    assert_eq!(crowd(&claims, 0..2).await, 1);
    let more = Patch::Merge(json!({ "spec": { "hard": {
        "persistentvolumeclaims": "3", "requests.storage": "2500Mi", "pods": "1",
    } } }));
    quotas
        .patch("q", &PatchParams::default(), &more)
        .await
        .unwrap();
    let used = [
        ("persistentvolumeclaims", "2"),
        ("pods", "0"),
        ("requests.storage", "2Gi"),
    ];
    tells(&quotas, &used).await;
    let refused = claims
        .create(&PostParams::default(), &claim("one-more"))
        .await;
    let (_, _, message) = refusal(refused.unwrap_err());
    assert_eq!(
        message,
        "persistentvolumeclaims \"one-more\" is forbidden: exceeded quota: q, requested: \
         requests.storage=1Gi, used: requests.storage=2Gi, limited: requests.storage=2500Mi"
    );
    // What is counted may shrink while there is too much of it.
    let less = Patch::Merge(json!({ "spec": { "hard": { "persistentvolumeclaims": "1" } } }));
    quotas
        .patch("q", &PatchParams::default(), &less)
        .await
        .unwrap();
    let labelled = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    claims
        .patch("before", &PatchParams::default(), &labelled)
        .await
        .unwrap();
}

#[tokio::test]
async fn pods_that_have_ended_make_room() {
    let cluster = cluster().await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client.clone());
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::default_namespaced(cluster.client.clone());
    create(&quotas, &quota(&json!({ "pods": "1", "count/pods": "2" }))).await;
    create(&pods, &pod("a")).await;
    let second = pods.create(&PostParams::default(), &pod("b")).await;
    let (code, _, message) = refusal(second.unwrap_err());
    assert!(
        code == 403 && message.contains("requested: pods=1, used: pods=1"),
        "{message}"
    );
    let ended = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    pods.patch_status("a", &PatchParams::default(), &ended)
        .await
        .unwrap();
    create(&pods, &pod("b")).await;
    tells(&quotas, &[("count/pods", "2"), ("pods", "1")]).await;
}

#[tokio::test]
async fn a_range_that_came_later_keeps_nobody_from_going() {
    let cluster = cluster().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let ranges: Api<LimitRange> = Api::default_namespaced(cluster.client.clone());
    create(&claims, &claim("c")).await;
    let limit = json!({ "type": "PersistentVolumeClaim", "max": { "storage": "1Mi" } });
    let range = json!({ "metadata": { "name": "r" }, "spec": { "limits": [limit] } });
    create(&ranges, &of(range)).await;
    let params = PatchParams::default();
    let labelled = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    let (_, _, message) = refusal(claims.patch("c", &params, &labelled).await.unwrap_err());
    assert_eq!(
        message,
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per \
         PersistentVolumeClaim is 1Mi, but request is 1Gi"
    );
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
    claims.patch_status("c", &params, &bound).await.unwrap();
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    let unprotected = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    claims.patch("c", &params, &unprotected).await.unwrap();
    assert!(claims.get_opt("c").await.unwrap().is_none());
}
