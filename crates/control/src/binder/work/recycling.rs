//! Recycling's shell.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{Event, Kind, Pod, PodPhase, Volume, VolumePhase, well_known};
use orlop_runtime::{ApiError, Backoff, EventType, Outcome, Patch, Preconditions};
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info};

use super::Binder;
use crate::binder::{
    News,
    recycle::{self, Step, View},
    volume,
};

/// What is known of recyclings under way, so that one that failed isn't tried again at once, and
/// nothing is told twice. Lost in a crash: then it is tried once more.
#[derive(Default)]
pub(super) struct Recyclings(Mutex<BTreeMap<String, Recycling>>);

#[derive(Default)]
struct Recycling {
    failures: u32,
    rest_until: Option<Instant>,
    /// The pod that was last told of, and what.
    told: (String, BTreeSet<String>),
}

impl Recyclings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Recycling>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to rest before the next try.
    fn rest(&self, volume: &str) -> Option<Duration> {
        let until = self.lock().get(volume)?.rest_until?;
        let rest = until.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }

    fn failed(&self, volume: &str) {
        let mut all = self.lock();
        let one = all.entry(volume.to_owned()).or_default();
        one.failures += 1;
        one.rest_until = Some(Instant::now() + Backoff::default().after(one.failures));
    }

    /// Whether this was not told of the pod yet.
    fn is_news(&self, volume: &str, pod: &str, text: &str) -> bool {
        let mut all = self.lock();
        let (of, told) = &mut all.entry(volume.to_owned()).or_default().told;
        if of != pod {
            pod.clone_into(of);
            told.clear();
        }
        told.insert(text.to_owned())
    }

    /// All is well, or the volume is gone.
    pub(super) fn forget(&self, volume: &str) {
        self.lock().remove(volume);
    }
}

impl Binder {
    /// Takes the next step of a recycling. The caches said that the volume is to be scrubbed;
    /// what can't be taken back is done on the server's word.
    pub(super) async fn recycle(&self, seen: &Arc<Volume>) -> Result<Outcome, ApiError> {
        let name = &seen.metadata.name;
        let Some(live) = self.cluster.get::<Volume>(&seen.key()).await? else {
            return Ok(Outcome::Done);
        };
        let same = live.metadata.uid == seen.metadata.uid
            && live.spec.claim_ref == seen.spec.claim_ref
            && live.reclaim_policy() == seen.reclaim_policy();
        if !same {
            debug!(
                volume = name,
                "changed meanwhile; it will be looked at again"
            );
            return Ok(Outcome::Done);
        }
        let pod = self.pods.get(&recycle::pod_key(name));
        let view = View {
            users: self.users(&live),
            age: pod.as_ref().map_or(Duration::ZERO, |pod| self.age(pod)),
            rest: self.recyclings.rest(name),
            config: self.config.clone(),
            volume: Arc::new(live),
            pod,
        };
        let step = recycle::decide(&view);
        debug!(volume = name, ?step, "recycling");
        let View { volume, pod, .. } = view;
        if let Some(pod) = &pod
            && let Err(error) = self.pass_on(&volume, pod, &step).await
        {
            debug!(
                volume = name,
                error = error.chain(),
                "the pod's events can't be read"
            );
        }
        match step {
            Step::InUse(news) => self.say(&*volume, &news),
            Step::Rest(rest) | Step::Wait(rest) => return Ok(Outcome::After(rest)),
            Step::LetGo => {}
            Step::Scrub => self.scrub(&volume).await?,
            Step::OpenGate => self.open_gate(pod.as_deref()).await?,
            Step::Dismiss => self.dismiss(pod.as_deref()).await?,
            Step::Fail(news) => self.fail(&volume, &news).await?,
            Step::FailAndDelete(news) => {
                self.recyclings.failed(name);
                self.fail(&volume, &news).await?;
                self.dismiss(pod.as_deref()).await?;
            }
            Step::Done => {
                self.dismiss(pod.as_deref()).await?;
                self.say(&*volume, &News::normal("VolumeRecycled", "Volume recycled"));
                self.give_on(&volume).await?;
                self.recyclings.forget(name);
                info!(volume = name, "recycled");
            }
        }
        Ok(Outcome::Done)
    }

    /// Unfinished pods of the claim that is gone. If there is another claim of its name, they are
    /// that one's.
    fn users(&self, volume: &Volume) -> Vec<String> {
        let Some(claim) = &volume.spec.claim_ref else {
            return Vec::new();
        };
        if self.claims.get(&claim.key()).is_some() {
            return Vec::new();
        }
        let pods = self.pods_by_claim.get(&claim.key().to_string());
        let unfinished = pods.iter().filter(|pod| !pod.is_finished());
        unfinished.map(|pod| pod.key().to_string()).collect()
    }

    fn age(&self, pod: &Pod) -> Duration {
        let made = pod.metadata.creation_timestamp;
        let age = made.map(|made| self.clock.now().duration_since(made));
        age.and_then(|age| age.try_into().ok()).unwrap_or_default()
    }

    async fn scrub(&self, volume: &Volume) -> Result<(), ApiError> {
        let Some(body) = recycle::scrubber(volume, &self.config) else {
            return Ok(());
        };
        let pod: Pod = self.cluster.create_json(&body).await?;
        self.pods.absorb(pod.clone());
        let note = json!({"metadata": {"annotations": {well_known::RECYCLER: pod.metadata.uid}}});
        let noted: Volume = self
            .cluster
            .patch(&volume.key(), &Patch::merge_on(volume, note))
            .await?;
        self.volumes.absorb(noted);
        self.open_gate(Some(&pod)).await
    }

    async fn open_gate(&self, pod: Option<&Pod>) -> Result<(), ApiError> {
        let Some(pod) = pod else { return Ok(()) };
        let open = Patch::merge_on(pod, json!({"spec": {"schedulingGates": null}}));
        self.pods
            .absorb(self.cluster.patch(&pod.key(), &open).await?);
        Ok(())
    }

    /// Whether a volume may be emptied by a pod that is on record, or is at it.
    pub(super) fn may_be_emptied(&self, volume: &Volume) -> bool {
        let pod = self.pods.get(&recycle::pod_key(&volume.metadata.name));
        recycle::may_be_emptied(volume, pod.as_deref())
    }

    /// Ends the scrubbing of a volume that was taken back meanwhile. Nothing else is done for the
    /// volume until the pod has ended, which wakes it.
    pub(super) async fn end_scrubbing(&self, volume: &Volume) -> Result<(), ApiError> {
        let name = &volume.metadata.name;
        let pod = self.cluster.get::<Pod>(&recycle::pod_key(name)).await?;
        if let Some(pod) = pod {
            let at_work = recycle::is_at_work(&pod);
            if recycle::is_ours(&pod) && !pod.metadata.is_deleting() {
                info!(volume = name, "taken back; its recycler is ended");
                self.dismiss(Some(&pod)).await?;
            }
            if at_work {
                return Ok(());
            }
        }
        if volume.metadata.annotation(well_known::RECYCLER).is_some() {
            let forget = json!({"metadata": {"annotations": {well_known::RECYCLER: null}}});
            let patch = Patch::merge_on(volume, forget);
            let clean: Volume = self.cluster.patch(&volume.key(), &patch).await?;
            self.volumes.absorb(clean);
        }
        self.recyclings.forget(name);
        Ok(())
    }

    /// Deletes a pod that was made for a recycling that isn't, or is no more.
    pub(super) async fn dismiss_stray(&self, name: &str) -> Result<(), ApiError> {
        let volume = self.volumes.named(name);
        let pod = self.pods.get(&recycle::pod_key(name));
        let stray = pod.filter(|pod| recycle::is_stray(pod, volume.as_deref()));
        let stray = stray.filter(|pod| !pod.metadata.is_deleting());
        self.dismiss(stray.as_deref()).await
    }

    async fn dismiss(&self, pod: Option<&Pod>) -> Result<(), ApiError> {
        let Some(pod) = pod else { return Ok(()) };
        let only = Preconditions {
            // It has nothing to bring to an end: every moment that it goes on may cost somebody's data.
            grace_period_seconds: Some(1),
            ..Preconditions::same_object(pod)
        };
        match self.cluster.delete::<Pod>(&pod.key(), &only).await {
            // Another has its name by now: what was to be deleted is gone.
            Err(error) if error.is_conflict() => Ok(()),
            deleted => deleted,
        }
    }

    async fn fail(&self, volume: &Volume, news: &News) -> Result<(), ApiError> {
        if volume.phase() == VolumePhase::Failed && volume.status.message == news.message {
            return Ok(());
        }
        self.say(volume, news);
        let step = volume::Step::MarkFailed(news.clone());
        if let Some(write) = step.write() {
            self.write(&self.volumes, volume, write).await?;
        }
        Ok(())
    }

    /// The volume forgets its claim, and what scrubbed it.
    async fn give_on(&self, volume: &Arc<Volume>) -> Result<(), ApiError> {
        let forget = match volume.bound_by_controller() {
            true => volume::Forget::Everything,
            false => volume::Forget::Identity,
        };
        let mut volume = volume.clone();
        let available = volume::Step::Mark(VolumePhase::Available);
        for step in [volume::Step::Release(forget), available] {
            if let Some(write) = step.write() {
                volume = self.write(&self.volumes, &*volume, write).await?;
            }
        }
        Ok(())
    }

    /// Tells at the volume what was told at its pod, as far as the pod has come.
    async fn pass_on(&self, volume: &Volume, pod: &Pod, step: &Step) -> Result<(), ApiError> {
        if matches!(step, Step::Dismiss) {
            return Ok(());
        }
        let (name, uid) = (&volume.metadata.name, &pod.metadata.uid);
        let pass_on = |type_, message: &str| {
            let text = format!("Recycler pod: {message}");
            if self.recyclings.is_news(name, uid, &text) {
                self.recorder.say(volume, type_, "RecyclerPod", text);
            }
        };
        // Of a pod that waits for a node, the pod itself says all that its events do.
        if !pod.is_placed() && pod.phase() == PodPhase::Pending {
            if let Some(why) = recycle::why_unplaced(pod) {
                pass_on(EventType::Warning, why);
            }
            return Ok(());
        }
        let of = format!("involvedObject.uid={}", pod.metadata.uid);
        let namespace = Some(pod.metadata.namespace.as_str());
        let mut events = self.cluster.list_where::<Event>(namespace, &of).await?;
        events.sort_by_key(|event| event.first_timestamp);
        for event in events {
            let type_ = match event.type_.as_str() {
                "Warning" => EventType::Warning,
                _ => EventType::Normal,
            };
            pass_on(type_, &event.message);
        }
        Ok(())
    }
}
