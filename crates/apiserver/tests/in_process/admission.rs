//! What the server adds to a claim, and which growth it lets through.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::fixtures::*;

#[tokio::test]
async fn a_claim_gets_the_newest_default_class_and_its_protection() {
    let cluster = cluster().await;
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let none = value(&create(&claims, &claim("none")).await);
    assert!(none["spec"].get("storageClassName").is_none());
    create(&classes, &class("fast", true)).await;
    create(&classes, &class("slow", false)).await;
    let made = value(&create(&claims, &claim("c")).await);
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["spec"]["volumeMode"], "Filesystem");
    assert_eq!(
        made["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    let fast = value(&classes.get("fast").await.unwrap());
    assert_eq!(fast["reclaimPolicy"], "Delete");
    assert_eq!(fast["volumeBindingMode"], "Immediate");
}

#[tokio::test]
async fn only_a_bound_claim_of_a_willing_class_grows() {
    let cluster = cluster().await;
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    create(&classes, &class("fast", true)).await;
    create(&claims, &claim("c")).await;
    let grow =
        Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
    let params = PatchParams::default();
    assert_eq!(
        refusal(claims.patch("c", &params, &grow).await.unwrap_err()).0,
        422
    );
    let bound =
        Patch::Merge(json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }));
    claims.patch_status("c", &params, &bound).await.unwrap();
    claims.patch("c", &params, &grow).await.unwrap();
}
