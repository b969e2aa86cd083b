//! What is too much: of requests, of bytes, of nesting, of time, of events.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use orlop_apiserver::{ApiServer, Config, Limits, Storage, User};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MIB: usize = 1 << 20;

async fn server(limits: Limits) -> ApiServer {
    let mut config = Config::new(Storage::Memory);
    config.limits = limits;
    ApiServer::open(config).await.unwrap()
}

fn request(method: &str, path: &str, form: &str, body: Body) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", form)
        .body(body)
        .unwrap()
}

async fn ask(server: &ApiServer, request: Request<Body>) -> Response<Body> {
    server.service().oneshot(request).await.unwrap()
}

/// An answer's code and reason, which must stand in a `Status`.
async fn refused(response: Response<Body>) -> (u16, String, String) {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["code"], code);
    let text = |field: &str| status[field].as_str().unwrap_or("").to_owned();
    (code, text("reason"), text("message"))
}

async fn refusal(
    server: &ApiServer,
    method: &str,
    path: &str,
    form: &str,
    body: String,
) -> (u16, String, String) {
    refused(ask(server, request(method, path, form, body.into())).await).await
}

/// A body that never ends.
fn endless() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>())
}

/// A server with small lanes, and users who may do everything but aren't masters.
async fn small(reading: usize, writing: usize) -> ApiServer {
    let server = server(Limits {
        reading,
        writing,
        ..Limits::default()
    })
    .await;
    let role = json!({
        "metadata": { "name": "all" },
        "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }],
    });
    let binding = json!({
        "metadata": { "name": "all" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all" },
        "subjects": [{ "kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io" }],
    });
    let group = "/apis/rbac.authorization.k8s.io/v1";
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("{group}/{plural}");
        let made = ask(
            &server,
            request("POST", &path, "application/json", object.to_string().into()),
        )
        .await;
        assert_eq!(made.status(), 201);
    }
    server
}

#[tokio::test]
async fn too_many_writes_are_refused_until_one_ends_and_reads_are_not() {
    let server = small(2, 2).await;
    let write = |user: &str| {
        let service = server.service_as(User::new(user, []));
        service.oneshot(request("POST", MAPS, "application/json", endless()))
    };
    let (one, two) = (tokio::spawn(write("one")), tokio::spawn(write("two")));
    // Both have their turn as soon as a third is refused.
    let third = async {
        loop {
            let map = json!({ "metadata": { "generateName": "m-" } }).to_string();
            let service = server.service_as(User::new("three", []));
            let asked = service.oneshot(request("POST", MAPS, "application/json", map.into()));
            let answer = asked.await.unwrap();
            if answer.status() != 201 {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let third = tokio::time::timeout(Duration::from_secs(10), third)
        .await
        .unwrap();
    assert_eq!(third.headers()["retry-after"], "1");
    let (code, reason, message) = refused(third).await;
    assert_eq!((code, reason.as_str()), (429, "TooManyRequests"));
    assert_eq!(message, "Too many requests, please try again later.");
    let read = server.service_as(User::new("three", []));
    let read = read
        .oneshot(request("GET", MAPS, "", Body::empty()))
        .await
        .unwrap();
    assert_eq!(read.status(), 200);
    // Whoever may do everything is let in.
    let map = json!({ "metadata": { "name": "master" } }).to_string();
    let made = ask(
        &server,
        request("POST", MAPS, "application/json", map.into()),
    )
    .await;
    assert_eq!(made.status(), 201);
    for task in [one, two] {
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    let map = json!({ "metadata": { "name": "later" } }).to_string();
    let later = server.service_as(User::new("three", []));
    let later = later.oneshot(request("POST", MAPS, "application/json", map.into()));
    assert_eq!(later.await.unwrap().status(), 201);
}

#[tokio::test]
async fn watches_are_not_counted() {
    let server = small(1, 1).await;
    let path = format!("{MAPS}?watch=true");
    let mut watches = Vec::new();
    for _ in 0..8 {
        let service = server.service_as(User::new("one", []));
        let watch = service.oneshot(request("GET", &path, "", Body::empty()));
        watches.push(watch.await.unwrap());
    }
    assert!(watches.iter().all(|watch| watch.status() == 200));
    let service = server.service_as(User::new("one", []));
    let list = service.oneshot(request("GET", MAPS, "", Body::empty()));
    assert_eq!(list.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_at_its_deadline_or_at_the_servers() {
    let server = server(Limits::default()).await;
    for (path, seconds) in [
        (MAPS.to_owned(), 60),
        (format!("{MAPS}?timeout=5s"), 5),
        (format!("{MAPS}?timeout=1h"), 60),
    ] {
        let since = tokio::time::Instant::now();
        let answer = ask(
            &server,
            request("POST", &path, "application/json", endless()),
        )
        .await;
        let (code, reason, _) = refused(answer).await;
        assert_eq!((code, reason.as_str()), (504, "Timeout"), "{path}");
        assert_eq!(since.elapsed().as_secs(), seconds, "{path}");
    }
}

#[tokio::test]
async fn what_is_too_long_is_refused() {
    let server = server(Limits::default()).await;
    let event = |bytes: usize| {
        let about = json!({ "namespace": "default", "name": "x" });
        let name = json!({ "name": "e" });
        let text = "x".repeat(bytes);
        json!({ "metadata": name, "involvedObject": about, "message": text }).to_string()
    };
    for bytes in [3 * MIB, 2 * MIB] {
        let (code, reason, _) =
            refusal(&server, "POST", EVENTS, "application/json", event(bytes)).await;
        assert_eq!(
            (code, reason.as_str()),
            (413, "RequestEntityTooLarge"),
            "{bytes}"
        );
    }
    let made = request("POST", EVENTS, "application/json", event(MIB).into());
    assert_eq!(ask(&server, made).await.status(), 201);
    let path = format!("{EVENTS}/e");
    let grown = json!({ "reason": "x".repeat(MIB) }).to_string();
    let form = "application/merge-patch+json";
    let (code, ..) = refusal(&server, "PATCH", &path, form, grown).await;
    assert_eq!(code, 413);
    // Of maps and secrets the original keeps less than it could.
    let map = json!({ "metadata": { "name": "m" }, "data": { "k": "x".repeat(MIB + 1) } });
    let map = map.to_string();
    let (code, reason, _) = refusal(&server, "POST", MAPS, "application/json", map).await;
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    let test = json!({ "op": "test", "path": "/kind", "value": "Event" });
    let many = Value::from(vec![test; 10_001]).to_string();
    let (code, _, message) =
        refusal(&server, "PATCH", &path, "application/json-patch+json", many).await;
    assert_eq!(code, 413);
    assert_eq!(
        message,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_looks_is_told_that_it_is_too_long() {
    let server = server(Limits::default()).await;
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&sent);
    let pieces = futures::stream::iter((0..16).map(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; MIB]))
    }));
    let request = request("POST", MAPS, "application/json", Body::from_stream(pieces));
    let (code, ..) = refused(ask(&server, request).await).await;
    assert_eq!(code, 413);
    assert_eq!(sent.load(std::sync::atomic::Ordering::SeqCst), 16);
}

#[tokio::test]
async fn what_is_nested_too_deep_is_refused_in_every_format() {
    let server = server(Limits::default()).await;
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let object = |levels| format!(r#"{{"metadata":{{"name":"m"}},"data":{}}}"#, nested(levels));
    for levels in [200, 100_000] {
        for form in ["application/json", "application/yaml"] {
            let (code, reason, message) =
                refusal(&server, "POST", MAPS, form, object(levels)).await;
            assert_eq!((code, reason.as_str()), (400, "BadRequest"), "{form}");
            assert!(message.contains("max depth"), "{message}");
        }
        let path = format!("{MAPS}/m?fieldManager=one");
        for form in [
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/json-patch+json",
            "application/apply-patch+yaml",
        ] {
            let (code, ..) = refusal(&server, "PATCH", &path, form, object(levels)).await;
            assert_eq!(code, 400, "{form}");
        }
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_read_holds_nobody_up_and_is_told_to_list_again() {
    let server = server(Limits::default()).await;
    let body = |n: usize| json!({ "metadata": { "name": "m" }, "data": { "n": n.to_string(), "x": "x".repeat(MIB / 8) } });
    let put = |n: usize| {
        request(
            "PUT",
            "/api/v1/namespaces/default/configmaps/m",
            "application/json",
            body(n).to_string().into(),
        )
    };
    let made = request("POST", MAPS, "application/json", body(0).to_string().into());
    assert_eq!(ask(&server, made).await.status(), 201);
    let path = format!("{MAPS}?watch=true&resourceVersion=0");
    let watch = ask(&server, request("GET", &path, "", Body::empty())).await;
    let mut events = watch.into_body().into_data_stream();
    let first = events.next().await.unwrap().unwrap();
    assert!(first.starts_with(br#"{"type":"ADDED""#));
    // More than the window of events holds, in events and in bytes.
    for n in 1..140 {
        assert_eq!(ask(&server, put(n)).await.status(), 200);
    }
    let told = events.next().await.unwrap().unwrap();
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(told["type"], "ERROR");
    assert_eq!(told["object"]["code"], 410);
    assert_eq!(told["object"]["reason"], "Expired");
    assert!(events.next().await.is_none(), "the watch has ended");
}
