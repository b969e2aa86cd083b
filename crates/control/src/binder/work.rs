//! The binder's shell: wakes, looks, asks `decide`, and carries the answer out.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use orlop_model::{
    Claim, CsiDriver, Key, Kind, Pod, ReclaimPolicy, StorageClass, Volume, matching, pod,
    well_known,
};
use orlop_runtime::{
    ApiError, Cache, Change, Clock, Cluster, EventType, Index, Outcome, Patch, Process, Queue,
    Recorder, work,
};

use super::{
    COMPONENT, Config, News,
    courtesy::Courtesy,
    index,
    mentions::{self, Mentions},
    metrics::BinderMetrics,
    recycle,
    write::{Half, Write},
};
use crate::turn;

mod claims;
mod recycling;
mod volumes;

use recycling::Recyclings;

/// How many objects are worked on at once.
const AT_ONCE: usize = 16;
/// How long a pod may wait for a node before its claims say so.
const PLACING: Duration = Duration::from_secs(5);

/// What needs a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Claim(Key),
    Volume(String),
    /// All claims that wait for something of this class: one look for a burst of changes.
    Class(String),
    /// Those of them that some free volume would do for.
    Shelf(String),
}

#[derive(Clone)]
struct Binder {
    config: Arc<Config>,
    cluster: Cluster,
    clock: Clock,
    recorder: Recorder,
    metrics: BinderMetrics,
    queue: Queue<Item>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    classes: Cache<StorageClass>,
    pods: Cache<Pod>,
    /// Only told of.
    drivers: Cache<CsiDriver>,
    claims_by_class: Index<Claim>,
    claims_by_volume: Index<Claim>,
    free_volumes: Index<Volume>,
    labelled_volumes: Index<Volume>,
    released_volumes: Index<Volume>,
    claimed_volumes: Index<Volume>,
    default_classes: Index<StorageClass>,
    pods_by_claim: Index<Pod>,
    /// Volumes that a turn under way is reserving. Only spares another turn the conflict.
    promised: Arc<Mutex<BTreeSet<String>>>,
    courtesy: Arc<Courtesy>,
    mentions: Arc<Mentions>,
    recyclings: Arc<Recyclings>,
}

/// Starts the binder.
pub fn start(process: &Process) {
    start_with(process, Config::default());
}

/// Starts the binder as told.
pub fn start_with(process: &Process, config: Config) {
    process.spawn("binder", Binder::new(process, config).run());
}

impl Binder {
    fn new(process: &Process, config: Config) -> Self {
        let claims = process.cache::<Claim>();
        let volumes = process.cache::<Volume>();
        let classes = process.cache::<StorageClass>();
        let pods = process.cache::<Pod>();
        Self {
            config: Arc::new(config),
            cluster: process.cluster.clone(),
            clock: process.clock,
            metrics: BinderMetrics::register(&process.metrics, volumes.clone(), claims.clone()),
            recorder: process.recorder(COMPONENT),
            queue: Queue::new(turn::backoff()),
            claims_by_class: claims.index("binder/waiting-class", index::waiting_class),
            claims_by_volume: claims.index("binder/named-volume", index::named_volume),
            free_volumes: volumes.index(matching::FREE, matching::free_shelf),
            labelled_volumes: volumes.index(matching::LABELLED, matching::labelled_shelves),
            released_volumes: volumes.index(matching::RELEASED, matching::released_shelf),
            claimed_volumes: volumes.index(matching::BY_CLAIMANT, matching::claimant),
            default_classes: classes.index("binder/default", index::default_mark),
            pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
            promised: Arc::default(),
            courtesy: Arc::default(),
            mentions: Arc::default(),
            recyclings: Arc::default(),
            drivers: process.cache(),
            claims,
            volumes,
            classes,
            pods,
        }
    }

    async fn run(self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.pods.synced().await;
        self.drivers.synced().await;
        self.subscribe();
        let queue = self.queue.clone();
        work(queue, AT_ONCE, |item| self.turn(item)).await;
    }

    fn subscribe(&self) {
        let binder = self.clone();
        self.claims
            .subscribe(move |change| binder.claim_changed(change));
        let binder = self.clone();
        self.volumes
            .subscribe(move |change| binder.volume_changed(change));
        let queue = self.queue.clone();
        self.classes.subscribe(move |change| {
            let class = change.object();
            queue.add(Item::Class(class.metadata.name.clone()));
            if class.is_default() {
                queue.add(Item::Class(index::UNSAID.to_owned()));
            }
        });
        let binder = self.clone();
        self.pods
            .subscribe(move |change| binder.pod_changed(change));
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.object();
        if let Some(volume) = recycle::volume_of(pod) {
            self.queue.add(Item::Volume(volume.to_owned()));
            self.wake_claims_of(volume);
        }
        let new = matches!(change, Change::Applied { old: None, .. });
        let over = matches!(change, Change::Deleted(_)) || pod.is_finished();
        for (_, key) in pod.claims() {
            let claim = self.claims.get(&key);
            let open = claim.is_some_and(|c| c.spec.volume_name.is_empty());
            if new && open && !pod.is_placed() {
                self.queue.add_after(Item::Claim(key.clone()), PLACING);
            }
            if over {
                self.wake_recycling(&key);
            }
        }
    }

    /// Wakes the claims that name a volume.
    fn wake_claims_of(&self, volume: &str) {
        for claim in self.claims_by_volume.get(volume) {
            self.queue.add(Item::Claim(claim.key()));
        }
    }

    /// A volume is not scrubbed before the last pod that may write to it is through.
    fn wake_recycling(&self, claim: &Key) {
        for volume in self.claimed_volumes.get(&claim.to_string()) {
            if volume.reclaim_policy() == ReclaimPolicy::Recycle {
                self.queue.add(Item::Volume(volume.metadata.name.clone()));
            }
        }
    }

    fn claim_changed(&self, change: &Change<'_, Claim>) {
        let claim = change.object();
        match change {
            Change::Applied { old, .. } => {
                let intent = |c: &Claim| c.metadata.has_finalizer(well_known::PROVISIONING);
                if intent(claim)
                    && !old.is_some_and(|old| intent(old))
                    && let Some(provisioner) = claim.provisioner()
                {
                    self.courtesy.took(provisioner);
                }
                self.queue.add(Item::Claim(claim.key()));
            }
            Change::Deleted(_) => {
                self.courtesy.over(&claim.key());
                self.mentions.over(&claim.key());
                self.metrics.claim_gone(&claim.key());
            }
        }
        if !claim.spec.volume_name.is_empty() {
            self.queue.add(Item::Volume(claim.spec.volume_name.clone()));
        }
        // Deleted, replaced by another of its name, or bound elsewhere: whoever waits for
        // this claim must see it.
        for volume in self.claimed_volumes.get(&claim.key().to_string()) {
            self.queue.add(Item::Volume(volume.metadata.name.clone()));
        }
    }

    fn volume_changed(&self, change: &Change<'_, Volume>) {
        let volume = change.object();
        let name = &volume.metadata.name;
        if let Some(owner) = &volume.spec.claim_ref {
            self.queue.add(Item::Claim(owner.key()));
        }
        self.wake_claims_of(name);
        let same = match change {
            Change::Applied { old, new } => old.is_some_and(|old| !mentions::is_another(old, new)),
            Change::Deleted(_) => false,
        };
        if !same {
            for claim in self.mentions.of(name) {
                self.queue.add(Item::Claim(claim));
            }
        }
        if let Change::Applied { old, .. } = change {
            if let (None, Some(csi)) = (old, &volume.spec.csi) {
                self.courtesy.made(&csi.driver);
            }
            self.queue.add(Item::Volume(name.clone()));
            if matching::is_offered_anew(old.map(|old| &**old), volume) {
                self.queue.add(Item::Shelf(volume.class().to_owned()));
            }
        } else {
            self.recyclings.forget(name);
            // A pod that scrubs it goes, too.
            self.queue.add(Item::Volume(name.clone()));
        }
        self.metrics.volume_changed(change);
    }

    async fn turn(&self, item: Item) -> Outcome {
        let result = match &item {
            Item::Claim(key) => self.claim_turn(key).await,
            Item::Volume(name) => self.volume_turn(name).await,
            Item::Class(name) => {
                for claim in self.claims_by_class.get(name) {
                    self.queue.add(Item::Claim(claim.key()));
                }
                Ok(Outcome::Done)
            }
            Item::Shelf(class) => {
                self.wake_for_volumes(class).await;
                Ok(Outcome::Done)
            }
        };
        result.unwrap_or_else(|error| {
            if let Some(refused) = error.told() {
                self.tell_refused(&item, &refused);
            }
            turn::retry(&error)
        })
    }

    /// Tells on an object what the API server does not let us write for it.
    fn tell_refused(&self, item: &Item, refused: &str) {
        let warning = EventType::Warning;
        match item {
            Item::Claim(key) => {
                if let Some(claim) = self.claims.get(key) {
                    self.recorder
                        .say(&*claim, warning, "FailedBinding", refused);
                }
            }
            Item::Volume(name) => {
                if let Some(volume) = self.volumes.get(&Key::cluster(name)) {
                    self.recorder
                        .say(&*volume, warning, "UpdateFailed", refused);
                }
            }
            Item::Class(_) | Item::Shelf(_) => {}
        }
    }

    /// Writes what was decided on the very version that was seen.
    async fn write<K: Kind>(
        &self,
        cache: &Cache<K>,
        seen: &K,
        write: Write,
    ) -> Result<Arc<K>, ApiError> {
        let patch = Patch::merge_on(seen, write.body);
        let answer: K = match write.half {
            Half::Main => self.cluster.patch(&seen.key(), &patch).await?,
            Half::Status => self.cluster.patch_status(&seen.key(), &patch).await?,
        };
        cache.absorb(answer.clone());
        Ok(Arc::new(answer))
    }

    fn say<K: Kind>(&self, about: &K, news: &News) {
        let type_ = if news.warning {
            EventType::Warning
        } else {
            EventType::Normal
        };
        self.recorder
            .say(about, type_, news.reason, news.message.as_str());
    }
}

#[cfg(test)]
mod tests;
