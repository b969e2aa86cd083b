//! Many watchers: those with nothing to see cost nothing, those that never read hold nothing up.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use orlop_apiserver::store::Key;
use orlop_apiserver::{ApiServer, ApiService, Config, Storage};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Counts how often somebody is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn call(service: &ApiService, method: &str, path: &str, body: &Value) -> Body {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    assert!(
        response.status().is_success(),
        "{method} {path}: {response:?}"
    );
    response.into_body()
}

async fn done(service: &ApiService, method: &str, path: &str, body: &Value) {
    drop(call(service, method, path, body).await);
}

async fn watch(service: &ApiService, path: &str, revision: u64) -> Body {
    let path = format!("{path}?watch=1&resourceVersion={revision}");
    call(service, "GET", &path, &Value::Null).await
}

/// Polls a watch that has nothing to tell, and leaves the bell with it.
fn wait_with(body: &mut Body, bell: &Arc<Bell>) {
    let waker = Waker::from(Arc::clone(bell));
    let frame = pin!(body.frame()).poll(&mut Context::from_waker(&waker));
    assert!(frame.is_pending(), "it has nothing to tell: {frame:?}");
}

fn config_map(name: &str, note: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "note": note } })
}

#[tokio::test]
async fn a_change_wakes_nobody_who_has_nothing_to_see() {
    let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
    let service = server.service();
    let namespace = json!({ "metadata": { "name": "quiet" } });
    done(&service, "POST", "/api/v1/namespaces", &namespace).await;
    let busy = "/api/v1/namespaces/default/configmaps";
    let revision = server.store().read().revision();
    let (sleeping, awake) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let mut crowd = Vec::new();
    let one = "fieldSelector=metadata.name%3Dother";
    for path in [
        "/api/v1/namespaces/quiet/configmaps".to_owned(),
        "/api/v1/persistentvolumes".to_owned(),
        format!("{busy}?{one}"),
    ] {
        for _ in 0..300 {
            let separator = if path.contains('?') { '&' } else { '?' };
            let path = format!("{path}{separator}watch=1&resourceVersion={revision}");
            let mut body = call(&service, "GET", &path, &Value::Null).await;
            wait_with(&mut body, &sleeping);
            crowd.push(body);
        }
    }
    let mut watches = Vec::new();
    for path in [busy, "/api/v1/configmaps"] {
        let mut body = watch(&service, path, revision).await;
        wait_with(&mut body, &awake);
        watches.push(body);
    }
    done(&service, "POST", busy, &config_map("a", "x")).await;
    assert_eq!(awake.0.load(Ordering::Relaxed), 2);
    assert_eq!(sleeping.0.load(Ordering::Relaxed), 0);
    let other = "/api/v1/namespaces/quiet/configmaps";
    done(&service, "POST", other, &config_map("b", "x")).await;
    assert_eq!(sleeping.0.load(Ordering::Relaxed), 300);
}

#[tokio::test]
async fn watchers_that_never_read_keep_nothing_alive_and_must_list_again() {
    let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
    let service = server.service();
    let path = "/api/v1/namespaces/default/configmaps";
    let mut stuck = Vec::new();
    let revision = server.store().read().revision();
    for _ in 0..100 {
        stuck.push(watch(&service, path, revision).await);
    }
    // More than is remembered of a resource.
    let note = "x".repeat(150 << 10);
    let mut versions = Vec::new();
    for n in 0..80 {
        done(
            &service,
            "POST",
            path,
            &config_map("big", &format!("{n} {note}")),
        )
        .await;
        let stored = server
            .store()
            .get(&Key::new("configmaps", "default", "big"));
        versions.push(Arc::downgrade(&stored.unwrap()));
        done(&service, "DELETE", &format!("{path}/big"), &Value::Null).await;
    }
    let alive = versions.iter().filter(|version| version.strong_count() > 0);
    // As many as the window has events at least; each version has two of them.
    let alive = alive.count();
    assert!(
        alive <= 65,
        "{alive} of {} versions are kept",
        versions.len()
    );
    for mut body in stuck {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let line: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!(line["object"]["code"], 410, "{line}");
        assert!(body.frame().await.is_none(), "and the watch ends");
    }
}
