//! Pods as real containers: Debian's containerd and runc, and an image made on the spot from
//! Debian's busybox.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_model::{ConfigMap, Key, Pod, PodPhase};
use orlop_node::{CriRunner, Layout};
use orlop_runtime::Preconditions;
use serde_json::{Value, json};

use super::cases::{event, first, is_running};
use super::containerd::Containerd;
use super::image;
use super::world::World;

async fn runner(of: &Containerd, root: &Path) -> Arc<CriRunner> {
    let runner = CriRunner::connect(&of.endpoint(), Layout::new(root)).await;
    Arc::new(runner.expect("a runtime"))
}

/// A pod that runs a script in the image, with these volumes at `/v/<name>`.
fn with_volumes(script: &str, volumes: &Value) -> Value {
    let names = volumes.as_array().expect("a list").iter();
    let mounts: Vec<Value> = names
        .map(|volume| {
            let name = volume["name"].as_str().expect("a name");
            json!({"name": name, "mountPath": format!("/v/{name}")})
        })
        .collect();
    json!({
        "containers": [{"name": "main", "image": image::BUSYBOX, "imagePullPolicy": "Never",
                        "command": ["sh", "-c", script], "volumeMounts": mounts}],
        "volumes": volumes,
        "terminationGracePeriodSeconds": 1,
    })
}

fn folder(world: &World, pod: &Pod, path: &str) -> PathBuf {
    world
        .node_root()
        .join(format!("pods/{}/{path}", pod.metadata.uid))
}

pub(crate) async fn pods_are_containers_of_a_container_runtime() {
    let Some(containerd) = Containerd::start() else {
        return;
    };
    let mut world = World::new(false).await;
    world.kill_node();
    let root = world.node_root();
    world.start_node_with(runner(&containerd, &root).await);
    world.claim("data", "Filesystem").await;
    let map = json!({"metadata": {"name": "conf", "namespace": "default"}, "data": {"key": "one"}});
    world
        .cluster
        .create_json::<ConfigMap>(&map)
        .await
        .expect("a config map");
    let script = "cat /v/conf/key; echo; touch /v/conf/x 2>/dev/null || echo read-only; \
                  echo kept > /v/data/f; echo part > /part/f; ls /; echo done; \
                  while :; do date +%s >> /v/data/ticks; sleep 0.1; done";
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "conf", "configMap": {"name": "conf"}},
    ]);
    let mut spec = with_volumes(script, &volumes);
    let mounts = spec["containers"][0]["volumeMounts"]
        .as_array_mut()
        .expect("mounts");
    mounts.push(json!({"name": "data", "mountPath": "/part", "subPathExpr": "$(NAME)/logs"}));
    spec["containers"][0]["env"] =
        json!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    world.pod_of_images("web", spec).await;
    let pod = world.pod_until("web", is_running).await;
    let until = Instant::now() + Duration::from_secs(20);
    while !world.log(&pod, "main").contains("done") {
        assert!(Instant::now() < until, "{}", world.log(&pod, "main"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = world.log(&pod, "main");
    assert!(log.starts_with("one\nread-only\n"), "{log}");
    assert!(
        !log.contains("root\n"),
        "the image's root and not the host's: {log}"
    );
    let data = folder(&world, &pod, "volumes/kubernetes.io~csi/pv-data/mount");
    let read = |path: &str| std::fs::read_to_string(data.join(path)).unwrap_or_default();
    assert_eq!(
        (read("f").as_str(), read("web/logs/f").as_str()),
        ("kept\n", "part\n")
    );
    assert!(folder(&world, &pod, "volume-subpaths/data/main/2").is_dir());

    // The node role is killed; the container runs on and is taken over.
    world.kill_node();
    let before = read("ticks").len();
    world.start_node_with(runner(&containerd, &root).await);
    let until = Instant::now() + Duration::from_secs(20);
    while read("ticks").len() == before {
        assert!(Instant::now() < until, "it stopped");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let now = world.pod_until("web", is_running).await;
    assert_eq!(first(&now).restart_count, 0);
    assert_eq!(containerd.containers(), 2, "the container and its sandbox");

    world.delete("web").await;
    world.expect_clean().await;
    assert_eq!(containerd.containers(), 0);

    // How containers end is told, and those that end are started again.
    let mut spec = with_volumes("exit 3", &json!([]));
    spec["restartPolicy"] = json!("Never");
    world.pod_of_images("fails", spec).await;
    let failed = world
        .pod_until("fails", |pod| pod.phase() == PodPhase::Failed)
        .await;
    let ended = first(&failed).state.terminated.clone().expect("it ended");
    assert_eq!((ended.exit_code, ended.reason.as_str()), (3, "Error"));
    let until = Instant::now() + Duration::from_secs(20);
    while !containerd.ctr(&["tasks", "list", "-q"]).stdout.is_empty() {
        assert!(Instant::now() < until, "its sandbox runs on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(containerd.containers(), 2, "it is kept, sandbox and all");
    world.delete("fails").await;
    world
        .pod_of_images("again", with_volumes("sleep 0.2; exit 1", &json!([])))
        .await;
    world
        .pod_until("again", |pod| {
            pod.status
                .container_statuses
                .first()
                .is_some_and(|c| c.restart_count >= 1)
        })
        .await;
    world.delete("again").await;
    let mut spec = with_volumes("true", &json!([]));
    spec["containers"][0]["command"] = json!(["/no/such/program"]);
    spec["restartPolicy"] = json!("Never");
    world.pod_of_images("missing", spec).await;
    let missing = world
        .pod_until("missing", |pod| pod.phase() == PodPhase::Failed)
        .await;
    let ended = first(&missing).state.terminated.clone().expect("it ended");
    assert_eq!(ended.exit_code, 128);
    assert!(ended.message.contains("no such file"), "{}", ended.message);
    world.delete("missing").await;
    let mut spec = with_volumes("true", &json!([]));
    spec["containers"][0]["image"] = json!("orlop.test/nowhere:1");
    world.pod_of_images("nowhere", spec).await;
    event(&world, "Failed", "image orlop.test/nowhere:1 is not here").await;
    world.delete("nowhere").await;
    world.expect_clean().await;
    assert_eq!(containerd.containers(), 0);
    let key = Key::namespaced("default", "nowhere");
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
}

/// How many pods end at once; more, to measure it: `ORLOP_CRI_PODS=10`.
fn crowd() -> usize {
    let asked = std::env::var("ORLOP_CRI_PODS");
    asked.ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

pub(crate) async fn volumes_of_pods_that_end_do_not_wait_for_their_sandboxes() {
    let Some(containerd) = Containerd::start() else {
        return;
    };
    let mut world = World::new(false).await;
    world.kill_node();
    let root = world.node_root();
    world.start_node_with(runner(&containerd, &root).await);
    let pods = crowd();
    let names = |n: usize| (format!("p{n}"), [format!("c{n}-a"), format!("c{n}-b")]);
    for n in 0..pods {
        let (pod, claims) = names(n);
        for claim in &claims {
            world.claim(claim, "Filesystem").await;
        }
        let volumes: Vec<Value> = ["a", "b"]
            .iter()
            .zip(&claims)
            .map(|(name, claim)| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        let script = "trap \"exit 0\" TERM; sleep 1000000 & wait";
        let mut spec = with_volumes(script, &json!(volumes));
        spec["terminationGracePeriodSeconds"] = json!(5);
        world.pod_of_images(&pod, spec).await;
    }
    for n in 0..pods {
        world.pod_until(&names(n).0, is_running).await;
    }
    let mounted = || {
        let table = orlop_host::MountTable::read().expect("the mount table");
        table
            .beneath(&root)
            .filter(|mount| mount.point.ends_with("mount"))
            .count()
    };
    let began = Instant::now();
    let all: Vec<String> = (0..pods).map(|n| names(n).0).collect();
    let unmounted = async {
        let mut late = 0;
        loop {
            let nothing_runs = containerd.ctr(&["tasks", "list", "-q"]).stdout.is_empty();
            let left = mounted();
            if nothing_runs {
                late = late.max(left);
            }
            if left == 0 {
                return (began.elapsed(), late);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gone = async {
        futures::future::join_all(all.iter().map(|name| world.delete(name))).await;
        began.elapsed()
    };
    let ((unmounted, late), gone) = tokio::join!(unmounted, gone);
    println!("  {pods} pods: unmounted after {unmounted:?}, gone after {gone:?}");
    assert_eq!(
        late, 0,
        "volumes that were left when all sandboxes had ended"
    );
    world.expect_clean().await;
    assert_eq!(containerd.containers(), 0);
}

pub(crate) async fn a_node_that_stops_leaves_no_sandbox_running() {
    let Some(containerd) = Containerd::start() else {
        return;
    };
    let mut world = World::new(false).await;
    world.kill_node();
    let root = world.node_root();
    world.start_node_with(runner(&containerd, &root).await);
    for name in ["stays", "goes"] {
        let spec = with_volumes("exec sleep 600", &json!([]));
        world.pod_of_images(name, spec).await;
        world.pod_until(name, is_running).await;
    }
    // On its way out when the node is told to stop, wherever on its way that finds it.
    let key = Key::namespaced("default", "goes");
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
    world.stop_all_pods().await;
    let left = containerd.ctr(&["tasks", "list", "-q"]).stdout;
    assert!(left.is_empty(), "{}", String::from_utf8_lossy(&left));

    // The next one goes on from there.
    world.kill_node();
    world.start_node_with(runner(&containerd, &root).await);
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    world.delete("stays").await;
    world.expect_clean().await;
    assert_eq!(containerd.containers(), 0);
}

pub(crate) async fn a_runtime_that_was_away_is_asked_again_to_stop_what_it_runs() {
    let Some(mut containerd) = Containerd::start() else {
        return;
    };
    let mut world = World::new(false).await;
    world.kill_node();
    let root = world.node_root();
    world.start_node_with(runner(&containerd, &root).await);
    let spec = with_volumes("exec sleep 600", &json!([{"name": "e", "emptyDir": {}}]));
    for name in ["asked", "forced"] {
        world.pod_of_images(name, spec.clone()).await;
        world.pod_until(name, is_running).await;
    }
    containerd.kill();
    let key = Key::namespaced("default", "asked");
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
    let at_once = Preconditions {
        grace_period_seconds: Some(0),
        ..Preconditions::default()
    };
    let forced = Key::namespaced("default", "forced");
    let gone = world.cluster.delete::<Pod>(&forced, &at_once).await;
    gone.expect("gone");
    let words = "error killing pod: failed to \"KillContainer\" for \"main\"";
    event(&world, "FailedKillPod", words).await;
    // Both are past their time, and were to be killed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    containerd.start_again();
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    world.expect_clean().await;
    assert_eq!(containerd.containers(), 0);
}
