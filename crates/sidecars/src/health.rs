//! Tells claims of what is wrong with their volumes, and with the nodes that use them.
//!
//! Owns no object: it asks the driver for the condition of its volumes from time to time, and
//! says what it hears in events on claims.
//!
//! Must never: change anything; say that a volume is well again which was not said to be ill.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use orlop_csi::{
    Driver, DriverInfo,
    client::ControllerCapability as Can,
    proto::{ControllerGetVolumeRequest, VolumeCondition},
};
use orlop_model::{Claim, Event, Key, Kind as _, Volume, VolumePhase};
use orlop_runtime::{Backoff, Cache, Process, Recorder};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::{listing, provisioner::introduce, words::words};

mod decide;
mod nodes;

use decide::{Told, decide, remembered};

/// Waits while a driver does not say who it is.
const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_secs(60),
};

/// How a monitor works.
#[derive(Debug, Clone)]
pub struct Config {
    /// How often the driver's volumes are listed, if it lists them.
    pub list_interval: Duration,
    /// How often they are asked for one by one, if it does not.
    pub get_interval: Duration,
    /// How many are asked for at once.
    pub workers: usize,
    /// Whether nodes are watched, too.
    pub nodes: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            list_interval: Duration::from_secs(300),
            get_interval: Duration::from_secs(60),
            workers: 10,
            nodes: false,
        }
    }
}

/// How conditions are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    List,
    Get,
}

impl Way {
    fn of(info: &DriverInfo) -> Option<Self> {
        if !info.can(Can::VolumeCondition) {
            None
        } else if info.can(Can::ListVolumes) {
            Some(Self::List)
        } else {
            info.can(Can::GetVolume).then_some(Self::Get)
        }
    }
}

/// Whether such a driver tells the condition of its volumes.
pub fn suits(info: &DriverInfo) -> bool {
    Way::of(info).is_some()
}

/// Starts the monitor of a driver. It waits for the driver to be ready.
pub fn start(process: &Process, driver: Driver, config: Config) {
    let on = process.clone();
    process.keep("health-monitor", move || {
        let (on, driver, config) = (on.clone(), driver.clone(), config.clone());
        async move {
            let info = introduce(&driver, RETRY).await;
            run(&on, driver, &info, config).await;
        }
    });
}

async fn run(process: &Process, driver: Driver, info: &Arc<DriverInfo>, config: Config) {
    let Some(way) = Way::of(info) else {
        info!(
            driver = info.name,
            "the driver tells no condition of volumes"
        );
        return;
    };
    info!(
        driver = info.name,
        version = info.version,
        "watching over volumes"
    );
    let component = format!("csi-pv-monitor-controller-{}", info.name);
    let recorder = process.recorder(&component);
    if config.nodes {
        nodes::start(process, &info.name, recorder.clone());
    }
    let mut round = Round {
        driver,
        name: info.name.clone(),
        way,
        workers: config.workers,
        volumes: process.cache(),
        claims: process.cache(),
        recorder,
        told: before(process, &component).await,
    };
    round.volumes.synced().await;
    round.claims.synced().await;
    let interval = match way {
        Way::List => config.list_interval,
        Way::Get => config.get_interval,
    };
    loop {
        round.go().await;
        // No event tells when a volume's condition changes.
        sleep(interval).await;
    }
}

/// What an earlier monitor said, of the events that are still there.
async fn before(process: &Process, component: &str) -> BTreeMap<String, Told> {
    match process.cluster.list::<Event>(None).await {
        Ok(events) => remembered(&events, component),
        Err(error) => {
            let error = error.chain();
            warn!(
                error,
                "earlier events can not be read; a recovery may go untold"
            );
            BTreeMap::new()
        }
    }
}

struct Round {
    driver: Driver,
    name: String,
    way: Way,
    workers: usize,
    volumes: Cache<Volume>,
    claims: Cache<Claim>,
    recorder: Recorder,
    /// What was last said of a claim, by its uid.
    told: BTreeMap<String, Told>,
}

impl Round {
    /// Asks for the condition of all volumes in use, and says what is new.
    async fn go(&mut self) {
        let held = self.held();
        let conditions = match self.way {
            Way::List => self.listed().await,
            Way::Get => self.asked(&held).await,
        };
        self.told
            .retain(|uid, _| held.iter().any(|(_, claim)| claim.metadata.uid == *uid));
        for (handle, claim) in held {
            let uid = &claim.metadata.uid;
            let Some(news) = decide(self.told.get(uid), conditions.get(&handle)) else {
                continue;
            };
            self.recorder
                .say(&*claim, news.type_, news.reason, news.message.clone());
            self.told.insert(uid.clone(), news.told());
        }
    }

    /// The driver's volumes that belong to a claim, by their handles.
    fn held(&self) -> Vec<(String, Arc<Claim>)> {
        let all = self.volumes.all();
        let held = all.iter().filter_map(|volume| {
            let csi = volume.spec.csi.as_ref()?;
            let claim = volume.spec.claim_ref.as_ref()?;
            if csi.driver != self.name || volume.phase() != VolumePhase::Bound {
                return None;
            }
            let found = self.claims.get(&claim.key())?;
            (found.metadata.uid == claim.uid).then(|| (csi.volume_handle.clone(), found))
        });
        held.collect()
    }

    async fn listed(&self) -> BTreeMap<String, VolumeCondition> {
        let entries = match listing::volumes(&self.driver, 0).await {
            Ok(entries) => entries,
            Err(error) => {
                warn!(error = %words(&error), "volumes are not listed; will ask again");
                return BTreeMap::new();
            }
        };
        let conditions = entries.into_iter().filter_map(|entry| {
            let condition = entry.status?.volume_condition?;
            Some((entry.volume?.volume_id, condition))
        });
        conditions.collect()
    }

    async fn asked(&self, held: &[(String, Arc<Claim>)]) -> BTreeMap<String, VolumeCondition> {
        let asked: Vec<_> = held
            .iter()
            .map(|(handle, claim)| condition(self.driver.clone(), handle.clone(), claim.key()))
            .collect();
        let answers = stream::iter(asked).buffer_unordered(self.workers);
        answers.filter_map(std::future::ready).collect().await
    }
}

/// The condition of one volume, if it is told.
async fn condition(
    driver: Driver,
    handle: String,
    claim: Key,
) -> Option<(String, VolumeCondition)> {
    let request = ControllerGetVolumeRequest {
        volume_id: handle.clone(),
    };
    match driver.controller_get_volume(request).await {
        Ok(reply) => Some((handle, reply.status?.volume_condition?)),
        Err(error) => {
            warn!(%claim, volume = handle, %error, "a volume's condition is not told");
            None
        }
    }
}
