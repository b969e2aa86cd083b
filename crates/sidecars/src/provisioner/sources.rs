//! Reads what volumes are filled from, and keeps it while that goes on.
//!
//! Claim or snapshot get a finalizer before the driver is asked, and lose it when no claim
//! needs them any more: found by the claims' own changes, and for what a crash left behind
//! by a look at all snapshots now and then. One that is being deleted waits only for calls
//! whose outcome isn't known, and tells for whose: a claim that has not begun could not use it
//! any more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::Duration,
};

use orlop_model::{
    Claim, Kind, ReferenceGrant, Volume, VolumeSnapshot, VolumeSnapshotContent,
    well_known::{CLONE_PROTECTION, PROVISIONING, SNAPSHOT_SOURCE_PROTECTION},
};
use orlop_runtime::{
    ApiError, Cache, Change, Cluster, EventType, Index, Outcome, Process, Queue, Recorder,
    with_finalizer, without_finalizer,
};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::source::{self, Content, ModeGuard, Origin, Source, SourceError, Wish};
use crate::{insist::insist, patience::UNTOLD, served::until_served};

/// How soon a source is looked at again that a claim is about to begin with.
const SOON: Duration = Duration::from_secs(1);

/// How often it is told again for whom a source waits.
const REMINDER: Duration = Duration::from_secs(300);

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
    pub(super) recorder: Recorder,
    /// Sources that may be free now.
    pub(super) wake: Queue<Origin>,
    pub(super) beginnings: Beginnings,
}

/// Sources that claims are about to begin with: they were looked at, and no intent is on record
/// yet. Only what is in none of these turns can be let go.
#[derive(Default)]
pub(super) struct Beginnings(Mutex<BTreeMap<Origin, usize>>);

impl Beginnings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Origin, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim is about to begin with its source, as long as this lives.
pub(super) struct Beginning<'a> {
    all: &'a Beginnings,
    origin: Option<Origin>,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        let Some(origin) = &self.origin else { return };
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(origin) {
            *count -= 1;
            if *count == 0 {
                all.remove(origin);
            }
        }
    }
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
    /// A claim is about to look at its source. To be held until its intent is on record.
    pub(super) fn begin(&self, claim: &Claim) -> Beginning<'_> {
        let origin = source::needed(claim);
        if let Some(origin) = &origin {
            let mut all = self.beginnings.lock();
            *all.entry(origin.clone()).or_default() += 1;
        }
        Beginning {
            all: &self.beginnings,
            origin,
        }
    }

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
                if Source::of(&found) == Source::Goes {
                    // Snapshots may not be watched.
                    self.wake.add(origin.clone());
                }
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
            if let Origin::Claim(key) = &origin
                && let Some(claim) = self.claims.get(key)
                && error.is_refused()
            {
                let text = format!(
                    "it is kept though no volume is made from it any more: the API server refuses \
                     it: {}",
                    error.chain()
                );
                let reason = "DeletionWaitsForCopy";
                self.recorder.say(&*claim, EventType::Warning, reason, text);
            }
            warn!(%origin, error = error.chain(), "will try again");
            Outcome::Retry
        })
    }

    async fn let_go(&self, origin: &Origin) -> Result<Outcome, ApiError> {
        match origin {
            Origin::Claim(key) => {
                let Some(claim) = self.claims.get(key) else {
                    return Ok(Outcome::Done);
                };
                let (outcome, free) = self.take_off(origin, &*claim, CLONE_PROTECTION).await?;
                if let Some(free) = free {
                    self.claims.absorb(free);
                }
                Ok(outcome)
            }
            Origin::Snapshot(key) => {
                let Some(snapshot) = self.cluster.get::<VolumeSnapshot>(key).await? else {
                    return Ok(Outcome::Done);
                };
                let finalizer = SNAPSHOT_SOURCE_PROTECTION;
                let (outcome, _) = self.take_off(origin, &snapshot, finalizer).await?;
                Ok(outcome)
            }
        }
    }

    /// The claims that need a source, by the cache.
    fn users(&self, origin: &Origin, source: Source) -> Vec<Arc<Claim>> {
        let mut users = self.needed.get(&origin.to_string());
        users.retain(|claim| source::needs(claim, origin, source));
        users
    }

    async fn take_off<K: Kind>(
        &self,
        origin: &Origin,
        object: &K,
        finalizer: &str,
    ) -> Result<(Outcome, Option<K>), ApiError> {
        let source = Source::of(object);
        if !object.meta().has_finalizer(finalizer) {
            return Ok((Outcome::Done, None));
        }
        if let Some(user) = self.users(origin, source).first() {
            return Ok((self.kept_for(object, user), None));
        }
        // Who begins after this sees what we have seen: that the source goes.
        if self.beginnings.lock().contains_key(origin) {
            return Ok((Outcome::After(SOON), None));
        }
        // The cache may be behind, and a claim be there that needs it.
        let namespace = origin.key().namespace.as_str();
        let namespace = (!self.across).then_some(namespace);
        let claims = self.cluster.list::<Claim>(namespace).await?;
        let user = claims.iter().find(|c| source::needs(c, origin, source));
        if let Some(user) = user {
            return Ok((self.kept_for(object, user), None));
        }
        info!(%origin, "no volume is made from it any more");
        let free = insist(&self.cluster, object, |now: &K| {
            // One that goes is free of those who only wish, one that stays is not.
            let same = Source::of(now) == source || source == Source::Stays;
            same.then(|| without_finalizer(now, finalizer))?
        })
        .await?;
        Ok((Outcome::Done, free))
    }

    /// Tells whoever wants to be rid of a source why it stays.
    fn kept_for<K: Kind>(&self, object: &K, user: &Claim) -> Outcome {
        if Source::of(object) == Source::Stays {
            return Outcome::Done;
        }
        let user = user.key();
        let text = format!(
            "it is deleted when the volume of claim {user} is made, which is filled from it, or \
             is known not to be: the driver may be copying it now. \"kubectl describe pvc {name} \
             -n {namespace}\" tells how far that is; if it is not wanted, delete that claim",
            name = user.name,
            namespace = user.namespace,
        );
        let reason = "DeletionWaitsForCopy";
        self.recorder.say(object, EventType::Normal, reason, text);
        Outcome::After(REMINDER)
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
                // tells of it. And it may be free once it is to be deleted.
                let kept = |claim: &Claim| {
                    let kept = claim.metadata.has_finalizer(CLONE_PROTECTION);
                    kept.then(|| Source::of(claim))
                };
                if kept(new).is_some() && old.and_then(|old| kept(old)) != kept(new) {
                    wake.add(Origin::Claim(Kind::key(&***new)));
                }
                let begun = |claim: &Claim| claim.metadata.has_finalizer(PROVISIONING);
                let before = old.and_then(|old| source::needed(old));
                if old.is_some_and(|old| begun(old)) && !begun(new) {
                    before
                        .clone()
                        .into_iter()
                        .for_each(|origin| wake.add(origin));
                }
                (before, source::needed(new))
            }
            Change::Deleted(claim) => (source::needed(claim), None),
        };
        if let Some(origin) = before.filter(|before| now.as_ref() != Some(before)) {
            wake.add(origin);
        }
    });
}
