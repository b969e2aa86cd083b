//! The binder's shell: wakes, looks, asks `decide`, and carries the answer out.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use orlop_model::{
    Claim, Key, Kind, Pod, StorageClass, Volume, VolumePhase, class, matching, pod, well_known,
};
use orlop_runtime::{
    ApiError, Cache, Change, Cluster, EventType, Index, Outcome, Patch, Process, Queue, Recorder,
    work,
};
use tracing::debug;

use super::{
    COMPONENT, News, claim,
    courtesy::{Courtesy, Wait},
    index, volume,
    write::{Half, Party, Write},
};
use crate::{Evidence, turn};

/// How many objects are worked on at once.
const AT_ONCE: usize = 16;

/// What needs a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Claim(Key),
    Volume(String),
    /// All claims that wait for something of this class: one look for a burst of changes.
    Class(String),
}

#[derive(Clone)]
struct Binder {
    cluster: Cluster,
    recorder: Recorder,
    queue: Queue<Item>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    classes: Cache<StorageClass>,
    pods: Cache<Pod>,
    claims_by_class: Index<Claim>,
    claims_by_volume: Index<Claim>,
    free_volumes: Index<Volume>,
    claimed_volumes: Index<Volume>,
    default_classes: Index<StorageClass>,
    pods_by_claim: Index<Pod>,
    /// Volumes that a turn under way is reserving. Only spares another turn the conflict.
    promised: Arc<Mutex<BTreeSet<String>>>,
    courtesy: Arc<Courtesy>,
}

/// Starts the binder.
pub fn start(process: &Process) {
    let claims = process.cache::<Claim>();
    let volumes = process.cache::<Volume>();
    let classes = process.cache::<StorageClass>();
    let pods = process.cache::<Pod>();
    let binder = Binder {
        cluster: process.cluster.clone(),
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        claims_by_class: claims.index("binder/waiting-class", index::waiting_class),
        claims_by_volume: claims.index("binder/named-volume", index::named_volume),
        free_volumes: volumes.index(matching::FREE, matching::free_shelf),
        claimed_volumes: volumes.index(matching::BY_CLAIMANT, matching::claimant),
        default_classes: classes.index("binder/default", index::default_mark),
        pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
        promised: Arc::default(),
        courtesy: Arc::default(),
        claims,
        volumes,
        classes,
        pods,
    };
    process.spawn("binder", binder.run());
}

impl Binder {
    async fn run(self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.pods.synced().await;
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
            Change::Deleted(_) => self.courtesy.over(&claim.key()),
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
        for claim in self.claims_by_volume.get(name) {
            self.queue.add(Item::Claim(claim.key()));
        }
        if let Change::Applied { old, .. } = change {
            if let (None, Some(csi)) = (old, &volume.spec.csi) {
                self.courtesy.made(&csi.driver);
            }
            self.queue.add(Item::Volume(name.clone()));
            let free =
                |v: &Volume| v.spec.claim_ref.is_none() && v.phase() == VolumePhase::Available;
            let changed = old.is_none_or(|o| !free(o) || o.spec != volume.spec);
            if free(volume) && changed {
                self.queue.add(Item::Class(volume.class().to_owned()));
            }
        }
    }

    async fn turn(&self, item: Item) -> Outcome {
        let result = match &item {
            Item::Claim(key) => self.claim_turn(key).await,
            Item::Volume(name) => self.volume_turn(name).await.map(|()| Outcome::Done),
            Item::Class(name) => {
                for claim in self.claims_by_class.get(name) {
                    self.queue.add(Item::Claim(claim.key()));
                }
                Ok(Outcome::Done)
            }
        };
        result.unwrap_or_else(|error| turn::retry(&error))
    }

    async fn claim_turn(&self, key: &Key) -> Result<Outcome, ApiError> {
        let Some(claim) = self.claims.get(key) else {
            self.courtesy.over(key);
            return Ok(Outcome::Done);
        };
        let named = self.volumes.named(&claim.spec.volume_name);
        let mut view = self.claim_view(claim, named, Evidence::Cached);
        let mut decision = claim::decide(&view);
        if decision.needs_live_evidence() {
            let Some(claim) = self.cluster.get::<Claim>(key).await? else {
                return Ok(Outcome::Done);
            };
            let named = Key::cluster(claim.spec.volume_name.as_str());
            let named = match named.name.as_str() {
                "" => None,
                _ => self.cluster.get::<Volume>(&named).await?.map(Arc::new),
            };
            view = self.claim_view(Arc::new(claim), named, Evidence::Live);
            decision = claim::decide(&view);
        }
        debug!(claim = %key, because = ?decision.because, steps = ?decision.steps, "decided");
        let outcome = self.wait(key, &mut decision);
        if outcome == Outcome::Done
            && let Some(news) = decision.because.news()
        {
            self.say(&*view.claim, &news);
        }
        let _promise = self.promise(&decision);
        let mut claim = view.claim;
        let mut volume = decision.volume;
        for step in &decision.steps {
            let Some(write) = step.write(&claim, volume.as_deref()) else {
                continue;
            };
            match (write.of, &volume) {
                (Party::Claim, _) => claim = self.write(&self.claims, &*claim, write).await?,
                (Party::Volume, Some(seen)) => {
                    volume = Some(self.write(&self.volumes, &**seen, write).await?);
                }
                (Party::Volume, None) => {}
            }
        }
        Ok(outcome)
    }

    /// Leaves out what a provisioner is given a moment for; answers with when to look again.
    fn wait(&self, key: &Key, decision: &mut claim::Decision) -> Outcome {
        let claim::Because::Provisioning(provisioner) = &decision.because else {
            self.courtesy.over(key);
            return Outcome::Done;
        };
        match self.courtesy.waits(key, provisioner) {
            Wait::Late => Outcome::Done,
            Wait::Quiet { rest, ask } => {
                let asks = |step: &claim::Step| matches!(step, claim::Step::AskProvisioner(_));
                decision.steps.retain(|step| ask || !asks(step));
                Outcome::After(rest)
            }
        }
    }

    fn claim_view(
        &self,
        claim: Arc<Claim>,
        named: Option<Arc<Volume>>,
        evidence: Evidence,
    ) -> claim::View {
        let key = claim.key().to_string();
        let open = claim.spec.volume_name.is_empty() && !claim.bind_completed();
        let class = claim.class().and_then(|name| self.classes.named(name));
        let (mut candidates, mut unplaced_pods) = (Vec::new(), Vec::new());
        if open {
            candidates = self.claimed_volumes.get(&key);
            // For a late claim it is the scheduler who looks among the free ones.
            if class.as_ref().is_none_or(|c| !c.waits_for_consumer()) {
                candidates.extend(self.best_free(&claim));
            }
            let pods = self.pods_by_claim.get(&key);
            let waiting = pods.iter().filter(|p| !p.is_placed() && !p.is_finished());
            unplaced_pods = waiting.map(|p| p.metadata.name.clone()).collect();
        }
        let defaults = self.default_classes.get("");
        let default = class::default_class(defaults.iter().map(|c| &**c));
        let default_name = default.map(|c| c.metadata.name.clone());
        claim::View {
            named,
            candidates,
            class,
            default_class: default_name.and_then(|name| self.classes.named(&name)),
            unplaced_pods,
            evidence,
            claim,
        }
    }

    /// The best of the free volumes that nobody was promised: the first that will do, since
    /// they stand in the order of preference.
    fn best_free(&self, claim: &Claim) -> Option<Arc<Volume>> {
        let promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        matching::stretches(claim).find_map(|(from, prefix)| {
            self.free_volumes.scan(&from, &prefix, |volume| {
                let (place, timing) = (matching::Place::Anywhere, matching::Timing::Now);
                let fits = !promised.contains(&volume.metadata.name)
                    && matching::best(claim, [&**volume], place, timing).is_some();
                match fits {
                    true => ControlFlow::Break(volume.clone()),
                    false => ControlFlow::Continue(()),
                }
            })
        })
    }

    fn promise(&self, decision: &claim::Decision) -> Option<Promise> {
        let volume = decision.volume.as_ref()?;
        if !decision.steps.contains(&claim::Step::ReserveVolume) {
            return None;
        }
        let name = volume.metadata.name.clone();
        let promised = self.promised.clone();
        promised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone());
        Some(Promise { promised, name })
    }

    async fn volume_turn(&self, name: &str) -> Result<(), ApiError> {
        let Some(volume) = self.volumes.named(name) else {
            return Ok(());
        };
        let named = volume.spec.claim_ref.clone().unwrap_or_default();
        let owner = self.claims.get(&named.key());
        let mut view = volume::View {
            owner: owner.filter(|c| c.metadata.uid == named.uid),
            volume,
            evidence: Evidence::Cached,
        };
        let mut decision = volume::decide(&view);
        if decision.needs_live_evidence() {
            let owner = match self.claims.saw_end_of(&named.uid) {
                true => None,
                false => self.cluster.get::<Claim>(&named.key()).await?,
            };
            view.owner = owner.filter(|c| c.metadata.uid == named.uid).map(Arc::new);
            view.evidence = Evidence::Live;
            decision = volume::decide(&view);
        }
        debug!(volume = name, because = ?decision.because, steps = ?decision.steps, "decided");
        if decision.because == volume::Because::WrongMode {
            self.say_wrong_mode(&view);
        }
        for step in &decision.steps {
            if let volume::Step::MarkFailed(news) = step {
                self.say(&*view.volume, news);
            }
            match step.write() {
                Some(write) => {
                    view.volume = self.write(&self.volumes, &*view.volume, write).await?
                }
                None => self.queue.add(Item::Claim(named.key())),
            }
        }
        Ok(())
    }

    fn say_wrong_mode(&self, view: &volume::View) {
        let Some(claim) = &view.owner else { return };
        let (volume, name) = (&view.volume, &claim.metadata.name);
        let message = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{name}\" due to \
             incompatible volumeMode."
        );
        self.say(&**volume, &News::warning("VolumeMismatch", message));
        let message = format!(
            "Cannot bind PersistentVolume \"{}\" to requested PersistentVolumeClaim due to \
             incompatible volumeMode.",
            volume.metadata.name
        );
        self.say(&**claim, &News::warning("VolumeMismatch", message));
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

/// Holds a volume promised until the turn is over, however it ends.
struct Promise {
    promised: Arc<Mutex<BTreeSet<String>>>,
    name: String,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.promised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.name);
    }
}
