//! Claims that wait for their pods: scheduler, binder and provisioner together, with every fault on
//! the way. What one pod needs, it gets on one node, or nothing of it anywhere.

use std::time::Duration;

use orlop_model::{
    Claim, CsiDriver, CsiStorageCapacity, Key, Pod, StorageClass, Volume, VolumePhase, well_known,
};
use orlop_sim::driver;
use orlop_sim::faults::{Fault, Member, Phase, Plan};
use orlop_sim::run::{Extent, Scenario, run, sweep};
use orlop_sim::strikes::{self, Strikes};
use orlop_sim::user::{Stuck, User};
use serde_json::{Value, json};

const SEED: u64 = 29;
/// Runs per story and kind of fault.
const SOME: Extent = Extent::Sample(5);

async fn class(user: &User, name: &str, provisioner: &str) {
    user.create::<StorageClass>(json!({
        "metadata": {"name": name}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
    }))
    .await;
}

async fn claim(user: &User, name: &str, class: &str, size: &str) {
    user.create::<Claim>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                 "resources": {"requests": {"storage": size}}},
    }))
    .await;
}

async fn pod(user: &User, name: &str, claims: &[&str]) {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let mounts: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")}))
        .collect();
    user.create::<Pod>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "none", "command": ["serve"],
                            "volumeMounts": mounts}],
            "volumes": volumes,
        },
    }))
    .await;
}

/// A volume that was made by hand and that one node reaches.
async fn local(user: &User, name: &str, size: &str, node: &str) -> Result<(), Stuck> {
    let here = json!([{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    user.create::<Volume>(json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/tmp"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": here}},
        },
    }))
    .await;
    let key = name.to_owned();
    user.until(
        &format!("volume {name} is there to be had"),
        move |objects| {
            let volume = objects.volumes.get(&key);
            volume.is_some_and(|volume| volume.phase() == VolumePhase::Available)
        },
    )
    .await
}

fn node_of(objects: &orlop_sim::witness::Objects, name: &str) -> Option<String> {
    let pod = objects.pods.get(&Key::namespaced("default", name))?;
    Some(pod.spec.node_name.clone()).filter(|node| !node.is_empty())
}

async fn until_on(user: &User, name: &str, node: &'static str) -> Result<(), Stuck> {
    let key = name.to_owned();
    user.until(&format!("pod {name} is on {node}"), move |objects| {
        node_of(objects, &key).as_deref() == Some(node)
    })
    .await
}

/// Two claims of one pod; the first node has a volume for one of them, the second for both.
fn all_or_none() -> Scenario {
    Scenario::new("all or none", |user| {
        Box::pin(async move {
            class(&user, "local", well_known::NO_PROVISIONER).await;
            local(&user, "lone", "1Gi", "node-1").await?;
            claim(&user, "left", "local", "1Gi").await;
            claim(&user, "right", "local", "2Gi").await;
            pod(&user, "web", &["left", "right"]).await;
            user.wait(Duration::from_secs(60)).await;
            user.until("nothing is taken for a pod that has no place", |objects| {
                let free = |v: &Volume| v.spec.claim_ref.is_none();
                node_of(objects, "web").is_none() && objects.volumes.values().all(free)
            })
            .await?;
            local(&user, "small", "1Gi", "node-2").await?;
            local(&user, "large", "2Gi", "node-2").await?;
            until_on(&user, "web", "node-2").await?;
            user.until_bound("left").await?;
            user.until_bound("right").await?;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_pod_gone("web").await
        })
    })
    .nodes(2)
}

/// Room for one volume, and a pod that wants two; then room for both.
fn one_room() -> Scenario {
    Scenario::new("one room", |user| {
        Box::pin(async move {
            user.create::<CsiDriver>(json!({
                "metadata": {"name": driver::NAME},
                "spec": {"attachRequired": true, "storageCapacity": true},
            }))
            .await;
            class(&user, "fast", driver::NAME).await;
            let room = |size: &str| {
                json!({
                    "metadata": {"name": "here", "namespace": "default"},
                    "storageClassName": "fast", "capacity": size,
                    "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "node-1"}},
                })
            };
            user.create::<CsiStorageCapacity>(room("3Gi")).await;
            claim(&user, "left", "fast", "2Gi").await;
            claim(&user, "right", "fast", "2Gi").await;
            pod(&user, "web", &["left", "right"]).await;
            user.wait(Duration::from_secs(60)).await;
            user.until("nothing is made for a pod that has no place", |objects| {
                let unasked = |claim: &Claim| claim.selected_node().is_none();
                node_of(objects, "web").is_none() && objects.claims.values().all(unasked)
            })
            .await?;
            let key = Key::namespaced("default", "here");
            user.change::<CsiStorageCapacity>(&key, json!({"capacity": "5Gi"}))
                .await;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.delete_claim("left").await;
            user.delete_claim("right").await;
            user.until_all_gone().await
        })
    })
}

/// The pod goes while its claims are on their way, and another of the same name comes.
fn second_thoughts() -> Scenario {
    Scenario::new("second thoughts", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            claim(&user, "data", "fast", "1Gi").await;
            for _ in 0..3 {
                pod(&user, "web", &["data"]).await;
                user.wait(Duration::from_millis(30)).await;
                user.delete_pod("web").await;
                user.until_pod_gone("web").await?;
            }
            pod(&user, "web", &["data"]).await;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

fn each(strikes: Strikes) {
    each_tolerating(&[], strikes);
}

fn each_tolerating(tolerated: &'static [&'static str], strikes: Strikes) {
    let mut wrong = Vec::new();
    for scenario in [all_or_none(), one_room(), second_thoughts()] {
        let scenario = scenario.tolerating_of_deposed(tolerated);
        let sweep = sweep(&scenario, SEED, strikes, SOME);
        println!("{}: {} runs", sweep.reference.replay, sweep.runs);
        wrong.extend(sweep.wrong());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pods_get_all_they_need_or_nothing_whoever_dies() {
    each(strikes::crashes);
}

#[test]
fn pods_get_all_they_need_or_nothing_whatever_is_refused() {
    each(|member, call| {
        let mut faults = strikes::errors(member, call);
        faults.extend(strikes::conflicts(member, call));
        faults
    });
}

#[test]
fn pods_get_all_they_need_or_nothing_however_late_the_news() {
    each(|member, call| {
        let mut faults = strikes::poor_watches(member, call);
        faults.extend(strikes::travels(member, call));
        faults
    });
}

#[test]
fn pods_get_all_they_need_or_nothing_though_an_old_leader_goes_on() {
    // A deposed provisioner's last call may come after its successor took the intent off the claim.
    each_tolerating(&["I14"], strikes::successions);
}

/// The volume's turn was looking up what the driver needs when its pod gave it up and left.
#[test]
fn nothing_is_mounted_for_a_pod_that_has_left_meanwhile() {
    let deposed = Plan::one(Member::Scheduler, 26, Fault::Deposed(Phase::Before));
    for plan in [Plan::calm(), deposed] {
        let report = run(&second_thoughts(), &plan, SEED);
        let complaints = report.complaints("");
        assert!(complaints.is_empty(), "{complaints:#?}\n{}", report.trace);
    }
}

#[test]
fn a_hundred_pods_at_once_get_a_volume_each_where_they_are() {
    let burst = Scenario::new("burst of pods", |user| {
        Box::pin(async move {
            class(&user, "local", well_known::NO_PROVISIONER).await;
            for number in 0..100 {
                let node = format!("node-{}", number % 2 + 1);
                local(&user, &format!("vol-{number:03}"), "1Gi", &node).await?;
            }
            for number in 0..100 {
                let name = format!("claim-{number:03}");
                claim(&user, &name, "local", "1Gi").await;
                pod(&user, &format!("pod-{number:03}"), &[&name]).await;
            }
            user.until("all are bound, each where its pod is", |objects| {
                let placed = |pod: &Pod| {
                    let Some((_, key)) = pod.claims().next() else {
                        return false;
                    };
                    let claim = objects.claims.get(&key);
                    let volume =
                        claim.and_then(|claim| objects.volumes.get(&claim.spec.volume_name));
                    let node = &pod.spec.node_name;
                    let labels = [("kubernetes.io/hostname".to_owned(), node.clone())];
                    volume.is_some_and(|v| v.reachable_from(node, &labels.into()))
                };
                objects.pods.len() == 100 && objects.pods.values().all(placed)
            })
            .await
        })
    })
    .nodes(2);
    let report = run(&burst, &Plan::calm(), SEED);
    let complaints = report.complaints(&report.end);
    assert!(complaints.is_empty(), "{complaints:#?}");
}
