//! The cluster: objects as others would have made them, and an attacher.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::Body;
use orlop_apiserver::{ApiServer, ApiService, Config, Storage};
use orlop_control::attach_detach;
use orlop_model::{
    Claim, CsiDriver, CsiNode, Event, Key, Kind, Node, Pod, Volume, VolumeAttachment,
    well_known::{ATTACHES_FLEX, FLEX_ATTACHER},
};
use orlop_runtime::{Cache, Clock, Cluster, Patch, Preconditions, Process};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;

pub(crate) const DRIVER: &str = "d";

/// A way to the API server on which every request takes a while, and is written down.
#[derive(Clone)]
pub(crate) struct Slow {
    inner: ApiService,
    delay: Duration,
    /// Requests by this method, with this in their path, are refused.
    pub(crate) refused: Arc<Mutex<Option<(Method, &'static str)>>>,
    pub(crate) sent: Arc<Mutex<Vec<(Instant, Method, String)>>>,
}

impl Service<Request<Body>> for Slow {
    type Response = <ApiService as Service<Request<Body>>>::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut inner = self.inner.clone();
        let query = request.uri().query().unwrap_or_default();
        // Lists and watches are how the role sees; they are as quick as ever.
        let looks = query.contains("watch=") || query.contains("limit=");
        let delay = if looks { Duration::ZERO } else { self.delay };
        if !looks {
            let call = (
                Instant::now(),
                request.method().clone(),
                request.uri().path().to_owned(),
            );
            let sent = self.sent.lock();
            sent.unwrap_or_else(PoisonError::into_inner).push(call);
        }
        let refused = self.refused.lock();
        let refused = refused.unwrap_or_else(PoisonError::into_inner).clone();
        let refused = refused.is_some_and(|(how, part)| {
            *request.method() == how && request.uri().path().contains(part)
        });
        let request = match refused {
            // What nobody can read is refused.
            true => Request::post("/api/v1/nodes")
                .body(Body::from(b"{".to_vec()))
                .unwrap(),
            false => request,
        };
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            inner.call(request).await
        })
    }
}

impl Slow {
    /// What a list says.
    pub(crate) async fn list(&self, path: &str) -> String {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = self.inner.clone().call(request).await.unwrap();
        let list = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(list.to_vec()).unwrap()
    }
}

pub(crate) struct Stage {
    pub(crate) server: ApiServer,
    /// Where the attacher and the test look.
    process: Process,
    role: Mutex<Option<Process>>,
    pub(crate) cluster: Cluster,
    pub(crate) slow: Slow,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.process.kill();
        self.crash();
    }
}

impl Stage {
    /// Objects, but no role yet.
    pub(crate) async fn bare(delay: Duration) -> Self {
        let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
        let client = kube::Client::new(server.service(), "default");
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let process = Process::new(client, Clock::simulated(start));
        let stage = Self {
            slow: Slow {
                inner: server.service(),
                delay,
                refused: Arc::default(),
                sent: Arc::default(),
            },
            cluster: process.cluster.clone(),
            server,
            process,
            role: Mutex::default(),
        };
        let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}});
        stage.make::<CsiDriver>(driver).await;
        stage
    }

    /// With the role, and an attacher that does its work.
    pub(crate) async fn set() -> Self {
        let stage = Self::bare(Duration::ZERO).await;
        stage.play_attacher();
        stage.start(attach_detach::Config::default());
        stage
    }

    pub(crate) fn start(&self, config: attach_detach::Config) {
        let client = kube::Client::new(self.slow.clone(), "default");
        self.start_by(client, config);
    }

    /// As [`Stage::start`], by a way of the test's own to the API server.
    pub(crate) fn start_by(&self, client: kube::Client, config: attach_detach::Config) {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let process = Process::new(client, Clock::simulated(start));
        attach_detach::start_with(&process, config);
        *self.role.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    }

    pub(crate) fn crash(&self) {
        let role = self
            .role
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(role) = role {
            role.kill();
        }
    }

    pub(crate) fn metrics(&self) -> String {
        let role = self.role.lock().unwrap_or_else(PoisonError::into_inner);
        role.as_ref().unwrap().metrics.render()
    }

    pub(crate) fn cache<K: Kind>(&self) -> Cache<K> {
        self.process.cache()
    }

    pub(crate) async fn make<K: Kind>(&self, body: Value) -> K {
        self.cluster.create_json(&body).await.unwrap()
    }

    pub(crate) async fn node(&self, name: &str) {
        self.make::<Node>(json!({"metadata": {
            "name": name,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        }}))
        .await;
        self.ready(name, "True").await;
        self.csi_node(name, None).await;
    }

    pub(crate) async fn ready(&self, name: &str, status: &str) {
        let ready = json!({"type": "Ready", "status": status});
        self.patch_node(name, json!({"conditions": [ready]})).await;
    }

    pub(crate) async fn csi_node(&self, name: &str, count: Option<i32>) {
        let mut driver = json!({"name": DRIVER, "nodeID": name});
        if let Some(count) = count {
            driver["allocatable"] = json!({"count": count});
        }
        let spec = json!({"drivers": [driver]});
        self.make::<CsiNode>(json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }

    pub(crate) async fn patch_node(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let key = Key::cluster(name);
        self.cluster
            .patch_status::<Node>(&key, &patch)
            .await
            .unwrap();
    }

    pub(crate) async fn uses(&self, node: &str, volumes: &[&str]) {
        let unique: Vec<String> = volumes.iter().map(|v| unique(v)).collect();
        self.patch_node(node, json!({"volumesInUse": unique})).await;
    }

    /// A node attaches FlexVolumes by itself from now on.
    pub(crate) async fn attaches_flex(&self, name: &str) {
        let annotations = json!({ATTACHES_FLEX: "true"});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let key = Key::cluster(name);
        self.cluster.patch::<Node>(&key, &patch).await.unwrap();
    }

    /// A claim `name` and its volume `v-name`, bound to each other.
    pub(crate) async fn bound(&self, name: &str, source: Value) {
        let claim = self
            .make::<Claim>(json!({
                "metadata": {"name": name, "namespace": "default",
                             "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                         "volumeName": format!("v-{name}"),
                         "resources": {"requests": {"storage": "1Gi"}}},
            }))
            .await;
        let mut spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name,
                         "namespace": "default", "uid": claim.metadata.uid},
        });
        for (key, value) in source.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let volume = json!({"metadata": {"name": format!("v-{name}")}, "spec": spec});
        self.make::<Volume>(volume).await;
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        self.cluster
            .patch_status::<Claim>(&key(name), &bound)
            .await
            .unwrap();
    }

    pub(crate) async fn claim(&self, name: &str) {
        let csi = json!({"driver": DRIVER, "volumeHandle": format!("h-{name}")});
        self.bound(name, json!({"csi": csi})).await;
    }

    /// A running pod on a node, with a claim.
    pub(crate) async fn pod(&self, name: &str, claim: &str, node: &str) {
        let volume = json!({"persistentVolumeClaim": {"claimName": claim}});
        self.pod_with(name, volume, node).await;
    }

    pub(crate) async fn pod_with(&self, name: &str, volume: Value, node: &str) {
        let mut volume = volume;
        volume["name"] = "v".into();
        self.make::<Pod>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}],
                     "volumes": [volume]},
        }))
        .await;
        let running = json!({"status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "state": {"running": {}}, "image": "i", "imageID": "", "ready": true,
             "restartCount": 0}]}});
        self.cluster
            .patch_status::<Pod>(&key(name), &Patch::Merge(running))
            .await
            .unwrap();
    }

    pub(crate) async fn delete<K: Kind>(&self, key: &Key) {
        let now = Preconditions {
            grace_period_seconds: Some(0),
            ..Preconditions::default()
        };
        self.cluster.delete::<K>(key, &now).await.unwrap();
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        self.delete::<Pod>(&key(name)).await;
    }

    /// Plays the attacher: holds attachments with a finalizer, marks them, and lets them go.
    pub(crate) fn play_attacher(&self) {
        self.play_attacher_that_takes(Duration::ZERO);
    }

    /// As [`Stage::play_attacher`], with a driver that takes its time to attach.
    pub(crate) fn play_attacher_that_takes(&self, time: Duration) {
        let cluster = self.cluster.clone();
        let attachments = self.process.cache::<VolumeAttachment>();
        self.process.spawn("attacher", async move {
            let (wake, mut woken) = tokio::sync::mpsc::unbounded_channel();
            attachments.subscribe(move |change| {
                let _ = wake.send(change.object().key());
            });
            while let Some(key) = woken.recv().await {
                let Some(seen) = attachments.get(&key) else {
                    continue;
                };
                if seen.spec.attacher == FLEX_ATTACHER {
                    continue;
                }
                if seen.metadata.is_deleting() {
                    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                    let _ = cluster.patch::<VolumeAttachment>(&key, &free).await;
                } else if !seen.status.attached {
                    let hold = json!({"metadata": {"finalizers": ["external-attacher/d"]}});
                    let hold = Patch::Merge(hold);
                    let held = cluster.patch::<VolumeAttachment>(&key, &hold).await;
                    let done = Patch::Merge(json!({"status": {"attached": true}}));
                    let cluster = cluster.clone();
                    let attach = async move {
                        tokio::time::sleep(time).await;
                        let _ = cluster.patch_status::<VolumeAttachment>(&key, &done).await;
                    };
                    match held {
                        Ok(_) if time.is_zero() => attach.await,
                        Ok(_) => drop(tokio::spawn(attach)),
                        Err(_) => {}
                    }
                }
            }
        });
    }

    /// Where each volume is attached, as `claim@node`.
    pub(crate) fn attached(&self) -> Vec<String> {
        let all = self.cache::<VolumeAttachment>().all().into_iter();
        let mut all: Vec<String> = all
            .map(|a| {
                format!(
                    "{}@{}",
                    a.volume_name().trim_start_matches("v-"),
                    a.spec.node_name
                )
            })
            .collect();
        all.sort();
        all
    }

    pub(crate) async fn until_attached(&self, wanted: &[&str]) {
        self.until(
            || self.attached() == wanted,
            || format!("{:?}", self.attached()),
        )
        .await;
    }

    /// Waits until nothing is attached on record.
    pub(crate) async fn until_none_attached(&self) {
        let all = self.cache::<VolumeAttachment>();
        all.synced().await;
        self.until(|| all.is_empty(), || format!("{:?}", all.all()))
            .await;
    }

    /// Waits until a node is told that it has exactly these.
    pub(crate) async fn until_told(&self, node: &str, claims: &[&str]) {
        let wanted: Vec<String> = claims.iter().map(|c| unique(c)).collect();
        self.until(
            || self.told(node) == wanted,
            || format!("{:?}", self.told(node)),
        )
        .await;
    }

    /// What a node is told to have.
    pub(crate) fn told(&self, node: &str) -> Vec<String> {
        let node = self.cache::<Node>().named(node);
        let all = node.iter().flat_map(|node| &node.status.volumes_attached);
        all.map(|v| v.name.clone()).collect()
    }

    pub(crate) async fn until_said(&self, about: &str, reason: &str, part: &str) {
        let events = self.cache::<Event>();
        let said = |event: &Event| {
            let whole = event.involved_object.name == about && event.reason == reason;
            whole && event.message.contains(part)
        };
        let all = || {
            let lines = events.all().into_iter().map(|e| {
                let name = &e.involved_object.name;
                format!("\n{name} {} {}", e.reason, e.message)
            });
            lines.collect::<String>()
        };
        self.until(|| events.all().iter().any(|e| said(e)), all)
            .await;
    }

    /// Waits, on a clock that jumps.
    pub(crate) async fn until(&self, holds: impl Fn() -> bool, state: impl Fn() -> String) {
        let shown = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(300), shown).await;
        assert!(waited.is_ok(), "it never came: {}", state());
    }

    /// Lets an hour pass.
    pub(crate) async fn an_hour_later(&self) {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

/// The node's name for a claim's volume, or the word itself if it is one.
pub(crate) fn unique(claim: &str) -> String {
    match claim.contains('/') {
        true => claim.to_owned(),
        false => format!("kubernetes.io/csi/{DRIVER}^h-{claim}"),
    }
}
