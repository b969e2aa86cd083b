//! A config map that five hundred pods of one node show: all of them show a change within a second.
//!
//! The API server and the node are real, and so are the pods' folders; nothing runs in the pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use orlop_apiserver::{ApiServer, Config, Storage};
use orlop_model::{ConfigMap, Key, Pod};
use orlop_node::{
    Attempts, ChannelRegistrations, ContainerId, Finish, Found, Launch, NodeConfig, PodUid, Runner,
    RunnerError, RunningContainer, Seams, SocketDrivers, Work,
};
use orlop_runtime::{Clock, Cluster, Patch, Process};
use serde_json::json;

const PODS: usize = 500;
/// As promised; and what a build without optimisation may take for it on a machine that does
/// something else besides.
const PROMISED: Duration = Duration::from_secs(1);
const SLACK: u32 = if cfg!(debug_assertions) { 10 } else { 1 };

/// Runs nothing, for ever.
#[derive(Default)]
struct Still {
    started: Mutex<BTreeMap<PodUid, Attempts>>,
}

struct Nothing;

impl RunningContainer for Nothing {
    fn started_at(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn wait(&self) -> Work<'_, Finish> {
        Box::pin(std::future::pending())
    }

    fn terminate(&self) -> Result<(), RunnerError> {
        Ok(())
    }

    fn kill(&self) -> Result<(), RunnerError> {
        Ok(())
    }
}

impl Runner for Still {
    fn start<'a>(
        &'a self,
        id: &'a ContainerId,
        _: &'a Launch,
    ) -> Work<'a, Result<Found, RunnerError>> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let pod = started.entry(id.pod.clone()).or_default();
        pod.entry(id.container.clone())
            .or_default()
            .insert(id.attempt);
        Box::pin(std::future::ready(Ok(Found::Running(Arc::new(Nothing)))))
    }

    fn adopt<'a>(&'a self, _: &'a ContainerId) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(std::future::ready(Ok(Found::Running(Arc::new(Nothing)))))
    }

    fn remove<'a>(&'a self, _: &'a ContainerId) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn attempts<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<Attempts, RunnerError>> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let found = started.get(pod).cloned().unwrap_or_default();
        Box::pin(std::future::ready(Ok(found)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_maps_change_reaches_five_hundred_pods_folders_within_a_second() {
    let root = tempfile::tempdir().expect("a folder");
    let server = ApiServer::open(Config::new(Storage::Memory)).await;
    let server = server.expect("a server");
    let client = kube::Client::new(server.service(), "default");
    let cluster = Cluster::new(client.clone());
    let process = Process::new(client, Clock::system());
    let mut config = NodeConfig::new("n1", root.path());
    config.volume_plugin_dir = root.path().join("flex");
    std::fs::create_dir_all(&config.volume_plugin_dir).expect("a folder");
    let (_announcer, registrations) = ChannelRegistrations::new();
    let seams = Seams {
        runner: Arc::new(Still::default()),
        connector: Arc::new(SocketDrivers::default()),
        registrations: Box::new(registrations),
    };
    let _node = orlop_node::start(&process, config, seams);

    let map =
        json!({"metadata": {"name": "conf", "namespace": "default"}, "data": {"key": "before"}});
    let made = cluster.create_json::<ConfigMap>(&map).await;
    made.expect("a config map");
    let mut files: Vec<PathBuf> = Vec::new();
    for n in 0..PODS {
        let body = json!({
            "metadata": {"name": format!("p{n}"), "namespace": "default"},
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "main", "image": "none", "command": ["none"],
                                "volumeMounts": [{"name": "conf", "mountPath": "/conf"}]}],
                "volumes": [{"name": "conf", "configMap": {"name": "conf"}}],
            },
        });
        let pod: Pod = cluster.create_json(&body).await.expect("a pod");
        let volumes = root.path().join("pods").join(&pod.metadata.uid);
        files.push(volumes.join("volumes/kubernetes.io~configmap/conf/key"));
    }
    all_show(&files, "before", Duration::from_secs(120)).await;
    // What the pods' start leaves to do is not the change's.
    tokio::time::sleep(Duration::from_secs(2)).await;

    for text in ["after", "later"] {
        let patch = Patch::Merge(json!({"data": {"key": text}}));
        let key = Key::namespaced("default", "conf");
        let (began, used) = (Instant::now(), processor());
        let changed = cluster.patch::<ConfigMap>(&key, &patch).await;
        changed.expect("changed");
        all_show(&files, text, PROMISED * SLACK).await;
        // On a machine that does something else besides, the second figure says more.
        println!(
            "{PODS} pods show it after {:?}, processor {:?}",
            began.elapsed(),
            processor() - used
        );
    }
    process.kill();
}

/// What API server, node and this test have used of all cores.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Waits until all files have a text.
async fn all_show(files: &[PathBuf], text: &str, within: Duration) {
    let began = Instant::now();
    let mut behind: Vec<&PathBuf> = files.iter().collect();
    loop {
        let shows = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|found| found == text);
        behind.retain(|file| !shows(file));
        if behind.is_empty() {
            return;
        }
        let late = began.elapsed() > within;
        assert!(!late, "{} pods don't show it in time", behind.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
