//! Reads what volumes are filled from, and keeps it while that goes on.
//!
//! Claim or snapshot get a finalizer before the driver is asked, and lose it when no claim
//! needs them any more: found by the claims' own changes, and for what a crash left behind
//! by a look at all snapshots now and then.

use std::{sync::Once, time::Duration};

use orlop_model::{
    Claim, Kind, ReferenceGrant, Volume, VolumeSnapshot, VolumeSnapshotContent,
    well_known::{CLONE_PROTECTION, SNAPSHOT_SOURCE_PROTECTION},
};
use orlop_runtime::{
    ApiError, Cache, Change, Cluster, Index, Outcome, Process, Queue, with_finalizer,
    without_finalizer,
};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::source::{self, Content, ModeGuard, Origin, SourceError, Wish};
use crate::{insist::insist, patience::UNTOLD, served::until_served};

/// What sources are looked after with.
pub(super) struct Sources {
    pub(super) cluster: Cluster,
    pub(super) name: String,
    pub(super) claims: Cache<Claim>,
    pub(super) volumes: Cache<Volume>,
    /// Claims by the source that they still need.
    pub(super) needed: Index<Claim>,
    pub(super) guard: ModeGuard,
    /// Whether other namespaces may be named.
    pub(super) across: bool,
    pub(super) readiness: Readiness,
}

/// Wakes claims up whose snapshot is ready now. Snapshots are watched only once a claim waits for
/// one: most drivers' claims never do.
pub(super) struct Readiness {
    process: Process,
    needed: Index<Claim>,
    wake: Queue<orlop_model::Key>,
    begun: Once,
}

impl Readiness {
    pub(super) fn new(
        process: &Process,
        needed: Index<Claim>,
        wake: &Queue<orlop_model::Key>,
    ) -> Self {
        Self {
            process: process.clone(),
            needed,
            wake: wake.clone(),
            begun: Once::new(),
        }
    }

    /// A claim waits for its snapshot.
    fn awaited(&self) {
        self.begun.call_once(|| {
            let (process, needed, wake) =
                (self.process.clone(), self.needed.clone(), self.wake.clone());
            self.process.spawn("snapshots that are waited for", async move {
                until_served::<VolumeSnapshot>(&process.cluster).await;
                if !process.cluster.may_watch::<VolumeSnapshot>().await {
                    info!(
                        "VolumeSnapshots may not be watched: claims that wait for one are looked \
                         at every {} s",
                        UNTOLD.as_secs()
                    );
                    return;
                }
                process.cache::<VolumeSnapshot>().subscribe(move |change| {
                    if let Change::Applied { old, new } = change
                        && new.is_ready()
                        && !old.is_some_and(|old| old.is_ready())
                    {
                        let origin = Origin::Snapshot(Kind::key(&***new)).to_string();
                        let waiting = needed.get(&origin);
                        waiting.iter().for_each(|claim| wake.add(claim.key()));
                    }
                });
            });
        });
    }
}

/// Why a source can't be used now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the source could not be read")]
    Api(#[from] ApiError),
}

/// A source that was found to be good, at the version that was looked at.
pub(super) enum Found {
    Claim(Box<Claim>),
    Snapshot(Box<VolumeSnapshot>),
}

/// Claims by the source that they still need.
pub(super) fn by_need(claims: &Cache<Claim>) -> Index<Claim> {
    claims.index("provisioner.source", |claim| {
        let origin = source::needed(claim);
        origin
            .map(|origin| origin.to_string())
            .into_iter()
            .collect()
    })
}

impl Sources {
    /// What to fill a claim's volume with, and the object that must be kept meanwhile.
    pub(super) async fn find(&self, claim: &Claim) -> Result<Option<(Content, Found)>, Failure> {
        let Wish::From(origin) = source::wish(claim, self.across)? else {
            return Ok(None);
        };
        self.check_grant(claim, &origin).await?;
        let missing = || SourceError::Missing(origin.to_string());
        match &origin {
            Origin::Claim(key) => {
                let found = self.claims.get(key).ok_or_else(missing)?;
                let volume = self.volumes.named(&found.spec.volume_name);
                let content = source::of_claim(claim, &self.name, &found, volume.as_deref())?;
                Ok(Some((content, Found::Claim(Box::new((*found).clone())))))
            }
            Origin::Snapshot(key) => {
                let found = self.cluster.get::<VolumeSnapshot>(key).await?;
                if !found.as_ref().is_some_and(VolumeSnapshot::is_ready) {
                    self.readiness.awaited();
                }
                let found = found.ok_or_else(missing)?;
                let content = match found.bound_content() {
                    None => None,
                    Some(name) => {
                        let key = orlop_model::Key::cluster(name);
                        self.cluster.get::<VolumeSnapshotContent>(&key).await?
                    }
                };
                let content = content.as_ref();
                let content = source::of_snapshot(claim, &self.name, &found, content, self.guard)?;
                Ok(Some((content, Found::Snapshot(Box::new(found)))))
            }
        }
    }

    async fn check_grant(&self, claim: &Claim, origin: &Origin) -> Result<(), Failure> {
        let (own, there) = (&claim.metadata.namespace, &origin.key().namespace);
        if own == there {
            return Ok(());
        }
        let grants = self.cluster.list::<ReferenceGrant>(Some(there)).await?;
        let (group, kind) = origin.kind();
        if grants
            .iter()
            .any(|g| g.lets_claims(own, group, kind, origin.key()))
        {
            return Ok(());
        }
        let origin = origin.to_string();
        let namespace = own.clone();
        Err(SourceError::NotGranted { origin, namespace }.into())
    }

    /// Keeps the source; `false` if it has changed since it was looked at.
    pub(super) async fn keep(&self, found: &Found) -> Result<bool, ApiError> {
        match found {
            Found::Claim(claim) => {
                let Some(kept) = self.put_on(&**claim, CLONE_PROTECTION).await? else {
                    if let Some(live) = self.cluster.get::<Claim>(&claim.key()).await? {
                        self.claims.absorb(live);
                    }
                    return Ok(false);
                };
                self.claims.absorb(kept);
                Ok(true)
            }
            Found::Snapshot(snapshot) => {
                let kept = self.put_on(&**snapshot, SNAPSHOT_SOURCE_PROTECTION);
                Ok(kept.await?.is_some())
            }
        }
    }

    async fn put_on<K: Kind>(&self, object: &K, finalizer: &str) -> Result<Option<K>, ApiError> {
        let Some(patch) = with_finalizer(object, finalizer) else {
            return Ok(Some(object.clone()));
        };
        match self.cluster.patch::<K>(&object.key(), &patch).await {
            Ok(kept) => Ok(Some(kept)),
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One look at one source: lets it go if no claim needs it any more.
    pub(super) async fn turn(&self, origin: Origin) -> Outcome {
        self.let_go(&origin).await.unwrap_or_else(|error| {
            warn!(%origin, error = error.chain(), "will try again");
            Outcome::Retry
        })
    }

    async fn let_go(&self, origin: &Origin) -> Result<Outcome, ApiError> {
        if !self.needed.get(&origin.to_string()).is_empty() {
            return Ok(Outcome::Done);
        }
        match origin {
            Origin::Claim(key) => {
                let Some(claim) = self.claims.get(key) else {
                    return Ok(Outcome::Done);
                };
                let free = self.take_off(origin, &*claim, CLONE_PROTECTION).await?;
                if let Some(free) = free {
                    self.claims.absorb(free);
                }
            }
            Origin::Snapshot(key) => {
                if let Some(snapshot) = self.cluster.get::<VolumeSnapshot>(key).await? {
                    self.take_off(origin, &snapshot, SNAPSHOT_SOURCE_PROTECTION)
                        .await?;
                }
            }
        }
        Ok(Outcome::Done)
    }

    async fn take_off<K: Kind>(
        &self,
        origin: &Origin,
        object: &K,
        finalizer: &str,
    ) -> Result<Option<K>, ApiError> {
        if !object.meta().has_finalizer(finalizer) {
            return Ok(None);
        }
        // The cache may be behind, and a claim be there that needs it.
        let namespace = origin.key().namespace.as_str();
        let namespace = (!self.across).then_some(namespace);
        let claims = self.cluster.list::<Claim>(namespace).await?;
        if claims
            .iter()
            .any(|c| source::needed(c).as_ref() == Some(origin))
        {
            return Ok(None);
        }
        info!(%origin, "no volume is made from it any more");
        insist(&self.cluster, object, |now: &K| {
            without_finalizer(now, finalizer)
        })
        .await
    }

    /// Looks at all snapshots now and then: a provisioner that died may have left its
    /// finalizer on one that nobody restores any more.
    pub(super) async fn sweep(&self, every: Duration, wake: &Queue<Origin>) {
        if every.is_zero() {
            return std::future::pending().await;
        }
        loop {
            match self.cluster.list::<VolumeSnapshot>(None).await {
                Ok(all) => {
                    let kept = all
                        .iter()
                        .filter(|s| s.metadata.has_finalizer(SNAPSHOT_SOURCE_PROTECTION));
                    kept.for_each(|s| wake.add(Origin::Snapshot(s.key())));
                }
                // Snapshots aren't installed, or not for us.
                Err(error) if error.is_not_found() || error.is_forbidden() => {
                    debug!(error = error.chain(), "no snapshots to look at");
                }
                Err(error) => warn!(error = error.chain(), "could not look at snapshots"),
            }
            // No event tells of a finalizer whose owner died.
            sleep(every).await;
        }
    }
}

/// Wakes sources up when a claim stops needing them, and claims when their source is bound.
pub(super) fn feed(
    process: &Process,
    needed: Index<Claim>,
    claims: &Queue<orlop_model::Key>,
    sources: &Queue<Origin>,
) {
    let (wake, wake_claim) = (sources.clone(), claims.clone());
    process.cache::<Claim>().subscribe(move |change| {
        let (before, now) = match change {
            Change::Applied { old, new } => {
                let bound = |claim: &Claim| claim.phase() == orlop_model::ClaimPhase::Bound;
                if bound(new) && !old.is_some_and(|old| bound(old)) {
                    let origin = Origin::Claim(Kind::key(&***new)).to_string();
                    let waiting = needed.get(&origin);
                    waiting.iter().for_each(|claim| wake_claim.add(claim.key()));
                }
                // The claim that it was put on for may have gone while it was: then nothing else
                // tells of it.
                let kept = |claim: &Claim| claim.metadata.has_finalizer(CLONE_PROTECTION);
                if kept(new) && !old.is_some_and(|old| kept(old)) {
                    wake.add(Origin::Claim(Kind::key(&***new)));
                }
                (old.and_then(|old| source::needed(old)), source::needed(new))
            }
            Change::Deleted(claim) => (source::needed(claim), None),
        };
        if let Some(origin) = before.filter(|before| now.as_ref() != Some(before)) {
            wake.add(origin);
        }
    });
}
