//! The shell: hears of nodes that go, waits, looks again, and deletes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{Claim, Key, Kind, Node, Volume, well_known};
use orlop_runtime::{
    ApiError, Backoff, Cache, Change, Cluster, EventType, Index, Outcome, Preconditions, Process,
    Queue, Recorder, letting_go, work,
};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    Home, Step, decide,
    home::{has_others, home, host_names},
    metrics::Metrics,
};
use crate::identity;

/// After a write that came too late: the watch is about to tell.
const SOON: Duration = Duration::from_millis(50);

/// How to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The classes whose disks go with their node.
    pub classes: BTreeSet<String>,
    /// How long a node is waited for.
    pub delay: Duration,
    /// How many volumes are worked on at once.
    pub workers: usize,
}

#[derive(Clone)]
struct Cleanup {
    settings: Settings,
    cluster: Cluster,
    recorder: Recorder,
    volumes: Cache<Volume>,
    volumes_by_host: Index<Volume>,
    nodes: Cache<Node>,
    nodes_by_host: Index<Node>,
    queue: Queue<String>,
    metrics: Metrics,
    /// Since when volumes are without their node, as far as we know. A restart waits anew: that
    /// errs on the side of waiting.
    missing: Arc<Mutex<BTreeMap<String, Instant>>>,
}

fn names_of(node: &Node) -> Vec<String> {
    let meta = &node.metadata;
    let label = meta.labels.get(well_known::HOSTNAME).cloned();
    let label = label.filter(|label| *label != meta.name);
    label.into_iter().chain([meta.name.clone()]).collect()
}

fn hosts_of(volume: &Volume) -> Vec<String> {
    match volume.spec.local {
        Some(_) => host_names(volume),
        None => Vec::new(),
    }
}

/// Starts cleaning up.
pub fn start(process: &Process, settings: Settings) {
    let volumes = process.cache::<Volume>();
    let nodes = process.cache::<Node>();
    let backoff = Backoff {
        first: Duration::from_secs(1),
        most: Duration::from_secs(300),
    };
    let cleanup = Cleanup {
        settings,
        cluster: process.cluster.clone(),
        recorder: process.recorder("cleanup-controller"),
        volumes_by_host: volumes.index("node-cleanup/host", hosts_of),
        volumes,
        nodes_by_host: nodes.index("node-cleanup/name", names_of),
        nodes,
        queue: Queue::new(backoff).measured(&process.metrics, "local_node_cleanup"),
        metrics: Metrics::register(&mut process.metrics.registry()),
        missing: Arc::default(),
    };
    process.spawn("local-volume-node-cleanup", cleanup.run());
}

impl Cleanup {
    async fn run(self) {
        self.volumes.synced().await;
        self.nodes.synced().await;
        self.subscribe();
        let workers = self.settings.workers.max(1);
        work(self.queue.clone(), workers, |name| self.turn(name)).await;
    }

    fn subscribe(&self) {
        let role = self.clone();
        self.volumes.subscribe(move |change| {
            let name = &change.object().metadata.name;
            match change {
                Change::Applied { new, .. } if role.is_ours(new) => role.queue.add(name.clone()),
                Change::Applied { .. } => {}
                Change::Deleted(_) => drop(role.missing().remove(name)),
            }
        });
        let role = self.clone();
        self.nodes.subscribe(move |change| {
            let node = change.object();
            let same = |old: &Node| {
                old.metadata.uid == node.metadata.uid && old.metadata.labels == node.metadata.labels
            };
            // Nodes tell how they are every few seconds.
            if matches!(change, Change::Applied { old: Some(old), .. } if same(old)) {
                return;
            }
            for name in names_of(node) {
                for volume in role.volumes_by_host.get(&name) {
                    role.queue.add(volume.metadata.name.clone());
                }
            }
        });
    }

    fn missing(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ours(&self, volume: &Volume) -> bool {
        volume.spec.local.is_some() && self.settings.classes.contains(volume.class())
    }

    async fn turn(&self, name: String) -> Outcome {
        match self.look(&name).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_conflict() || error.is_not_found() => {
                debug!(volume = name, error = error.chain(), "the view was behind");
                Outcome::After(SOON)
            }
            Err(error) => {
                warn!(volume = name, error = error.chain(), "will be tried again");
                Outcome::Retry
            }
        }
    }

    async fn look(&self, name: &str) -> Result<Outcome, ApiError> {
        let Some(volume) = self.volumes.named(name).filter(|v| self.is_ours(v)) else {
            return Ok(Outcome::Done);
        };
        let home = self.home_by_cache(&volume);
        if matches!(home, Home::There | Home::Unknown) {
            self.missing().remove(name);
            return Ok(Outcome::Done);
        }
        let step = decide(&volume, home);
        let since = *self
            .missing()
            .entry(name.to_owned())
            .or_insert_with(Instant::now);
        let left = self.settings.delay.saturating_sub(since.elapsed());
        debug!(volume = name, ?home, ?step, ?left, "decided");
        if step == Step::Leave {
            return Ok(Outcome::Done);
        }
        if !left.is_zero() {
            self.warn_of(&volume, step);
            return Ok(Outcome::After(left));
        }
        // What can't be undone is decided on what is so now, not on a cache.
        let Some(now) = self.cluster.get::<Volume>(&volume.key()).await? else {
            return Ok(Outcome::Done);
        };
        if !self.is_ours(&now) || now.metadata.uid != volume.metadata.uid {
            return Ok(Outcome::After(SOON));
        }
        match decide(&now, self.home_now(&now).await?) {
            Step::Leave => {}
            Step::DeleteClaim => self.delete_claim(&now).await?,
            Step::DeleteVolume => self.delete_volume(&now).await?,
            Step::LetGo => self.let_go(&now).await?,
        }
        Ok(Outcome::Done)
    }

    fn home_by_cache(&self, volume: &Volume) -> Home {
        let nodes = match has_others(volume) {
            true => self.nodes.all(),
            false => {
                let named = host_names(volume);
                named
                    .iter()
                    .flat_map(|name| self.nodes_by_host.get(name))
                    .collect()
            }
        };
        home(volume, nodes.iter().map(AsRef::as_ref))
    }

    /// As the cache has it, and as the API server says of the nodes of the volume's names.
    async fn home_now(&self, volume: &Volume) -> Result<Home, ApiError> {
        let mut names = host_names(volume);
        names.extend(identity::node_of(volume).map(str::to_owned));
        let mut found = Vec::new();
        for name in names {
            found.extend(self.cluster.get::<Node>(&Key::cluster(&name)).await?);
        }
        Ok(match (home(volume, &found), self.home_by_cache(volume)) {
            (Home::Gone, cached) => cached,
            (now, _) => now,
        })
    }

    /// In the original's words.
    fn warn_of(&self, volume: &Volume, step: Step) {
        let owner = volume.spec.claim_ref.clone();
        if let Some(mut claim) = owner.filter(|_| step == Step::DeleteClaim) {
            claim.api_version = Claim::api_version();
            claim.kind = Claim::KIND.to_owned();
            let delay = self.settings.delay.as_secs();
            let message = format!(
                "PVC is tied to a deleted Node. PVC will be cleaned up in {delay}s if the Node \
                 doesn't come back"
            );
            let reason = "ReferencedNodeDeleted";
            self.recorder
                .say_of(claim, EventType::Warning, reason, message);
        }
    }

    async fn delete_claim(&self, volume: &Volume) -> Result<(), ApiError> {
        let Some(owner) = &volume.spec.claim_ref else {
            return Ok(());
        };
        let Some(claim) = self.cluster.get::<Claim>(&owner.key()).await? else {
            return Ok(());
        };
        // Another of its name, or one that has another volume by now, or is going already.
        if claim.metadata.uid != owner.uid
            || claim.spec.volume_name != volume.metadata.name
            || claim.metadata.is_deleting()
        {
            return Ok(());
        }
        let only_if = Preconditions::same_object(&claim);
        let deleted = self.cluster.delete::<Claim>(&claim.key(), &only_if).await;
        self.metrics.claim(deleted.is_ok());
        deleted?;
        info!(claim = %claim.key(), volume = volume.metadata.name, "claim of a removed node deleted");
        Ok(())
    }

    async fn delete_volume(&self, volume: &Volume) -> Result<(), ApiError> {
        let only_if = Preconditions::unchanged(volume);
        let deleted = self.cluster.delete_held(&volume.key(), &only_if).await;
        self.metrics.volume(volume.phase(), deleted.is_ok());
        info!(
            volume = volume.metadata.name,
            "volume of a removed node deleted"
        );
        match deleted? {
            Some(held) => self.let_go(&held).await,
            None => Ok(()),
        }
    }

    async fn let_go(&self, volume: &Volume) -> Result<(), ApiError> {
        if let Some(patch) = letting_go(volume, &[well_known::LOCAL_UNCLEAN]) {
            match self.cluster.patch::<Volume>(&volume.key(), &patch).await {
                Ok(answer) => self.volumes.absorb(answer),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
