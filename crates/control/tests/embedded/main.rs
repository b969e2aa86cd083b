//! The control roles and the scheduler on the embedded API server: what a user sees, with a
//! driver and nodes that are played by the test.

#![expect(clippy::unwrap_used, reason = "a test that can't go on says where")]

mod binder;
mod ephemeral;
mod unused;

use std::{future::Future, time::Duration};

use jiff::Timestamp;
use orlop_apiserver::{ApiServer, Config, Storage};
use orlop_model::{
    Claim, ClaimPhase, Event, Key, Kind, Node, Pod, Volume, VolumeAttachment, VolumePhase,
};
use orlop_runtime::{Cache, Clock, Cluster, Patch, Preconditions, Process};
use serde_json::{Value, json};

/// A cluster whose processes end with the test.
struct Stage {
    _server: ApiServer,
    process: Process,
    cluster: Cluster,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.process.kill();
    }
}

impl Stage {
    async fn set() -> Self {
        let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
        let client = kube::Client::new(server.service(), "default");
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let process = Process::new(client, Clock::simulated(start));
        orlop_control::binder::start(&process);
        orlop_control::attach_detach::start(&process);
        orlop_control::protection::start(&process);
        orlop_control::ephemeral::start(&process);
        orlop_control::expand::start(&process);
        orlop_scheduler::start(&process);
        Self {
            cluster: process.cluster.clone(),
            _server: server,
            process,
        }
    }

    async fn make<K: Kind>(&self, body: Value) -> K {
        self.cluster.create_json(&body).await.unwrap()
    }

    async fn node(&self, name: &str) {
        let labels = json!({"kubernetes.io/hostname": name});
        let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
        self.make::<Node>(json!({
            "metadata": {"name": name, "labels": labels, "annotations": managed},
        }))
        .await;
        self.make::<orlop_model::CsiNode>(json!({
            "metadata": {"name": name}, "spec": {"drivers": [{"name": "d", "nodeID": name}]},
        }))
        .await;
        let ready = json!({"type": "Ready", "status": "True"});
        self.patch_node(name, json!({"status": {"conditions": [ready]}}))
            .await;
    }

    async fn patch_node(&self, name: &str, body: Value) {
        let key = Key::cluster(name);
        self.cluster
            .patch_status::<Node>(&key, &Patch::Merge(body))
            .await
            .unwrap();
    }

    async fn class(&self, name: &str, mode: &str) {
        self.make::<orlop_model::StorageClass>(json!({
            "metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": mode,
        }))
        .await;
    }

    async fn volume(&self, name: &str, class: &str, on: Option<&str>) {
        let mut spec = json!({
            "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": class, "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "d", "volumeHandle": format!("h-{name}")},
        });
        if let Some(node) = on {
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}});
        }
        self.make::<Volume>(json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }

    async fn claim(&self, name: &str, class: &str) {
        self.make::<Claim>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await;
    }

    async fn pod(&self, name: &str, claim: &str, on: &str) {
        let mut body = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}],
                     "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
        });
        if !on.is_empty() {
            body["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": on});
        }
        self.make::<Pod>(body).await;
    }

    async fn delete<K: Kind>(&self, key: &Key) {
        let now = Preconditions {
            grace_period_seconds: Some(0),
            ..Preconditions::default()
        };
        self.cluster.delete::<K>(key, &now).await.unwrap();
    }

    /// Plays the attacher: marks attachments, and holds them with a finalizer until it lets go.
    fn play_attacher(&self) {
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
                if seen.metadata.is_deleting() {
                    let free = json!({"metadata": {"finalizers": null}});
                    let _ = cluster
                        .patch::<VolumeAttachment>(&key, &Patch::Merge(free))
                        .await;
                } else if !seen.status.attached {
                    let hold = json!({"metadata": {"finalizers": ["external-attacher/d"]}});
                    let held = cluster
                        .patch::<VolumeAttachment>(&key, &Patch::Merge(hold))
                        .await;
                    let done = Patch::Merge(json!({"status": {"attached": true}}));
                    if held.is_ok() {
                        let _ = cluster.patch_status::<VolumeAttachment>(&key, &done).await;
                    }
                }
            }
        });
    }

    /// Waits, on a clock that jumps, until the cache shows what is wanted.
    async fn until<K: Kind>(&self, key: &Key, wanted: impl Fn(Option<&K>) -> bool) {
        let cache: Cache<K> = self.process.cache();
        let shown = async {
            loop {
                if wanted(cache.get(key).as_deref()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        self.within(shown, || format!("{} {key}: {:?}", K::KIND, cache.get(key)))
            .await;
    }

    async fn within(&self, wait: impl Future<Output = ()>, state: impl Fn() -> String) {
        let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(waited.is_ok(), "it never came: {}", state());
    }

    async fn until_said(&self, about: &str, reason: &str, message: &str) {
        let events = self.process.cache::<Event>();
        let said = |event: &Event| {
            event.involved_object.name == about
                && event.reason == reason
                && event.message == message
        };
        let shown = async {
            while !events.all().iter().any(|e| said(e)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let all = || {
            let lines = events.all().into_iter().map(|e| {
                let name = &e.involved_object.name;
                format!("\n{name} {} {}", e.reason, e.message)
            });
            lines.collect::<String>()
        };
        self.within(shown, all).await;
    }
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn phase(wanted: ClaimPhase) -> impl Fn(Option<&Claim>) -> bool {
    move |claim| claim.is_some_and(|c| c.phase() == wanted)
}

fn placed(on: &'static str) -> impl Fn(Option<&Pod>) -> bool {
    move |pod| pod.is_some_and(|p| p.spec.node_name == on)
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_a_volume_and_the_volume_is_released_after_it() {
    let stage = Stage::set().await;
    stage.claim("data", "").await;
    stage
        .until_said(
            "data",
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set; there is \
             no free volume without a class",
        )
        .await;
    stage.volume("vol", "", None).await;
    stage.until(&key("data"), phase(ClaimPhase::Bound)).await;
    let vol = Key::cluster("vol");
    let is = |wanted| move |v: Option<&Volume>| v.is_some_and(|v| v.phase() == wanted);
    stage.until(&vol, is(VolumePhase::Bound)).await;
    stage.delete::<Volume>(&vol).await;
    stage.delete::<Claim>(&key("data")).await;
    stage.until::<Claim>(&key("data"), |c| c.is_none()).await;
    stage.until::<Volume>(&vol, |v| v.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_outlives_its_deletion_while_a_pod_uses_it() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.volume("vol", "", None).await;
    stage.claim("data", "").await;
    stage.pod("web", "data", "").await;
    stage.until(&key("web"), placed("n1")).await;
    stage
        .until_said(
            "web",
            "Scheduled",
            "Successfully assigned default/web to n1",
        )
        .await;
    stage.delete::<Claim>(&key("data")).await;
    let going = |c: Option<&Claim>| c.is_some_and(|c| c.metadata.is_deleting());
    stage.until(&key("data"), going).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.until(&key("data"), going).await;
    stage.delete::<Pod>(&key("web")).await;
    stage.until::<Claim>(&key("data"), |c| c.is_none()).await;
    let vol = Key::cluster("vol");
    let released = |v: Option<&Volume>| v.is_some_and(|v| v.phase() == VolumePhase::Released);
    stage.until(&vol, released).await;
}

#[tokio::test(start_paused = true)]
async fn late_claims_are_bound_where_their_pods_go_and_no_volume_is_given_twice() {
    let stage = Stage::set().await;
    stage.class("late", "WaitForFirstConsumer").await;
    stage.node("n1").await;
    stage.node("n2").await;
    for (volume, node) in [("a", "n1"), ("b", "n2"), ("c", "n2")] {
        stage.volume(volume, "late", Some(node)).await;
    }
    for name in ["one", "two", "three", "four"] {
        stage.claim(name, "late").await;
    }
    stage
        .until_said(
            "one",
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        )
        .await;
    for name in ["one", "two", "three"] {
        stage.pod(name, name, "").await;
    }
    for name in ["one", "two", "three"] {
        stage.until(&key(name), phase(ClaimPhase::Bound)).await;
        let here = |p: Option<&Pod>| p.is_some_and(Pod::is_placed);
        stage.until(&key(name), here).await;
    }
    let claims = stage.process.cache::<Claim>().all();
    let mut given: Vec<&str> = claims
        .iter()
        .map(|c| c.spec.volume_name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    given.sort_unstable();
    assert_eq!(given, ["a", "b", "c"]);
    stage.pod("four", "four", "").await;
    let message = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes \
                   to bind. Note: claim \"four\" asks for 1Gi of class \"late\", which has no free \
                   volume and makes none by itself.";
    stage.until_said("four", "FailedScheduling", message).await;
    let told = |p: Option<&Pod>| {
        let mut conditions = p.iter().flat_map(|p| &p.status.conditions);
        conditions.any(|c| c.type_ == "PodScheduled" && c.status == "False" && c.message == message)
    };
    stage.until(&key("four"), told).await;
    stage.volume("d", "late", Some("n1")).await;
    stage.until(&key("four"), placed("n1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_moves_to_another_node_only_when_the_first_has_let_go() {
    let stage = Stage::set().await;
    stage.play_attacher();
    stage.node("n1").await;
    stage.node("n2").await;
    stage.volume("vol", "", None).await;
    stage.claim("data", "").await;
    stage.pod("old", "data", "n1").await;
    let unique = "kubernetes.io/csi/d^h-vol";
    let told = |n: Option<&Node>| {
        let mut attached = n.iter().flat_map(|n| &n.status.volumes_attached);
        attached.any(|v| v.name == unique)
    };
    stage.until(&Key::cluster("n1"), told).await;
    stage
        .until_said(
            "old",
            "SuccessfulAttachVolume",
            "AttachVolume.Attach succeeded for volume \"vol\" ",
        )
        .await;
    let used = json!({"status": {"volumesInUse": [unique]}});
    stage.patch_node("n1", used.clone()).await;
    stage.pod("new", "data", "n2").await;
    stage
        .until_said(
            "new",
            "FailedAttachVolume",
            "Waiting for detach for volume \"vol\" Volume is already used by pod(s) old. It is attached \
             to n1; its access modes are for one node: end those pods, place this one there as well, or \
             use a volume with ReadWriteMany",
        )
        .await;
    stage.delete::<Pod>(&key("old")).await;
    // The node still uses it: nothing moves, however long that takes.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    stage.until(&Key::cluster("n1"), told).await;
    let attachments = stage.process.cache::<VolumeAttachment>();
    assert_eq!(attachments.all()[0].spec.node_name, "n1");
    stage
        .patch_node("n1", json!({"status": {"volumesInUse": null}}))
        .await;
    stage.until(&Key::cluster("n2"), told).await;
    stage.until::<Node>(&Key::cluster("n1"), |n| !told(n)).await;
    assert_eq!(attachments.len(), 1);
    // Its administrator switches the node off.
    stage.patch_node("n2", used).await;
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
    let off = Patch::Merge(json!({"spec": {"taints": [taint]}}));
    let n2 = Key::cluster("n2");
    stage.cluster.patch::<Node>(&n2, &off).await.unwrap();
    stage.delete::<Pod>(&key("new")).await;
    let shown = async {
        while !attachments.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    stage
        .within(shown, || format!("{:?}", attachments.all()))
        .await;
}
