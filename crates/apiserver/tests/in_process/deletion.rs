//! How objects go: in two steps, with their dependents, with their namespace.

use k8s_openapi::api::core::v1::{
    Binding, ConfigMap, Namespace, PersistentVolumeClaim, Pod, ServiceAccount,
};
use kube::ResourceExt;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent,
    WatchParams,
};
use serde_json::{Value, json};

use crate::fixtures::*;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_all_the_time_still_goes_with_its_owner() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let owner = create(&maps, &config_map("owner")).await;
    let names: Vec<String> = (0..16).map(|at| format!("child-{at}")).collect();
    let mut writers = tokio::task::JoinSet::new();
    for name in &names {
        let owned: ConfigMap = of(json!({
            "metadata": {
                "name": name,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
                    "uid": owner.uid().unwrap(),
                }],
            },
        }));
        create(&maps, &owned).await;
        let (maps, name) = (maps.clone(), name.clone());
        writers.spawn(async move {
            for round in 0.. {
                let written = Patch::Merge(json!({ "data": { "round": round.to_string() } }));
                let params = PatchParams::default();
                if maps.patch(&name, &params, &written).await.is_err() {
                    return;
                }
            }
        });
    }
    maps.delete("owner", &DeleteParams::default())
        .await
        .unwrap();
    // A writer ends when its object is gone.
    let gone = async { while writers.join_next().await.is_some() {} };
    let bound = std::time::Duration::from_secs(30);
    tokio::time::timeout(bound, gone).await.unwrap();
    for name in &names {
        assert!(maps.get_opt(name).await.unwrap().is_none(), "{name}");
    }
}
