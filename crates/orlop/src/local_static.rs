//! `orlop local-static-provisioner`: this node's disks as persistent volumes; and
//! `orlop local-volume-node-cleanup`: what nodes leave behind that are gone.

use anyhow::{Context, Result};
use orlop_runtime::{Clock, Process};
use orlop_static_provisioner::{Config, Settings, node_cleanup};

use crate::{
    api, cli, cluster,
    endpoint::{Endpoint, Health},
    up::{preflight, terminated},
};

pub(crate) async fn run(args: cli::LocalStaticProvisioner) -> Result<()> {
    let cli::LocalStaticProvisioner {
        kubeconfig,
        config: config_path,
        node_name,
        concurrent_cleanings,
        listen_address,
        metrics_path,
    } = args;
    preflight::root()?;
    let config = Config::load(&config_path)
        .with_context(|| format!("--config {} can't be used", config_path.display()))?;
    let client = api::connect(kubeconfig.as_deref(), None, None).await?;
    let process = Process::new(client, Clock::system());
    let settings = Settings {
        node: node_name,
        config_path,
        config,
        cleanings: concurrent_cleanings.into(),
        // Kubelets set it in every container.
        in_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
    };
    let ready = orlop_static_provisioner::start(&process, settings);
    let _serving = match listen_address.as_str() {
        "" => None,
        address => {
            let ask = move || {
                let ready = ready.check();
                async move { ready.map_or_else(Health::Sick, |()| Health::Ok) }
            };
            let endpoint = Endpoint::default()
                .metrics(&metrics_path, process.metrics.clone())
                .health("/ready", ask);
            Some(endpoint.serve(address).await?)
        }
    };
    terminated().await;
    process.kill();
    Ok(())
}

pub(crate) async fn clean_up(args: cli::LocalVolumeNodeCleanup) -> Result<()> {
    let cli::LocalVolumeNodeCleanup {
        replica,
        kube_api_endpoint,
        storageclass_names,
        pvc_deletion_delay,
        worker_threads,
        stale_pv_discovery_interval: _,
        resync: _,
        listen_address,
        metrics_path,
    } = args;
    let kubeconfig = replica.cluster.kubeconfig.as_deref();
    let client = api::connect(kubeconfig, kube_api_endpoint.as_deref(), None).await?;
    let process = Process::new(client, Clock::system());
    let settings = node_cleanup::Settings {
        classes: storageclass_names.into_iter().collect(),
        delay: pvc_deletion_delay,
        workers: worker_threads.into(),
    };
    let _serving = match listen_address.as_str() {
        "" => None,
        address => {
            let endpoint = Endpoint::default().metrics(&metrics_path, process.metrics.clone());
            Some(endpoint.serve(address).await?)
        }
    };
    cluster::lead(
        &process,
        &replica,
        "orlop-local-volume-node-cleanup",
        || {
            node_cleanup::start(&process, settings);
        },
    )
    .await
}
