//! Runs controllers beside a driver: one by its old name, or many in one process.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use orlop_csi::{
    Driver, DriverInfo, Turns,
    metrics::{Metrics as CallMetrics, Side},
};
use orlop_model::{ObjectRef, migration, well_known::sanitise};
use orlop_runtime::{Metrics, Process};
use orlop_sidecars::{RetryMetrics, liveness};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::{
    CONTROLLERS, Given, ON_NODES, Role, View,
    lead::{Standing, election, lead},
    parts::{Part, lease},
    programs,
    registrar::{self, Care},
    settings::{Common, Running},
    voice,
};
use crate::{api, controllers::choose_also, endpoint::Endpoint, identity, settle, up::terminated};

/// How long a driver's socket may take to appear, as for the Go sidecars.
const PATIENCE: Duration = Duration::from_secs(30);

/// After so long caches are filled and connections made.
pub(super) const START: Duration = Duration::from_secs(10);

/// How often is told that it has not, as they do.
const TOLD: Duration = Duration::from_secs(10);

/// A controller by its old name.
pub(super) fn alone(view: &View<'_>) -> Result<()> {
    let common = Common::read(view).map_err(|why| anyhow!(why))?;
    let metrics = Metrics::default();
    let retries = RetryMetrics::register(&mut metrics.registry());
    let part = Part::read(view, &metrics, &retries).map_err(|why| anyhow!(why))?;
    for note in view.notes() {
        warn!("{note}");
    }
    let role = view.program.role;
    if role == Role::SnapshotController {
        return cluster_wide(&common, &metrics, &part);
    }
    run(Beside {
        common,
        metrics,
        parts: vec![(part, Wanted::ByName)],
        lease: Box::new(move |driver| lease(role, driver)),
        identity: match role {
            Role::Provisioner => identity::provisioner,
            _ => |_| identity::this_process(),
        },
    })
}

/// The one that stands beside no driver.
fn cluster_wide(common: &Common, metrics: &Metrics, part: &Part) -> Result<()> {
    runtime()?.block_on(async {
        let stop = terminated();
        let client = reach(common).await?;
        let name = lease(Role::SnapshotController, "");
        let running = common.running.as_ref();
        let election = running.map(|running| election(running, &name, identity::this_process()));
        let standing = Standing::register(metrics);
        let _served = serve(common, metrics, &standing, None).await?;
        let start = |process: &Process| part.start_without_driver(process);
        tokio::select! {
            () = lead(&client, metrics, election.as_ref(), &standing, start, stop) => Ok(()),
            () = settle::down_after(START) => Ok(()),
        }
    })
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    // They wait for others nearly all the time, be there two cores or a hundred.
    orlop_host::memory::share_heaps();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

async fn reach(common: &Common) -> Result<kube::Client> {
    let kubeconfig = common.kubeconfig.as_deref();
    api::connect(kubeconfig, common.master.as_deref(), common.cap).await
}

/// `orlop controller`.
pub(super) fn together(given: &Given, log: Option<&str>) -> Result<()> {
    let view = |role, prefix| View {
        given,
        program: programs::of(role),
        prefix: Some(prefix),
    };
    let list = match given.get("controllers") {
        Some(list) => list.to_string(),
        None => "*".to_owned(),
    };
    let list: Vec<String> = list.split(',').map(str::to_owned).collect();
    if let Some(care) = on_a_node(&list)? {
        let view = view(Role::Registrar, ON_NODES[0]);
        voice::tune(&view, log)?;
        return registrar::main(&view, care);
    }
    let first = view(Role::Provisioner, "provisioner");
    voice::tune(&first, log)?;
    let common = Common::read(&first).map_err(|why| anyhow!(why))?;
    let named = |name: &str| list.iter().any(|word| word == name);
    let by_name: Vec<bool> = CONTROLLERS.iter().map(|(name, _)| named(name)).collect();
    // A cluster has one of these, not one beside each driver.
    let (once, each): (Vec<_>, Vec<_>) = numbered()
        .into_iter()
        .partition(|(name, _)| *name == "snapshot-controller");
    let chosen = choose_also(&list, &each, &once)?;
    for note in notes(&chosen, view) {
        warn!("{note}");
    }
    let metrics = Metrics::default();
    let retries = RetryMetrics::register(&mut metrics.registry());
    let mut parts = Vec::new();
    for index in chosen {
        let (name, role) = CONTROLLERS[index];
        let wanted = if by_name[index] {
            Wanted::ByName
        } else {
            Wanted::IfItSuits
        };
        match Part::read(&view(role, name), &metrics, &retries) {
            Ok(part) => parts.push((part, wanted)),
            Err(why) => return Err(anyhow!("{name}: {why}")),
        }
    }
    run(Beside {
        common,
        metrics,
        parts,
        lease: Box::new(|driver| format!("orlop-controller-{}", sanitise(driver))),
        identity: |_| identity::this_process(),
    })
}

/// What the registrar cares for, if it is what is to run.
fn on_a_node(list: &[String]) -> Result<Option<Care>> {
    let [registrar, liveness] = ON_NODES;
    let named = |name: &str| list.iter().any(|word| word == name);
    match (named(registrar), named(liveness), list.len()) {
        (false, false, _) => Ok(None),
        (true, false, 1) => Ok(Some(Care::Registration)),
        (true, true, 2) => Ok(Some(Care::RegistrationAndDriver)),
        _ => Err(anyhow!(
            "--controllers={}: {registrar} runs on every node, alone or with {liveness}; controllers run \
             elsewhere, in a process of their own",
            list.join(",")
        )),
    }
}

/// What is to be said of the gates that were given, once.
fn notes<'a>(chosen: &[usize], view: impl Fn(Role, &'static str) -> View<'a>) -> BTreeSet<String> {
    let chosen = chosen.iter().map(|index| CONTROLLERS[*index]);
    chosen
        .flat_map(|(name, role)| view(role, name).notes())
        .collect()
}

fn numbered() -> [(&'static str, usize); CONTROLLERS.len()] {
    let mut numbered = [("", 0); CONTROLLERS.len()];
    for (index, (name, _)) in CONTROLLERS.iter().enumerate() {
        numbered[index] = (name, index);
    }
    numbered
}

/// How much a controller is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// It was named: a driver that it can do nothing with is an error.
    ByName,
    /// It is one of all.
    IfItSuits,
}

/// What is to run beside a driver.
struct Beside {
    common: Common,
    metrics: Metrics,
    parts: Vec<(Part, Wanted)>,
    /// The lease beside this driver.
    lease: Box<dyn Fn(&str) -> String>,
    /// Who runs for it.
    identity: fn(&str) -> String,
}

fn run(beside: Beside) -> Result<()> {
    runtime()?.block_on(begin(beside))
}

/// Meets the driver, and works with it.
async fn begin(beside: Beside) -> Result<()> {
    let Beside {
        common,
        metrics,
        parts,
        lease,
        identity,
    } = beside;
    let mut stop = std::pin::pin!(terminated());
    let client = reach(&common).await?;
    let calls = CallMetrics::register(Side::Sidecar, &mut metrics.registry())
        .with_successors(|driver| migration::plugin_of(driver).is_some());
    let driver = Driver::connect(&common.csi_address)?
        .with_metrics(calls)
        .with_turns(Turns::default());
    let info = tokio::select! {
        met = meet(&driver, &common.csi_address) => met?,
        () = &mut stop => return Ok(()),
    };
    info!(
        driver = info.name,
        version = info.version,
        socket = common.csi_address,
        orlop = env!("CARGO_PKG_VERSION"),
        "met the driver"
    );
    let mut suitable = Vec::new();
    for (part, wanted) in parts {
        match (part.suits(&info), wanted) {
            (Ok(()), _) => suitable.push(part),
            (Err(why), Wanted::IfItSuits) => info!(why, "left out"),
            (Err(why), Wanted::ByName) => return Err(anyhow!(why)),
        }
    }
    let election = common
        .running
        .as_ref()
        .map(|running| election(running, &lease(&info.name), identity(&info.name)));
    let standing = Standing::register(&metrics);
    let _served = serve(&common, &metrics, &standing, Some(&driver)).await?;
    let start = |process: &Process| {
        tell_panics(process, &info);
        for part in &suitable {
            part.start(process, &driver);
        }
    };
    tokio::select! {
        () = lead(&client, &metrics, election.as_ref(), &standing, start, stop) => Ok(()),
        () = settle::down_after(START) => Ok(()),
    }
}

/// Waits for a driver and asks who it is: for its socket a while, for its readiness for ever.
pub(super) async fn meet(driver: &Driver, address: &str) -> Result<Arc<DriverInfo>> {
    let path = orlop_csi::client::socket_path(address)?;
    let there = async {
        let mut told = None;
        while let Err(error) = tokio::net::UnixStream::connect(&path).await {
            if told.is_none_or(|at: Instant| at.elapsed() >= TOLD) {
                info!(%error, "Still connecting to {address}");
                told = Some(Instant::now());
            }
            // Nothing tells when a socket that may not even have a folder yet is listened at.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there)
        .await
        .ok()
        .with_context(|| {
            format!(
                "no CSI driver listens at {address} after {} s: start it, or check the path",
                PATIENCE.as_secs()
            )
        })?;
    // A driver without Probe is taken to be ready.
    let _ = driver.probe_until_ready().await;
    let info = driver.info().await;
    let info =
        info.with_context(|| format!("the CSI driver at {address} does not say who it is"))?;
    orlop_csi::limits::plugin_name(&info.name).with_context(|| {
        format!(
            "the CSI driver at {address} calls itself {:?}, which no object can refer to it by; this is an \
             error of the driver",
            info.name
        )
    })?;
    Ok(info)
}

/// Serves what is asked for.
async fn serve(
    common: &Common,
    metrics: &Metrics,
    standing: &Standing,
    driver: Option<&Driver>,
) -> Result<Option<AbortOnDropHandle<()>>> {
    let Some(served) = &common.served else {
        return Ok(None);
    };
    let mut endpoint = Endpoint::default().metrics(&served.metrics_path, metrics.clone());
    if served.health {
        if let Some(driver) = driver.cloned() {
            endpoint = endpoint.health("/healthz", move || {
                let driver = driver.clone();
                async move { liveness::probe(&driver).await.into() }
            });
        }
        if let Some(Running { duration, .. }) = common.running {
            let standing = standing.clone();
            endpoint = endpoint.health("/healthz/leader-election", move || {
                let health = standing.health(duration);
                async move { health }
            });
        }
    }
    Ok(Some(endpoint.serve(&served.address).await?))
}

/// A controller that panics is told of at its driver's object.
fn tell_panics(process: &Process, info: &DriverInfo) {
    let about = ObjectRef {
        api_version: "storage.k8s.io/v1".to_owned(),
        kind: "CSIDriver".to_owned(),
        name: info.name.clone(),
        ..ObjectRef::default()
    };
    process.tell_panics("orlop-controller", about);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registrar_runs_alone_or_with_the_livenessprobe_and_never_beside_controllers() {
        let of = |list: &str| {
            let list: Vec<String> = list.split(',').map(str::to_owned).collect();
            on_a_node(&list).map_err(|error| error.to_string())
        };
        assert_eq!(of("*"), Ok(None));
        assert_eq!(of("attacher,provisioner"), Ok(None));
        let alone = of("node-driver-registrar");
        assert_eq!(alone, Ok(Some(Care::Registration)));
        let both = of("node-driver-registrar,livenessprobe");
        assert_eq!(both, Ok(Some(Care::RegistrationAndDriver)));
        for wrong in [
            "node-driver-registrar,attacher",
            "livenessprobe",
            "*,livenessprobe",
        ] {
            let said = of(wrong).expect_err(wrong);
            assert!(said.contains("runs on every node"), "{said}");
        }
    }
}
