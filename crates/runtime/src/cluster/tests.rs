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
        let cluster = Cluster::new(kube::Client::new(service, "default"));
        cluster.patch(&Key::namespaced("n", "data"), patch).await
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
