//! A cluster for one trial: the API server, two nodes, somebody who binds and makes volumes as
//! binder and provisioner do, and a scheduler that may be struck.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_apiserver::{ApiServer, Config, Storage};
use orlop_model::{Claim, Key, Kind, Node, Pod, StorageClass, Volume, well_known};
use orlop_runtime::{Clock, Patch, Preconditions, Process};
use orlop_trials::Strikes;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

/// The longest that a story may take.
const PATIENCE: Duration = Duration::from_mins(3);
/// What each node's disk has.
const DISK: i64 = 10 << 30;

/// What is there, and what has to come of it.
pub(super) struct Story {
    pub(super) objects: Vec<Value>,
    /// This node goes as soon as a claim was told of it.
    pub(super) node_goes: Option<&'static str>,
    pub(super) holds: fn(&Seen) -> bool,
}

/// How it stands.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Pods and their nodes.
    pub(super) placed: BTreeMap<String, String>,
    /// Why pods aren't placed.
    pub(super) refused: Vec<String>,
    /// Claims with volumes.
    pub(super) bound: BTreeSet<String>,
}

pub(super) fn only_on(node: &str) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}})
}

/// Plays everybody but the scheduler.
#[derive(Clone)]
struct Others {
    process: Process,
    news: Arc<Notify>,
    node_goes: Option<&'static str>,
    /// What may never be, and was.
    breaches: Arc<Mutex<Vec<String>>>,
}

pub(super) struct Cluster {
    server: ApiServer,
    strikes: Arc<Strikes>,
    process: Process,
}

impl Cluster {
    pub(super) async fn open(strikes: Arc<Strikes>) -> Self {
        let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
        let client = kube::Client::new(server.service(), "default");
        Self {
            process: Process::new(client, Clock::system()),
            server,
            strikes,
        }
    }

    async fn create(&self, body: &Value) {
        let api = &self.process.cluster;
        let made = match body["kind"].as_str().unwrap() {
            "Pod" => api.create_json::<Pod>(body).await.map(drop),
            "PersistentVolumeClaim" => api.create_json::<Claim>(body).await.map(drop),
            "PersistentVolume" => api.create_json::<Volume>(body).await.map(drop),
            "StorageClass" => api.create_json::<StorageClass>(body).await.map(drop),
            "Node" => api.create_json::<Node>(body).await.map(drop),
            "CSINode" => api
                .create_json::<orlop_model::CsiNode>(body)
                .await
                .map(drop),
            "CSIDriver" => api
                .create_json::<orlop_model::CsiDriver>(body)
                .await
                .map(drop),
            _ => api
                .create_json::<orlop_model::CsiStorageCapacity>(body)
                .await
                .map(drop),
        };
        made.unwrap_or_else(|error| panic!("{body}: {}", error.chain()));
    }

    async fn furnish(&self, story: &Story) {
        self.create(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d"},
            "spec": {"storageCapacity": true, "attachRequired": false},
        }))
        .await;
        for name in ["n1", "n2"] {
            self.create(&json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            }))
            .await;
            let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let api = &self.process.cluster;
            api.patch_status::<Node>(&Key::cluster(name), &Patch::Merge(ready))
                .await
                .unwrap();
            self.create(&json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
                "spec": {"drivers": [{"name": "d", "nodeID": name, "topologyKeys": []}]},
            }))
            .await;
        }
        for object in &story.objects {
            self.create(object).await;
            if object["kind"] == "PersistentVolume" {
                let name = object["metadata"]["name"].as_str().unwrap();
                let free = json!({"status": {"phase": "Available"}});
                let api = &self.process.cluster;
                api.patch_status::<Volume>(&Key::cluster(name), &Patch::Merge(free))
                    .await
                    .unwrap();
            }
        }
    }

    /// Runs a story to its end.
    pub(super) async fn run(self, story: &Story) {
        let others = Others {
            process: self.process.clone(),
            news: Arc::default(),
            node_goes: story.node_goes,
            breaches: Arc::default(),
        };
        others.listen();
        self.furnish(story).await;
        let acting = others.clone();
        self.process
            .spawn("others", async move { acting.act().await });
        let mut scheduler = self.start();
        let started = Instant::now();
        loop {
            let seen = others.look();
            if (story.holds)(&seen) {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "it doesn't settle: {seen:?}");
            tokio::select! {
                () = self.strikes.end() => {
                    scheduler.kill();
                    scheduler = self.start();
                }
                () = others.news.notified() => {}
                () = sleep(Duration::from_millis(200)) => {}
            }
        }
        // And it stays so.
        let quiet = timeout(Duration::from_millis(100), self.strikes.end()).await;
        if quiet.is_ok() {
            scheduler.kill();
            scheduler = self.start();
            sleep(Duration::from_millis(300)).await;
        }
        assert!((story.holds)(&others.look()), "{:?}", others.look());
        scheduler.kill();
        self.process.kill();
        let breaches = others
            .breaches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        assert!(breaches.is_empty(), "{breaches:?}");
    }

    fn start(&self) -> Process {
        let client = self.strikes.client(self.server.service());
        let process = Process::new(client, Clock::system());
        crate::start(&process);
        process
    }
}

impl Others {
    fn listen(&self) {
        macro_rules! hear {
            ($kind:ty) => {
                let news = self.news.clone();
                self.process
                    .cache::<$kind>()
                    .subscribe(move |_| news.notify_waiters());
            };
        }
        hear!(Pod);
        hear!(Claim);
        hear!(Volume);
        hear!(Node);
    }

    fn look(&self) -> Seen {
        let mut seen = Seen::default();
        for pod in self.process.cache::<Pod>().all() {
            if pod.is_placed() {
                let name = pod.metadata.name.clone();
                seen.placed.insert(name, pod.spec.node_name.clone());
            } else if let Some(why) = pod.status.conditions.iter().find(|c| c.status == "False") {
                seen.refused.push(why.message.clone());
            }
        }
        for claim in self.process.cache::<Claim>().all() {
            if claim.is_fully_bound() {
                seen.bound.insert(claim.metadata.name.clone());
            }
        }
        seen
    }

    fn breach(&self, what: String) {
        let mut breaches = self.breaches.lock().unwrap_or_else(PoisonError::into_inner);
        breaches.push(what);
    }

    async fn act(&self) {
        loop {
            let news = self.news.notified();
            for claim in self.process.cache::<Claim>().all() {
                // Whatever fails is tried again: the watch tells.
                let _ = self.serve(&claim).await;
            }
            self.check();
            let _ = timeout(Duration::from_millis(50), news).await;
        }
    }

    /// What may never be: two claims with one volume, a pod where its volume isn't.
    fn check(&self) {
        let mut owners = BTreeMap::new();
        for claim in self.process.cache::<Claim>().all() {
            let volume = &claim.spec.volume_name;
            if !volume.is_empty()
                && let Some(other) = owners.insert(volume.clone(), claim.key())
            {
                self.breach(format!("{volume} is {other}'s and {}'s", claim.key()));
            }
        }
        for pod in self.process.cache::<Pod>().all() {
            for (_, key) in pod.claims().filter(|_| pod.is_placed()) {
                let claim = self.process.cache::<Claim>().get(&key);
                if !claim.is_some_and(|claim| claim.is_fully_bound()) {
                    self.breach(format!("{} is placed before {key} is bound", pod.key()));
                }
            }
        }
    }

    async fn serve(&self, claim: &Claim) -> Result<(), orlop_runtime::ApiError> {
        if claim.is_fully_bound() {
            return Ok(());
        }
        let api = &self.process.cluster;
        let volumes = api.list::<Volume>(None).await?;
        let ours = volumes.iter().find(|volume| volume.is_reserved_for(claim));
        if let Some(volume) = ours {
            let bind = json!({
                "metadata": {"annotations": {well_known::BIND_COMPLETED: "yes"}},
                "spec": {"volumeName": volume.metadata.name},
            });
            api.patch::<Claim>(&claim.key(), &Patch::merge_on(claim, bind))
                .await?;
            let bound = json!({"status": {"phase": "Bound"}});
            api.patch_status::<Claim>(&claim.key(), &Patch::Merge(bound))
                .await?;
            return Ok(());
        }
        let Some(node) = claim.selected_node() else {
            return Ok(());
        };
        if self.node_goes == Some(node) {
            let key = Key::cluster(node);
            api.delete::<Node>(&key, &Preconditions::default()).await?;
        }
        let disk = volumes
            .iter()
            .filter(|v| v.reachable_from(node, &labels(node)));
        let used: i64 = disk.map(Volume::capacity_bytes).sum();
        let gone = api.get::<Node>(&Key::cluster(node)).await?.is_none();
        let left = DISK - used - claim.requested_bytes();
        if gone || left < 0 {
            if !gone {
                self.breach(format!("{node} was promised more than it has"));
            }
            // As a provisioner does: elsewhere, please.
            let away = json!({"metadata": {"annotations": {well_known::SELECTED_NODE: null}}});
            api.patch::<Claim>(&claim.key(), &Patch::merge_on(claim, away))
                .await?;
            return Ok(());
        }
        let name = format!("pvc-{}", claim.metadata.uid);
        let made = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                     "capacity": {"storage": claim.requested_bytes().to_string()},
                     "csi": {"driver": "d", "volumeHandle": name},
                     "claimRef": claim.reference(), "nodeAffinity": only_on(node)},
        });
        // The driver tells what is left as soon as it is taken.
        let room = Key::namespaced("default", format!("room-{node}"));
        let left = Patch::Merge(json!({"capacity": left.to_string()}));
        api.patch::<orlop_model::CsiStorageCapacity>(&room, &left)
            .await?;
        api.create_json::<Volume>(&made).await.map(drop)
    }
}

fn labels(node: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(well_known::HOSTNAME.to_owned(), node.to_owned())])
}
