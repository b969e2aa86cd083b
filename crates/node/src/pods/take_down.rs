//! Takes a pod down once nothing of it runs: volumes, folder, object.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use orlop_host::MountTable;
use orlop_model::{Kind as _, Pod};
use orlop_runtime::{EventType, Outcome, Preconditions};
use tracing::{info, warn};

use super::decide::{Then, View, VolumesNow};
use super::leaving::{Kept, Leaving, SAID_AFTER};
use super::record::Place;
use super::{Pods, until};
use crate::layout::PodUid;
use crate::runner::ContainerId;
use crate::volumes::DeviceKey;
use crate::words::chain;
use crate::workers::Errand;

impl Pods {
    pub(super) async fn release(&self, uid: &PodUid, pod: Option<&Pod>) -> Option<Outcome> {
        if let Err(kept) = self.let_go(uid).await {
            return Some(self.keeps(uid, pod, kept));
        }
        self.parts.volumes.release(uid);
        // What containers shared holds no volume. Of a pod that goes it is ended with its removal, so
        // that its volumes, which others may wait for, are not kept waiting by it.
        let stays = pod.is_some_and(|pod| !pod.metadata.is_deleting());
        if stays && let Err(error) = self.parts.runner.stop_pod(uid).await {
            return Some(self.keeps(uid, pod, Kept::Running(chain(&error))));
        }
        let down = tokio::select! {
            down = self.tear_down(uid) => down,
            never = self.tell_of_drivers(uid, pod) => match never {},
        };
        if let Err(error) = down {
            return Some(self.keeps(uid, pod, Kept::Mounted(error)));
        }
        if let Some(record) = self.records().get_mut(uid) {
            record.released = true;
            record.leaving = Leaving::default();
            record.volumes_ready = false;
            record.renew.clear();
            record.stale.clear();
        }
        self.parts.sources.release(uid);
        None
    }

    /// Something failed that is tried again: tells the log, and the pod if it lasts.
    fn keeps(&self, uid: &PodUid, pod: Option<&Pod>, kept: Kept) -> Outcome {
        warn!(pod_uid = %uid, reason = kept.reason(), "{}", kept.words());
        self.tell_kept(uid, pod, kept);
        Outcome::Retry
    }

    fn tell_kept(&self, uid: &PodUid, pod: Option<&Pod>, kept: Kept) {
        let now = self.parts.clock.now();
        let news = match self.records().get_mut(uid) {
            Some(record) => record.leaving.hear(kept, now),
            None => None,
        };
        if let (Some(pod), Some(kept)) = (pod, news) {
            let (warning, reason) = (EventType::Warning, kept.reason());
            self.parts.recorder.say(pod, warning, reason, kept.words());
        }
    }

    /// While volumes are taken away: tells the pod which driver is long at what.
    async fn tell_of_drivers(&self, uid: &PodUid, pod: Option<&Pod>) -> Infallible {
        let mut said = BTreeMap::new();
        loop {
            tokio::time::sleep(SAID_AFTER.unsigned_abs()).await;
            let doing = self.parts.flex.doing(uid);
            if doing == said {
                continue;
            }
            let each = doing.iter();
            let each = each.map(|(name, doing)| format!("volume {name:?}: {}", doing.words()));
            let words = each.collect::<Vec<_>>().join("; ");
            if let (Some(pod), false) = (pod, words.is_empty()) {
                let kept = Kept::Mounted(words);
                let (warning, reason) = (EventType::Warning, kept.reason());
                self.parts.recorder.say(pod, warning, reason, kept.words());
            }
            said = doing;
        }
    }

    /// Nothing is to be done; but a pod whose volumes are not taken away in time is told why.
    pub(super) fn rest(&self, uid: &PodUid, pod: Option<&Pod>, view: &View) -> Outcome {
        if view.volumes != VolumesNow::Releasing {
            return Outcome::Done;
        }
        let left = self.parts.volumes.left_of(uid);
        let called = |key: &DeviceKey| {
            let records = self.records();
            let mut places = records.get(uid)?.places.iter();
            places.find_map(|(name, place)| match place {
                Place::Csi { key: of, .. } if of == key => Some(name.clone()),
                Place::Csi { .. } | Place::At(_) => None,
            })
        };
        let volumes = left.into_iter().map(|left| {
            let name = called(&left.key).unwrap_or(left.volume);
            (name, left.why)
        });
        self.tell_kept(uid, pod, Kept::Volumes(volumes.collect()));
        let records = self.records();
        let say_at = records.get(uid).and_then(|record| record.leaving.say_at());
        match say_at.filter(|at| *at > view.now) {
            Some(at) => Outcome::After(until(view.now, at)),
            None => Outcome::Done,
        }
    }

    /// Ends what holds on to the pod's volumes beside its containers.
    async fn let_go(&self, uid: &PodUid) -> Result<(), Kept> {
        let ended = self.parts.runner.end_pod(uid).await;
        ended.map_err(|error| Kept::Running(chain(&error)))?;
        if !self.parts.layout.subpaths(uid).exists() {
            return Ok(());
        }
        let (layout, pod) = (self.parts.layout.clone(), uid.clone());
        let work = move || crate::subpaths::clear(&layout, &pod);
        let doing = "take parts of volumes away";
        let done = self.parts.for_pods.run(uid, doing, work).await;
        let done = done.map_err(|hung| Kept::Mounted(hung.to_string()))?;
        done.map_err(|error| Kept::Mounted(chain(&error)))
    }

    /// On a thread of its own, since a full volume takes its time.
    async fn tear_down(&self, uid: &PodUid) -> Result<(), String> {
        // A driver that keeps one volume keeps no other.
        let (flex, others) = tokio::join!(self.tear_down_flex(uid), self.tear_down_others(uid));
        match (flex, others) {
            (Err(flex), Err(others)) => Err(format!("{flex}; {others}")),
            (flex, others) => flex.and(others),
        }
    }

    async fn tear_down_flex(&self, uid: &PodUid) -> Result<(), String> {
        if !self.parts.flex.any_set_up(uid) {
            return Ok(());
        }
        let done = self.parts.flex.tear_down(uid).await;
        done.map_err(|error| chain(&error))
    }

    async fn tear_down_others(&self, uid: &PodUid) -> Result<(), String> {
        if !crate::plugins::any_set_up(&self.parts.layout, uid) {
            return Ok(());
        }
        let (layout, pod) = (self.parts.layout.clone(), uid.clone());
        let work = move || crate::plugins::tear_down(&layout, &pod);
        let doing = "take the pod's volumes away";
        match self.parts.for_pods.run(uid, doing, work).await {
            Ok(done) => done.map_err(|error| chain(&error)),
            Err(hung) => Err(hung.to_string()),
        }
    }

    /// The folder is all but empty by now: volumes and containers are gone, as far as they are
    /// on record.
    async fn remove_folder(&self, uid: &PodUid) -> Result<(), String> {
        let folder = self.parts.layout.pod(uid);
        let table = MountTable::read().map_err(|error| error.to_string())?;
        if table.beneath(&folder).next().is_none() {
            // All of it is the node's own.
            return orlop_host::remove_tree_one_fs(&folder).map_err(|error| chain(&error));
        }
        let (queue, again) = (self.parts.queue.clone(), uid.clone());
        let errand = Errand {
            volume: folder.to_string_lossy().into_owned(),
            doing: "remove the pod's folder",
            patience: self.parts.patience,
            pulse: None,
            back: Box::new(move || queue.add(again)),
        };
        let removed = self.parts.workers.run(errand, move || clear(&folder)).await;
        removed.map_err(|hung| hung.to_string())?
    }

    /// Removes what is left of a pod, and the pod itself once nothing is left.
    pub(super) async fn remove(&self, uid: &PodUid, pod: Option<&Pod>, then: Then) -> Outcome {
        // Its last status first: whoever watches the pod sees how it ended.
        if self.report(uid, Outcome::Done).await == Outcome::Retry {
            return Outcome::Retry;
        }
        let known = match self.parts.runner.attempts(uid).await {
            Ok(known) => known,
            Err(error) => return self.keeps(uid, pod, Kept::Running(chain(&error))),
        };
        for (container, attempts) in known {
            for attempt in attempts {
                let id = ContainerId {
                    pod: uid.clone(),
                    container: container.clone(),
                    attempt,
                };
                if let Err(error) = self.parts.runner.remove(&id).await {
                    return self.keeps(uid, pod, Kept::Running(chain(&error)));
                }
            }
        }
        if let Err(error) = self.parts.runner.remove_pod(uid).await {
            return self.keeps(uid, pod, Kept::Running(chain(&error)));
        }
        if let Err(error) = self.remove_folder(uid).await {
            return self.keeps(uid, pod, Kept::Folder(error));
        }
        if let (Some(pod), Then::RemoveAndDelete) = (pod, then) {
            let only_if = Preconditions {
                grace_period_seconds: Some(0),
                ..Preconditions::same_object(pod)
            };
            match self.parts.cluster.delete::<Pod>(&pod.key(), &only_if).await {
                Ok(()) => {}
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    warn!(pod = %pod.key(), error = error.chain(), "could not delete a pod for good");
                    return Outcome::Retry;
                }
            }
        }
        self.records().remove(uid);
        info!(pod_uid = %uid, "pod left the node");
        Outcome::Done
    }
}

/// Removes a dead pod's folder. Mounts in it that nobody knows of serve nobody any more: they are
/// unmounted, the topmost first and never lazily, and nothing is removed across one that stays.
fn clear(folder: &Path) -> Result<(), String> {
    let failed = |point: &Path, error: std::io::Error| {
        format!("could not unmount {}: {error}", point.display())
    };
    let table = MountTable::read().map_err(|error| error.to_string())?;
    let left: Vec<_> = table
        .beneath(folder)
        .map(|mount| mount.point.clone())
        .collect();
    let mut stays = None;
    for point in left.iter().rev() {
        let place = orlop_host::Place::at(point);
        match place.and_then(|place| orlop_host::mount::unmount(&place)) {
            Ok(()) => warn!(path = %point.display(), "unmounted what a pod had left behind"),
            Err(error) => stays = stays.or(Some(failed(point, error))),
        }
    }
    if let Some(stays) = stays {
        return Err(stays);
    }
    orlop_host::remove_tree_one_fs(folder).map_err(|error| chain(&error))
}
