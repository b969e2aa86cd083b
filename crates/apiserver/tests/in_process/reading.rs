//! Lists and watches.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::fixtures::*;

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
    // The token says which moment; another one contradicts it.
    let path =
        format!("/api/v1/namespaces/default/configmaps?limit=1&continue={token}&resourceVersion=1");
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let refused = cluster.client.request::<serde_json::Value>(request).await;
    assert_eq!(
        refusal(refused.unwrap_err()).2,
        "specifying resource version is not allowed when using continue"
    );
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
async fn metadata_can_be_had_alone() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    create(&maps, &config_map("m")).await;
    assert_eq!(maps.get_metadata("m").await.unwrap().name_any(), "m");
    let list = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
}
