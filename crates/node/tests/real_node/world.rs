//! A cluster of one node, and its end whatever a test did.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orlop_apiserver::{ApiServer, Config, Storage};
use orlop_csi::registration::registration_server::Registration;
use orlop_csi::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use orlop_csi::server::{Services, Socket};
use orlop_csi::{Driver, Gate, proto};
use orlop_drivers::local::{DRIVER_NAME, LocalConfig, LocalDriver, NodeName};
use orlop_host::sandbox::ShimCommand;
use orlop_model::{Claim, CsiDriver, Key, Kind, Node, Pod, Volume, VolumeAttachment};
use orlop_node::{
    DriverConnector, HostRunner, Layout, NodeConfig, PodUid, Run, Runner, RunningNode, Seams,
    SocketDrivers, SocketRegistrations,
};
use orlop_runtime::{Cache, Clock, Cluster, Patch, Process};
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

pub(crate) const NODE: &str = "n1";

pub(crate) struct World {
    pub(crate) root: tempfile::TempDir,
    pub(crate) server: ApiServer,
    pub(crate) cluster: Cluster,
    pub(crate) driver: Driver,
    pub(crate) registered: watch::Receiver<Option<RegistrationStatus>>,
    /// An onlooker's caches; not the node's.
    pub(crate) onlooker: Process,
    /// What is unusual about the node.
    pub(crate) tune: fn(&mut NodeConfig),
    /// Stands between the node and its drivers.
    pub(crate) gate: Option<Arc<dyn Gate>>,
    /// Whether the node reaches the API server.
    pub(crate) online: Arc<AtomicBool>,
    role: Option<(Process, RunningNode)>,
    _stop: tokio::sync::oneshot::Sender<()>,
    _cleanup: Cleanup,
}

pub(crate) struct Registrar {
    pub(crate) name: String,
    pub(crate) endpoint: String,
    pub(crate) heard: watch::Sender<Option<RegistrationStatus>>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: self.name.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.heard.send_replace(Some(status.into_inner()));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

impl World {
    pub(crate) async fn new(attach_required: bool) -> Self {
        Self::with(attach_required, Config::new(Storage::Memory)).await
    }

    pub(crate) async fn with(attach_required: bool, config: Config) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let server = ApiServer::open(config).await.expect("a server");
        let client = kube::Client::new(server.service(), "default");
        let cluster = Cluster::new(client.clone());
        let onlooker = Process::new(client, Clock::system());

        let node_root = root.path().join("node");
        let layout = Layout::new(&node_root);
        std::fs::create_dir_all(layout.plugins().join("local")).expect("a folder");
        std::fs::create_dir_all(layout.plugins_registry()).expect("a folder");
        let endpoint = format!("unix://{}/local/csi.sock", layout.plugins().display());
        let pools = BTreeMap::from([(NodeName(NODE.into()), root.path().join("pool"))]);
        let local = LocalDriver::open(LocalConfig::new(pools)).expect("a driver");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async move {
            let _ = stopped.await;
        };
        let socket = Socket::bind(&endpoint).expect("a socket");
        tokio::spawn(socket.serve(local.services(&NodeName(NODE.into())), stopped));
        let (heard, registered) = watch::channel(None);
        let registrar = Registrar {
            name: DRIVER_NAME.into(),
            endpoint: endpoint.clone(),
            heard,
        };
        let announce = format!(
            "unix://{}/local-reg.sock",
            layout.plugins_registry().display()
        );
        let socket = Socket::bind(&announce).expect("a socket");
        tokio::spawn(socket.serve(
            Services::new().registration(registrar),
            std::future::pending(),
        ));

        let lifetimes = &["Persistent", "Ephemeral"];
        describe(&cluster, attach_required, lifetimes).await;
        let mut world = Self {
            _cleanup: Cleanup {
                root: root.path().to_owned(),
            },
            root,
            server,
            cluster,
            driver: Driver::connect(&endpoint).expect("an endpoint"),
            registered,
            onlooker,
            tune: |_| {},
            gate: None,
            online: Arc::new(AtomicBool::new(true)),
            role: None,
            _stop: stop,
        };
        world.start_node();
        world
    }

    /// With a node that is unusual in some way.
    pub(crate) async fn tuned(tune: fn(&mut NodeConfig)) -> Self {
        let mut world = Self::new(false).await;
        world.kill_node();
        world.tune = tune;
        world.start_node();
        world
    }

    /// What the node tells of its volumes.
    pub(crate) fn stats(&self) -> orlop_node::NodeStats {
        let (_, node) = self.role.as_ref().expect("a node role");
        node.stats()
    }

    /// What the node has counted.
    pub(crate) fn metrics(&self) -> String {
        let (process, _) = self.role.as_ref().expect("a node role");
        process.metrics.render()
    }

    /// A client of the API server that reaches it only while the node is online.
    fn client(&self) -> kube::Client {
        let (service, online) = (self.server.service(), self.online.clone());
        let service = tower::service_fn(move |request| {
            let (mut service, online) = (service.clone(), online.clone());
            async move {
                if !online.load(Ordering::SeqCst) {
                    return Err("the API server can't be reached".to_owned());
                }
                let answer = tower::Service::call(&mut service, request).await;
                answer.map_err(|never| match never {})
            }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn node_root(&self) -> PathBuf {
        self.root.path().join("node")
    }

    pub(crate) fn start_node(&mut self) {
        let shim = ShimCommand {
            program: std::env::current_exe().expect("this program"),
            args: vec!["container-shim".into()],
        };
        let layout = Layout::new(self.node_root());
        self.start_node_with(Arc::new(HostRunner::new(layout, shim)));
    }

    pub(crate) fn start_node_with(&mut self, runner: Arc<dyn Runner>) {
        let process = Process::new(self.client(), Clock::system());
        let root = self.node_root();
        let layout = Layout::new(&root);
        let seams = Seams {
            runner,
            connector: Arc::new(Gated(self.gate.clone())),
            registrations: Box::new(
                SocketRegistrations::watch(layout.plugins_registry()).expect("a watch"),
            ),
        };
        let mut config = NodeConfig::new(NODE, root);
        config.volume_plugin_dir = self.root.path().join("drivers");
        std::fs::create_dir_all(&config.volume_plugin_dir).expect("a folder");
        (self.tune)(&mut config);
        let node = orlop_node::start(&process, config, seams);
        self.role = Some((process, node));
    }

    /// As `kill -9` does: nothing of the role runs any more, nothing is told.
    pub(crate) fn kill_node(&mut self) {
        if let Some((process, _)) = self.role.take() {
            process.kill();
        }
    }

    /// As a host that loses power: no process of a pod, no mount and no loop device is left, and
    /// what is on disk was written by another boot.
    pub(crate) fn lose_power(&self) {
        let mut files = Vec::new();
        files_under(&self.node_root().join("pods"), &mut files);
        for record in files.iter().filter(|path| path.ends_with("shim.json")) {
            let json = std::fs::read_to_string(record).expect("a record");
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
            let other = "00000000-0000-0000-0000-000000000000";
            assert!(json.contains(boot.trim()), "{json}");
            std::fs::write(record, json.replace(boot.trim(), other)).expect("a record");
        }
        end_all(self.root.path());
    }

    pub(crate) async fn stop_all_pods(&self) {
        let (_, node) = self.role.as_ref().expect("a node role");
        node.stop_all_pods(Duration::from_secs(5)).await;
    }

    /// A volume of the driver, bound to a claim of the same name.
    pub(crate) async fn claim(&self, name: &str, mode: &str) -> String {
        let mount = proto::volume_capability::MountVolume::default();
        let access_type = if mode == "Block" {
            proto::volume_capability::AccessType::Block(Default::default())
        } else {
            proto::volume_capability::AccessType::Mount(mount)
        };
        let capability = proto::VolumeCapability {
            access_mode: Some(proto::volume_capability::AccessMode { mode: 1 }),
            access_type: Some(access_type),
        };
        let request = proto::CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(proto::CapacityRange {
                required_bytes: 32 << 20,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![capability],
            ..Default::default()
        };
        let volume = self
            .driver
            .create_volume(request)
            .await
            .expect("created")
            .volume
            .expect("a volume");
        let claim: Claim = self
            .cluster
            .create_json(&json!({
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "volumeName": format!("pv-{name}"),
                         "storageClassName": "", "resources": {"requests": {"storage": "32Mi"}}},
            }))
            .await
            .expect("a claim");
        self.cluster
            .create_json::<Volume>(&json!({
                "metadata": {"name": format!("pv-{name}")},
                "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "capacity": {"storage": "32Mi"},
                         "csi": {"driver": DRIVER_NAME, "volumeHandle": volume.volume_id,
                                 "volumeAttributes": volume.volume_context},
                         "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name,
                                      "uid": claim.metadata.uid}},
            }))
            .await
            .expect("a volume");
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        self.cluster
            .patch_status::<Claim>(&Key::namespaced("default", name), &bound)
            .await
            .expect("bound");
        volume.volume_id
    }

    pub(crate) async fn pod(&self, name: &str, mut spec: Value) -> Pod {
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                container["image"] = json!("host");
            }
        }
        self.pod_of_images(name, spec).await
    }

    /// The same, with the images as they are.
    pub(crate) async fn pod_of_images(&self, name: &str, mut spec: Value) -> Pod {
        spec["nodeName"] = json!(NODE);
        let body = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        self.cluster.create_json(&body).await.expect("a pod")
    }

    /// Waits for an object to be as it should.
    pub(crate) async fn until<K: Kind>(
        &self,
        key: &Key,
        holds: impl Fn(Option<&K>) -> bool,
    ) -> Option<Arc<K>> {
        let cache: Cache<K> = self.onlooker.cache();
        let (sender, mut changed) = watch::channel(());
        cache.subscribe(move |_| {
            let _ = sender.send(());
        });
        cache.synced().await;
        let wait = async {
            loop {
                changed.mark_unchanged();
                let found = cache.get(key);
                if holds(found.as_deref()) {
                    return found;
                }
                changed.changed().await.expect("the cache lives");
            }
        };
        match tokio::time::timeout(Duration::from_secs(20), wait).await {
            Ok(found) => found,
            Err(_) => panic!("{} {key} is {:#?}", K::KIND, cache.get(key)),
        }
    }

    pub(crate) async fn pod_until(&self, name: &str, holds: impl Fn(&Pod) -> bool) -> Arc<Pod> {
        let key = Key::namespaced("default", name);
        self.until::<Pod>(&key, |pod| pod.is_some_and(&holds))
            .await
            .expect("the pod")
    }

    pub(crate) async fn delete(&self, name: &str) {
        let key = Key::namespaced("default", name);
        self.cluster
            .delete::<Pod>(&key, &Default::default())
            .await
            .expect("asked for");
        self.until::<Pod>(&key, |pod| pod.is_none()).await;
    }

    pub(crate) fn log(&self, pod: &Pod, container: &str) -> String {
        let uid = PodUid::new(&pod.metadata.uid).expect("a uid");
        let path =
            orlop_node::log_path(&self.node_root(), &uid, container, Run::Latest).expect("a log");
        let raw = std::fs::read(path).unwrap_or_default();
        raw.split(|byte| *byte == b'\n')
            .filter_map(orlop_host::sandbox::log::Line::parse)
            .map(|line| String::from_utf8_lossy(line.text).into_owned() + "\n")
            .collect()
    }

    /// Nothing of any pod stays on the node, nor on the node object. A pod's object goes
    /// when its own folder is clean; unstaging follows.
    pub(crate) async fn expect_clean(&self) {
        let key = Key::cluster(NODE);
        let unused = |node: Option<&Node>| node.is_some_and(|n| n.status.volumes_in_use.is_empty());
        self.until::<Node>(&key, unused).await;
        let until = tokio::time::Instant::now() + Duration::from_secs(10);
        while let Err(left) = self.clean() {
            assert!(tokio::time::Instant::now() < until, "{left}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn clean(&self) -> Result<(), String> {
        let mounts = mounts_under(self.root.path());
        let loops = loops_under(self.root.path());
        let pods = std::fs::read_dir(self.node_root().join("pods")).map_or(0, Iterator::count);
        let mut files = Vec::new();
        files_under(&self.node_root().join("plugins/kubernetes.io"), &mut files);
        if mounts.is_empty() && loops.is_empty() && pods == 0 && files.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "left: {mounts:?}, {loops:?}, {pods} pod folders, {files:?}"
            ))
        }
    }

    /// Plays attach-detach for one volume.
    pub(crate) async fn attach(&self, handle: &str) {
        let unique = format!("kubernetes.io/csi/{DRIVER_NAME}^{handle}");
        let key = Key::cluster(NODE);
        let reported =
            |node: Option<&Node>| node.is_some_and(|n| n.status.volumes_in_use.contains(&unique));
        self.until::<Node>(&key, reported).await;
        let name = Command::new("sh")
            .args(["-c", "printf %s \"$1\" | sha256sum | cut -d' ' -f1", "sh"])
            .arg(format!("{handle}{DRIVER_NAME}{NODE}"))
            .output()
            .expect("a digest");
        let name = format!("csi-{}", String::from_utf8_lossy(&name.stdout).trim());
        let attachment = json!({"metadata": {"name": name}, "spec": {
            "attacher": DRIVER_NAME, "nodeName": NODE, "source": {"persistentVolumeName": "any"}}});
        self.cluster
            .create_json::<VolumeAttachment>(&attachment)
            .await
            .expect("an attachment");
        let attached = Patch::Merge(json!({"status": {"attached": true}}));
        self.cluster
            .patch_status::<VolumeAttachment>(&Key::cluster(&name), &attached)
            .await
            .expect("attached");
        let listed = Patch::Merge(
            json!({"status": {"volumesAttached": [{"name": unique, "devicePath": ""}]}}),
        );
        self.cluster
            .patch_status::<Node>(&key, &listed)
            .await
            .expect("listed");
    }
}

/// Drivers at sockets, with somebody in between.
struct Gated(Option<Arc<dyn Gate>>);

impl DriverConnector for Gated {
    fn connect(&self, endpoint: &str) -> Result<Driver, String> {
        let driver = SocketDrivers::default().connect(endpoint)?;
        Ok(match &self.0 {
            Some(gate) => driver.with_gate(gate.clone()),
            None => driver,
        })
    }
}

/// Tells the cluster what the driver is like, anew if it was told before.
pub(crate) async fn describe(cluster: &Cluster, attach_required: bool, lifetimes: &[&str]) {
    let key = Key::cluster(DRIVER_NAME);
    if let Ok(Some(_)) = cluster.get::<CsiDriver>(&key).await {
        let deleted = cluster.delete::<CsiDriver>(&key, &Default::default()).await;
        deleted.expect("deleted");
    }
    let traits = json!({"metadata": {"name": DRIVER_NAME}, "spec": {
        "attachRequired": attach_required, "podInfoOnMount": true,
        "fsGroupPolicy": "File", "volumeLifecycleModes": lifetimes}});
    let created = cluster.create_json::<CsiDriver>(&traits).await;
    created.expect("a CSIDriver");
}

pub(crate) fn mounts_under(root: &Path) -> Vec<PathBuf> {
    let table = orlop_host::MountTable::read().expect("the mount table");
    table
        .beneath(root)
        .map(|mount| mount.point.clone())
        .collect()
}

fn loops_under(root: &Path) -> Vec<String> {
    let listed = Command::new("/usr/sbin/losetup")
        .args(["-n", "-O", "NAME,BACK-FILE"])
        .output()
        .expect("losetup");
    let root = root.to_string_lossy().into_owned();
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter(|line| line.contains(&root))
        .map(str::to_owned)
        .collect()
}

fn files_under(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files_under(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Ends what a failed test left: containers, mounts, loop devices.
struct Cleanup {
    root: PathBuf,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        end_all(&self.root);
    }
}

fn end_all(root: &Path) {
    let mut files = Vec::new();
    files_under(&root.join("node/pods"), &mut files);
    for record in files.iter().filter(|path| path.ends_with("shim.json")) {
        let json = std::fs::read(record).unwrap_or_default();
        let Ok(json) = serde_json::from_slice::<Value>(&json) else {
            continue;
        };
        if record.with_file_name("exit.json").exists() {
            continue;
        }
        let pid = json["shim"]["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    for point in mounts_under(root).into_iter().rev() {
        let _ = Command::new("/usr/bin/umount")
            .arg("-l")
            .arg(point)
            .output();
    }
    for line in loops_under(root) {
        if let Some(device) = line.split_whitespace().next() {
            let _ = Command::new("/usr/sbin/losetup")
                .args(["-d", device])
                .output();
        }
    }
}
