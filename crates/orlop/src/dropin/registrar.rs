//! The registrar by its old name, and as `orlop node-registrar`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow, bail, ensure};
use orlop_csi::{Deadlines, Driver};
use orlop_sidecars::{
    liveness,
    registrar::{self, Config, Introduction, Name},
};

use super::{settings::View, sidecars::START};
use crate::{
    endpoint::{Endpoint, Health},
    settle,
    up::terminated,
};

/// How long a driver may take for a Probe, as with the original livenessprobe.
const PROBE: Duration = Duration::from_secs(3);

/// What `/healthz` cares for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// That the kubelet can find the driver.
    Registration,
    /// And that the driver is well, which else is a container's business of its own.
    RegistrationAndDriver,
}

/// Runs it.
pub(super) fn main(view: &View<'_>, care: Care) -> Result<()> {
    if let Some(refusal) = view.refusals().into_iter().next() {
        bail!(refusal);
    }
    // What it once did by this mode is not needed any more; containers still ask for it.
    if view.text("mode") == "kubelet-registration-probe" {
        return Ok(());
    }
    let config = Config {
        csi_endpoint: crate::driver::address(&view.text("csi-address")),
        kubelet_registration_path: view.text("kubelet-registration-path"),
        plugin_registration_dir: PathBuf::from(view.text("plugin-registration-path")),
        timeout: view.interval("timeout").map_err(|why| anyhow!(why))?,
    };
    ensure!(
        !config.kubelet_registration_path.is_empty(),
        "kubelet-registration-path is a required parameter"
    );
    let (port, endpoint) = (view.int("health-port"), view.text("http-endpoint"));
    let address = match (port, endpoint.is_empty()) {
        (1.., false) => bail!("only one of `--health-port` and `--http-endpoint` can be set"),
        (_, false) => Some(endpoint),
        (1.., true) => Some(format!(":{port}")),
        (_, true) => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(config, address, care))
}

async fn run(config: Config, address: Option<String>, care: Care) -> Result<()> {
    let name = Name::default();
    let _served = match address {
        None => None,
        Some(address) => {
            let driver = Driver::connect(&config.csi_endpoint)?;
            let driver = driver.with_deadlines(Deadlines::all(PROBE));
            let endpoint = match care {
                Care::Registration => Endpoint::default(),
                Care::RegistrationAndDriver => {
                    let driver = driver.clone();
                    Endpoint::default().health("/healthz/driver", move || {
                        let driver = driver.clone();
                        async move { liveness::probe(&driver).await.into() }
                    })
                }
            };
            let asked = (config.clone(), name.clone());
            let endpoint = endpoint.health("/healthz", move || {
                let ((config, name), driver) = (asked.clone(), driver.clone());
                async move {
                    match (registered(&config, &name).await, care) {
                        (Health::Ok, Care::RegistrationAndDriver) => {
                            liveness::probe(&driver).await.into()
                        }
                        (health, _) => health,
                    }
                }
            });
            Some(endpoint.serve(&address).await?)
        }
    };
    tokio::select! {
        () = registrar::serve_as(config, name, terminated()) => Ok(()),
        () = settle::down_after(START) => Ok(()),
    }
}

/// Whether the kubelet would find the driver.
async fn registered(config: &Config, name: &Name) -> Health {
    match registrar::introduced(config, name).await {
        Introduction::Stands => Health::Ok,
        Introduction::Absent(why) => Health::Absent(why),
        Introduction::Wrong(why) => Health::Sick(why),
    }
}
