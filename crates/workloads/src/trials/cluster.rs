//! A cluster for one trial: the API server, a node that runs every pod at once, the roles, and
//! a witness of all that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use orlop_apiserver::{ApiServer, Config, Storage};
use orlop_model::{Claim, Kind, Pod};
use orlop_runtime::{Change, Clock, Patch, Process};
use orlop_trials::Strikes;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc;

/// The longest that a chapter may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// What has to come of a step.
pub(super) type Holds = fn(&Seen) -> bool;

/// What a user does to a workload, and what has to come of each step.
pub(super) struct Story {
    pub(super) path: &'static str,
    pub(super) object: Value,
    /// How many pods one owner may have at a time.
    pub(super) most: usize,
    pub(super) chapters: Vec<(Value, Holds)>,
}

/// The world as it is.
pub(super) struct Seen {
    pub(super) object: Value,
    pub(super) pods: Vec<Value>,
    pub(super) claims: Vec<Value>,
}

impl Seen {
    /// Whether there are so many pods, and the workload says so of its present spec.
    pub(super) fn is_settled(&self, count: usize) -> bool {
        let status = &self.object["status"];
        self.pods.len() == count
            && status["observedGeneration"] == self.object["metadata"]["generation"]
            && status["readyReplicas"] == json!(count)
            && status["availableReplicas"] == json!(count)
    }
}

/// What was seen that may never be.
#[derive(Default)]
struct Witness {
    /// By owner, its pods that aren't going.
    pods: BTreeMap<String, BTreeSet<String>>,
    claims: BTreeMap<String, BTreeSet<String>>,
    most: usize,
}

pub(super) struct Cluster {
    server: ApiServer,
    user: kube::Client,
    strikes: Arc<Strikes>,
    node: Process,
    witness: Arc<Mutex<Witness>>,
    news: Arc<Notify>,
}

impl Cluster {
    pub(super) async fn open(strikes: Arc<Strikes>) -> Self {
        let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
        let user = kube::Client::new(server.service(), "default");
        let cluster = Self {
            node: Process::new(user.clone(), Clock::system()),
            user,
            server,
            strikes,
            witness: Arc::default(),
            news: Arc::default(),
        };
        cluster.run_pods();
        cluster.watch();
        cluster
    }

    /// A node that runs each pod as soon as it is there; a job's pod succeeds at once.
    fn run_pods(&self) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        self.node.cache::<Pod>().subscribe(move |change| {
            if let Change::Applied { new, .. } = change
                && new.phase() == orlop_model::PodPhase::Pending
            {
                let owner = new.metadata.controller();
                let ends = owner.is_some_and(|owner| owner.kind == "Job");
                let _ = sender.send((new.key(), if ends { "Succeeded" } else { "Running" }));
            }
        });
        let api = self.node.cluster.clone();
        self.node.spawn("node", async move {
            while let Some((key, phase)) = receiver.recv().await {
                let ready = json!([{"type": "Ready", "status": "True"}]);
                let status = json!({"status": {"phase": phase, "conditions": ready}});
                // It may be gone again.
                let _ = api.patch_status::<Pod>(&key, &Patch::Merge(status)).await;
            }
        });
    }

    fn watch(&self) {
        let (witness, news) = (self.witness.clone(), self.news.clone());
        self.node.cache::<Pod>().subscribe(move |change| {
            let mut witness = witness.lock().unwrap_or_else(PoisonError::into_inner);
            let pod = change.object();
            let meta = &pod.metadata;
            let owner = meta.controller().map(|owner| owner.uid.clone());
            let pods = witness.pods.entry(owner.unwrap_or_default()).or_default();
            match change {
                Change::Applied { .. } if !meta.is_deleting() && !pod.is_finished() => {
                    pods.insert(meta.uid.clone())
                }
                Change::Applied { .. } | Change::Deleted(_) => pods.remove(&meta.uid),
            };
            let count = pods.len();
            witness.most = witness.most.max(count);
            news.notify_one();
        });
        let (witness, news) = (self.witness.clone(), self.news.clone());
        self.node.cache::<Claim>().subscribe(move |change| {
            let mut witness = witness.lock().unwrap_or_else(PoisonError::into_inner);
            let meta = &change.object().metadata;
            let uids = witness.claims.entry(meta.name.clone()).or_default();
            uids.insert(meta.uid.clone());
            news.notify_one();
        });
        macro_rules! note {
            ($kind:ty) => {
                let news = self.news.clone();
                self.node
                    .cache::<$kind>()
                    .subscribe(move |_| news.notify_one());
            };
        }
        note!(orlop_model::StatefulSet);
        note!(orlop_model::Deployment);
        note!(orlop_model::ReplicaSet);
        note!(orlop_model::Job);
    }

    /// The roles, in a process of their own.
    fn start(&self) -> Process {
        let client = self.strikes.client(self.server.service());
        let process = Process::new(client, Clock::system());
        crate::start(&process);
        process
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let format = match method {
            "PATCH" => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let body = if method == "GET" {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", format)
            .body(body)
            .unwrap();
        let text = self.user.request_text(request).await.unwrap();
        serde_json::from_str(&text).unwrap()
    }

    async fn look(&self, story: &Story) -> Seen {
        let path = format!("{}/web", story.path);
        let list = async |kind: &str| {
            let path = format!("/api/v1/namespaces/default/{kind}");
            let list = self.ask("GET", &path, &Value::Null).await;
            list["items"].as_array().unwrap().clone()
        };
        Seen {
            object: self.ask("GET", &path, &Value::Null).await,
            pods: list("pods").await,
            claims: list("persistentvolumeclaims").await,
        }
    }

    /// Waits until a chapter has come out, starting the roles anew when they have died.
    async fn until(&self, story: &Story, holds: Holds, roles: &mut Process) {
        let wait = async {
            loop {
                let news = self.news.notified();
                if holds(&self.look(story).await) {
                    return;
                }
                tokio::select! {
                    () = news => {}
                    () = self.strikes.end() => {
                        roles.kill();
                        *roles = self.start();
                    }
                }
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let seen = self.look(story).await;
            panic!(
                "it never settled: {:#} with {} pods",
                seen.object,
                seen.pods.len()
            );
        }
    }
}

/// Tells a story.
pub(super) async fn run(story: &Story, cluster: Cluster) {
    let mut roles = cluster.start();
    cluster.ask("POST", story.path, &story.object).await;
    for (change, holds) in &story.chapters {
        let path = format!("{}/web", story.path);
        cluster.ask("PATCH", &path, change).await;
        cluster.until(story, *holds, &mut roles).await;
    }
    roles.kill();
    cluster.node.kill();
    let witness = cluster
        .witness
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let most = witness.most;
    assert!(most <= story.most, "{most} pods of one owner at a time");
    for (claim, uids) in &witness.claims {
        assert_eq!(uids.len(), 1, "{claim} was made more than once");
    }
}
