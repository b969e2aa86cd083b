//! CSI drivers: `orlop driver …` runs one as a process of its own, and every command meets one.

use crate::voice::say;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use orlop_csi::server;
use orlop_csi::{Driver, DriverInfo};
use orlop_drivers::local::{LocalConfig, LocalDriver, NodeName};

use crate::{cli, up::preflight, up::terminated};

pub(crate) async fn local(args: cli::DriverLocal) -> Result<()> {
    let cli::DriverLocal {
        endpoint,
        nodeid,
        drivername,
        pool,
    } = args;
    preflight::root()?;
    preflight::local_driver()?;
    let node = NodeName(nodeid);
    let mut config = LocalConfig::new(BTreeMap::from([(node.clone(), pool)]));
    config.driver_name = drivername;
    let driver = tokio::task::spawn_blocking(move || LocalDriver::open(config))
        .await?
        .context("the driver could not start")?;
    let socket = server::Socket::bind(&endpoint)?;
    say(&format!("listening on {}", socket.path().display()));
    socket.serve(driver.services(&node), terminated()).await?;
    Ok(())
}

/// Waits for a driver and asks who it is.
pub(crate) async fn meet(
    driver: &Driver,
    endpoint: &str,
    patience: Duration,
) -> Result<Arc<DriverInfo>> {
    let ready = async {
        driver.probe_until_ready().await?;
        driver.info().await
    };
    tokio::time::timeout(patience, ready)
        .await
        .ok()
        .with_context(|| {
            format!(
                "no CSI driver answered at {endpoint} within {} s: start it, or check the path",
                patience.as_secs()
            )
        })?
        .with_context(|| format!("the CSI driver at {endpoint} does not say who it is"))
}
