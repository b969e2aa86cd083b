//! The same roles, each as a process of its own, against any Kubernetes API server.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use orlop_csi::{
    Driver,
    metrics::{Metrics as CallMetrics, Side},
};
use orlop_host::sandbox::ShimCommand;
use orlop_model::{Key, well_known};
use orlop_node::{HostRunner, Layout, NodeConfig, Seams, SocketDrivers, SocketRegistrations};
use orlop_runtime::{Clock, Election, Process};

use crate::{cli, controllers::choose, driver::meet, up::preflight, up::terminated};

/// How long a driver may take to answer at the start, as for the Go sidecars.
const PATIENCE: Duration = Duration::from_secs(30);

type StartController = fn(&Process);
type StartSidecar = fn(&Process, &Driver);

/// What `orlop control` runs.
const CONTROL: [(&str, StartController); 4] = [
    ("binder", orlop_control::binder::start),
    ("attach-detach", orlop_control::attach_detach::start),
    ("protection", orlop_control::protection::start),
    ("ephemeral", orlop_control::ephemeral::start),
];

/// What `orlop controller` runs.
const SIDECARS: [(&str, StartSidecar); 3] = [
    ("provisioner", |process, driver| {
        orlop_sidecars::provisioner::start(process, driver.clone(), Default::default());
    }),
    ("attacher", |process, driver| {
        orlop_sidecars::attacher::start(process, driver.clone(), Default::default());
    }),
    ("resizer", |process, driver| {
        orlop_sidecars::resizer::start(process, driver.clone(), Default::default());
    }),
];

pub(crate) async fn control(args: cli::Control) -> Result<()> {
    let cli::Control {
        cluster,
        controllers,
    } = args;
    let chosen = choose(&controllers, &CONTROL)?;
    let process = connect(&cluster).await?;
    lead(&process, &cluster, "orlop-control", || {
        for start in chosen {
            start(&process);
        }
    })
    .await
}

pub(crate) async fn scheduler(args: cli::Cluster) -> Result<()> {
    let process = connect(&args).await?;
    lead(&process, &args, "orlop-scheduler", || {
        orlop_scheduler::start(&process)
    })
    .await
}

pub(crate) async fn controller(args: cli::Controller) -> Result<()> {
    let cli::Controller {
        cluster,
        controllers,
        csi_address,
    } = args;
    let chosen = choose(&controllers, &SIDECARS)?;
    let process = connect(&cluster).await?;
    let metrics = CallMetrics::register(Side::Sidecar, &mut process.metrics.registry());
    let driver = Driver::connect(&csi_address)?.with_metrics(metrics);
    let info = meet(&driver, &csi_address, PATIENCE).await?;
    let lease = format!("orlop-controller-{}", well_known::sanitise(&info.name));
    lead(&process, &cluster, &lease, || {
        for start in chosen {
            start(&process, &driver);
        }
    })
    .await
}

pub(crate) async fn node(args: cli::Node) -> Result<()> {
    let cli::Node {
        cluster,
        name,
        root,
    } = args;
    preflight::root()?;
    preflight::pods()?;
    let process = connect(&cluster).await?;
    std::fs::create_dir_all(&root)
        .with_context(|| format!("could not make the node's root {}", root.display()))?;
    let shim = ShimCommand {
        program: std::env::current_exe().context("could not find this program's own file")?,
        args: vec!["container-shim".into(), "--state-dir".into()],
    };
    let metrics = CallMetrics::register(Side::Node, &mut process.metrics.registry());
    let registry = Layout::new(&root).plugins_registry();
    let registrations = SocketRegistrations::watch(&registry)
        .with_context(|| format!("could not watch {}", registry.display()))?;
    let seams = Seams {
        runner: Arc::new(HostRunner::new(Layout::new(&root), shim)),
        connector: Arc::new(SocketDrivers::measured(metrics)),
        registrations: Box::new(registrations),
    };
    // Pods go on without us, as they do without the kubelet.
    let _node = orlop_node::start(&process, NodeConfig::new(&name, root), seams);
    terminated().await;
    process.kill();
    Ok(())
}

pub(crate) async fn node_registrar(args: cli::NodeRegistrar) -> Result<()> {
    let cli::NodeRegistrar {
        csi_address,
        kubelet_registration_path,
        plugin_registration_path,
    } = args;
    let config = orlop_sidecars::registrar::Config {
        csi_endpoint: csi_address,
        kubelet_registration_path,
        plugin_registration_dir: plugin_registration_path,
    };
    orlop_sidecars::registrar::serve(config, terminated()).await;
    Ok(())
}

async fn connect(args: &cli::Cluster) -> Result<Process> {
    let mut config = match &args.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)
                .with_context(|| format!("could not read {}", file.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("{} names no cluster to talk to", file.display()))?
        }
        None => kube::Config::infer()
            .await
            .context("no cluster was found: name one with --kubeconfig")?,
    };
    // Its retries also repeat POST, which can create an object twice; our queues retry.
    config.default_retry = false;
    let client = kube::Client::try_from(config).context("the cluster's address is unusable")?;
    Ok(Process::new(client, Clock::system()))
}

/// Works until the end is asked for; with an election, only while leading.
async fn lead(
    process: &Process,
    args: &cli::Cluster,
    lease: &str,
    start: impl FnOnce(),
) -> Result<()> {
    let stop = terminated();
    tokio::pin!(stop);
    if !args.leader_election {
        start();
        stop.await;
        process.kill();
        return Ok(());
    }
    let election = Election::new(
        Key::namespaced(&args.leader_election_namespace, lease),
        identity(),
    );
    tokio::select! {
        () = election.win(&process.cluster, &process.clock) => {}
        () = &mut stop => return Ok(()),
    }
    start();
    let outcome = tokio::select! {
        lost = election.hold(&process.cluster, &process.clock) => Err(lost),
        () = &mut stop => Ok(()),
    };
    process.kill();
    match outcome {
        // The process ends: whoever started it starts it again, with caches afresh.
        Err(lost) => bail!(lost),
        Ok(()) => Ok(election.resign(&process.cluster).await?),
    }
}

/// Who we are in an election: the host's name, which in a cluster is the pod's.
fn identity() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
