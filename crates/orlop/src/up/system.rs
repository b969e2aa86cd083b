//! The whole stack in one process: started in order, stopped in reverse.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, future::join_all};
use orlop_apiserver::{ApiServer, Config, LogRequest, LogSource, Pki, Policy, Signer, Storage};
use orlop_csi::{
    Driver, Turns,
    client::socket_path,
    metrics::{Metrics as CallMetrics, Side},
    server::Services,
};
use orlop_drivers::local::{DRIVER_NAME, LocalConfig, LocalDriver, NodeName, Reach};
use orlop_host::{Lock, sandbox::ShimCommand};
use orlop_model::{CsiNode, Key, Node, Pod};
use orlop_node::{DriverConnector, NodeConfig, RunningNode, Seams, SocketRegistrations};
use orlop_runtime::{Clock, Cluster, Patch, Process};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, warn};

use super::{bootstrap, definitions, identities, identities::Roles, layout::Layout, preflight};
use crate::{
    demo::millis,
    driver::meet,
    life::Chronicle,
    logs::Logs,
    nodes::{Nodes, Told},
    settle,
};

/// How long each part may take to come up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a driver may take to answer.
const DRIVER_PATIENCE: Duration = Duration::from_secs(10);
/// How long a pod may take to end when everything stops.
const LAST_GRACE: Duration = Duration::from_secs(10);
/// How long the API server alone takes to have made all that it needs once.
const START: Duration = Duration::from_secs(1);
/// The class of the built-in driver.
const LOCAL_CLASS: &str = "local";

/// What to start.
pub(crate) struct Options {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) nodes: u16,
    pub(crate) driver: Option<String>,
    /// The container runtime, where one is to run pods.
    pub(crate) cri: Option<String>,
    pub(crate) admission: Admission,
}

/// Which of the API server's optional admissions are on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    pub(crate) service_accounts: bool,
}

/// A running stack.
pub(crate) struct System {
    pub(crate) layout: Layout,
    /// The API server, to its administrator.
    pub(crate) cluster: Cluster,
    pub(crate) chronicle: Chronicle,
    roles: Roles,
    server: ApiServer,
    logs: Arc<Logs>,
    nodes: Vec<RunningNode>,
    sockets: Sockets,
    _lock: Lock,
}

/// The servers that this process runs, and how they are stopped.
struct Sockets {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl System {
    /// Starts everything, telling of each part as it comes up.
    pub(crate) async fn start(options: Options, mut tell: impl FnMut(&str, &str)) -> Result<Self> {
        let Options {
            data_dir,
            listen,
            nodes,
            driver,
            cri,
            admission,
        } = options;
        preflight::root()?;
        preflight::pods()?;
        let data_dir = std::path::absolute(&data_dir)
            .with_context(|| format!("{} is no usable path", data_dir.display()))?;
        let layout = Layout::new(data_dir);
        let names: Vec<String> = (1..=nodes).map(|n| format!("node-{n}")).collect();
        ensure!(
            driver.is_none() || names.len() == 1,
            "a driver at one socket is the driver of one node: leave --nodes at 1 with --driver"
        );
        let longest = names.last().map_or("", String::as_str);
        preflight::socket_paths(&layout, longest, DRIVER_NAME)?;
        let lock = preflight::claim(&layout)?;
        let listener = preflight::listen(listen).await?;
        let sockets = Sockets {
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let started = Instant::now();

        let roots = names.iter().map(|n| (n.clone(), layout.node(n))).collect();
        let logs = Arc::new(Logs { roots });
        let pki = certificates(&layout)?;
        let mut config = configuration(&layout, &pki, admission)?;
        config.logs = Some(logs.clone());
        let asked = Nodes::default();
        config.nodes = Some(Arc::new(asked.clone()));
        let server = ApiServer::open(config).await.with_context(|| {
            format!(
                "the API server could not start on {}",
                layout.store().display()
            )
        })?;
        let address = listener.local_addr()?;
        serve_https(&server, listener, (&layout, &pki), &sockets)?;
        tell(
            "API server",
            &format!("https://{address} (in {})", millis(started.elapsed())),
        );
        tell("kubeconfig", &layout.kubeconfig().display().to_string());
        tell("data", &layout.root().display().to_string());

        let client = kube::Client::new(server.service(), "default");
        identities::grant(&client).await?;
        definitions::define(&client).await?;
        let roles = Roles::of(&server, &names);
        let cluster = Cluster::new(client);
        let chronicle = Chronicle::new();
        let (driver, endpoints, class) = match driver {
            None => {
                let driver = start_local(&layout, &names, &sockets).await?;
                (driver, None, LOCAL_CLASS.to_owned())
            }
            Some(endpoint) => {
                tell("driver", &format!("waiting for {endpoint}"));
                let info = meet(&Driver::connect(&endpoint)?, &endpoint, DRIVER_PATIENCE).await?;
                let class = info.name.clone();
                (endpoint.clone(), Some(endpoint), class)
            }
        };
        let beside = Heard::new(&roles.controller, &chronicle, Side::Sidecar);
        let controller = beside.driver(&driver).map_err(anyhow::Error::msg)?;
        let controller = controller.with_turns(Turns::default());
        let info = meet(&controller, &driver, DRIVER_PATIENCE).await?;
        tell(
            "driver",
            &format!("{} {} at {driver}", info.name, info.version),
        );
        bootstrap::objects(&cluster, &class, &info).await?;
        tell("class", &bootstrap::storage(&class, &info));
        tell("snapshots", &bootstrap::snapshots(&class, &info));

        start_roles(&roles, &controller, &info.name);
        let mut handles = Vec::new();
        for name in &names {
            let process = &roles.nodes[name];
            let on_node = Heard::new(process, &chronicle, Side::Node);
            let socket = match &endpoints {
                None => layout.node_socket(name, &info.name),
                Some(endpoint) => socket_path(endpoint)?,
            };
            let beside = Beside {
                drivers: &on_node,
                api_server: address,
                cri: cri.as_deref(),
            };
            handles.push(start_node(process, &layout, name, beside).await?);
            register(&layout, name, &socket, &sockets);
        }
        let told = |(name, node): (&String, &RunningNode)| {
            let told = Told {
                stats: node.stats(),
                metrics: roles.nodes[name].metrics.clone(),
            };
            (name.clone(), told)
        };
        asked.are(names.iter().zip(&handles).map(told).collect());
        retire(&cluster, &names).await?;
        for name in &names {
            if let Err(error) = node_ready(&roles.scheduler, name, &info.name).await {
                // Whoever reaches the API server can make room, and the node then goes on by itself.
                if server.store().health().borrow().is_well() {
                    return Err(error);
                }
                warn!("{error:#}: the API server's store has no room; delete objects to make some");
            }
            tell(
                "node",
                &format!("{name} at {}", layout.node(name).display()),
            );
        }
        // It looks at the caches that are there, and so needs no rights of its own.
        chronicle.follow(&roles.control).await;
        Ok(Self {
            layout,
            cluster,
            chronicle,
            roles,
            server,
            logs,
            nodes: handles,
            sockets,
            _lock: lock,
        })
    }

    /// Ends the pods and takes their volumes down; the API server's objects stay as they
    /// are, and the next start goes on from there.
    pub(crate) async fn stop(self) -> Result<()> {
        let ended = join_all(self.nodes.iter().map(|node| node.stop_all_pods(LAST_GRACE)));
        if timeout(PATIENCE, ended).await.is_err() {
            warn!(
                "some pods or volumes could not be taken down within {} s; the next start goes on \
                 with them, and 'orlop down' clears them",
                PATIENCE.as_secs()
            );
        }
        self.roles.kill();
        self.sockets.stop.cancel();
        self.sockets.tasks.close();
        if timeout(PATIENCE, self.sockets.tasks.wait()).await.is_err() {
            warn!("a server did not stop in time");
        }
        self.server.shutdown().await;
        Ok(())
    }

    /// The first line that a pod's first container writes.
    pub(crate) async fn first_line_of(&self, namespace: &str, name: &str) -> Result<String> {
        let key = Key::namespaced(namespace, name);
        let pod = self.cluster.get::<Pod>(&key).await?;
        let pod = pod.with_context(|| format!("there is no pod {key}"))?;
        let container = pod
            .spec
            .containers
            .first()
            .map(|c| c.name.clone())
            .unwrap_or_default();
        let request = LogRequest {
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            uid: pod.metadata.uid.clone(),
            node: pod.spec.node_name.clone(),
            container,
            follow: true,
            previous: false,
            timestamps: false,
            tail_lines: None,
            limit_bytes: None,
            since: None,
        };
        let mut stream = self.logs.open(request).await?;
        let mut text = Vec::new();
        while !text.contains(&b'\n')
            && let Some(chunk) = timeout(PATIENCE, stream.next()).await?
        {
            text.extend_from_slice(&chunk?);
        }
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

/// Drivers as the roles of this process reach them: measured, and heard by the chronicle.
#[derive(Clone)]
struct Heard {
    metrics: CallMetrics,
    chronicle: Chronicle,
}

impl Heard {
    fn new(process: &Process, chronicle: &Chronicle, side: Side) -> Self {
        let metrics = CallMetrics::register(side, &mut process.metrics.registry());
        Self {
            metrics,
            chronicle: chronicle.clone(),
        }
    }

    fn driver(&self, endpoint: &str) -> Result<Driver, String> {
        let driver = Driver::connect(endpoint).map_err(|e| e.to_string())?;
        Ok(driver
            .with_metrics(self.metrics.clone())
            .with_gate(Arc::new(self.chronicle.clone())))
    }
}

impl DriverConnector for Heard {
    fn connect(&self, endpoint: &str) -> Result<Driver, String> {
        self.driver(endpoint)
    }
}

/// Runs the API server alone until `stop`.
pub(crate) async fn apiserver(
    data_dir: PathBuf,
    listen: SocketAddr,
    admission: Admission,
    tell: impl Fn(&str, &str),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let layout = Layout::new(std::path::absolute(&data_dir)?);
    let _lock = preflight::claim(&layout)?;
    let listener = preflight::listen(listen).await?;
    let address = listener.local_addr()?;
    let sockets = Sockets {
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    let pki = certificates(&layout)?;
    let server = ApiServer::open(configuration(&layout, &pki, admission)?).await?;
    serve_https(&server, listener, (&layout, &pki), &sockets)?;
    tell("API server", &format!("https://{address}"));
    tell("kubeconfig", &layout.kubeconfig().display().to_string());
    tell("ready", "press Ctrl-C to stop");
    tokio::select! {
        () = stop => {}
        () = settle::down_after(START) => {}
    }
    sockets.stop.cancel();
    sockets.tasks.close();
    sockets.tasks.wait().await;
    server.shutdown().await;
    Ok(())
}

fn certificates(layout: &Layout) -> Result<Pki> {
    Pki::open(&layout.pki(), jiff::Timestamp::now())
        .context("the API server's certificates could not be made or read")
}

/// An API server on the data folder, whose pods know it by its certificate.
fn configuration(layout: &Layout, pki: &Pki, admission: Admission) -> Result<Config> {
    let mut config = Config::new(Storage::Disk(layout.store()));
    // The key of service accounts' tokens outlives a restart as its pods do.
    let signer = Signer::open(&layout.pki());
    config.signer = Some(signer.context("the key that signs tokens could not be made or read")?);
    config.policy = Policy {
        service_accounts: admission.service_accounts,
        root_certificate: Some(pki.certificate().to_owned()),
    };
    Ok(config)
}

fn serve_https(
    server: &ApiServer,
    listener: tokio::net::TcpListener,
    (layout, pki): (&Layout, &Pki),
    sockets: &Sockets,
) -> Result<()> {
    let address = listener.local_addr()?;
    let tls = pki.tls(&[address.ip().to_string()])?;
    pki.write_kubeconfig(&layout.kubeconfig(), &format!("https://{address}"))
        .context("the kubeconfig could not be written")?;
    sockets
        .tasks
        .spawn(server.serve(listener, tls, sockets.stop.clone().cancelled_owned()));
    Ok(())
}

/// Starts the built-in driver: one controller over all nodes' pools, one endpoint per node.
async fn start_local(layout: &Layout, nodes: &[String], sockets: &Sockets) -> Result<String> {
    preflight::local_driver()?;
    let pools: BTreeMap<NodeName, PathBuf> = nodes
        .iter()
        .map(|n| (NodeName(n.clone()), layout.pool(n)))
        .collect();
    for pool in pools.values() {
        make_folder(pool)?;
    }
    let mut config = LocalConfig::new(pools);
    config.reaches = nodes
        .iter()
        .map(|n| (NodeName(n.clone()), Reach::below(&layout.node(n))))
        .collect();
    let driver = tokio::task::spawn_blocking(move || LocalDriver::open(config))
        .await?
        .context("the local driver could not start")?;
    let controller = layout.controller_socket();
    offer(&controller, driver.controller_services(), sockets)?;
    for node in nodes {
        let socket = layout.node_socket(node, DRIVER_NAME);
        make_folder(socket.parent().unwrap_or(Path::new("/")))?;
        offer(
            &socket,
            driver.node_services(&NodeName(node.clone())),
            sockets,
        )?;
    }
    Ok(format!("unix://{}", controller.display()))
}

/// Serves a driver at a socket until everything stops.
fn offer(path: &Path, services: Services, sockets: &Sockets) -> Result<()> {
    let socket = orlop_csi::server::Socket::bind(&format!("unix://{}", path.display()))?;
    let stop = sockets.stop.clone().cancelled_owned();
    sockets.tasks.spawn(async move {
        if let Err(error) = socket.serve(services, stop).await {
            error!(
                error = &error as &dyn std::error::Error,
                "a driver's server failed"
            );
        }
    });
    Ok(())
}

fn start_roles(roles: &Roles, driver: &Driver, name: &str) {
    orlop_control::binder::start(&roles.control);
    orlop_control::attach_detach::start(&roles.control);
    orlop_control::protection::start(&roles.control);
    orlop_control::ephemeral::start(&roles.control);
    orlop_control::expand::start(&roles.control);
    orlop_control::unused::start(&roles.control);
    orlop_scheduler::start(&roles.scheduler);
    orlop_workloads::start(&roles.workloads);
    let beside = &roles.controller;
    let provisioner = orlop_sidecars::provisioner::Config {
        // Strange drivers may refuse parameters that they don't know; this one's folders are named
        // by them.
        extra_create_metadata: name == orlop_drivers::nfs::DRIVER_NAME,
        ..Default::default()
    };
    orlop_sidecars::provisioner::start(beside, driver.clone(), provisioner);
    orlop_sidecars::attacher::start(beside, driver.clone(), Default::default());
    orlop_sidecars::resizer::start(beside, driver.clone(), Default::default());
    orlop_sidecars::snapshotter::start(beside, driver.clone(), Default::default());
    orlop_sidecars::snapshot_controller::start(&roles.snapshot_controller, Default::default());
}

/// What a node talks to.
struct Beside<'a> {
    drivers: &'a Heard,
    api_server: SocketAddr,
    cri: Option<&'a str>,
}

async fn start_node(
    process: &Process,
    layout: &Layout,
    name: &str,
    beside: Beside<'_>,
) -> Result<RunningNode> {
    let Beside {
        drivers,
        api_server,
        cri,
    } = beside;
    let root = layout.node(name);
    make_folder(&root)?;
    let shim = ShimCommand {
        program: std::env::current_exe().context("could not find this program's own file")?,
        args: vec!["container-shim".into(), "--state-dir".into()],
    };
    let registry = layout.registry(name);
    let registrations = SocketRegistrations::watch(&registry)
        .with_context(|| format!("could not watch {}", registry.display()))?;
    let mut config = NodeConfig::new(name, &root);
    config.hidden = vec![layout.root().to_owned()];
    config.api_server = Some((reachable(api_server.ip()), api_server.port()));
    let seams = Seams {
        runner: crate::cluster::runner(cri, orlop_node::Layout::new(&root), shim).await?,
        connector: Arc::new(drivers.clone()),
        registrations: Box::new(registrations),
    };
    Ok(orlop_node::start(process, config, seams))
}

/// Where this machine's containers reach a server that listens on an address.
fn reachable(address: IpAddr) -> String {
    match address {
        IpAddr::V4(any) if any.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(any) if any.is_unspecified() => "::1".to_owned(),
        own => own.to_string(),
    }
}

/// Introduces the driver to a node, as the registrar beside a driver does.
fn register(layout: &Layout, node: &str, socket: &Path, sockets: &Sockets) {
    let config = orlop_sidecars::registrar::Config {
        timeout: Duration::from_secs(10),
        csi_endpoint: format!("unix://{}", socket.display()),
        kubelet_registration_path: socket.display().to_string(),
        plugin_registration_dir: layout.registry(node),
    };
    let stop = sockets.stop.clone().cancelled_owned();
    sockets
        .tasks
        .spawn(orlop_sidecars::registrar::serve(config, stop));
}

/// Says of nodes from an earlier start that nobody runs them now, so that no pod goes there.
async fn retire(cluster: &Cluster, run: &[String]) -> Result<()> {
    for node in cluster.list::<Node>(None).await? {
        let name = &node.metadata.name;
        if run.contains(name) || !node.is_ready() {
            continue;
        }
        let unknown = json!({"status": {"conditions": [{
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "this node is not run now; start with more --nodes",
            "lastTransitionTime": Clock::system().now_seconds(),
        }]}});
        let key = Key::cluster(name);
        let unknown = Patch::Strategic(unknown);
        match cluster.patch_status::<Node>(&key, &unknown).await {
            Err(error) if bootstrap::is_full(&error) => {
                warn!(
                    node = name,
                    error = error.chain(),
                    "could not tell that it is not run now"
                );
            }
            told => drop(told?),
        }
    }
    Ok(())
}

/// Waits until a node is ready and knows the driver.
async fn node_ready(process: &Process, name: &str, driver: &str) -> Result<()> {
    let (nodes, drivers) = (process.cache::<Node>(), process.cache::<CsiNode>());
    let (news, mut changed) = tokio::sync::watch::channel(());
    let sender = news.clone();
    nodes.subscribe(move |_| sender.send_replace(()));
    drivers.subscribe(move |_| news.send_replace(()));
    let ready = || {
        nodes.named(name).is_some_and(|n| n.is_ready())
            && drivers
                .named(name)
                .is_some_and(|n| n.driver(driver).is_some())
    };
    let wait = async { while !ready() && changed.changed().await.is_ok() {} };
    timeout(PATIENCE, wait)
        .await
        .with_context(|| format!("node {name} did not become ready with driver {driver}"))
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .with_context(|| format!("could not make the folder {}", path.display()))
}
