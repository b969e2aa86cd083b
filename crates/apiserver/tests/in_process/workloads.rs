//! Kinds that make pods: what the server fills in, keeps fixed, and scales.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixtures::*;

fn workload(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "i" }] },
            },
        },
    })
}

#[tokio::test]
async fn a_workload_scales_by_its_subresource_and_counts_its_generations() {
    let cluster = cluster().await;
    let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client.clone());
    let mut asked = workload("web");
    asked["spec"]["serviceName"] = json!("web");
    let made = value(&create(&sets, &of(asked)).await);
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(made["spec"]["template"]["spec"]["restartPolicy"], "Always");
    let scale = sets.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(1));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=web"));

    let three = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    let scale = sets
        .patch_scale("web", &PatchParams::default(), &three)
        .await
        .unwrap();
    assert_eq!(scale.spec.as_ref().unwrap().replicas, Some(3));
    let set = value(&sets.get("web").await.unwrap());
    assert_eq!(set["spec"]["replicas"], 3);
    assert_eq!(set["metadata"]["generation"], 2);

    // A scale that was read before the last change is refused.
    let mut stale = scale.clone();
    stale.metadata.resource_version = made["metadata"]["resourceVersion"]
        .as_str()
        .map(str::to_owned);
    let refused = sets
        .replace_scale("web", &PostParams::default(), &stale)
        .await;
    assert_eq!(refusal(refused.unwrap_err()).1, "Conflict");
    let below = Patch::Merge(json!({ "spec": { "replicas": -1 } }));
    let refused = sets
        .patch_scale("web", &PatchParams::default(), &below)
        .await;
    assert_eq!(refusal(refused.unwrap_err()).0, 422);
}

#[tokio::test]
async fn a_selector_is_for_life_and_annotations_make_a_generation_of_a_deployment() {
    let cluster = cluster().await;
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client.clone());
    create(&deployments, &of(workload("web"))).await;
    let other = Patch::Merge(json!({ "spec": {
        "selector": { "matchLabels": { "tier": "front" } },
        "template": { "metadata": { "labels": { "tier": "front" } } },
    } }));
    let refused = deployments
        .patch("web", &PatchParams::default(), &other)
        .await;
    let (code, _, message) = refusal(refused.unwrap_err());
    assert_eq!(code, 422);
    assert!(
        message.ends_with("field is immutable") && message.contains("spec.selector"),
        "{message}"
    );
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "a": "b" } } }));
    let noted = deployments
        .patch("web", &PatchParams::default(), &note)
        .await
        .unwrap();
    assert_eq!(noted.metadata.generation, Some(2));
}
