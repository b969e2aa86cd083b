//! Leader election on a Lease, as client-go does it.
//!
//! A lease gives no mutual exclusion: a paused leader may wake up after another took
//! over. So whoever leads sends nothing once its lease has not been renewed for as long as it
//! may try to; what was under way then does no harm as far as it names the version that it
//! was decided on.

use std::{collections::BTreeMap, time::Duration};

use jiff::SignedDuration;
use orlop_model::{Key, Lease, Meta, lease::LeaseSpec};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::{clock::Clock, cluster::Cluster, error::ApiError, patch::Patch};

/// An election: what is at stake, who runs, and how patient everybody is.
#[derive(Debug, Clone)]
pub struct Election {
    /// The lease.
    pub lease: Key,
    /// Who we are.
    pub identity: String,
    /// How long others wait for a silent leader.
    pub duration: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// How often everybody tries.
    pub retry: Duration,
    /// Labels for the lease.
    pub labels: BTreeMap<String, String>,
}

/// The lease could not be renewed in time; another may lead now.
#[derive(Debug, thiserror::Error)]
#[error("lost the lease {0}")]
pub struct LostLease(pub Key);

/// How a lease was renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// With one request, on what we had seen last.
    AtOnce,
    /// That was refused; it took another look.
    AfterALook,
}

/// The lease as last seen, and when that was by our own clock: others' clocks aren't trusted.
struct Seen {
    lease: Lease,
    at: Instant,
}

impl Seen {
    fn now(lease: Lease) -> Self {
        Self {
            lease,
            at: Instant::now(),
        }
    }
}

impl Election {
    /// Waits until we lead.
    pub async fn win(&self, cluster: &Cluster, clock: &Clock) {
        let mut seen: Option<Seen> = None;
        let mut told = None;
        loop {
            let begun = Instant::now();
            match self.attempt(cluster, clock, &mut seen).await {
                Ok(true) => {
                    cluster.leads_until(begun + self.renew_deadline);
                    info!(lease = %self.lease, identity = self.identity, "leading");
                    return;
                }
                Ok(false) => {
                    let holder = seen
                        .as_ref()
                        .and_then(|seen| seen.lease.spec.holder_identity.clone());
                    if told != holder {
                        info!(lease = %self.lease, holder, "another leads; waiting");
                        told = holder;
                    }
                }
                Err(error) => {
                    warn!(lease = %self.lease, error = error.chain(), "could not take the lease");
                }
            }
            sleep(self.retry).await;
        }
    }

    /// Keeps leading; returns when that is over.
    pub async fn hold(&self, cluster: &Cluster, clock: &Clock) -> LostLease {
        self.hold_telling(cluster, clock, |_| ()).await
    }

    /// Keeps leading, and tells of every renewal; returns when that is over.
    pub async fn hold_telling(
        &self,
        cluster: &Cluster,
        clock: &Clock,
        on_renewal: impl Fn(Renewal),
    ) -> LostLease {
        let lost = self.renew_until_lost(cluster, clock, on_renewal).await;
        cluster.leads_until(Instant::now());
        lost
    }

    async fn renew_until_lost(
        &self,
        cluster: &Cluster,
        clock: &Clock,
        on_renewal: impl Fn(Renewal),
    ) -> LostLease {
        let mut renewed = Instant::now();
        let mut seen = None;
        loop {
            sleep(self.retry).await;
            let begun = Instant::now();
            let left = (renewed + self.renew_deadline).saturating_duration_since(Instant::now());
            match timeout(left, self.renew(cluster, clock, &mut seen)).await {
                Ok(Ok(Some(renewal))) => {
                    renewed = Instant::now();
                    // Others count from when it was written, which may be as early as this.
                    cluster.leads_until(begun + self.renew_deadline);
                    on_renewal(renewal);
                }
                Ok(Ok(None)) => return LostLease(self.lease.clone()),
                Ok(Err(error)) => {
                    warn!(lease = %self.lease, error = error.chain(), "could not renew the lease");
                }
                Err(_) => {}
            }
            if renewed.elapsed() >= self.renew_deadline {
                return LostLease(self.lease.clone());
            }
        }
    }

    /// One try of a leader; `None` if another leads.
    async fn renew(
        &self,
        cluster: &Cluster,
        clock: &Clock,
        seen: &mut Option<Seen>,
    ) -> Result<Option<Renewal>, ApiError> {
        let ours = |lease: &Lease| lease.spec.holder_identity.as_deref() == Some(&self.identity);
        let Some(held) = seen.take_if(|seen| ours(&seen.lease)) else {
            let leads = self.attempt(cluster, clock, seen).await?;
            return Ok(leads.then_some(Renewal::AtOnce));
        };
        // Nobody else writes to a lease that is held, most of the time.
        match self.take(cluster, clock, &held.lease).await {
            Ok(lease) => {
                *seen = Some(Seen::now(lease));
                Ok(Some(Renewal::AtOnce))
            }
            Err(_) => {
                let leads = self.attempt(cluster, clock, seen).await?;
                Ok(leads.then_some(Renewal::AfterALook))
            }
        }
    }

    /// One try; says whether we lead.
    async fn attempt(
        &self,
        cluster: &Cluster,
        clock: &Clock,
        seen: &mut Option<Seen>,
    ) -> Result<bool, ApiError> {
        let now = clock.now();
        let Some(found) = cluster.get::<Lease>(&self.lease).await? else {
            let spec = LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
                acquire_time: Some(now),
                renew_time: Some(now),
                lease_transitions: Some(0),
            };
            let lease = Lease {
                metadata: Meta {
                    labels: self.labels.clone(),
                    ..Meta::named(&self.lease)
                },
                spec,
            };
            return match cluster.create(&lease).await {
                Ok(lease) => {
                    *seen = Some(Seen::now(lease));
                    Ok(true)
                }
                Err(error) if error.is_already_exists() => Ok(false),
                Err(error) => Err(error),
            };
        };
        if seen.as_ref().is_none_or(|s| s.lease.spec != found.spec) {
            *seen = Some(Seen::now(found.clone()));
        }
        let ours = found.spec.holder_identity.as_deref() == Some(&self.identity);
        let free = found
            .spec
            .holder_identity
            .as_deref()
            .is_none_or(str::is_empty);
        let silent = seen
            .as_ref()
            .is_some_and(|s| s.at.elapsed() >= self.duration);
        if !(ours || free || silent) {
            return Ok(false);
        }
        match self.take(cluster, clock, &found).await {
            Ok(lease) => {
                *seen = Some(Seen::now(lease));
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes or renews the lease, if it is still as it was found.
    async fn take(
        &self,
        cluster: &Cluster,
        clock: &Clock,
        found: &Lease,
    ) -> Result<Lease, ApiError> {
        let now = clock.now();
        let ours = found.spec.holder_identity.as_deref() == Some(&self.identity);
        let mut spec = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.duration.as_secs(),
            "renewTime": format!("{now:.6}"),
        });
        if !ours {
            spec["acquireTime"] = json!(format!("{now:.6}"));
            spec["leaseTransitions"] = json!(found.spec.lease_transitions.unwrap_or(0) + 1);
        }
        let mut change = json!({"spec": spec});
        if !ours && !self.labels.is_empty() {
            change["metadata"]["labels"] = json!(self.labels);
        }
        let patch = Patch::merge_on(found, change);
        cluster.patch::<Lease>(&self.lease, &patch).await
    }

    /// Gives the lease up, so that another need not wait for it to run out.
    ///
    /// # Errors
    /// Any failure; the lease then runs out by itself.
    pub async fn resign(&self, cluster: &Cluster) -> Result<(), ApiError> {
        let Some(found) = cluster.get::<Lease>(&self.lease).await? else {
            return Ok(());
        };
        if found.spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        let patch = Patch::merge_on(
            &found,
            json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}),
        );
        cluster
            .patch::<Lease>(&self.lease, &patch)
            .await
            .map(|_| ())
    }

    /// The defaults of the Go sidecars: 15 s, 10 s, 5 s.
    pub fn new(lease: Key, identity: String) -> Self {
        Self {
            lease,
            identity,
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(5),
            labels: BTreeMap::new(),
        }
    }

    /// How long a takeover can take at most.
    pub fn patience(&self) -> SignedDuration {
        SignedDuration::try_from(self.duration + self.retry).unwrap_or(SignedDuration::MAX)
    }
}
