//! What a create and an update do, and what they refuse.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use orlop_apiserver::{ApiServer, Config, Storage};
use serde_json::json;

use crate::fixtures::*;

#[tokio::test]
async fn an_object_gets_its_identity_from_the_server() {
    let cluster = cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let mut asked = pod("web");
    asked.metadata.uid = Some("mine".to_owned());
    let made = create(&pods, &asked).await;
    assert_ne!(made.uid().as_deref(), Some("mine"));
    assert!(made.creation_timestamp().is_some());
    let got = pods.get("web").await.unwrap();
    assert_eq!(got, made);
    let made = value(&made);
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["status"]["qosClass"], "BestEffort");
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert_eq!(made["metadata"]["generation"], 1);
}

#[tokio::test]
async fn refusals_read_as_the_originals() {
    let cluster = cluster().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    assert_eq!(
        refusal(claims.get("x").await.unwrap_err()),
        (
            404,
            "NotFound".into(),
            "persistentvolumeclaims \"x\" not found".into()
        )
    );
    assert_eq!(
        refusal(classes.get("x").await.unwrap_err()).2,
        "storageclasses.storage.k8s.io \"x\" not found"
    );
    create(&claims, &claim("x")).await;
    assert_eq!(
        refusal(
            claims
                .create(&PostParams::default(), &claim("x"))
                .await
                .unwrap_err()
        ),
        (
            409,
            "AlreadyExists".into(),
            "persistentvolumeclaims \"x\" already exists".into()
        )
    );
    let mut wrong = claim("y");
    wrong.spec.as_mut().unwrap().access_modes = None;
    assert_eq!(
        refusal(
            claims
                .create(&PostParams::default(), &wrong)
                .await
                .unwrap_err()
        ),
        (
            422,
            "Invalid".into(),
            "PersistentVolumeClaim \"y\" is invalid: spec.accessModes: Required value: at least \
             1 access mode is required"
                .into()
        )
    );
    let elsewhere: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), "nowhere");
    assert_eq!(
        refusal(
            elsewhere
                .create(&PostParams::default(), &claim("y"))
                .await
                .unwrap_err()
        )
        .2,
        "namespaces \"nowhere\" not found"
    );
}

#[tokio::test]
async fn of_two_updates_from_the_same_version_one_is_refused() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let made = create(&maps, &config_map("m")).await;
    let mut first = made.clone();
    first.data = Some(BTreeMap::from([("k".to_owned(), "1".to_owned())]));
    maps.replace("m", &PostParams::default(), &first)
        .await
        .unwrap();
    assert_eq!(
        refusal(
            maps.replace("m", &PostParams::default(), &made)
                .await
                .unwrap_err()
        ),
        (
            409,
            "Conflict".into(),
            "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; \
             please apply your changes to the latest version and try again"
                .into()
        )
    );
    // Without a version, the last one wins.
    let mut any = made;
    any.metadata.resource_version = None;
    maps.replace("m", &PostParams::default(), &any)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_no_write() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let made = create(&maps, &config_map("m")).await;
    let again = maps
        .replace("m", &PostParams::default(), &made)
        .await
        .unwrap();
    assert_eq!(again.resource_version(), made.resource_version());
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let cluster = cluster().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    create(&claims, &claim("c")).await;
    let both = Patch::Merge(json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": { "volumeName": "pv" },
        "status": { "phase": "Bound" },
    }));
    let params = PatchParams::default();
    let patched = value(&claims.patch("c", &params, &both).await.unwrap());
    assert_eq!(
        (&patched["spec"]["volumeName"], &patched["status"]["phase"]),
        (&json!("pv"), &json!("Pending"))
    );
    let other = Patch::Merge(json!({
        "spec": { "volumeName": "other" },
        "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
    }));
    let patched = value(&claims.patch_status("c", &params, &other).await.unwrap());
    assert_eq!(
        (&patched["spec"]["volumeName"], &patched["status"]["phase"]),
        (&json!("pv"), &json!("Bound"))
    );
    assert_eq!(patched["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn generated_names_are_unique_and_dry_runs_leave_nothing() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let generated: ConfigMap = of(json!({ "metadata": { "generateName": "m-" } }));
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..100 {
        names.insert(create(&maps, &generated).await.name_any());
    }
    assert_eq!(names.len(), 100);
    let dry = PostParams {
        dry_run: true,
        ..Default::default()
    };
    maps.create(&dry, &config_map("dry")).await.unwrap();
    assert!(maps.get_opt("dry").await.unwrap().is_none());
}

#[tokio::test]
async fn server_side_apply_creates_and_changes() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let apply = |value: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "m" }, "data": { "k": value },
        }))
    };
    let params = PatchParams::apply("one");
    let made = maps.patch("m", &params, &apply("1")).await.unwrap();
    assert!(made.uid().is_some());
    let again = maps.patch("m", &params, &apply("1")).await.unwrap();
    assert_eq!(again.resource_version(), made.resource_version());
    let changed = maps.patch("m", &params, &apply("2")).await.unwrap();
    assert_eq!(changed.data.unwrap()["k"], "2");
}

#[tokio::test]
async fn an_apply_that_changes_nothing_leaves_the_generation() {
    let cluster = cluster().await;
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client.clone());
    let written = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "app": "d" } },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": { "containers": [{ "name": "main", "image": "i" }] },
            },
        },
    });
    let made = create(&deployments, &of(written.clone())).await;
    assert_eq!(made.metadata.generation, Some(1));
    let params = PatchParams::apply("one").force();
    let applied = Patch::Apply(written.clone());
    let again = deployments.patch("d", &params, &applied).await.unwrap();
    assert_eq!(again.metadata.generation, Some(1));
    let mut more = written;
    more["spec"]["replicas"] = json!(3);
    let changed = deployments.patch("d", &params, &Patch::Apply(&more)).await;
    assert_eq!(changed.unwrap().metadata.generation, Some(2));
}

#[tokio::test]
async fn volumes_and_attachments_keep_what_is_fixed() {
    let cluster = cluster().await;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let volume: PersistentVolume = of(json!({
        "metadata": { "name": "pv" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "csi": { "driver": "d", "volumeHandle": "h" },
        },
    }));
    let made = value(&create(&volumes, &volume).await);
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(
        made["metadata"]["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
    let moved = Patch::Merge(json!({ "spec": { "csi": { "volumeHandle": "other" } } }));
    assert_eq!(
        refusal(
            volumes
                .patch("pv", &PatchParams::default(), &moved)
                .await
                .unwrap_err()
        )
        .0,
        422
    );
    let attachments: Api<VolumeAttachment> = Api::all(cluster.client.clone());
    let attachment: VolumeAttachment = of(json!({
        "metadata": { "name": "va" },
        "spec": { "attacher": "d", "nodeName": "n", "source": { "persistentVolumeName": "pv" } },
    }));
    create(&attachments, &attachment).await;
    let other = Patch::Merge(json!({ "spec": { "nodeName": "m" } }));
    assert_eq!(
        refusal(
            attachments
                .patch("va", &PatchParams::default(), &other)
                .await
                .unwrap_err()
        )
        .0,
        422
    );
    let attached = Patch::Merge(
        json!({ "status": { "attached": true, "attachmentMetadata": { "path": "/dev/x" } } }),
    );
    let attached = attachments
        .patch_status("va", &PatchParams::default(), &attached)
        .await
        .unwrap();
    assert_eq!(value(&attached)["status"]["attached"], true);
}

#[tokio::test]
async fn an_unknown_field_is_dropped_with_a_warning_unless_the_client_is_strict() {
    let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
    let post = |query: &str| {
        let body = json!({ "metadata": { "generateName": "c-" }, "dato": {} }).to_string();
        let request = http::Request::post(format!(
            "/api/v1/namespaces/default/configmaps?fieldValidation={query}"
        ));
        let request = request.body(axum::body::Body::from(body)).unwrap();
        tower::ServiceExt::oneshot(server.service(), request)
    };
    let warned = post("Warn").await.unwrap();
    assert_eq!(warned.status(), 201);
    assert_eq!(
        warned.headers()["warning"],
        r#"299 - "unknown field \"dato\"""#
    );
    let quiet = post("Ignore").await.unwrap();
    assert_eq!(quiet.status(), 201);
    assert!(!quiet.headers().contains_key("warning"));
    assert_eq!(post("Strict").await.unwrap().status(), 400);
}

/// Sends a body as it is; returns the code and the message of the refusal.
async fn refused(
    cluster: &Cluster,
    method: &str,
    path: &str,
    form: &str,
    body: &str,
) -> (u16, String) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", form)
        .body(body.as_bytes().to_vec())
        .unwrap();
    let answer = cluster.client.request::<serde_json::Value>(request).await;
    let (code, _, message) = refusal(answer.unwrap_err());
    (code, message)
}

#[tokio::test]
async fn what_is_sent_for_something_else_changes_nothing() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let path = "/api/v1/namespaces/default/configmaps";
    let one = format!("{path}/a");
    let json = "application/json";

    // An object that somebody saw isn't there any more.
    let gone = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"abc"}}"#;
    let applied = format!("{one}?fieldManager=m");
    let (code, message) = refused(
        &cluster,
        "PATCH",
        &applied,
        "application/apply-patch+yaml",
        gone,
    )
    .await;
    assert_eq!(code, 409);
    assert_eq!(
        message,
        "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object \
         specified uid abc, and no existing object was found"
    );

    let made = create(&maps, &config_map("a")).await;
    for body in [r#"{"apiVersion":"v1","kind":"Pod"}"#, "[]", "\"x\""] {
        for path in [&one, path] {
            let (code, message) = refused(&cluster, "DELETE", path, json, body).await;
            assert_eq!(code, 400, "{message}");
        }
    }
    let strategic = "application/strategic-merge-patch+json";
    let (code, _) = refused(&cluster, "PATCH", &one, strategic, r#"{"$patch":"delete"}"#).await;
    assert_eq!(code, 400);
    assert_eq!(maps.get("a").await.unwrap(), made);

    let long = json!({ "metadata": { "generateName": "x".repeat(254) } }).to_string();
    let (code, message) = refused(&cluster, "POST", path, json, &long).await;
    assert_eq!(code, 422);
    assert!(message.contains("metadata.generateName"), "{message}");
    assert!(
        message.contains("must be no more than 253 characters"),
        "{message}"
    );
}
