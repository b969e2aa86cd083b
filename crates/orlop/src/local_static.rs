//! `orlop local-static-provisioner`: this node's disks as persistent volumes.

use anyhow::{Context, Result};
use orlop_runtime::{Clock, Process};
use orlop_static_provisioner::{Config, Settings};

use crate::{
    api, cli,
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
