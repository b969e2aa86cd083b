//! The scheduler against the embedded API server, killed at every call and deprived of every
//! answer: no volume and no byte is promised twice, a pod gets all its volumes or none, and
//! everything settles.

mod cluster;

use orlop_trials::{Fault, Reach};
use serde_json::{Value, json};

use self::cluster::{Cluster, Story};

fn claim(name: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                 "resources": {"requests": {"storage": size}}},
    })
}

fn pod(name: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "none"}], "volumes": volumes},
    })
}

fn class(provisioner: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "late"}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    })
}

fn local_volume(name: &str, size: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                 "capacity": {"storage": size}, "local": {"path": "/mnt/x"},
                 "persistentVolumeReclaimPolicy": "Retain",
                 "nodeAffinity": cluster::only_on(node)},
    })
}

fn capacity(node: &str, size: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": format!("room-{node}"), "namespace": "default"},
        "storageClassName": "late", "capacity": size,
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}},
    })
}

/// Three pods, each with a claim for more than half of a node's room, on two nodes.
fn room_story() -> Story {
    let mut objects = vec![class("d"), capacity("n1", "10Gi"), capacity("n2", "10Gi")];
    for name in ["a", "b", "c"] {
        objects.push(claim(name, "6Gi"));
        objects.push(pod(name, &[name]));
    }
    Story {
        objects,
        node_goes: None,
        holds: |seen| {
            let mut nodes: Vec<&str> = seen.placed.values().map(String::as_str).collect();
            nodes.sort_unstable();
            nodes == ["n1", "n2"]
                && seen.refused.len() == 1
                && seen.refused[0].contains("did not have enough free storage")
        },
    }
}

/// Two claims of one pod that fit one by one, not together, on the smaller node.
fn joint_story() -> Story {
    let mut objects = vec![class("d"), capacity("n1", "7Gi"), capacity("n2", "10Gi")];
    objects.extend([
        claim("a", "5Gi"),
        claim("b", "5Gi"),
        pod("both", &["a", "b"]),
    ]);
    Story {
        objects,
        node_goes: None,
        holds: |seen| seen.placed.get("both").is_some_and(|node| node == "n2"),
    }
}

/// Two pods want two volumes each; one node has one volume, the other three.
fn volumes_story() -> Story {
    let mut objects = vec![class("kubernetes.io/no-provisioner")];
    objects.push(local_volume("v1", "1Gi", "n1"));
    for name in ["v2", "v3", "v4"] {
        objects.push(local_volume(name, "1Gi", "n2"));
    }
    for pod_name in ["p", "q"] {
        let names = [format!("{pod_name}1"), format!("{pod_name}2")];
        for name in &names {
            objects.push(claim(name, "1Gi"));
        }
        objects.push(pod(pod_name, &[&names[0], &names[1]]));
    }
    Story {
        objects,
        node_goes: None,
        holds: |seen| {
            // The other pod has none of its claims bound.
            seen.placed.len() == 1
                && seen.placed.values().all(|node| node == "n2")
                && seen.bound.len() == 2
                && seen.refused.len() == 1
        },
    }
}

/// The node goes after a claim was told of it, before there is a volume.
fn node_loss_story() -> Story {
    let objects = vec![
        class("d"),
        capacity("n1", "10Gi"),
        capacity("n2", "7Gi"),
        claim("a", "6Gi"),
        pod("a", &["a"]),
    ];
    Story {
        objects,
        node_goes: Some("n1"),
        holds: |seen| seen.placed.get("a").is_some_and(|node| node == "n2"),
    }
}

/// Tells a story once for each call of an undisturbed run that a fault may strike.
async fn at_every_call(story: fn() -> Story, fault: Fault) {
    orlop_trials::at_every_call(fault, Reach::Writes, async |strikes| {
        Cluster::open(strikes).await.run(&story()).await;
    })
    .await;
}

#[tokio::test]
async fn pods_that_race_for_room_survive_a_crash_at_every_call() {
    at_every_call(room_story, Fault::Die).await;
}

#[tokio::test]
async fn pods_that_race_for_room_survive_every_lost_answer() {
    at_every_call(room_story, Fault::LoseAnswer).await;
}

#[tokio::test]
async fn claims_of_one_pod_that_fit_alone_go_where_they_fit_together() {
    at_every_call(joint_story, Fault::Die).await;
}

#[tokio::test]
async fn pods_that_race_for_volumes_get_all_or_none_through_a_crash_at_every_call() {
    at_every_call(volumes_story, Fault::Die).await;
}

#[tokio::test]
async fn pods_that_race_for_volumes_get_all_or_none_when_answers_are_lost() {
    at_every_call(volumes_story, Fault::LoseAnswer).await;
}

#[tokio::test]
async fn a_node_that_goes_between_promise_and_volume_is_replaced() {
    at_every_call(node_loss_story, Fault::Die).await;
}
