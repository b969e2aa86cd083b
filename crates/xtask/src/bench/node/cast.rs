//! Who is on stage: the drivers with their sidecars and claims, and one node at a time.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::Set;
use crate::{
    bench::{
        client::Server,
        usage::{self, Usage},
    },
    kube::{ADDRESS, Authority, KUBELET_ROOT, NODE, folder::Folder},
    stage::{CLAIM, NODE as NODE_KIND, Program, Stage, claim},
};

const KUBELET: &str = "kubelet";
/// Where our node tells its metrics.
const METRICS: &str = "127.0.0.1:10299";
const SIZE: &str = "32Mi";

/// Calls that bring a volume, and calls that take it away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    fn calls(self) -> [&'static str; 2] {
        match self {
            Self::Up => ["NodeStageVolume", "NodePublishVolume"],
            Self::Down => ["NodeUnpublishVolume", "NodeUnstageVolume"],
        }
    }
}

/// The node that runs.
pub(super) enum Running {
    Kubelet,
    Ours(Arc<Program>),
}

/// Starts a driver that works on real disks, with its sidecars, and makes bound claims of it.
pub(super) async fn furnish(stage: &Stage, attaches: bool, claims: usize) -> Result<()> {
    stage.local_program(Path::new(KUBELET_ROOT)).await?;
    let at_once = json!({"volumeBindingMode": "Immediate"});
    stage.class(attaches, &at_once).await?;
    stage.our_controller().await?;
    stage.our_registrar().await?;
    for n in 0..claims {
        let wanted = claim(&claim_name(n), stage.namespace(), SIZE);
        stage.apply_value(wanted).await?;
    }
    for n in 0..claims {
        stage.bound(&claim_name(n)).await?;
    }
    Ok(())
}

pub(super) fn claim_name(n: usize) -> String {
    format!("c{n}")
}

/// Gives the kubelet back the settings that the test cluster has changed for quick tests.
pub(super) async fn restore_defaults(stage: &Stage, folder: &Path) -> Result<()> {
    let own = folder.join("config/kubelet.json");
    let text = std::fs::read_to_string(&own).context("the kubelet has no configuration")?;
    let mut settings: Value = serde_json::from_str(&text)?;
    if let Some(settings) = settings.as_object_mut() {
        settings.remove("nodeStatusUpdateFrequency");
        settings.remove("syncFrequency");
    }
    let usual = folder.join("config/kubelet-usual.json");
    std::fs::write(&usual, settings.to_string())?;
    let flag = format!("--config={}", usual.display());
    stage.restart_component(KUBELET, &[&flag]).await
}

/// The kubelet's own server, which tells its metrics.
pub(super) async fn kubelet(folder: &Folder) -> Result<Server> {
    let authority = Authority::open(&folder.join("pki"))?;
    let config = folder.join("config/kubelet-client.kubeconfig");
    let server = format!("https://{ADDRESS}:10250");
    authority.kubeconfig_of(&server, &config, "admin", Some("system:masters"))?;
    Server::of(&config).await
}

/// Starts a node. The kubelet pauses while another one runs.
pub(super) async fn start(stage: &Stage, set: Set) -> Result<Running> {
    if set == Set::Kubelet {
        return Ok(Running::Kubelet);
    }
    let kubeconfig = stage.role("node").await?;
    stage.pause_component(KUBELET).await?;
    let mut arguments = vec![
        "--log=warn".to_owned(),
        "node".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--name={NODE}"),
        format!("--root={KUBELET_ROOT}"),
        format!("--http-endpoint={METRICS}"),
    ];
    if set == Set::Runtime {
        arguments.push(format!("--cri=unix://{}", stage.containerd()));
    }
    let program = stage.start("node", &stage.binary("orlop"), arguments)?;
    stage
        .bounded("our node listens", async {
            while TcpStream::connect(METRICS).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        })
        .await?;
    Ok(Running::Ours(program))
}

impl Running {
    /// Ends it; the kubelet goes on instead.
    pub(super) async fn end(self, stage: &Stage) -> Result<()> {
        let Self::Ours(program) = self else {
            return Ok(());
        };
        program.end().await?;
        stage.resume_component(KUBELET).await?;
        let ready = |node: &Value| {
            let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str();
            version.is_some_and(|version| !version.contains("orlop"))
        };
        stage
            .until(NODE_KIND, NODE, "the kubelet's", ready)
            .await
            .map(drop)
    }

    pub(super) fn usage(&self, stage: &Stage) -> Result<Usage> {
        usage::of([self.process(stage)?])
    }

    /// The processor time of the threads that there are, finer than the kernel tells of processes.
    pub(super) fn fine_processor(&self, stage: &Stage) -> Result<Duration> {
        usage::fine(self.process(stage)?)
    }

    fn process(&self, stage: &Stage) -> Result<u32> {
        let process = match self {
            Self::Kubelet => stage.process_of(KUBELET)?,
            Self::Ours(program) => program.process(),
        };
        Ok(process.as_raw_nonzero().get().unsigned_abs())
    }

    /// How long the calls to a driver have taken so far.
    pub(super) async fn calls(&self, kubelet: &Server, driver: &str, way: Way) -> Result<Duration> {
        let text = match self {
            Self::Kubelet => {
                let mut connection = kubelet.connect().await?;
                let told = connection
                    .ask(Method::GET, "/metrics", Bytes::new())
                    .await?;
                String::from_utf8_lossy(&told).into_owned()
            }
            Self::Ours(_) => {
                let mut stream = TcpStream::connect(METRICS).await?;
                let request = "GET /metrics HTTP/1.0\r\n\r\n";
                stream.write_all(request.as_bytes()).await?;
                let mut told = String::new();
                stream.read_to_string(&mut told).await?;
                told
            }
        };
        Ok(sum(&text, driver, way))
    }
}

/// The time of all calls of one way to a driver, from a node's metrics.
fn sum(metrics: &str, driver: &str, way: Way) -> Duration {
    let ours = metrics.lines().filter(|line| {
        line.starts_with("csi_operations_seconds_sum{")
            && line.contains(&format!("driver_name=\"{driver}\""))
            && way.calls().iter().any(|call| line.contains(call))
    });
    let seconds = ours.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Duration::from_secs_f64(seconds.sum::<f64>().max(0.0))
}

/// Removes all claims of a stage, so that it can be closed soon.
pub(super) async fn clear(stage: &Stage) -> Result<()> {
    let names = stage.names(CLAIM).await?;
    for name in &names {
        stage.delete(CLAIM, name).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_by_driver_and_way_in_either_nodes_words() {
        let text = "\
# TYPE csi_operations_seconds histogram
csi_operations_seconds_sum{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Node/NodeStageVolume\",migrated=\"false\"} 0.25
csi_operations_seconds_sum{driver_name=\"d\",method_name=\"/csi.v1.Node/NodePublishVolume\"} 0.5
csi_operations_seconds_sum{driver_name=\"d\",method_name=\"/csi.v1.Node/NodeUnpublishVolume\"} 4
csi_operations_seconds_sum{driver_name=\"e\",method_name=\"/csi.v1.Node/NodePublishVolume\"} 8
csi_operations_seconds_count{driver_name=\"d\",method_name=\"/csi.v1.Node/NodePublishVolume\"} 16
";
        assert_eq!(sum(text, "d", Way::Up), Duration::from_millis(750));
        assert_eq!(sum(text, "d", Way::Down), Duration::from_secs(4));
    }
}
