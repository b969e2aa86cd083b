//! How drivers make themselves known: a source of sightings, and what is done on each.
//!
//! A driver is registered once the node object, its CSINode entry and the table of
//! drivers agree; only then is it told so. Whatever fails is tried again with a backoff
//! for as long as the driver's socket is there.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use orlop_csi::proto;
use orlop_model::driver::{CsiNodeDriver, CsiNodeSpec, VolumeNodeResources};
use orlop_model::{CsiDriver, CsiNode, Key, Kind as _, Meta, Node, OwnerReference, well_known};
use orlop_runtime::{ApiError, Backoff, Cache, Cluster, Patch};
use serde_json::json;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::drivers::{DriverConnector, Drivers};
use crate::returns::Returns;
use crate::words::chain;

mod channel;
mod sockets;

pub use channel::{Announcer, ChannelRegistrations};
pub use sockets::SocketRegistrations;

/// Work that a trait object does.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tells drivers apart that register under one name one after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginId(pub String);

/// What a driver says when it registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// `CSIPlugin` for CSI drivers; others are none of our business.
    pub kind: String,
    /// The driver's name.
    pub name: String,
    /// Where it is called.
    pub endpoint: String,
    /// The versions of CSI that it speaks.
    pub versions: Vec<String>,
}

/// Something happened among the drivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// A driver wants to be registered.
    Came(PluginId, Announcement),
    /// It is gone.
    Left(PluginId),
}

/// Where sightings come from.
pub trait Registrations: Send + 'static {
    /// The next one; `None` when there will be none any more. Cancel-safe.
    fn next(&mut self) -> Work<'_, Option<Sighting>>;

    /// Tells a driver what became of its registration; an error in words. Telling may
    /// fail, which changes nothing.
    fn acknowledge(&self, plugin: PluginId, result: Result<(), String>) -> Work<'static, ()>;
}

/// Why a driver is not registered.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error("plugins of type {0:?} are not served here")]
    Type(String),
    #[error("it speaks CSI {0:?}, and this node speaks 1.x")]
    Versions(Vec<String>),
    #[error("{0}")]
    Endpoint(String),
    #[error("it registers as {announced:?} but calls itself {own:?}")]
    Name { announced: String, own: String },
    #[error("its name {0:?} cannot be used")]
    BadName(String),
    #[error("its node id is empty")]
    NoNodeId,
    #[error("its topology says {key}={theirs}, but the node is labelled {key}={ours}")]
    Topology {
        key: String,
        ours: String,
        theirs: String,
    },
    #[error("the driver cannot be asked")]
    Call(#[from] orlop_csi::CallError),
    #[error("the node cannot be written")]
    Api(#[from] ApiError),
    #[error("node {0} does not exist")]
    NoNode(String),
}

impl RegisterError {
    /// Whether a repetition could end differently.
    fn is_final(&self) -> bool {
        match self {
            Self::Type(_) | Self::Versions(_) | Self::Endpoint(_) | Self::BadName(_) => true,
            Self::Name { .. }
            | Self::NoNodeId
            | Self::Topology { .. }
            | Self::Call(_)
            | Self::Api(_)
            | Self::NoNode(_) => false,
        }
    }
}

/// Registers drivers on a node.
pub(crate) struct Registrar {
    pub(crate) node_name: String,
    pub(crate) cluster: Cluster,
    pub(crate) connector: Arc<dyn DriverConnector>,
    pub(crate) drivers: Drivers,
    /// Tells when the node has been made again, and must be told of its drivers again.
    pub(crate) anew: Arc<Notify>,
    /// What drivers want, and when that changes.
    pub(crate) csi_drivers: Cache<CsiDriver>,
    pub(crate) traits_changed: Arc<Notify>,
    /// Called with a driver's name when it can be called from now on.
    pub(crate) ready: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Looks out for a driver that went away without leaving, until it is dropped.
struct Lookout(tokio::task::JoinHandle<()>);

impl Drop for Lookout {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A driver whose registration failed.
struct Waiting {
    announcement: Announcement,
    failures: u32,
    due: tokio::time::Instant,
}

/// A driver that is registered.
struct Registered {
    announcement: Announcement,
    /// When it was last asked what the node is to it.
    asked: tokio::time::Instant,
}

impl Waiting {
    fn anew(announcement: Announcement) -> Self {
        Self {
            announcement,
            failures: 0,
            due: tokio::time::Instant::now(),
        }
    }
}

impl Registrar {
    /// Follows the sightings for ever.
    pub(crate) async fn run(self, mut registrations: Box<dyn Registrations>) {
        let mut registered: BTreeMap<PluginId, Registered> = BTreeMap::new();
        let mut waiting: BTreeMap<PluginId, Waiting> = BTreeMap::new();
        let mut lookouts: BTreeMap<String, Lookout> = BTreeMap::new();
        loop {
            let due = waiting.values().map(|waiting| waiting.due).min();
            let retry = at(due);
            let again = registered.values().filter_map(|driver| {
                let period = self.period(&driver.announcement.name)?;
                Some(driver.asked + period)
            });
            let again = at(again.min());
            tokio::select! {
                sighting = registrations.next() => match sighting {
                    None => return,
                    Some(Sighting::Came(plugin, announcement)) => {
                        waiting.insert(plugin, Waiting::anew(announcement));
                    }
                    Some(Sighting::Left(plugin)) => {
                        waiting.remove(&plugin);
                        let Some(Registered { announcement: left, .. }) = registered.remove(&plugin)
                        else {
                            continue;
                        };
                        // While a driver is upgraded there are two of it: calls go to the one
                        // that came last, and to the other again if that one leaves.
                        let other = registered
                            .iter()
                            .find(|(_, other)| other.announcement.name == left.name)
                            .map(|(other, _)| other.clone());
                        match other.and_then(|other| registered.remove_entry(&other)) {
                            Some((other, stays)) => {
                                waiting.insert(other, Waiting::anew(stays.announcement));
                            }
                            None => {
                                lookouts.remove(&left.name);
                                self.deregister(&left.name).await;
                            }
                        }
                    }
                },
                () = self.anew.notified() => {
                    for (plugin, driver) in std::mem::take(&mut registered) {
                        waiting.insert(plugin, Waiting::anew(driver.announcement));
                    }
                }
                () = self.traits_changed.notified() => {}
                () = again => {
                    let now = tokio::time::Instant::now();
                    for driver in registered.values_mut() {
                        let name = &driver.announcement.name;
                        let period = self.period(name);
                        if period.is_some_and(|period| driver.asked + period <= now) {
                            driver.asked = now;
                            self.count_again(name).await;
                        }
                    }
                }
                () = retry => {
                    let now = tokio::time::Instant::now();
                    let Some(plugin) = waiting
                        .iter()
                        .find(|(_, waiting)| waiting.due <= now)
                        .map(|(plugin, _)| plugin.clone())
                    else {
                        continue;
                    };
                    let Some(mut this) = waiting.remove(&plugin) else { continue };
                    match self.register(&this.announcement).await {
                        Ok(()) => {
                            let name = &this.announcement.name;
                            info!(driver = name, node = self.node_name, "driver registered");
                            registrations.acknowledge(plugin.clone(), Ok(())).await;
                            let announcement = this.announcement;
                            if let Some(lookout) = self.look_out(&announcement) {
                                lookouts.insert(announcement.name.clone(), lookout);
                            }
                            registered.insert(plugin, Registered { announcement, asked: now });
                        }
                        Err(error) => {
                            let words = chain(&error);
                            warn!(driver = this.announcement.name, error = words, "driver not registered");
                            registrations.acknowledge(plugin.clone(), Err(words)).await;
                            if !error.is_final() {
                                this.failures += 1;
                                this.due = now + backoff().after(this.failures);
                                waiting.insert(plugin, this);
                            }
                        }
                    }
                }
            }
        }
    }

    /// How often a driver wants to be asked how many of its volumes fit.
    fn period(&self, driver: &str) -> Option<Duration> {
        let traits = self.csi_drivers.named(driver)?;
        let seconds = traits.spec.node_allocatable_update_period_seconds?;
        // The API's least; a driver must not make a busy loop of it.
        Some(Duration::from_secs(u64::try_from(seconds).ok()?.max(10)))
    }

    /// Asks a driver how many of its volumes fit now. What fails is left to the next time.
    async fn count_again(&self, name: &str) {
        if let Err(error) = self.try_count_again(name).await {
            let error = chain(&error);
            warn!(driver = name, error, "could not tell how many volumes fit");
        }
    }

    async fn try_count_again(&self, name: &str) -> Result<(), RegisterError> {
        let Some(driver) = self.drivers.get(name) else {
            return Ok(());
        };
        let place = driver.node_get_info(proto::NodeGetInfoRequest {}).await?;
        let key = Key::cluster(&self.node_name);
        let Some(found) = self.cluster.get::<CsiNode>(&key).await? else {
            return Ok(());
        };
        let mut drivers = found.spec.drivers.clone();
        let Some(ours) = drivers.iter_mut().find(|driver| driver.name == name) else {
            return Ok(());
        };
        ours.allocatable = entry(name, &place).allocatable;
        if drivers != found.spec.drivers {
            let patch = Patch::merge_on(&found, json!({"spec": {"drivers": drivers}}));
            self.cluster.patch::<CsiNode>(&key, &patch).await?;
        }
        Ok(())
    }

    async fn register(&self, announcement: &Announcement) -> Result<(), RegisterError> {
        let Announcement {
            kind,
            name,
            endpoint,
            versions,
        } = announcement;
        if kind != "CSIPlugin" {
            return Err(RegisterError::Type(kind.clone()));
        }
        if !versions.iter().any(|version| speaks(version)) {
            return Err(RegisterError::Versions(versions.clone()));
        }
        if !crate::layout::Layout::is_safe(name) || name == "volumeDevices" {
            return Err(RegisterError::BadName(name.clone()));
        }
        let driver = self
            .connector
            .connect(endpoint)
            .map_err(RegisterError::Endpoint)?;
        let info = driver.info().await?;
        if info.name != *name {
            return Err(RegisterError::Name {
                announced: name.clone(),
                own: info.name.clone(),
            });
        }
        let place = driver.node_get_info(proto::NodeGetInfoRequest {}).await?;
        if place.node_id.is_empty() {
            return Err(RegisterError::NoNodeId);
        }
        let node = self.label_node(name, &place).await?;
        self.enter(&node, entry(name, &place)).await?;
        self.drivers.insert(name, driver);
        (self.ready)(name);
        Ok(())
    }

    /// A driver's own socket may go and come while that of its registrar stays: whoever waits
    /// because of it is looked at when it is back.
    fn look_out(&self, announcement: &Announcement) -> Option<Lookout> {
        let socket = orlop_csi::client::socket_path(&announcement.endpoint).ok()?;
        let mut returns = Returns::of(&socket)?;
        let driver = self.drivers.get(&announcement.name)?;
        let (ready, name) = (self.ready.clone(), announcement.name.clone());
        Some(Lookout(tokio::spawn(async move {
            while returns.next().await.is_ok() {
                // It may not listen yet. One that can't be probed says so itself: it is there.
                let _ = driver.probe_until_ready().await;
                info!(driver = name, "driver is back");
                ready(&name);
            }
        })))
    }

    /// Writes the driver's node id and topology on the node.
    async fn label_node(
        &self,
        driver: &str,
        place: &proto::NodeGetInfoResponse,
    ) -> Result<Node, RegisterError> {
        let key = Key::cluster(&self.node_name);
        let node = self.cluster.get::<Node>(&key).await?;
        let node = node.ok_or_else(|| RegisterError::NoNode(self.node_name.clone()))?;
        let segments = place
            .accessible_topology
            .as_ref()
            .map(|t| t.segments.clone())
            .unwrap_or_default();
        for (key, theirs) in &segments {
            if let Some(ours) = node.metadata.labels.get(key).filter(|ours| *ours != theirs) {
                let (key, ours, theirs) = (key.clone(), ours.clone(), theirs.clone());
                return Err(RegisterError::Topology { key, ours, theirs });
            }
        }
        let mut ids = node_ids(&node);
        ids.insert(driver.to_owned(), place.node_id.clone());
        let labelled = segments
            .keys()
            .all(|key| node.metadata.labels.contains_key(key));
        if labelled && ids == node_ids(&node) {
            return Ok(node);
        }
        let ids = json!(ids).to_string();
        let body = json!({"metadata": {
            "annotations": {well_known::CSI_NODE_ID: ids}, "labels": segments,
        }});
        Ok(self
            .cluster
            .patch::<Node>(&key, &Patch::merge_on(&node, body))
            .await?)
    }

    /// Writes the driver's entry in the node's CSINode.
    async fn enter(&self, node: &Node, entry: CsiNodeDriver) -> Result<(), ApiError> {
        let key = Key::cluster(&self.node_name);
        let Some(found) = self.cluster.get::<CsiNode>(&key).await? else {
            let object = CsiNode {
                metadata: Meta {
                    owner_references: vec![owned_by(node)],
                    ..Meta::named(&key)
                },
                spec: CsiNodeSpec {
                    drivers: vec![entry],
                },
            };
            return self.cluster.create(&object).await.map(|_| ());
        };
        if found.driver(&entry.name) == Some(&entry) {
            return Ok(());
        }
        let mut drivers = found.spec.drivers.clone();
        drivers.retain(|driver| driver.name != entry.name);
        drivers.push(entry);
        let patch = Patch::merge_on(&found, json!({"spec": {"drivers": drivers}}));
        self.cluster
            .patch::<CsiNode>(&key, &patch)
            .await
            .map(|_| ())
    }

    /// Takes a driver out. Its entry is upkeep, not state: a failure is left to the next
    /// registration.
    async fn deregister(&self, name: &str) {
        info!(driver = name, node = self.node_name, "driver gone");
        self.drivers.remove(name);
        if let Err(error) = self.try_deregister(name).await {
            warn!(
                driver = name,
                error = error.chain(),
                "could not take the driver off the node"
            );
        }
    }

    async fn try_deregister(&self, name: &str) -> Result<(), ApiError> {
        let key = Key::cluster(&self.node_name);
        if let Some(found) = self.cluster.get::<CsiNode>(&key).await?
            && found.driver(name).is_some()
        {
            let mut drivers = found.spec.drivers.clone();
            drivers.retain(|driver| driver.name != name);
            let patch = Patch::merge_on(&found, json!({"spec": {"drivers": drivers}}));
            self.cluster.patch::<CsiNode>(&key, &patch).await?;
        }
        if let Some(node) = self.cluster.get::<Node>(&key).await? {
            let mut ids = node_ids(&node);
            if ids.remove(name).is_some() {
                let value = if ids.is_empty() {
                    json!(null)
                } else {
                    json!(json!(ids).to_string())
                };
                let body = json!({"metadata": {"annotations": {well_known::CSI_NODE_ID: value}}});
                self.cluster
                    .patch::<Node>(&key, &Patch::merge_on(&node, body))
                    .await?;
            }
        }
        Ok(())
    }
}

async fn at(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn backoff() -> Backoff {
    Backoff {
        first: Duration::from_millis(200),
        most: Duration::from_secs(30),
    }
}

/// Versions are written `1.0.0`, with or without a `v`.
fn speaks(version: &str) -> bool {
    let version = version.trim_start_matches('v');
    version == "1" || version.starts_with("1.")
}

fn entry(name: &str, place: &proto::NodeGetInfoResponse) -> CsiNodeDriver {
    let topology = place.accessible_topology.as_ref();
    CsiNodeDriver {
        name: name.to_owned(),
        node_id: place.node_id.clone(),
        topology_keys: topology
            .map(|t| t.segments.keys().cloned().collect())
            .unwrap_or_default(),
        allocatable: (place.max_volumes_per_node > 0).then(|| VolumeNodeResources {
            count: Some(i32::try_from(place.max_volumes_per_node).unwrap_or(i32::MAX)),
        }),
    }
}

fn node_ids(node: &Node) -> BTreeMap<String, String> {
    let text = node
        .metadata
        .annotation(well_known::CSI_NODE_ID)
        .unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// CSINode goes with its node.
pub(crate) fn owned_by(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: Node::api_version(),
        kind: Node::KIND.to_owned(),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        controller: None,
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_is_spoken_and_no_other() {
        for (version, spoken) in [
            ("1.0.0", true),
            ("v1.2.0", true),
            ("1", true),
            ("0.3.0", false),
            ("2.0.0", false),
            ("10.0", false),
        ] {
            assert_eq!(speaks(version), spoken, "{version}");
        }
    }

    #[test]
    fn a_driver_without_a_limit_has_none() {
        let mut place = proto::NodeGetInfoResponse {
            node_id: "n".into(),
            ..Default::default()
        };
        assert_eq!(entry("d", &place).allocatable, None);
        place.max_volumes_per_node = 7;
        assert_eq!(
            entry("d", &place).allocatable,
            Some(VolumeNodeResources { count: Some(7) })
        );
    }
}
