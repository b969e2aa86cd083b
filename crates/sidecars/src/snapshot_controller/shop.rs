//! What all parts of the controller share.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use orlop_model::{
    Claim, Key, Kind, Volume, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotContent,
};
use orlop_runtime::{
    ApiError, Cache, Clock, Cluster, EventType, Index, Outcome, Process, Queue, Recorder,
};

use super::{Claims, Config, Volumes, sources};
use crate::patience::{Patience, Setback};

/// Caches, indexes and the ways out.
pub(super) struct Shop {
    pub(super) cluster: Cluster,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    patience: Patience,
    /// Snapshots that need a look.
    pub(super) singles: Queue<Key>,
    pub(super) config: Config,
    pub(super) snapshots: Cache<VolumeSnapshot>,
    pub(super) contents: Cache<VolumeSnapshotContent>,
    pub(super) claims: Claims,
    pub(super) volumes: Volumes,
    /// Snapshots by the claim that they cut, `namespace/name`.
    pub(super) by_claim: Index<VolumeSnapshot>,
    /// Claims that are still being made, by the snapshot that they are made from.
    pub(super) restoring: Index<Claim>,
    /// Volumes by driver and handle.
    pub(super) by_handle: Index<Volume>,
    /// There once the API server knows groups.
    pub(super) group_contents: OnceLock<Cache<VolumeGroupSnapshotContent>>,
}

impl Shop {
    pub(super) fn new(process: &Process, config: Config) -> Self {
        let snapshots = process.cache::<VolumeSnapshot>();
        let claims: Claims = process.cache();
        let volumes: Volumes = process.cache();
        Self {
            cluster: process.cluster.clone(),
            clock: process.clock,
            recorder: process.recorder("snapshot-controller"),
            patience: Patience::new(
                "snapshot-controller",
                config.retry,
                process.clock,
                config.metrics.retries.clone(),
            ),
            singles: Queue::new(config.retry)
                .measured(&process.metrics, "snapshot-controller-snapshot"),
            config,
            by_claim: snapshots.index("snapshots.claim", |snapshot| {
                let claim = snapshot.spec.source.persistent_volume_claim_name.as_ref();
                let namespace = &snapshot.metadata.namespace;
                claim
                    .map(|claim| format!("{namespace}/{claim}"))
                    .into_iter()
                    .collect()
            }),
            restoring: claims.index("snapshots.restoring", |claim| {
                let source = sources::made_from(claim).filter(|_| sources::is_being_made(claim));
                source.map(|key| key.to_string()).into_iter().collect()
            }),
            by_handle: volumes.index("snapshots.handle", |volume| {
                let csi = volume.spec.csi.as_ref();
                csi.map(|csi| handle_key(&csi.driver, &csi.volume_handle))
                    .into_iter()
                    .collect()
            }),
            snapshots,
            contents: process.cache(),
            claims,
            volumes,
            group_contents: OnceLock::new(),
        }
    }

    /// The claim of this name. The snapshot may have been seen before the claim that was made with it:
    /// one that nobody here knows is asked for before it is said not to exist.
    pub(super) async fn claim(&self, key: &Key) -> Result<Option<Arc<Claim>>, ApiError> {
        match self.claims.get(key) {
            Some(claim) => Ok(Some(claim)),
            None => Ok(self.cluster.get(key).await?.map(Arc::new)),
        }
    }

    /// The volume that a claim names; asked for, too, if the volumes lag behind the claims.
    pub(super) async fn volume(&self, claim: &Claim) -> Result<Option<Arc<Volume>>, ApiError> {
        let name = &claim.spec.volume_name;
        if name.is_empty() {
            return Ok(None);
        }
        match self.volumes.named(name) {
            Some(volume) if volume.is_reserved_for(claim) => Ok(Some(volume)),
            _ => {
                let volume = self.cluster.get(&Key::cluster(name)).await?;
                Ok(volume.map(Arc::new))
            }
        }
    }

    /// How long an object waits that met this.
    pub(super) fn wait<K: Kind>(&self, key: &Key, setback: Setback) -> Duration {
        self.patience.after(&who::<K>(key), setback)
    }

    /// Ends an object's turn.
    pub(super) fn conclude<K: Kind>(
        &self,
        key: &Key,
        result: Result<Outcome, ApiError>,
    ) -> Outcome {
        self.patience.conclude(&who::<K>(key), result)
    }

    /// Ends an object's turn, and tells on it what the API server refused.
    pub(super) fn conclude_aloud<K: Kind>(
        &self,
        object: &K,
        result: Result<Outcome, ApiError>,
    ) -> Outcome {
        let who = who::<K>(&object.key());
        self.patience.conclude_aloud(&who, result, |refused| {
            self.recorder
                .say(object, EventType::Warning, "UpdateFailed", refused);
        })
    }

    /// The volume of that driver and handle, if there is exactly one.
    pub(super) fn volume_of(&self, driver: &str, handle: &str) -> Option<std::sync::Arc<Volume>> {
        match self.by_handle.get(&handle_key(driver, handle)).as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    /// A claim that is being made from the snapshot.
    pub(super) fn restored_to(&self, snapshot: &VolumeSnapshot) -> Option<Key> {
        let claims = self.restoring.get(&snapshot.key().to_string());
        claims.first().map(|claim| Kind::key(&**claim))
    }

    /// Whether a claim is being made from the snapshot.
    pub(super) fn is_being_restored(&self, snapshot: &VolumeSnapshot) -> bool {
        self.restored_to(snapshot).is_some()
            || snapshot
                .metadata
                .has_finalizer(orlop_model::well_known::SNAPSHOT_SOURCE_PROTECTION)
    }
}

fn who<K: Kind>(key: &Key) -> String {
    format!("{} {key}", K::KIND)
}

fn handle_key(driver: &str, handle: &str) -> String {
    format!("{driver}^{handle}")
}
