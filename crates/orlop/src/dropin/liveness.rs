//! The livenessprobe by its old name.

use anyhow::{Context as _, Result, anyhow, bail};
use orlop_csi::{
    Deadlines, Driver,
    metrics::{Metrics as CallMetrics, Side},
};
use orlop_runtime::Metrics;
use orlop_sidecars::liveness;
use tracing::info;

use super::{settings::View, sidecars::START};
use crate::{endpoint::Endpoint, settle, up::terminated};

/// Where health and metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Places {
    health: String,
    metrics: Option<String>,
}

fn places(view: &View<'_>) -> Result<Places> {
    let (endpoint, metrics) = (view.text("http-endpoint"), view.text("metrics-address"));
    let port = view.text("health-port");
    if port.parse::<u16>().is_err() {
        bail!("--health-port={port}: no port");
    }
    match (endpoint.is_empty(), metrics.is_empty()) {
        (false, false) => bail!("only one of `--metrics-address` and `--http-endpoint` can be set"),
        (false, true) if port != "9808" => {
            bail!("only one of `--health-port` and `--http-endpoint` can be set")
        }
        (false, true) => Ok(Places {
            health: endpoint.clone(),
            metrics: Some(endpoint),
        }),
        // As the original: everywhere, since the kubelet asks at the pod's address.
        (true, none) => Ok(Places {
            health: format!("0.0.0.0:{port}"),
            metrics: (!none).then_some(metrics),
        }),
    }
}

/// Runs it.
pub(super) fn main(view: &View<'_>) -> Result<()> {
    let places = places(view)?;
    view.metrics_path().map_err(|why| anyhow!(why))?;
    view.interval("probe-timeout").map_err(|why| anyhow!(why))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(view, places))
}

async fn run(view: &View<'_>, places: Places) -> Result<()> {
    let mut stop = std::pin::pin!(terminated());
    let metrics = Metrics::default();
    let calls = CallMetrics::register(Side::Sidecar, &mut metrics.registry());
    let address = crate::driver::address(&view.text("csi-address"));
    let driver = Driver::connect(&address)?
        .with_metrics(calls)
        .with_deadlines(Deadlines::all(view.duration("probe-timeout")));
    // The driver is waited for as long as it takes, and its name is known to the metrics then.
    let _ = tokio::select! {
        ready = driver.probe_until_ready() => ready,
        () = &mut stop => return Ok(()),
    };
    let info = driver
        .info()
        .await
        .with_context(|| format!("the CSI driver at {address} does not say who it is"))?;
    let health = Endpoint::default().health("/healthz", move || {
        let driver = driver.clone();
        async move { liveness::probe(&driver).await.into() }
    });
    let path = view.text("metrics-path");
    let (health, apart) = match places.metrics {
        Some(at) if at == places.health => (health.metrics(&path, metrics), None),
        Some(at) => {
            let apart = Endpoint::default().metrics(&path, metrics);
            (health, Some(apart.serve(&at).await?))
        }
        None => (health, None),
    };
    let served = health.serve(&places.health).await?;
    info!(
        driver = info.name,
        at = places.health,
        "telling the driver's health"
    );
    tokio::select! {
        () = stop => {}
        () = settle::down_after(START) => {}
    }
    drop((served, apart));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropin::{flags::parse, programs::called};

    fn of(line: &str) -> Option<(String, String)> {
        let program = called("livenessprobe")?;
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let given = parse(&program.flags(), program.dialect, &words).ok()?;
        let view = View {
            given: &given,
            program,
            prefix: None,
        };
        let places = places(&view).ok()?;
        Some((places.health, places.metrics.unwrap_or_default()))
    }

    #[test]
    fn health_is_at_port_9808_everywhere_unless_told_otherwise() {
        let at = |health: &str, metrics: &str| Some((health.to_owned(), metrics.to_owned()));
        assert_eq!(of(""), at("0.0.0.0:9808", ""));
        assert_eq!(of("-health-port=81"), at("0.0.0.0:81", ""));
        assert_eq!(of("-metrics-address=:82"), at("0.0.0.0:9808", ":82"));
        assert_eq!(of("-http-endpoint=:83"), at(":83", ":83"));
        assert_eq!(of("-http-endpoint=:83 -health-port=9808"), at(":83", ":83"));
        assert_eq!(of("-http-endpoint=:83 -health-port=81"), None);
        assert_eq!(of("-http-endpoint=:83 -metrics-address=:82"), None);
        assert_eq!(of("-health-port=none"), None);
    }
}
