#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use kube::client::Body;
use orlop_model::VolumeAttachment;
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};
use tower::service_fn;

use super::*;

/// A server that takes a second to say what it had when it was asked, and counts.
#[derive(Clone, Default)]
struct Slow {
    lists: Arc<AtomicU64>,
    objects: Arc<AtomicU64>,
    broken: bool,
}

impl Slow {
    fn joint(&self) -> Joint<VolumeAttachment> {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                server.lists.fetch_add(1, Ordering::SeqCst);
                let objects = server.objects.load(Ordering::SeqCst);
                sleep(Duration::from_secs(1)).await;
                if server.broken {
                    return Err(std::io::Error::other("cut off"));
                }
                let item = |n| {
                    json!({
                        "metadata": {"name": format!("a{n}"), "uid": "u", "resourceVersion": "1"},
                        "spec": {"attacher": "d", "nodeName": "n", "source": {}},
                    })
                };
                let narrowed = u64::from(query == "fieldSelector=spec.nodeName%3Dn");
                let items: Vec<_> = (narrowed..objects).map(item).collect();
                let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
                Ok(Response::new(Body::from(list.to_string().into_bytes())))
            }
        });
        Joint::new(Cluster::new(kube::Client::new(service, "default")))
    }

    fn narrowed(&self) -> Joint<VolumeAttachment> {
        Joint::matching(self.joint().cluster, "spec.nodeName=n")
    }
}

async fn ask(joint: &Joint<VolumeAttachment>, many: usize) -> Vec<Result<usize, ApiError>> {
    let mut asked = JoinSet::new();
    for _ in 0..many {
        let joint = joint.clone();
        asked.spawn(async move { joint.list(None).await.map(|all| all.len()) });
    }
    asked.join_all().await
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_share_two_reads() {
    let server = Slow::default();
    let joint = server.joint();
    assert!(ask(&joint, 100).await.iter().all(Result::is_ok));
    // The first is under way when the others come: they want one that is sent after they asked.
    assert_eq!(server.lists.load(Ordering::SeqCst), 2);
    assert!(lock(&joint.rounds).is_empty(), "nothing is kept");
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_an_answer_that_is_older_than_their_question() {
    let server = Slow::default();
    let joint = server.joint();
    let early = tokio::spawn({
        let joint = joint.clone();
        async move { joint.list(None).await.unwrap().len() }
    });
    sleep(Duration::from_millis(500)).await;
    server.objects.store(1, Ordering::SeqCst);
    let late = joint.list(None).await.unwrap().len();
    assert_eq!((early.await.unwrap(), late), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_list_may_be_of_what_matches_alone() {
    let server = Slow::default();
    server.objects.store(3, Ordering::SeqCst);
    assert_eq!(server.joint().list(None).await.unwrap().len(), 3);
    assert_eq!(server.narrowed().list(None).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_all_who_waited_for_the_answer() {
    let server = Slow {
        broken: true,
        ..Slow::default()
    };
    let answers = ask(&server.joint(), 100).await;
    for answer in answers {
        assert!(answer.unwrap_err().chain().contains("cut off"));
    }
    assert_eq!(server.lists.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_holds_up_nobody() {
    let server = Slow::default();
    let joint = server.joint();
    let left = tokio::time::timeout(Duration::from_millis(100), joint.list(None)).await;
    assert!(left.is_err());
    assert!(lock(&joint.rounds).is_empty());
    assert_eq!(joint.list(None).await.unwrap().len(), 0);
}
