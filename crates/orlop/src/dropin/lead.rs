//! Working only while leading, and telling so.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_model::Key;
use orlop_runtime::{Clock, Election, Metrics, Process, Renewal};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::settings::Running;
use crate::endpoint::Health;

/// How long a leader may be late with its renewal before it counts as sick; the originals'.
const TOLERANCE: Duration = Duration::from_secs(20);

/// How leading goes, as others may ask.
#[derive(Clone, Default)]
pub(crate) struct Standing {
    /// When the lease was last renewed, while leading.
    renewed: Arc<Mutex<Option<Instant>>>,
    status: Family<Name, Gauge>,
    slow: Family<Name, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: String,
}

impl Standing {
    /// As the registry shows it.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let standing = Self::default();
        metrics.registry().register(
            "leader_election_master_status",
            "Whether this process leads (1) or waits (0), by lease",
            standing.status.clone(),
        );
        // The registry adds `_total` to counters by itself.
        metrics.registry().register(
            "leader_election_slowpath",
            "Renewals of the lease that took another look at it, by lease",
            standing.slow.clone(),
        );
        standing
    }

    pub(crate) fn renewed(&self, lease: &Key, renewal: Renewal) {
        let name = Name {
            name: lease.name.clone(),
        };
        let slow = self.slow.get_or_create(&name);
        slow.inc_by(u64::from(renewal == Renewal::AfterALook));
        self.set(lease, Some(Instant::now()));
    }

    pub(crate) fn set(&self, lease: &Key, renewed: Option<Instant>) {
        let name = Name {
            name: lease.name.clone(),
        };
        self.status
            .get_or_create(&name)
            .set(i64::from(renewed.is_some()));
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
    }

    /// Whether a leader still renews its lease. Who doesn't lead is well.
    pub(crate) fn health(&self, duration: Duration) -> Health {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        match renewed {
            Some(at) if at.elapsed() > duration + TOLERANCE => {
                Health::Sick("failed election to renew leadership on lease".to_owned())
            }
            Some(_) | None => Health::Ok,
        }
    }
}

/// An election of this name, in the namespace that the originals choose.
pub(super) fn election(running: &Running, lease: &str, identity: String) -> Election {
    let namespace = running
        .namespace
        .clone()
        .or_else(|| std::env::var("POD_NAMESPACE").ok())
        .or_else(|| {
            std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace").ok()
        })
        .map(|namespace| namespace.trim().to_owned())
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| "default".to_owned());
    Election {
        duration: running.duration,
        renew_deadline: running.renew_deadline,
        retry: running.retry,
        labels: running.labels.clone(),
        ..Election::new(Key::namespaced(&namespace, lease), identity)
    }
}

/// Works until `stop`; with an election, only while leading. Who loses the lease stops at once,
/// and runs again with caches afresh.
pub(super) async fn lead(
    client: &kube::Client,
    metrics: &Metrics,
    election: Option<&Election>,
    standing: &Standing,
    start: impl Fn(&Process),
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let clock = Clock::system();
    loop {
        let process = Process::measured(client.clone(), clock, metrics.clone());
        let Some(election) = election else {
            info!("working without a lease: it is for others to see to it that nobody else does");
            start(&process);
            stop.await;
            process.kill();
            info!("stopped working");
            return;
        };
        standing.set(&election.lease, None);
        tokio::select! {
            () = election.win(&process.cluster, &clock) => {}
            () = &mut stop => return,
        }
        standing.renewed(&election.lease, Renewal::AtOnce);
        start(&process);
        let renewed = |renewal| standing.renewed(&election.lease, renewal);
        let lost = tokio::select! {
            lost = election.hold_telling(&process.cluster, &clock, renewed) => Some(lost),
            () = &mut stop => None,
        };
        process.kill();
        standing.set(&election.lease, None);
        match lost {
            Some(lost) => warn!(%lost, "stopped working; running for it again"),
            None => {
                let lease = &election.lease;
                match election.resign(&process.cluster).await {
                    Ok(()) => info!(%lease, "stopped working, and gave the lease up"),
                    Err(error) => warn!(
                        %lease,
                        error = error.chain(),
                        "the lease was not given up and runs out by itself"
                    ),
                }
                return;
            }
        }
    }
}
