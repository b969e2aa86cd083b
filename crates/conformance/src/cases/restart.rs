//! A driver that is killed and started again: it knows what it knew, and a call that it died in
//! can be repeated.

use std::time::Duration;

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use orlop_host::{MountTable, Occupant, Place};

use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::trial::Trial;

mod controller;
mod mid_call;
mod node;

const RESTART: Need = Need::Restart;
const ATTACH: Need = Need::Controller(Can::PublishUnpublishVolume);
const LIST: Need = Need::Controller(Can::ListVolumes);
const SNAPSHOTS: Need = Need::Controller(Can::CreateDeleteSnapshot);

pub(super) fn cases() -> Vec<Case> {
    [controller::cases(), node::cases(), mid_call::cases()].concat()
}

/// Restarts the driver and waits until it answers.
async fn restart(t: &Trial) -> Outcome {
    let settings = &t.bench().settings;
    let Some(restart) = &settings.restart else {
        return Err(Trouble::Skip("there is no restart command".to_owned()));
    };
    let made = || settings.node.connections() + settings.controller.connections();
    let before = made();
    restart.run().await.map_err(Trouble::Skip)?;
    let ends = tokio::time::Instant::now() + settings.timeout;
    loop {
        let (info, node) = (
            t.call(proto::ProbeRequest {}).await,
            t.call(proto::ControllerGetCapabilitiesRequest {}).await,
        );
        if info.is_ok() && !node.is_silence() {
            // A channel that somebody else made tells nothing of its connections.
            ensure!(
                made() != before || before == 0,
                "the restart command ended well, but the connection to the driver did not break: it \
                 restarts nothing; nothing is said about the driver"
            );
            return Ok(());
        }
        ensure!(
            tokio::time::Instant::now() < ends,
            "the driver did not answer within {} s after {} had ended well: {}",
            settings.timeout.as_secs(),
            restart.name(),
            info.words()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What is at a path.
fn at(path: &str) -> Result<Occupant, Trouble> {
    Place::at(path.as_ref())
        .and_then(|place| place.look())
        .map_err(crate::make::io("could not look at a path of the run"))
}

/// How many mounts are at a path.
fn layers(path: &str) -> Result<usize, Trouble> {
    let table = MountTable::read().map_err(crate::make::io("could not read the mount table"))?;
    Ok(table
        .iter()
        .filter(|mount| mount.point.as_path() == std::path::Path::new(path))
        .count())
}
