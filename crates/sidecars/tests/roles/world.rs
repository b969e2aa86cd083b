//! A cluster in one thread: API server, binder, protection, a driver, and the sidecars in
//! a process of their own that can be killed.

use std::{future::Future, time::Duration};

use orlop_apiserver::{ApiServer, Storage};
use orlop_model::{
    Claim, CsiNode, Event, Key, Kind, Node, StorageClass, Volume, VolumeAttachment, VolumeSnapshot,
    VolumeSnapshotContent, well_known::PROVISIONING,
};
use orlop_runtime::{ApiError, Clock, Cluster, Preconditions, Process};
use orlop_sidecars::{attacher, capacity, provisioner, resizer, snapshot_controller, snapshotter};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    driver::{Fake, NAME},
    fuse::{Fuse, Fused, Which},
};

/// Longer than every backoff.
const PATIENCE: Duration = Duration::from_secs(900);

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) fake: Fake,
    pub(crate) config: provisioner::Config,
    pub(crate) capacity: Option<capacity::Config>,
    /// Whether, and how, snapshots are looked after.
    pub(crate) snapshots: Option<(snapshotter::Config, snapshot_controller::Config)>,
    server: ApiServer,
    clock: Clock,
    control: Process,
    /// Counts the requests of binder and protection.
    beside: Fuse,
    sidecars: Option<(Process, Fuse)>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.control.kill();
        self.crash();
    }
}

impl World {
    /// A cluster with one class and one node, without sidecars yet.
    pub(crate) async fn new() -> Self {
        let config = orlop_apiserver::Config::new(Storage::Memory);
        let server = ApiServer::open(config).await.expect("memory opens");
        let client = kube::Client::new(server.service(), "default");
        let start = "2026-01-01T00:00:00Z".parse().expect("it is a time");
        let clock = Clock::simulated(start);
        let beside = Fuse::never();
        let counted = Fused {
            inner: server.service(),
            fuse: beside.clone(),
        };
        let control = Process::new(kube::Client::new(counted, "default"), clock);
        orlop_control::binder::start(&control);
        orlop_control::protection::start(&control);
        let world = Self {
            cluster: Cluster::new(client),
            fake: Fake::serving(),
            config: provisioner::Config::default(),
            capacity: None,
            snapshots: None,
            server,
            clock,
            control,
            beside,
            sidecars: None,
        };
        world.add_class("fast", json!({})).await;
        world.add_node("n1", "a").await;
        world
    }

    /// Starts the sidecars, with a fuse in their way to the API server and the driver.
    pub(crate) fn start(&mut self, fuse: Fuse) {
        self.sidecars = Some((self.launch(&fuse), fuse));
    }

    /// Starts the sidecars once more, as if the first ones had lost their lease unnoticed.
    pub(crate) fn start_another(&self) -> Process {
        self.launch(&Fuse::never())
    }

    fn launch(&self, fuse: &Fuse) -> Process {
        let service = Fused {
            inner: self.server.service(),
            fuse: fuse.clone(),
        };
        let process = Process::new(kube::Client::new(service, "default"), self.clock);
        let driver = self
            .fake
            .client()
            .with_gate(std::sync::Arc::new(fuse.clone()));
        provisioner::start(&process, driver.clone(), self.config.clone());
        attacher::start(&process, driver.clone(), attacher::Config::default());
        if let Some(config) = &self.capacity {
            capacity::start(&process, driver.clone(), config.clone());
        }
        if let Some((beside, central)) = &self.snapshots {
            snapshotter::start(&process, driver.clone(), beside.clone());
            snapshot_controller::start(&process, central.clone());
        }
        resizer::start(&process, driver, resizer::Config::default());
        process
    }

    /// The API server, for those who come their own way.
    pub(crate) fn service(&self) -> orlop_apiserver::ApiService {
        self.server.service()
    }

    pub(crate) fn crash(&mut self) {
        if let Some((process, _)) = self.sidecars.take() {
            process.kill();
        }
    }

    /// The sidecars' requests to the API server, and how they were answered.
    pub(crate) fn requests(&self) -> Vec<(String, u16)> {
        let sidecars = self.sidecars.as_ref();
        sidecars
            .map(|(_, fuse)| fuse.requests())
            .unwrap_or_default()
    }

    /// The API server says no to these requests of the sidecars.
    pub(crate) fn refuse(&self, which: Option<Which>) {
        if let Some((_, fuse)) = &self.sidecars {
            fuse.refuse(which);
        }
    }

    /// The same of binder and protection.
    pub(crate) fn requests_beside(&self) -> Vec<(String, u16)> {
        self.beside.requests()
    }

    /// What the sidecars' metrics tell of panics.
    pub(crate) fn panics(&self) -> Vec<String> {
        let metrics = self
            .sidecars
            .as_ref()
            .map(|(process, _)| process.metrics.render());
        let metrics = metrics.unwrap_or_default();
        let told = metrics
            .lines()
            .filter(|line| line.starts_with("orlop_controller_panics_total"));
        told.map(str::to_owned).collect()
    }

    /// Kills sidecars whose fuse has blown, and starts new ones.
    fn revive(&mut self) {
        if self.is_dead() {
            self.crash();
            self.start(Fuse::never());
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.sidecars.as_ref().is_some_and(|(_, f)| f.is_blown())
    }

    /// Waits for something to be true, reviving the sidecars on the way.
    pub(crate) async fn until<F>(&mut self, what: &str, check: impl Fn(Cluster, Fake) -> F)
    where
        F: Future<Output = Result<bool, ApiError>>,
    {
        let begun = Instant::now();
        loop {
            let done = check(self.cluster.clone(), self.fake.clone()).await;
            if done.expect("the API server answers") {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "waited in vain: {what}\n{}",
                self.picture().await
            );
            sleep(Duration::from_millis(100)).await;
            self.revive();
        }
    }

    /// Waits until the sidecars are dead, or the time has passed in which they'd die.
    pub(crate) async fn until_dead(&self) -> bool {
        for _ in 0..500 {
            if self.is_dead() {
                return true;
            }
            sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn picture(&self) -> String {
        let claims = self.cluster.list::<Claim>(None).await;
        let volumes = self.cluster.list::<Volume>(None).await;
        let events = self.cluster.list::<Event>(None).await.unwrap_or_default();
        let events: Vec<_> = events
            .iter()
            .map(|e| format!("{} {} {}", e.involved_object.name, e.reason, e.message))
            .collect();
        let calls = self.fake.state().calls.clone();
        format!("{claims:#?}\n{volumes:#?}\n{events:#?}\n{calls:#?}")
    }

    pub(crate) async fn create<K: Kind>(&self, body: Value) -> K {
        let created = self.cluster.create_json::<K>(&body).await;
        created.unwrap_or_else(|e| panic!("{}", e.chain()))
    }

    pub(crate) async fn add_class(&self, name: &str, more: Value) {
        let mut body = json!({"metadata": {"name": name}, "provisioner": NAME});
        merge(&mut body, more);
        self.create::<StorageClass>(body).await;
    }

    pub(crate) async fn add_node(&self, name: &str, zone: &str) {
        let labels = json!({"zone": zone});
        self.create::<Node>(json!({"metadata": {"name": name, "labels": labels}}))
            .await;
        self.create::<CsiNode>(json!({
            "metadata": {"name": name},
            "spec": {"drivers": [{
                "name": NAME, "nodeID": format!("id-{name}"), "topologyKeys": ["zone"],
            }]},
        }))
        .await;
    }

    pub(crate) async fn add_claim(&self, class: &str) -> Claim {
        self.add_claim_with(json!({"spec": {"storageClassName": class}}))
            .await
    }

    pub(crate) async fn add_claim_with(&self, more: Value) -> Claim {
        let mut body = json!({
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        merge(&mut body, more);
        self.create(body).await
    }

    /// Makes the kinds of snapshots and groups known, as an administrator does.
    pub(crate) async fn define_snapshots(&self) {
        for manifest in [
            include_str!("../../../../deploy/crds/snapshots.yaml"),
            include_str!("../../../../deploy/crds/group-snapshots.yaml"),
        ] {
            let definitions: Vec<Value> = serde_saphyr::from_multiple(manifest).expect("YAML");
            for definition in definitions {
                self.define(&definition).await;
            }
        }
    }

    async fn define(&self, definition: &Value) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(definition.to_string().into_bytes())
            .expect("a request");
        let client = kube::Client::new(self.server.service(), "default");
        let made: Value = client.request(request).await.expect("it is made");
        assert_eq!(made["kind"], "CustomResourceDefinition");
    }

    /// Makes the snapshot kinds known, so that statuses can be made up.
    pub(crate) async fn install_snapshots(&self) {
        let kinds = [
            ("VolumeSnapshot", "volumesnapshots", "Namespaced"),
            ("VolumeSnapshotContent", "volumesnapshotcontents", "Cluster"),
        ];
        let group = "snapshot.storage.k8s.io";
        for (kind, plural, scope) in kinds {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let body = json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": format!("{plural}.{group}"),
                    "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
                },
                "spec": {
                    "group": group,
                    "scope": scope,
                    "names": {"kind": kind, "plural": plural, "listKind": format!("{kind}List")},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": schema},
                    }],
                },
            });
            self.define(&body).await;
        }
    }

    /// A snapshot that was cut, as the snapshot controllers leave it.
    pub(crate) async fn add_snapshot(&self, name: &str, driver: &str) {
        let meta = json!({"name": name, "namespace": "default"});
        let snapshot = self
            .create::<VolumeSnapshot>(json!({
                "metadata": meta,
                "spec": {"source": {"persistentVolumeClaimName": "gone"}},
                "status": {
                    "boundVolumeSnapshotContentName": format!("content-{name}"),
                    "readyToUse": true, "restoreSize": "1Gi",
                },
            }))
            .await;
        self.create::<VolumeSnapshotContent>(json!({
            "metadata": {"name": format!("content-{name}")},
            "spec": {
                "driver": driver, "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
                "sourceVolumeMode": "Filesystem",
                "volumeSnapshotRef": {
                    "name": name, "namespace": "default", "uid": snapshot.metadata.uid,
                },
            },
            "status": {"snapshotHandle": format!("cut-{name}"), "readyToUse": true},
        }))
        .await;
    }

    pub(crate) async fn claim(&self) -> Option<Claim> {
        self.cluster.get(&data()).await.expect("it answers")
    }

    /// An object with every field that the API server has of it.
    pub(crate) async fn whole<K: Kind>(&self, key: &Key) -> Value {
        let path = format!(
            "/api/v1/namespaces/{}/{}/{}",
            key.namespace,
            K::PLURAL,
            key.name
        );
        let request = http::Request::get(path)
            .body(Vec::new())
            .expect("a request");
        let client = kube::Client::new(self.server.service(), "default");
        client.request(request).await.expect("it answers")
    }

    pub(crate) async fn volume(&self) -> Option<Volume> {
        let all = self.cluster.list::<Volume>(None).await;
        all.expect("it answers").into_iter().next()
    }

    pub(crate) async fn until_settled(&mut self) {
        self.until(
            "the claim is bound and carries no intent",
            |cluster, _| async move {
                let claim = cluster.get::<Claim>(&data()).await?;
                Ok(claim.is_some_and(|c| {
                    c.phase() == orlop_model::ClaimPhase::Bound
                        && !c.metadata.has_finalizer(PROVISIONING)
                }))
            },
        )
        .await;
    }

    pub(crate) async fn attach(&self, node: &str) {
        let volume = self.volume().await.expect("there is a volume");
        self.create::<VolumeAttachment>(json!({
            "metadata": {"name": format!("at-{node}")},
            "spec": {
                "attacher": NAME,
                "nodeName": node,
                "source": {"persistentVolumeName": volume.metadata.name},
            },
        }))
        .await;
    }

    pub(crate) async fn delete<K: Kind>(&self, key: &Key) {
        let only_if = Preconditions::default();
        let deleted = self.cluster.delete::<K>(key, &only_if).await;
        deleted.unwrap_or_else(|e| panic!("{}", e.chain()));
    }

    pub(crate) async fn until_attached(&mut self, node: &'static str) {
        self.until("the volume is attached", |cluster, _| async move {
            let key = Key::cluster(format!("at-{node}"));
            let attachment = cluster.get::<VolumeAttachment>(&key).await?;
            Ok(attachment.is_some_and(|a| a.status.attached))
        })
        .await;
    }

    pub(crate) async fn until_nothing_is_left(&mut self) {
        self.until("nothing is left", |cluster, fake| async move {
            Ok(cluster.list::<Claim>(None).await?.is_empty()
                && cluster.list::<Volume>(None).await?.is_empty()
                && cluster.list::<VolumeAttachment>(None).await?.is_empty()
                && fake.state().volumes.is_empty()
                && fake.state().published.is_empty())
        })
        .await;
    }

    /// The reasons and texts of the events about an object.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, String)> {
        // The recorder writes behind.
        sleep(Duration::from_secs(1)).await;
        let all = self.cluster.list::<Event>(None).await.expect("it answers");
        all.into_iter()
            .filter(|e| e.involved_object.name == name)
            .map(|e| (e.reason, e.message))
            .collect()
    }
}

/// Changes the claim `data`.
pub(crate) async fn change(world: &World, body: Value) {
    let patch = orlop_runtime::Patch::Merge(body);
    let changed = world.cluster.patch::<Claim>(&data(), &patch).await;
    changed.unwrap_or_else(|e| panic!("{}", e.chain()));
}

pub(crate) fn data() -> Key {
    Key::namespaced("default", "data")
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
