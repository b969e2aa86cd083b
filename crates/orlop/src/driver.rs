//! CSI drivers: `orlop driver …` runs one as a process of its own, and every command meets one.

use crate::voice::say;
use std::path::{Path, PathBuf};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use orlop_csi::server;
use orlop_csi::{Driver, DriverInfo};
use orlop_drivers::local::{Home, LocalConfig, LocalDriver, NodeName, Reach, Rules};
use orlop_drivers::nfs::{Crew, Hands, NfsConfig, NfsDriver};

use crate::{cli, settle, up::preflight, up::terminated};

/// How long the start of a driver may take; what only that needed goes then.
const START: Duration = Duration::from_secs(5);

/// A driver waits for disks most of the time, beside every pod of a node: it takes little memory,
/// and works on no more volumes at once than a disk can make use of.
pub(crate) fn frugal(runtime: &mut tokio::runtime::Builder) {
    orlop_host::memory::share_heaps();
    runtime.worker_threads(2).max_blocking_threads(16);
}

pub(crate) async fn local(args: cli::DriverLocal) -> Result<()> {
    let cli::DriverLocal {
        endpoint,
        nodeid,
        drivername,
        pool,
        overcommit,
        reserve,
        max_volumes,
        kubelet_dir,
        state_dir,
        v: _,
    } = args;
    preflight::root()?;
    preflight::local_driver()?;
    let node = NodeName(nodeid);
    let mut pools = BTreeMap::new();
    for cli::PoolArg { name, folder } in pool {
        let home = Home {
            node: node.clone(),
            pool: name.clone(),
        };
        ensure!(
            pools.insert(home, folder).is_none(),
            "there are two pools {name}: give each a name of its own, --pool NAME=DIR"
        );
    }
    let memory = state_dir
        .or_else(|| folder_of(&endpoint))
        .map(|folder| folder.join(format!("{drivername}.pools.json")));
    let config = LocalConfig {
        driver_name: drivername,
        memory,
        pools,
        rules: Rules {
            overcommit,
            reserve,
        },
        max_volumes,
        reaches: BTreeMap::from([(node.clone(), Reach::below(&kubelet_dir))]),
        ..LocalConfig::new(BTreeMap::new())
    };
    let driver = tokio::task::spawn_blocking(move || LocalDriver::open(config))
        .await?
        .context("the driver could not start")?;
    let socket = server::Socket::bind(&endpoint)?;
    let pools = Arc::clone(driver.pools());
    for pool in tokio::task::spawn_blocking(move || pools.look()).await? {
        say(&pool.to_string());
    }
    say(&format!("listening on {}", socket.path().display()));
    socket.serve(driver.services(&node), terminated()).await?;
    Ok(())
}

pub(crate) async fn nfs(args: cli::DriverNfs) -> Result<()> {
    preflight::root()?;
    ensure!(
        args.working_mount_dir.is_dir(),
        "--working-mount-dir {} is no folder",
        args.working_mount_dir.display()
    );
    let ourselves = std::env::current_exe().context("could not find this program")?;
    let worker = vec![ourselves.into(), "driver".into(), "nfs-worker".into()];
    let crew = Crew::new(worker);
    let config = NfsConfig {
        driver_name: args.drivername,
        mount_permissions: args.mount_permissions,
        on_delete: args.default_ondelete_policy,
        stats_age: Duration::from_secs(args.vol_stats_cache_expire_in_minutes * 60),
        remove_archived: args.remove_archived_volume_path,
        compress: args.enable_snapshot_compression,
        reach: Reach::below(&args.kubelet_dir),
        working_dir: args.working_mount_dir,
        ..NfsConfig::new(&args.nodeid, Hands::Processes(crew.clone()))
    };
    let driver = NfsDriver::new(config).context("the driver could not start")?;
    let socket = server::Socket::bind(&from_root(&args.endpoint))?;
    say(&format!("listening on {}", socket.path().display()));
    tokio::select! {
        served = socket.serve(driver.services(), terminated()) => served?,
        () = settle::down_after_all(START, async || crew.over().await) => {}
    }
    Ok(())
}

/// As the original reads it: `unix://tmp/csi.sock`, its default, is below the root.
fn from_root(endpoint: &str) -> Cow<'_, str> {
    match endpoint.strip_prefix("unix://") {
        Some(path) if !path.is_empty() && !path.starts_with('/') => {
            format!("unix:///{path}").into()
        }
        _ => endpoint.into(),
    }
}

/// The folder of the driver's socket, which outlives it: the kubelet's folder for it, as a rule. None
/// if it isn't ours alone.
fn folder_of(endpoint: &str) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let path = ["unix://", "unix:"]
        .iter()
        .find_map(|scheme| endpoint.strip_prefix(scheme))
        .unwrap_or(endpoint);
    let folder = Path::new(path).parent()?;
    let found = folder.metadata().ok()?;
    let private = found.uid() == 0 && found.mode() & 0o022 == 0;
    private.then(|| folder.to_owned())
}

/// A driver that takes longer than this is told to be waited for, and how it goes every so often.
const QUICK: Duration = Duration::from_millis(500);
const TOLD: Duration = Duration::from_secs(10);

/// Waits for a driver and asks who it is. Who looks on is told what is waited for.
pub(crate) async fn meet(
    driver: &Driver,
    endpoint: &str,
    patience: Duration,
) -> Result<Arc<DriverInfo>> {
    let ready = async {
        driver.probe_until_ready().await?;
        driver.info().await
    };
    let met = tokio::select! {
        met = tokio::time::timeout(patience, ready) => met,
        never = wait_aloud(endpoint, patience) => match never {},
    };
    met.ok()
        .with_context(|| {
            format!(
                "no CSI driver answered at {endpoint} within {} s: start it, or check the path",
                patience.as_secs()
            )
        })?
        .with_context(|| format!("the CSI driver at {endpoint} does not say who it is"))
}

/// Says what is waited for, again and again.
async fn wait_aloud(endpoint: &str, patience: Duration) -> std::convert::Infallible {
    let mut waited = QUICK;
    tokio::time::sleep(QUICK).await;
    loop {
        let left = patience.saturating_sub(waited).as_secs_f64().ceil();
        eprintln!("waiting for a CSI driver at {endpoint}, for {left} s more");
        tokio::time::sleep(TOLD).await;
        waited += TOLD;
    }
}

/// A driver's address, where it is a path from the working folder as one from the root.
pub(crate) fn address(given: &str) -> String {
    // With a colon it is another kind of address.
    if given.is_empty() || given.starts_with('/') || given.contains(':') {
        return given.to_owned();
    }
    match std::path::absolute(given) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => given.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nfs_drivers_address_is_read_as_the_original_reads_it() {
        for (given, read) in [
            ("unix://tmp/csi.sock", "unix:///tmp/csi.sock"),
            ("unix:///csi/csi.sock", "unix:///csi/csi.sock"),
            ("/csi/csi.sock", "/csi/csi.sock"),
            ("unix://", "unix://"),
            ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"),
        ] {
            assert_eq!(from_root(given), read);
        }
    }
}
