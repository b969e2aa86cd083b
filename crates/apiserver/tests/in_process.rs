//! The API as an unmodified kube client in the same process sees it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{
    Binding, ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ServiceAccount,
};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent,
    WatchParams,
};
use kube::{Client, Resource, ResourceExt};
use orlop_apiserver::{ApiServer, Config, Storage};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

struct Cluster {
    _server: ApiServer,
    client: Client,
}

async fn cluster() -> Cluster {
    let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
    let client = Client::new(server.service(), "default");
    Cluster {
        _server: server,
        client,
    }
}

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn claim(name: &str) -> PersistentVolumeClaim {
    of(json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    }))
}

fn pod(name: &str) -> Pod {
    of(json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    }))
}

fn config_map(name: &str) -> ConfigMap {
    of(json!({ "metadata": { "name": name }, "data": { "k": "v" } }))
}

fn class(name: &str, default: bool) -> StorageClass {
    of(json!({
        "metadata": {
            "name": name,
            "annotations": { "storageclass.kubernetes.io/is-default-class": default.to_string() },
        },
        "provisioner": "x.example.com",
        "allowVolumeExpansion": true,
    }))
}

async fn create<K>(api: &Api<K>, object: &K) -> K
where
    K: Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
    K::DynamicType: Default,
{
    api.create(&PostParams::default(), object).await.unwrap()
}

fn refusal(error: kube::Error) -> (u16, String, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn value<K: serde::Serialize>(object: &K) -> Value {
    serde_json::to_value(object).unwrap()
}

/// Waits until a condition holds of the objects of a kind; event-driven and bounded.
async fn until<K, S>(events: S, mut holds: impl FnMut(&WatchEvent<K>) -> bool)
where
    S: Stream<Item = Result<WatchEvent<K>, kube::Error>>,
{
    let mut events = Box::pin(events);
    let wait = async {
        while let Some(event) = events.try_next().await.unwrap() {
            if holds(&event) {
                return;
            }
        }
        panic!("the watch ended first");
    };
    tokio::time::timeout(Duration::from_secs(10), wait)
        .await
        .unwrap();
}

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
        403
    );
    let bound =
        Patch::Merge(json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }));
    claims.patch_status("c", &params, &bound).await.unwrap();
    claims.patch("c", &params, &grow).await.unwrap();
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let cluster = cluster().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let made = create(&claims, &claim("c")).await;
    let params = WatchParams::default();
    let from = made.resource_version().unwrap();
    let deleted = claims.delete("c", &DeleteParams::default()).await.unwrap();
    let pending = deleted.left().expect("the object is still there");
    assert!(pending.metadata.deletion_timestamp.is_some());
    assert_eq!(pending.metadata.deletion_grace_period_seconds, Some(0));
    let more = Patch::Merge(
        json!({ "metadata": { "finalizers": ["kubernetes.io/pvc-protection", "a.b/c"] } }),
    );
    let patch_params = PatchParams::default();
    assert_eq!(
        refusal(claims.patch("c", &patch_params, &more).await.unwrap_err()).0,
        422
    );
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    claims.patch("c", &patch_params, &none).await.unwrap();
    assert!(claims.get_opt("c").await.unwrap().is_none());
    let events = claims.watch(&params, &from).await.unwrap();
    let mut seen = Vec::new();
    until(events, |event| {
        seen.push(match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            _ => "other",
        });
        seen.last() == Some(&"deleted")
    })
    .await;
    assert_eq!(seen, ["modified", "deleted"]);
}

#[tokio::test]
async fn a_placed_pod_is_deleted_in_two_steps() {
    let cluster = cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    create(&pods, &pod("p")).await;
    let binding: Binding = of(json!({
        "metadata": { "name": "p" },
        "target": { "kind": "Node", "name": "n1" },
    }));

    let bind = || async {
        let answer: Result<Value, kube::Error> = pods
            .create_subresource("binding", "p", &PostParams::default(), &binding)
            .await;
        answer
    };
    assert_eq!(bind().await.unwrap()["status"], "Success");
    let conflict = refusal(bind().await.unwrap_err());
    assert_eq!(
        conflict.2,
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
    let placed = value(&pods.get("p").await.unwrap());
    assert_eq!(placed["spec"]["nodeName"], "n1");
    assert_eq!(placed["status"]["conditions"][0]["type"], "PodScheduled");
    let pending = pods
        .delete("p", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(pending.metadata.deletion_grace_period_seconds, Some(30));
    pods.delete("p", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(pods.get_opt("p").await.unwrap().is_none());
}

#[tokio::test]
async fn a_deletion_with_the_wrong_uid_is_refused() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    create(&maps, &config_map("m")).await;
    let preconditions = kube::api::Preconditions {
        uid: Some("other".to_owned()),
        resource_version: None,
    };
    let params = DeleteParams {
        preconditions: Some(preconditions),
        ..Default::default()
    };
    assert_eq!(
        refusal(maps.delete("m", &params).await.unwrap_err()).1,
        "Conflict"
    );
    assert!(maps.get_opt("m").await.unwrap().is_some());
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
async fn a_list_comes_in_pages_of_one_moment() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    for at in 0..7 {
        create(&maps, &config_map(&format!("m{at}"))).await;
    }
    let first = maps.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(first.items.len(), 3);
    assert_eq!(first.metadata.remaining_item_count, Some(4));
    maps.delete("m5", &DeleteParams::default()).await.unwrap();
    create(&maps, &config_map("m9")).await;
    let token = first.metadata.continue_.clone().unwrap();
    let rest = maps
        .list(&ListParams::default().limit(9).continue_token(&token))
        .await
        .unwrap();
    let names: Vec<String> = rest.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["m3", "m4", "m5", "m6"]);
    assert_eq!(
        rest.metadata.resource_version,
        first.metadata.resource_version
    );
    assert_eq!(rest.metadata.continue_, None);
}

#[tokio::test]
async fn lists_and_watches_take_selectors() {
    let cluster = cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    create(&pods, &pod("a")).await;
    create(&pods, &pod("b")).await;
    let names = |list: kube::api::ObjectList<Pod>| -> Vec<String> {
        list.items.iter().map(ResourceExt::name_any).collect()
    };
    assert_eq!(
        names(
            pods.list(&ListParams::default().labels("app=a"))
                .await
                .unwrap()
        ),
        ["a"]
    );
    assert_eq!(
        names(
            pods.list(&ListParams::default().fields("metadata.name=b"))
                .await
                .unwrap()
        ),
        ["b"]
    );
    let events = pods
        .watch(&WatchParams::default().labels("colour=red"), "0")
        .await
        .unwrap();
    let paint =
        |colour: &str| Patch::Merge(json!({ "metadata": { "labels": { "colour": colour } } }));
    let params = PatchParams::default();
    for colour in ["red", "red ", "blue"].map(str::trim) {
        pods.patch("a", &params, &paint(colour)).await.unwrap();
    }
    let mut seen = Vec::new();
    until(events, |event| {
        seen.push(match event {
            WatchEvent::Added(pod) => format!("added {}", pod.name_any()),
            WatchEvent::Deleted(pod) => format!("deleted {}", pod.name_any()),
            other => format!("{other:?}"),
        });
        seen.len() == 2
    })
    .await;
    assert_eq!(seen, ["added a", "deleted a"]);
}

#[tokio::test(start_paused = true)]
async fn an_old_watch_is_told_to_start_over_and_an_idle_one_how_far_it_has_seen() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let made = create(&maps, &config_map("m")).await;
    let mut old = maps
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    assert!(matches!(
        old.try_next().await.unwrap(),
        Some(WatchEvent::Added(_))
    ));
    // The window is bounded in bytes too: few large writes push the first one out.
    for at in 0..150 {
        let note =
            Patch::Merge(json!({ "data": { "k": format!("{at}{}", "x".repeat(128 << 10)) } }));
        maps.patch("m", &PatchParams::default(), &note)
            .await
            .unwrap();
    }
    let version = made.resource_version().unwrap();
    let mut late = maps
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    match late.try_next().await.unwrap() {
        Some(WatchEvent::Error(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"))
        }
        other => panic!("expected an error, got {other:?}"),
    }
    assert!(late.try_next().await.unwrap().is_none());
    // The one that was open but read nothing lost its place too.
    assert!(matches!(
        old.try_next().await.unwrap(),
        Some(WatchEvent::Error(_))
    ));
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let mut idle = nodes
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    let latest = maps.get("m").await.unwrap().resource_version().unwrap();
    match idle.try_next().await.unwrap() {
        Some(WatchEvent::Bookmark(bookmark)) => {
            assert_eq!(bookmark.metadata.resource_version, latest)
        }
        other => panic!("expected a bookmark, got {other:?}"),
    }
}

#[tokio::test]
async fn a_watch_can_begin_with_the_objects_and_says_where_they_end() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    create(&maps, &config_map("a")).await;
    let params = WatchParams::default().initial_events();
    let mut events = maps.watch(&params, "").await.unwrap().boxed();
    assert!(
        matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(map)) if map.name_any() == "a")
    );
    match events.try_next().await.unwrap() {
        Some(WatchEvent::Bookmark(bookmark)) => {
            assert_eq!(
                bookmark.metadata.annotations["k8s.io/initial-events-end"],
                "true"
            );
        }
        other => panic!("expected the end of the initial events, got {other:?}"),
    }
    create(&maps, &config_map("b")).await;
    assert!(
        matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(map)) if map.name_any() == "b")
    );
}

#[tokio::test]
async fn dependents_go_with_their_owner_unless_orphaned() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    for (owner, policy) in [
        ("bg", PropagationPolicy::Background),
        ("fg", PropagationPolicy::Foreground),
        ("orphan", PropagationPolicy::Orphan),
    ] {
        let owner = create(&maps, &config_map(owner)).await;
        let child = format!("{}-child", owner.name_any());
        let owned: ConfigMap = of(json!({
            "metadata": {
                "name": child,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(),
                    "uid": owner.uid().unwrap(), "blockOwnerDeletion": true,
                }],
            },
        }));
        let made = create(&maps, &owned).await;
        let events = maps
            .watch(&WatchParams::default(), &made.resource_version().unwrap())
            .await
            .unwrap();
        let params = DeleteParams {
            propagation_policy: Some(policy.clone()),
            ..Default::default()
        };
        maps.delete(&owner.name_any(), &params).await.unwrap();
        let mut order = Vec::new();
        until(events, |event| {
            if let WatchEvent::Deleted(map) = event {
                order.push(map.name_any());
            }
            let wanted = if policy == PropagationPolicy::Orphan {
                1
            } else {
                2
            };
            order.len() == wanted
        })
        .await;
        match policy {
            PropagationPolicy::Background => assert_eq!(order, ["bg", "bg-child"]),
            PropagationPolicy::Foreground => assert_eq!(order, ["fg-child", "fg"]),
            PropagationPolicy::Orphan => {
                let left = maps.get("orphan-child").await.unwrap();
                assert_eq!(left.metadata.owner_references.unwrap_or_default(), []);
            }
        }
    }
}

#[tokio::test]
async fn a_namespace_takes_its_contents_with_it() {
    let cluster = cluster().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let made = create(&namespaces, &of(json!({ "metadata": { "name": "team" } }))).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "team");
    until(
        accounts.watch(&WatchParams::default(), "0").await.unwrap(),
        |event| matches!(event, WatchEvent::Added(account) if account.name_any() == "default"),
    )
    .await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), "team");
    create(&maps, &config_map("m")).await;
    create(&claims, &claim("c")).await;
    let claim_events = claims.watch(&WatchParams::default(), "0").await.unwrap();
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(
        refusal(
            maps.create(&PostParams::default(), &config_map("late"))
                .await
                .unwrap_err()
        )
        .2,
        "configmaps \"late\" is forbidden: unable to create new content in namespace team because \
         it is being terminated"
    );
    until(claim_events, |event| {
        matches!(event, WatchEvent::Modified(claim) if claim.metadata.deletion_timestamp.is_some())
    })
    .await;
    let left = namespaces.get("team").await.unwrap();
    assert_eq!(value(&left)["status"]["phase"], "Terminating");
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    claims
        .patch("c", &PatchParams::default(), &free)
        .await
        .unwrap();
    let from = made.resource_version().unwrap();
    until(
        namespaces
            .watch(&WatchParams::default(), &from)
            .await
            .unwrap(),
        |event| matches!(event, WatchEvent::Deleted(namespace) if namespace.name_any() == "team"),
    )
    .await;
    assert_eq!(
        refusal(
            namespaces
                .delete("default", &DeleteParams::default())
                .await
                .unwrap_err()
        )
        .0,
        403
    );
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
    new.patch(
        "e",
        &PatchParams::default(),
        &Patch::Merge(json!({ "note": "bye" })),
    )
    .await
    .unwrap();
    assert_eq!(old.get("e").await.unwrap().message.as_deref(), Some("bye"));
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
async fn metadata_can_be_had_alone() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    create(&maps, &config_map("m")).await;
    assert_eq!(maps.get_metadata("m").await.unwrap().name_any(), "m");
    let list = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let cluster = cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    for name in ["a", "b"] {
        create(&pods, &pod(name)).await;
    }
    pods.delete_collection(
        &DeleteParams::default(),
        &ListParams::default().labels("app=a"),
    )
    .await
    .unwrap();
    let left = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        left.items
            .iter()
            .map(ResourceExt::name_any)
            .collect::<Vec<_>>(),
        ["b"]
    );
}

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
    let storage = Storage::Disk(directory.path().join("store.redb"));
    let server = ApiServer::open(Config::new(storage.clone())).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.service(), "default"));
    let made = create(&maps, &config_map("m")).await;
    server.shutdown().await;
    let server = ApiServer::open(Config::new(storage)).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.service(), "default"));
    assert_eq!(maps.get("m").await.unwrap(), made);
    server.shutdown().await;
}
