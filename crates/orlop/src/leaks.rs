//! `orlop leaks`: what a driver has that nobody owns, and the other way round.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use orlop_csi::{Deadlines, Driver, DriverInfo, client::ControllerCapability as Can, proto as csi};
use orlop_model::{Claim, Kind, Volume, VolumeGroupSnapshotContent, VolumeSnapshotContent};
use orlop_runtime::Cluster;
use orlop_sidecars::{
    leaks::{Leaks, Twice, View, compare},
    listing,
};

use crate::{api, driver::meet};

/// What it ends with when it could not be found out.
const UNKNOWN: u8 = 2;

/// `orlop leaks`.
#[derive(Debug, Args)]
pub(crate) struct Leaky {
    /// The driver's socket.
    #[arg(long, default_value = "/run/csi/socket", value_name = "SOCKET")]
    csi_address: String,
    /// A kubeconfig; without one, `$KUBECONFIG`, the home folder's or the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How to tell it.
    #[arg(long, short, value_enum, default_value = "text")]
    output: Output,
    /// How long the driver may take for a page, such as 30s or 1m30s; a bare number is seconds.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    seconds
        .or_else(|| crate::dropin::duration::parse(text))
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "use a duration such as 30s or 1m30s".to_owned())
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Looks once; ends with 0 if all is well, 1 if something was found, 2 if that is unknown.
pub(crate) fn main(args: Leaky) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let output = args.output;
    let looked = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(look(args)));
    match looked {
        Ok((info, leaks, told)) => {
            let text = match output {
                Output::Text => text(&info, &leaks, &told),
                Output::Json => format!("{:#}\n", json(&info, &leaks, &told)),
            };
            crate::voice::say(text.trim_end());
            ExitCode::from(u8::from(!leaks.is_clean()))
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(UNKNOWN)
        }
    }
}

/// What a driver tells of its volumes, by their ids.
type Told = BTreeMap<String, csi::Volume>;

async fn look(args: Leaky) -> Result<(DriverInfo, Leaks, Told)> {
    let cluster = Cluster::new(api::connect(args.kubeconfig.as_deref(), None, None).await?);
    let time = args.timeout;
    let address = crate::driver::address(&args.csi_address);
    let driver = Driver::connect(&address)?.with_deadlines(Deadlines::all(time));
    let info = meet(&driver, &address, time).await?;
    if !info.can(Can::ListVolumes) && !info.can(Can::ListSnapshots) {
        bail!(
            "the driver {} lists neither volumes nor snapshots (LIST_VOLUMES, LIST_SNAPSHOTS): \
             compare with the storage system itself",
            info.name
        );
    }
    let (volumes, snapshots) = (
        volumes(&driver, &info).await?,
        snapshots(&driver, &info).await?,
    );
    let owners: Vec<Volume> = cluster.list(None).await?;
    let contents: Vec<VolumeSnapshotContent> = if_installed(&cluster).await?;
    let groups: Vec<VolumeGroupSnapshotContent> = if_installed(&cluster).await?;
    let claims: Vec<Claim> = cluster.list(None).await?;
    let twice = |before: Option<BTreeSet<String>>, after: Option<BTreeSet<String>>| {
        let (before, after) = before.zip(after)?;
        Some(Twice { before, after })
    };
    let view = View {
        driver: &info.name,
        volumes: twice(
            volumes.as_ref().map(ids),
            self::volumes(&driver, &info).await?.as_ref().map(ids),
        ),
        snapshots: twice(snapshots, self::snapshots(&driver, &info).await?),
        owners: &owners,
        contents: &contents,
        groups: &groups,
        claims: &claims,
    };
    let leaks = compare(&view);
    Ok(((*info).clone(), leaks, volumes.unwrap_or_default()))
}

/// Where a kind is not installed nobody owns anything by it.
async fn if_installed<K: Kind>(cluster: &Cluster) -> Result<Vec<K>> {
    match cluster.list(None).await {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => Ok(listed?),
    }
}

fn ids(told: &Told) -> BTreeSet<String> {
    told.keys().cloned().collect()
}

async fn volumes(driver: &Driver, info: &DriverInfo) -> Result<Option<Told>> {
    if !info.can(Can::ListVolumes) {
        return Ok(None);
    }
    let all = listing::volumes(driver, 0).await.context("volumes")?;
    let volumes = all.into_iter().filter_map(|entry| entry.volume);
    let by_id = volumes.map(|volume| (volume.volume_id.clone(), volume));
    Ok(Some(by_id.collect()))
}

async fn snapshots(driver: &Driver, info: &DriverInfo) -> Result<Option<BTreeSet<String>>> {
    if !info.can(Can::ListSnapshots) {
        return Ok(None);
    }
    let all = listing::snapshots(driver).await.context("snapshots")?;
    Ok(Some(all.into_iter().map(|one| one.snapshot_id).collect()))
}

/// A volume's id, and what the driver tells of it.
fn described(id: &str, told: &Told) -> String {
    let mut line = id.to_owned();
    if let Some(volume) = told.get(id) {
        if volume.capacity_bytes > 0 {
            let _ = write!(line, "  {} bytes", volume.capacity_bytes);
        }
        let context: BTreeMap<_, _> = volume.volume_context.iter().collect();
        for (key, value) in context {
            let _ = write!(line, "  {key}={value}");
        }
    }
    line
}

fn text(info: &DriverInfo, leaks: &Leaks, told: &Told) -> String {
    let mut text = String::new();
    // Writing into a string can't fail.
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(text, "{title}:");
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
    };
    let pairs = |pairs: &[(String, String)]| {
        let line = |(owner, id): &(String, String)| format!("{owner}  {id}");
        pairs.iter().map(line).collect()
    };
    part(
        "volumes that no PersistentVolume names",
        leaks
            .volumes_without_owner
            .iter()
            .map(|id| described(id, told))
            .collect(),
    );
    part(
        "PersistentVolumes without their volume",
        pairs(&leaks.owners_without_volume),
    );
    part(
        "snapshots that no VolumeSnapshotContent and no VolumeGroupSnapshotContent names",
        leaks.snapshots_without_owner.clone(),
    );
    part(
        "VolumeSnapshotContents without their snapshot",
        pairs(&leaks.owners_without_snapshot),
    );
    part(
        "inline volumes, which belong to pods",
        leaks.inline_volumes.clone(),
    );
    part(
        "claims whose volume is being made, and may be among those above; look again later",
        leaks.claims_in_progress.clone(),
    );
    for (what, can) in [
        ("volumes", Can::ListVolumes),
        ("snapshots", Can::ListSnapshots),
    ] {
        if !info.can(can) {
            let _ = writeln!(
                text,
                "{what} were not looked at: the driver does not list them"
            );
        }
    }
    let end = if leaks.is_clean() {
        "nothing leaked"
    } else {
        "nothing was deleted: that is for you to decide"
    };
    let _ = writeln!(text, "{}: {end}", info.name);
    text
}

fn json(info: &DriverInfo, leaks: &Leaks, told: &Told) -> serde_json::Value {
    let known: BTreeMap<&str, serde_json::Value> = leaks
        .volumes_without_owner
        .iter()
        .filter_map(|id| {
            let volume = told.get(id)?;
            let (bytes, context) = (volume.capacity_bytes, &volume.volume_context);
            let told = serde_json::json!({"capacityBytes": bytes, "context": context});
            Some((id.as_str(), told))
        })
        .collect();
    let pairs = |what: &str, pairs: &[(String, String)]| {
        let pair = |(owner, id): &(String, String)| serde_json::json!({what: owner, "id": id});
        pairs.iter().map(pair).collect::<Vec<_>>()
    };
    serde_json::json!({
        "driver": info.name,
        "clean": leaks.is_clean(),
        "listsVolumes": info.can(Can::ListVolumes),
        "listsSnapshots": info.can(Can::ListSnapshots),
        "volumesWithoutOwner": leaks.volumes_without_owner,
        "told": known,
        "ownersWithoutVolume": pairs("persistentVolume", &leaks.owners_without_volume),
        "snapshotsWithoutOwner": leaks.snapshots_without_owner,
        "ownersWithoutSnapshot": pairs("volumeSnapshotContent", &leaks.owners_without_snapshot),
        "inlineVolumes": leaks.inline_volumes,
        "claimsInProgress": leaks.claims_in_progress,
    })
}
