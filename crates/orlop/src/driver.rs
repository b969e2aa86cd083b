//! `orlop driver …`: a CSI driver as a process of its own.

use crate::voice::say;
use std::collections::BTreeMap;

use anyhow::{Context, Result};
use orlop_csi::server;
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
