//! Takes a pod down once nothing of it runs: volumes, folder, object.

use std::path::Path;

use orlop_host::{MountTable, Place};
use orlop_model::{Kind as _, Pod};
use orlop_runtime::{Outcome, Preconditions};
use tracing::{info, warn};

use super::Pods;
use super::decide::Then;
use crate::layout::PodUid;
use crate::runner::ContainerId;
use crate::words::chain;
use crate::workers::Errand;

impl Pods {
    pub(super) async fn release(&self, uid: &PodUid, pod: Option<&Pod>) -> Option<Outcome> {
        if let Err(error) = self.let_go(uid).await {
            warn!(pod_uid = %uid, error, "could not end all that a pod ran");
            return Some(Outcome::Retry);
        }
        self.parts.volumes.release(uid);
        // What containers shared holds no volume. Of a pod that goes it is ended with its removal, so
        // that its volumes, which others may wait for, are not kept waiting by it.
        let stays = pod.is_some_and(|pod| !pod.metadata.is_deleting());
        if stays && let Err(error) = self.parts.runner.stop_pod(uid).await {
            warn!(pod_uid = %uid, error = chain(&error), "could not stop a pod's sandbox");
            return Some(Outcome::Retry);
        }
        if let Err(error) = self.tear_down(uid).await {
            warn!(pod_uid = %uid, error, "could not take a pod's volumes away");
            return Some(Outcome::Retry);
        }
        if let Some(record) = self.records().get_mut(uid) {
            record.released = true;
            record.volumes_ready = false;
            record.renew.clear();
            record.stale.clear();
        }
        self.parts.sources.release(uid);
        None
    }

    /// Ends what holds on to the pod's volumes beside its containers.
    async fn let_go(&self, uid: &PodUid) -> Result<(), String> {
        let ended = self.parts.runner.end_pod(uid).await;
        ended.map_err(|error| chain(&error))?;
        if !self.parts.layout.subpaths(uid).exists() {
            return Ok(());
        }
        let (layout, pod) = (self.parts.layout.clone(), uid.clone());
        let work = move || crate::subpaths::clear(&layout, &pod);
        let doing = "take parts of volumes away";
        match self.parts.for_pods.run(uid, doing, work).await {
            Ok(done) => done.map_err(|error| chain(&error)),
            Err(hung) => Err(hung.to_string()),
        }
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
            Err(error) => {
                warn!(pod_uid = %uid, error = chain(&error), "could not find a pod's containers");
                return Outcome::Retry;
            }
        };
        for (container, attempts) in known {
            for attempt in attempts {
                let id = ContainerId {
                    pod: uid.clone(),
                    container: container.clone(),
                    attempt,
                };
                if let Err(error) = self.parts.runner.remove(&id).await {
                    warn!(container = %id, error = chain(&error), "could not remove a container");
                    return Outcome::Retry;
                }
            }
        }
        if let Err(error) = self.parts.runner.remove_pod(uid).await {
            warn!(pod_uid = %uid, error = chain(&error), "could not remove a pod's sandbox");
            return Outcome::Retry;
        }
        if let Err(error) = self.remove_folder(uid).await {
            warn!(pod_uid = %uid, error, "could not remove a pod's folder");
            return Outcome::Retry;
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
        let place = Place::at(point);
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
