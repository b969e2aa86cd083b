//! The same roles, each as a process of its own, against any Kubernetes API server.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use orlop_control::{
    attach_detach::{self, FORCE_DETACH_AFTER},
    binder::{self, Scrubbing},
};
use orlop_csi::metrics::{Metrics as CallMetrics, Side};
use orlop_host::sandbox::ShimCommand;
use orlop_model::Key;
use orlop_node::{
    CriRunner, HostRunner, Layout, NodeConfig, Runner, Seams, SocketDrivers, SocketRegistrations,
};
use orlop_runtime::{Clock, Election, Process, Renewal};
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    api, cli,
    controllers::choose_also,
    dropin::Standing,
    endpoint::{self, Endpoint, Health},
    flex::Drivers,
    nodes,
    up::preflight,
    up::terminated,
};

type StartController<'s> = &'s dyn Fn(&Process);

/// What `orlop control` runs besides if it is asked for by name: on a cluster these are
/// kube-controller-manager's.
const WORKLOADS: [(&str, StartController<'static>); 5] = [
    ("statefulset", &orlop_workloads::stateful_set::start),
    ("deployment", &orlop_workloads::deployment::start),
    ("replicaset", &orlop_workloads::replica_set::start),
    ("daemonset", &orlop_workloads::daemon_set::start),
    ("job", &orlop_workloads::job::start),
];

pub(crate) async fn control(args: cli::Control) -> Result<()> {
    let cli::Control {
        replica,
        controllers,
        disable_force_detach_on_timeout,
        concurrent_ephemeralvolume_syncs,
        flex_volume_plugin_dir,
        recycler,
        theirs,
    } = args;
    theirs.heed()?;
    let config = binding(&recycler)?;
    let binder = |process: &Process| binder::start_with(process, config.clone());
    let attach_detach = |process: &Process| {
        let force = (!disable_force_detach_on_timeout).then_some(FORCE_DETACH_AFTER);
        let drivers = Drivers::watched(flex_volume_plugin_dir.clone(), process);
        let config = attach_detach::Config {
            force_detach_after: force,
            flex: Some(drivers),
        };
        attach_detach::start_with(process, config);
    };
    let ephemeral = |process: &Process| {
        orlop_control::ephemeral::start_with(process, concurrent_ephemeralvolume_syncs);
    };
    let control: [(&str, StartController<'_>); 6] = [
        ("binder", &binder),
        ("attach-detach", &attach_detach),
        ("protection", &orlop_control::protection::start),
        ("ephemeral", &ephemeral),
        ("expand", &orlop_control::expand::start),
        ("unused", &orlop_control::unused::start),
    ];
    let chosen = choose_also(&controllers, &control, &WORKLOADS)?;
    let process = connect(&replica.cluster).await?;
    lead(&process, &replica, "orlop-control", || {
        for start in chosen {
            start(&process);
        }
    })
    .await
}

/// What the binder is told by its flags.
fn binding(flags: &cli::Recycler) -> Result<binder::Config> {
    let default = binder::Config::default();
    let pod = |file: &Option<PathBuf>, default: Value| match file {
        Some(file) => pattern(file).with_context(|| {
            let file = file.display();
            format!("{file} can't be the pattern of pods that scrub volumes")
        }),
        None => Ok(default),
    };
    Ok(binder::Config {
        host_path: Scrubbing {
            pod: pod(
                &flags.pv_recycler_pod_template_filepath_hostpath,
                default.host_path.pod,
            )?,
            least: flags.pv_recycler_minimum_timeout_hostpath,
            per_gibibyte: flags.pv_recycler_timeout_increment_hostpath,
        },
        nfs: Scrubbing {
            pod: pod(
                &flags.pv_recycler_pod_template_filepath_nfs,
                default.nfs.pod,
            )?,
            least: flags.pv_recycler_minimum_timeout_nfs,
            per_gibibyte: flags.pv_recycler_increment_timeout_nfs,
        },
    })
}

fn pattern(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).context("it can't be read")?;
    let pod: Value = serde_saphyr::from_str(&text).context("it is neither YAML nor JSON")?;
    binder::recycle::pattern(&pod).map_err(anyhow::Error::msg)
}

pub(crate) async fn scheduler(args: cli::Replica) -> Result<()> {
    let process = connect(&args.cluster).await?;
    lead(&process, &args, "orlop-scheduler", || {
        orlop_scheduler::start(&process)
    })
    .await
}

pub(crate) async fn node(args: cli::Node) -> Result<()> {
    let cli::Node {
        cluster,
        name,
        root,
        volume_plugin_dir,
        cri,
        http_endpoint,
    } = args;
    preflight::root()?;
    preflight::pods()?;
    let configuration = api::configuration(cluster.kubeconfig.as_deref(), None).await?;
    let url = &configuration.cluster_url;
    // Containers have this machine's network: what reaches the server here does so there.
    let api_server = url.host().map(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host.to_owned(), url.port_u16().unwrap_or(443))
    });
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
        runner: runner(cri.as_deref(), Layout::new(&root), shim).await?,
        connector: Arc::new(SocketDrivers::measured(metrics)),
        registrations: Box::new(registrations),
    };
    // Pods go on without us, as they do without the kubelet.
    let mut config = NodeConfig::new(&name, root);
    config.api_server = api_server;
    config.volume_plugin_dir = volume_plugin_dir;
    let node = orlop_node::start(&process, config, seams);
    let told = nodes::Told {
        stats: node.stats(),
        metrics: process.metrics.clone(),
    };
    let _served = match &http_endpoint {
        Some(address) => Some(endpoint::serve(told.router(), address).await?),
        None => None,
    };
    terminated().await;
    process.kill();
    Ok(())
}

/// What runs containers: a container runtime where one is named.
pub(crate) async fn runner(
    cri: Option<&str>,
    layout: Layout,
    shim: ShimCommand,
) -> Result<Arc<dyn Runner>> {
    Ok(match cri {
        Some(endpoint) => Arc::new(
            CriRunner::connect(endpoint, layout)
                .await
                .map_err(anyhow::Error::msg)?,
        ),
        None => Arc::new(HostRunner::new(layout, shim)),
    })
}

async fn connect(args: &cli::Cluster) -> Result<Process> {
    let client = api::connect(args.kubeconfig.as_deref(), None, None).await?;
    Ok(Process::new(client, Clock::system()))
}

/// Works until the end is asked for; with an election, only while leading.
pub(crate) async fn lead(
    process: &Process,
    args: &cli::Replica,
    lease: &str,
    start: impl FnOnce(),
) -> Result<()> {
    let standing = Standing::register(&process.metrics);
    let _served = serve(process, args, &standing).await?;
    let stop = terminated();
    tokio::pin!(stop);
    if !args.leader_election {
        start();
        stop.await;
        process.kill();
        return Ok(());
    }
    let election = Election {
        duration: args.leader_election_lease_duration,
        renew_deadline: args.leader_election_renew_deadline,
        retry: args.leader_election_retry_period,
        ..Election::new(
            Key::namespaced(&args.leader_election_namespace, lease),
            crate::identity::this_process(),
        )
    };
    standing.set(&election.lease, None);
    tokio::select! {
        () = election.win(&process.cluster, &process.clock) => {}
        () = &mut stop => return Ok(()),
    }
    standing.renewed(&election.lease, Renewal::AtOnce);
    start();
    let renewed = |renewal| standing.renewed(&election.lease, renewal);
    let outcome = tokio::select! {
        lost = election.hold_telling(&process.cluster, &process.clock, renewed) => Err(lost),
        () = &mut stop => Ok(()),
    };
    process.kill();
    match outcome {
        // The process ends: whoever started it starts it again, with caches afresh.
        Err(lost) => bail!(lost),
        Ok(()) => Ok(election.resign(&process.cluster).await?),
    }
}

/// Serves metrics and health where that was asked for.
async fn serve(
    process: &Process,
    args: &cli::Replica,
    standing: &Standing,
) -> Result<Option<AbortOnDropHandle<()>>> {
    let Some(address) = &args.http_endpoint else {
        return Ok(None);
    };
    let (standing, duration) = (standing.clone(), args.leader_election_lease_duration);
    let endpoint = Endpoint::default()
        .metrics("/metrics", process.metrics.clone())
        .health("/healthz", || async { Health::Ok })
        .health("/healthz/leader-election", move || {
            let health = standing.health(duration);
            async move { health }
        });
    Ok(Some(endpoint.serve(address).await?))
}
