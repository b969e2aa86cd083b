use std::sync::{Arc, Mutex};

use orlop_model::Claim;

use super::*;

/// A server that holds one object and lets nobody patch it.
#[derive(Clone)]
struct Strict {
    object: Arc<Mutex<Value>>,
    lets_write: bool,
    /// How often somebody else is still going to write just before we do.
    others: Arc<Mutex<u64>>,
}

impl Strict {
    fn new(lets_write: bool, others: u64) -> Self {
        Self {
            object: Arc::new(Mutex::new(json!({
                "metadata": {"name": "data", "namespace": "n", "uid": "u", "resourceVersion": "1"},
                "spec": {"unknown": "to us"},
            }))),
            lets_write,
            others: Arc::new(Mutex::new(others)),
        }
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
        let mut object = self.object.lock().unwrap();
        match *method {
            Method::GET => (StatusCode::OK, object.clone()),
            Method::PUT if self.lets_write => {
                let mut others = self.others.lock().unwrap();
                if *others > 0 {
                    *others -= 1;
                    object["metadata"]["resourceVersion"] = json!(format!("other-{others}"));
                }
                let mut written: Value = serde_json::from_slice(body).unwrap();
                if written["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return (StatusCode::CONFLICT, json!({"message": "it has changed"}));
                }
                written["metadata"]["resourceVersion"] = json!("ours");
                *object = written.clone();
                (StatusCode::OK, written)
            }
            _ => (
                StatusCode::FORBIDDEN,
                json!({"message": format!("no {method}")}),
            ),
        }
    }

    async fn patch(&self, patch: &Patch) -> Result<Claim, ApiError> {
        let cluster = self.cluster();
        cluster.patch(&Key::namespaced("n", "data"), patch).await
    }

    fn cluster(&self) -> Cluster {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (code, answer) = server.answer(&head.method, &body);
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        Cluster::new(kube::Client::new(service, "default"))
    }
}

#[tokio::test]
async fn what_may_not_be_patched_is_read_and_written() {
    let server = Strict::new(true, 2);
    let change = json!({"metadata": {"finalizers": ["f"]}});
    let written = server.patch(&Patch::Merge(change)).await.unwrap();
    assert!(written.metadata.has_finalizer("f"));
    let kept = server.object.lock().unwrap()["spec"]["unknown"].clone();
    assert_eq!(kept, "to us");
}

#[tokio::test]
async fn a_change_of_one_version_is_not_written_to_another() {
    let server = Strict::new(true, 1);
    let change = json!({"metadata": {"finalizers": ["f"], "resourceVersion": "1"}});
    let refused = server.patch(&Patch::Merge(change)).await.unwrap_err();
    assert!(refused.is_conflict(), "{}", refused.chain());
    assert!(server.object.lock().unwrap()["metadata"]["finalizers"].is_null());
}

#[tokio::test]
async fn where_nothing_may_be_written_the_first_refusal_is_told() {
    let server = Strict::new(false, 0);
    let refused = server.patch(&Patch::Merge(json!({}))).await.unwrap_err();
    assert!(refused.is_forbidden() && refused.chain().contains("no PATCH"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_paused_for_too_long_sends_nothing_but_for_its_lease() {
    use std::time::Duration;

    use orlop_model::Lease;

    let server = Strict::new(true, 0);
    let cluster = server.cluster();
    let role = cluster.clone();
    let claim = Key::namespaced("n", "data");
    role.get::<Claim>(&claim).await.expect("it has no lease");
    cluster.leads_until(Instant::now() + Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(9)).await;
    role.get::<Claim>(&claim).await.expect("it leads");
    tokio::time::advance(Duration::from_secs(2)).await;
    let refused = role.get::<Claim>(&claim).await.unwrap_err();
    assert!(matches!(refused.refusal, Refusal::Deposed), "{refused}");
    let change = Patch::Merge(json!({"metadata": {"finalizers": ["f"]}}));
    let refused = role.patch::<Claim>(&claim, &change).await.unwrap_err();
    assert!(matches!(refused.refusal, Refusal::Deposed), "{refused}");
    let watched = role.watch(&Collection::of::<Claim>(None), "").await;
    assert!(watched.is_err());
    cluster.get::<Lease>(&claim).await.expect("a lease");
    cluster.leads_until(Instant::now() + Duration::from_secs(10));
    role.get::<Claim>(&claim).await.expect("it leads again");
}

#[tokio::test(start_paused = true)]
async fn who_wakes_after_its_lease_ran_out_does_nothing_before_it_has_renewed() {
    use std::time::Duration;

    use crate::{Clock, Election};

    let cluster = Strict::new(true, 0).cluster();
    let election = Election::new(Key::namespaced("n", "leader"), "first".into());
    let clock = Clock::system();
    election.win(&cluster, &clock).await;
    let claim = Key::namespaced("n", "data");
    let ask = || cluster.get::<Claim>(&claim);
    ask().await.expect("it leads");
    // As with SIGSTOP: nothing of the process runs, and time goes on.
    tokio::time::advance(Duration::from_secs(11)).await;
    let refused = ask().await.unwrap_err();
    assert!(matches!(refused.refusal, Refusal::Deposed), "{refused}");
    let held = tokio::time::timeout(Duration::from_secs(60), election.hold(&cluster, &clock));
    assert!(held.await.is_err(), "nobody took it");
    ask().await.expect("it leads again");
}
